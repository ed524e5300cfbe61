"""Google Cloud Translation v3 on the gRPC port: languages, errors, quotas of keys, and glossaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.longrunning import operations_proto_pb2 as operations_pb2
from google.protobuf import json_format

from lingon.bundle.manifest import MANY, Languages, SourceLanguage, TargetLanguage
from lingon.google.glossaries import TYPES
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.serving.auth.api_keys import new_key
from lingon.serving.rpc.google import SERVICE
from lingon.serving.rpc.google_glossaries import OPERATIONS
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.gateway import KNOWS_LANGUAGES, Gateway, gateway


async def translate(server: RunningServer, metadata: Any = (), **fields: Any) -> google.TranslateTextResponse:
    call = server.channel.unary_unary(
        f"/{SERVICE}/TranslateText",
        request_serializer=google.TranslateTextRequest.SerializeToString,
        response_deserializer=google.TranslateTextResponse.FromString,
    )
    request = google.TranslateTextRequest(**{"target_language_code": "de", "mime_type": "text/plain", **fields})
    return await call(request, metadata=metadata, timeout=20)


async def test_texts_keep_their_order_and_an_empty_one_stays_empty():
    texts = ["Tom lives in Boston.", "", *(f"There are {count} houses in this street." for count in range(20))]
    async with running(bundles=(KNOWS_LANGUAGES,), max_texts=8, google_v3=True) as server:
        detected = await translate(server, contents=texts)
        given = await translate(server, contents=texts, source_language_code="en")
    assert [each.translated_text for each in detected.translations] == texts
    assert {each.detected_language_code for each in detected.translations} == {"en"}
    assert {each.detected_language_code for each in given.translations} == {""}


async def rest(http: Gateway, **fields: Any) -> list[str]:
    """The same translation over REST."""
    names = {"source_language_code": "sourceLanguageCode", "target_language_code": "targetLanguageCode"}
    request = {"targetLanguageCode": "de", "mimeType": "text/plain"}
    request |= {names.get(name, name): value for name, value in fields.items()}
    reply = await http.post("/v3/projects/p:translateText", request)
    assert reply.status == 200, reply.body
    return [each["translatedText"] for each in reply.json["translations"]]


async def grpc_and_rest(http: Gateway, **fields: Any) -> list[str]:
    """A translation over gRPC, which is that over REST."""
    found = [each.translated_text for each in (await translate(http.server, **fields)).translations]
    assert found == await rest(http, **fields)
    return found


@pytest.mark.parametrize(
    ("code", "tag"),
    [("iw", "he"), ("zh-CN", "zh-Hans"), ("zh-TW", "zh-Hant"), ("jw", "jv"), ("tl", "fil"), ("de-AT", "de")],
)
async def test_codes_of_google_are_the_same_languages_over_grpc_and_rest(code: str, tag: str):
    bundles = (
        {**KNOWS_LANGUAGES, "target_language": tag},
        {"name": "back", "source_language": tag, "target_language": "en"},
    )
    async with gateway(bundles=bundles, google_v3=True) as http:
        texts = ["This is a house."]
        assert await grpc_and_rest(http, contents=texts, target_language_code=code, source_language_code="en") == texts
        assert await grpc_and_rest(http, contents=texts, target_language_code=code) == texts
        assert await grpc_and_rest(http, contents=texts, target_language_code="en", source_language_code=code) == texts


async def test_texts_with_nothing_to_translate_stay_as_they_are_over_grpc_and_rest():
    async with gateway(google_v3=True) as http:
        texts = ["Tom", "\u200b", "", " \n"]
        assert await grpc_and_rest(http, contents=texts, source_language_code="en") == texts


async def test_a_text_in_the_target_language_stays_as_it_is_over_grpc_and_rest():
    async with gateway(google_v3=True) as http:
        texts = ["Das ist ein Haus.", "This is a house."]
        assert await grpc_and_rest(http, contents=texts) == texts
        found = (await translate(http.server, contents=texts)).translations
        assert http.server.metric("lingon_texts_total", code="OK") == 3
    assert [each.detected_language_code for each in found] == ["de", "en"]


SEVERAL = ("en", "en-GB", "de", "fr")
MULTILINGUAL = {
    "name": "many",
    "source_language": MANY,
    "target_language": MANY,
    "languages": Languages(
        tuple(SourceLanguage(tag, (), ()) for tag in SEVERAL), tuple(TargetLanguage(tag, (), ()) for tag in SEVERAL)
    ),
}
"""A bundle of several languages that tells none of them apart."""


@pytest.mark.parametrize(("target", "assumed"), [("en", "de"), ("en-GB", "de"), ("de", "en"), ("fr", "en")])
async def test_a_text_without_letters_stays_and_has_an_assumed_language_over_grpc_and_rest(target: str, assumed: str):
    async with gateway(
        EchoRunner(says=lambda source: source[::-1][1:] + source[-1:]), bundles=(MULTILINGUAL,), google_v3=True
    ) as http:
        texts = ["1 2", "1 2"]
        found = await grpc_and_rest(http, contents=texts, target_language_code=target)
        reply = await translate(http.server, contents=texts, target_language_code=target)
    assert {*found} == {*texts}
    assert [each.detected_language_code for each in reply.translations] == [assumed] * 2


@pytest.mark.usefixtures("no_detect_extra")
async def test_a_text_is_refused_over_grpc_and_rest_if_no_model_tells_the_possible_languages_apart():
    message = "the source language must be named: no served model tells en, en-GB, de apart"
    async with gateway(bundles=(MULTILINGUAL,), google_v3=True) as http:
        with pytest.raises(grpc.aio.AioRpcError, match=message) as caught:
            await translate(http.server, contents=["Tom lives in Boston."], target_language_code="fr")
        reply = await http.post(
            "/v3/projects/p:translateText", {"contents": ["Tom lives in Boston."], "targetLanguageCode": "fr"}
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (reply.status, reply.json["error"]["message"]) == (400, message)


async def test_a_text_of_no_known_language_is_translated_by_a_model_between_varieties():
    bundles = ({"source_language": "en", "target_language": "en-GB"},)
    async with gateway(bundles=bundles, google_v3=True) as http:
        assert await grpc_and_rest(http, contents=["Tom"], target_language_code="en-GB") == ["Tom"]
        assert http.server.metric("lingon_texts_total", code="OK") == 2


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"contents": []}, "INVALID_ARGUMENT", "contents must be 1 to 1024, got 0"),
        ({"contents": ["a"], "mime_type": "text/x"}, "INVALID_ARGUMENT", "mime_type must be text/plain or text/html"),
        ({"contents": ["a"], "target_language_code": ""}, "INVALID_ARGUMENT", "must name a language"),
        ({"contents": ["a"], "target_language_code": "fr"}, "INVALID_ARGUMENT", "no model translates into 'fr'"),
        (
            {"contents": ["a"], "transliteration_config": google.Configuration()},
            "UNIMPLEMENTED",
            "transliteration_config is not supported",
        ),
        (
            {"contents": ["a"], "glossary_config": {"glossary": "projects/p/locations/l/glossaries/g"}},
            "UNIMPLEMENTED",
            "this server keeps no glossaries; start it with --data-dir",
        ),
        (
            {"contents": ["a"], "glossary_config": {"glossary": "g"}},
            "INVALID_ARGUMENT",
            "glossary_config.glossary must be projects/P/locations/L/glossaries/NAME, got 'g'",
        ),
    ],
)
async def test_what_is_not_served_is_named(fields: dict[str, Any], code: str, message: str):
    async with running(bundles=(KNOWS_LANGUAGES,), google_v3=True) as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await translate(server, **fields)
    assert caught.value.code().name == code
    assert message in caught.value.details()


async def test_its_texts_are_charged_to_the_quota_of_the_key(tmp_path: Path):
    key = new_key()
    keys = write_key_file(tmp_path, {"web": key}, web={"characters_per_minute": 60})
    async with running(bundles=(KNOWS_LANGUAGES,), google_v3=True, api_keys=keys) as server:
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await translate(server, contents=["Tom"])
        await translate(server, bearer(key), contents=["Tom lives in Boston. " * 2], source_language_code="en")
        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            await translate(server, bearer(key), contents=["Tom lives in Boston. " * 2], source_language_code="en")


async def test_languages_that_are_detected_are_charged_as_requests(tmp_path: Path):
    key = new_key()
    keys = write_key_file(tmp_path, {"web": key}, web={"requests_per_minute": 3})
    async with running(bundles=(KNOWS_LANGUAGES,), google_v3=True, api_keys=keys) as server:
        await translate(server, bearer(key), contents=["Tom"])
        await translate(server, bearer(key), contents=["Tom"], source_language_code="en")
        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            await translate(server, bearer(key), contents=["Tom"])


async def test_it_is_off_unless_asked_for():
    async with running() as server:
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await translate(server, contents=["Tom"])


async def call(server: RunningServer, method: str, request: Any, reply: Any, metadata: Any = ()) -> Any:
    """Call a method of Google's API over gRPC. reply: the type of its reply."""
    path = method if "/" in method else f"{SERVICE}/{method}"
    send = server.channel.unary_unary(
        f"/{path}", request_serializer=type(request).SerializeToString, response_deserializer=reply.FromString
    )
    return await send(request, metadata=metadata, timeout=20)


