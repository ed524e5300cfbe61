"""Short texts without a source language: each API translates from the likeliest one, and says how likely that is."""

from __future__ import annotations

from typing import Any

import pytest

from lingon.source_language import DECIDED
from tests.support.gateway import Gateway, gateway

TAGS = ("ar", "cs", "el", "en", "fr", "it", "nl", "pl", "ru", "sv", "zh")  # the first by alphabet is not the answer
BUNDLES: tuple[dict[str, Any], ...] = tuple(
    {"name": f"{tag}-de", "source_language": tag, "target_language": "de"} for tag in TAGS
)
PROGRAM = ["Save", "Settings", "proton beam", "Next", "Contact us", "Forgot your password?"]
UNDECIDED = "Import"


async def deepl(http: Gateway, *texts: str) -> list[Any]:
    headers = {"authorization": "DeepL-Auth-Key key"}
    reply = await http.post("/v2/translate", {"text": texts, "target_lang": "DE"}, headers)
    return [each["detected_source_language"] for each in reply.json["translations"]]


async def libretranslate(http: Gateway, *texts: str) -> list[Any]:
    reply = await http.post("/translate", {"q": texts, "source": "auto", "target": "de"})
    return [each["language"].upper() for each in reply.json["detectedLanguage"]]


async def google(http: Gateway, *texts: str) -> list[Any]:
    reply = await http.post("/language/translate/v2", {"q": texts, "target": "de"})
    return [each["detectedSourceLanguage"].upper() for each in reply.json["data"]["translations"]]


@pytest.mark.parametrize("ask", [deepl, libretranslate, google])
async def test_words_of_a_program_are_not_translated_from_the_first_language_by_alphabet(ask: Any):
    async with gateway(bundles=BUNDLES) as http:
        assert await ask(http, *PROGRAM) == ["EN"] * len(PROGRAM)
        assert await ask(http, "12:30", "Настройки") == ["EN", "RU"]


async def test_an_undecided_text_has_the_likeliest_language_with_its_small_confidence():
    async with gateway(bundles=BUNDLES) as http:
        ours = await http.post("/v1/detect", {"texts": [UNDECIDED]})
        libre = await http.post("/detect", {"q": UNDECIDED})
        v2 = await http.post("/language/translate/v2/detect", {"q": [UNDECIDED]})
    (found,) = ours.json["results"]
    assert found["undecided"] is True
    first = found["languages"][0]
    assert first["languageCode"] == "en"
    assert 1 / len(TAGS) < first["confidence"] < DECIDED
    assert libre.json[0] == {"language": "en", "confidence": pytest.approx(100 * first["confidence"], abs=0.1)}
    (google_found,) = v2.json["data"]["detections"][0]
    assert (google_found["language"], google_found["isReliable"]) == ("en", False)


async def test_a_text_that_tells_its_language_is_decided():
    async with gateway(bundles=BUNDLES) as http:
        ours = await http.post("/v1/detect", {"texts": ["I would like to change my password, please."]})
        v2 = await http.post("/language/translate/v2/detect", {"q": ["I would like to change my password, please."]})
    assert not ours.json["results"][0].get("undecided", False)
    assert v2.json["data"]["detections"][0][0]["isReliable"] is True


async def test_the_texts_of_a_request_tell_their_language_together_if_it_says_so():
    menu = ["Bestand", "Status", "Export", "Instellingen", "Test"]
    async with gateway(bundles=BUNDLES) as http:
        alone = await http.post("/v1/detect", {"texts": menu})
        together = await http.post("/v1/detect", {"texts": menu, "sameLanguage": True})
    languages = [
        [each["languages"][0]["languageCode"] for each in reply.json["results"]] for reply in (alone, together)
    ]
    assert set(languages[0]) > {"nl"}
    assert set(languages[1]) == {"nl"}
