"""The HTTP APIs, and Google's over gRPC, with a pair of languages that two models translate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.serving.auth.api_keys import new_key
from lingon.serving.rpc.google import SERVICE
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import RunningServer, running
from tests.support.gateway import BUNDLES, TwoModels, gateway

TWO: dict[str, Any] = {"bundles": BUNDLES, "loader": TwoModels}
SOURCE, TARGET = "Der alte Mann. Das Meer.", "Le vieil homme. La mer."


async def test_libretranslate_lists_and_translates_the_pair():
    async with gateway(**TWO) as http:
        languages = {each["code"]: each["targets"] for each in (await http.get("/languages")).json}
        given = await http.post("/translate", {"q": SOURCE, "source": "de", "target": "fr", "alternatives": 2})
        detected = await http.post("/translate", {"q": [SOURCE, "The sea."], "source": "auto", "target": "fr"})
    assert languages == {"de": ["de", "en", "fr"], "en": ["en", "fr"], "fr": ["fr"]}
    assert given.json["translatedText"] == TARGET
    assert given.json["alternatives"]
    assert detected.json["translatedText"] == [TARGET, "La mer."]
    assert [each["language"] for each in detected.json["detectedLanguage"]] == ["de", "en"]


async def test_deepl_and_google_translate_the_pair():
    async with gateway(**TWO) as http:
        deepl = await http.post("/v2/translate", {"text": [SOURCE], "target_lang": "FR"})
        html = await http.post("/language/translate/v2", {"q": "<p>Das Meer.</p>", "source": "de", "target": "fr"})
    assert deepl.json["translations"][0]["text"] == TARGET
    assert deepl.json["translations"][0]["detected_source_language"] == "DE"
    assert html.json["data"]["translations"][0]["translatedText"] == "<p>La mer.</p>"


async def test_without_a_pivot_language_the_pair_is_not_listed():
    async with gateway(**TWO, pivot_language="none") as http:
        languages = {each["code"]: each["targets"] for each in (await http.get("/languages")).json}
        reply = await http.post("/translate", {"q": SOURCE, "source": "de", "target": "fr"})
    assert languages["de"] == ["de", "en"]
    assert reply.status == 400


async def google_translation(server: RunningServer) -> str:
    call = server.channel.unary_unary(
        f"/{SERVICE}/TranslateText",
        request_serializer=google.TranslateTextRequest.SerializeToString,
        response_deserializer=google.TranslateTextResponse.FromString,
    )
    request = google.TranslateTextRequest(contents=[SOURCE], target_language_code="fr", mime_type="text/plain")
    return str((await call(request, timeout=20)).translations[0].translated_text)


async def test_google_over_grpc_translates_the_pair():
    async with running(**TWO, google_v3=True) as server:
        assert await google_translation(server) == TARGET


async def test_a_pair_that_two_models_translate_counts_as_two_translations(tmp_path: Path):
    key = new_key()
    path = write_key_file(tmp_path, {"shop": key}, shop={"characters_per_minute": 1000})
    german, english = ({"source_language_code": tag, "target_language_code": "fr"} for tag in ("de", "en"))
    async with running(**TWO, api_keys=path) as server:
        for fields in (german, english):
            request = pb.TranslateRequest(texts=["Das Meer."], **fields)
            await server.stub.Translate(request, metadata=bearer(key), timeout=20)
        used = server.metric("lingon_key_characters_total", key="shop")
    assert used == 3 * len("Das Meer.")