PLACE = "projects/p/locations/global"
SHOP = f"{PLACE}/glossaries/shop"


def shop(entries: str = "Tom%2CThomas") -> google.CreateGlossaryRequest:
    pair = {"source_language_code": "en", "target_language_code": "de"}
    source = {"gcs_source": {"input_uri": f"data:text/csv,{entries}"}}
    return google.CreateGlossaryRequest(
        parent=PLACE, glossary={"name": SHOP, "language_pair": pair, "input_config": source}
    )


async def test_a_glossary_of_one_protocol_is_that_of_the_other(tmp_path: Path):
    async with gateway(google_v3=True, data_dir=tmp_path) as http:
        operation = await call(http.server, "CreateGlossary", shop(), operations_pb2.Operation)
        assert (operation.done, operation.response.type_url) == (True, f"{TYPES}Glossary")
        asked = operations_pb2.GetOperationRequest(name=operation.name)
        found = await call(http.server, f"{OPERATIONS}/GetOperation", asked, operations_pb2.Operation)
        assert found == operation
        glossary = google.Glossary.FromString(operation.response.value)
        shown = await http.get(f"/v3/{SHOP}")
        assert json_format.Parse(shown.body, google.Glossary()) == glossary
        config = {"glossary": SHOP}
        texts = ["Tom lives in Boston.", "Wo ist der Bahnhof?"]
        reply = await translate(http.server, contents=texts, glossary_config=config)
        assert [each.translated_text for each in reply.translations] == texts
        assert [each.translated_text for each in reply.glossary_translations] == ["Thomas lives in Boston.", texts[1]]
        assert {each.glossary_config.glossary for each in reply.glossary_translations} == {SHOP}
        request = {"contents": texts, "targetLanguageCode": "de", "mimeType": "text/plain", "glossaryConfig": config}
        over_rest = (await http.post("/v3/projects/p/locations/global:translateText", request)).json
    assert over_rest == json_format.MessageToDict(reply)


async def test_a_key_does_not_see_the_glossaries_of_another_over_grpc(tmp_path: Path):
    keys = {"web": new_key(), "other": new_key()}
    settings = {"google_v3": True, "data_dir": tmp_path / "kept", "api_keys": write_key_file(tmp_path, keys)}
    async with running(bundles=(KNOWS_LANGUAGES,), **settings) as server:
        await call(server, "CreateGlossary", shop(), operations_pb2.Operation, bearer(keys["web"]))
        fields = {"contents": ["Tom"], "source_language_code": "en", "glossary_config": {"glossary": SHOP}}
        own = await translate(server, bearer(keys["web"]), **fields)
        with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
            await translate(server, bearer(keys["other"]), **fields)
        listed = google.ListGlossariesRequest(parent=PLACE)
        found = await call(server, "ListGlossaries", listed, google.ListGlossariesResponse, bearer(keys["other"]))
    assert [each.translated_text for each in own.glossary_translations] == ["Thomas"]
    assert list(found.glossaries) == []


async def test_bad_entries_of_a_glossary_are_named_over_grpc(tmp_path: Path):
    async with running(bundles=(KNOWS_LANGUAGES,), google_v3=True, data_dir=tmp_path) as server:
        for entries, message in (("a%2Cb%0Ac", "2"), ("a%2Cb%0Aa%2Cc", "contradict")):
            with pytest.raises(grpc.aio.AioRpcError, match="INVALID_ARGUMENT") as caught:
                await call(server, "CreateGlossary", shop(entries), operations_pb2.Operation)
            assert message in caught.value.details()
            assert "\n" not in caught.value.details()
