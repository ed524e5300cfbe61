"""The APIs of DeepL, LibreTranslate and Google as their clients speak them, byte by byte where a client is odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingon.gateway.deepl import UsedCharacters
from lingon.gateway.endpoint import json_error
from lingon.gateway.problem import Problem
from tests.support.echo_engine import LIMITS
from tests.support.gateway import gateway

KEY = {"authorization": "DeepL-Auth-Key k"}
ORIGIN = {"origin": "moz-extension://11111111-2222-3333-4444-555555555555"}  # of the pages of an extension


async def test_deepl_takes_json_forms_and_queries():
    expected = {"detected_source_language": "EN", "text": "It is raining.", "billed_characters": 14}
    async with gateway() as http:
        from_json = await http.post("/v2/translate", {"target_lang": "DE", "text": ["It is raining."] * 2}, KEY)
        form = {"text": ["It is raining.", "Tom"], "target_lang": "de", "source_lang": "en", "auth_key": "k"}
        from_form = await http.form("/v2/translate", form)
        below = await http.form("/deepl/v2/translate", {"text": "Tom", "target_lang": "DE", "source_lang": "EN"})
    assert from_json.json == {"translations": [expected, expected]}
    assert [each["text"] for each in from_form.json["translations"]] == ["It is raining.", "Tom"]
    assert below.json["translations"][0]["billed_characters"] == 3
    assert len(from_json.headers["x-trace-id"]) == 32


async def test_deepl_lists_languages_although_the_type_is_the_body_of_a_get():
    kind = "application/x-www-form-urlencoded"
    async with gateway() as http:
        sources = await http.get("/v2/languages")
        targets = await http.send("GET", "/v2/languages", b"type=target", kind)
        usage = await http.get("/v2/usage")
    assert sources.json == [{"language": "EN", "name": "English"}]
    assert targets.json == [{"language": "DE", "name": "German", "supports_formality": False}]
    assert usage.json == {"character_count": 0, "character_limit": 10**12}


async def test_the_request_of_weblate_keeps_each_placeholder_once():
    request = {
        "text": ['Open <x id="33"></x> now.'],
        "source_lang": "EN",
        "target_lang": "DE",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
    }
    async with gateway() as http:
        reply = await http.post("/v2/translate", request, KEY)
    assert reply.status == 200, reply.body
    assert reply.json["translations"][0]["text"].count('<x id="33">') == 1


@pytest.mark.parametrize("key", [None, "", "k"])
async def test_the_request_of_lingarr_is_answered_with_the_text_alone(key: str | None):
    """It serialises the key although none is set, and reads `translatedText`, which must be text."""
    request = {"q": "It is raining.", "source": "en", "target": "de", "format": "text", "api_key": key}
    async with gateway() as http:
        reply = await http.post("/translate", request, {"accept": "application/json"})
        languages = await http.get("/languages", {"accept": "application/json"})
    assert (reply.status, reply.json) == (200, {"translatedText": "It is raining."})
    assert reply.headers["content-type"] == "application/json"
    assert all(isinstance(each["code"], str) and isinstance(each["name"], str) for each in languages.json)


@pytest.mark.parametrize("key", ["", "undefined", "k"])
async def test_the_request_of_twp_to_libretranslate_is_answered_with_the_detected_language(key: str):
    """It reads `detectedLanguage.language` of every reply, and sends `auto` unless the user has set a language."""
    text = 'Tom\'s house: 100% & <more>\n"Gr\u00fc\u00dfe"'
    fields = {"q": text, "source": "auto", "target": "de", "format": "text", "api_key": key}
    async with gateway() as http:
        reply = await http.form("/translate", fields, ORIGIN)
    assert reply.status == 200, reply.body
    assert reply.json["translatedText"] == text
    assert reply.json["detectedLanguage"]["language"] == "en"


async def test_the_request_of_twp_to_deepl_needs_no_source():
    async with gateway() as http:
        reply = await http.form("/v2/translate", {"text": "It is raining.", "target_lang": "de"}, {**KEY, **ORIGIN})
        unserved = await http.form("/v2/translate", {"text": "It is raining.", "target_lang": "pt-BR"}, KEY)
    (found,) = reply.json["translations"]
    assert (found["text"], found["detected_source_language"]) == ("It is raining.", "EN")
    assert unserved.status == 400


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"target_lang": "DE"}, 400, "Parameter 'text' not specified."),
        ({"text": "Tom"}, 400, "Parameter 'target_lang' not specified."),
        (
            {"text": "Tom", "target_lang": "DE", "model_type": "best"},
            400,
            "model_type must be one of quality_optimized, latency",
        ),
        (
            {"text": "Tom", "target_lang": "DE", "tag_handling_version": "v9"},
            400,
            "tag_handling_version must be one of",
        ),
        ({"text": "Tom", "target_lang": "DE", "formality": "More"}, 400, "'formality' 'more' is not supported"),
        ({"text": "Tom", "target_lang": "DE", "style_id": "g"}, 400, "style_id is not supported"),
        ({"text": "Tom", "target_lang": "DE", "split_sentences": "2"}, 400, "split_sentences must be one of"),
        ({"text": ["Tom"] * 51, "target_lang": "DE"}, 413, "50 texts at most, got 51"),
    ],
)
async def test_deepl_answers_errors_with_a_message(fields: dict[str, object], status: int, message: str):
    async with gateway() as http:
        reply = await http.form("/v2/translate", fields, KEY)
    assert reply.status == status
    assert message in reply.json["message"]


def test_deepl_counts_the_characters_of_the_keys_used_last():
    used = UsedCharacters(2)
    for key, characters in (("a", 1), (None, 2), ("a", 3), ("b" * 4000, 4)):
        used.add(key, characters)
    assert [used.of(key) for key in ("a", None, "b" * 4000)] == [4, 0, 4]


async def test_deepl_counts_the_characters_of_each_key():
    request = {"text": "Tom", "target_lang": "DE", "source_lang": "EN"}
    async with gateway() as http:
        await http.form("/v2/translate", request, KEY)
        found = [(await http.get("/v2/usage", headers)).json["character_count"] for headers in (KEY, {})]
    assert found == [3, 0]


async def test_deepl_names_the_fields_that_it_ignores():
    async with gateway() as http:
        fields = {"text": "Tom", "target_lang": "DE", "context": "a name", "model_type": "prefer_quality_optimized"}
        reply = await http.form("/v2/translate", {**fields, "outline_detection": "0"})
        usual = await http.post("/v2/translate", {"text": ["Tom"], "target_lang": "DE", "outline_detection": True})
    assert reply.headers["x-lingon-ignored"] == "context, outline_detection"
    assert "x-lingon-ignored" not in usual.headers
    assert reply.json["translations"][0]["model_type_used"] == "quality_optimized"


async def test_libretranslate_takes_json_a_form_a_query_and_a_list():
    request = {"q": "It is raining.", "source": "en", "target": "de"}
    query = "/translate?q=It%20is%20raining.&source=en&target=de&format=text&api_key=undefined"
    async with gateway() as http:
        replies = [
            await http.post("/translate", {**request, "api_key": None}),
            await http.form("/translate", {**request, "api_key": ""}),
            await http.send("POST", query),
        ]
        listed = await http.post("/translate", {"q": ["It is raining."], "source": "auto", "target": "de"})
        detected = await http.post("/translate", {**request, "source": "auto", "alternatives": 2})
        wrong = await http.post("/translate", {"q": "Tom", "source": "en", "target": "fr"})
    assert [reply.json for reply in replies] == [{"translatedText": "It is raining."}] * 3
    assert listed.json["translatedText"] == ["It is raining."]
    assert listed.json["detectedLanguage"][0]["language"] == "en"
    assert detected.json["detectedLanguage"]["confidence"] > 90
    assert isinstance(detected.json["alternatives"], list)
    assert (wrong.status, wrong.json) == (400, {"error": "fr is not supported"})


async def test_libretranslate_returns_a_text_of_the_target_language_as_it_is(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        for tag in ("en", "de", "DE"):
            reply = await http.post("/translate", {"q": ["Tom"], "source": tag, "target": tag.lower()})
            assert (reply.status, reply.json) == (200, {"translatedText": ["Tom"]})
        file = await http.upload("/translate_file", "a.txt", b"Tom\n", source="en", target="en")
        fetched = await http.get(file.json["translatedFileUrl"].removeprefix(http.url))
        unknown = await http.post("/translate", {"q": "Tom", "source": "fr", "target": "fr"})
        google = await http.post("/language/translate/v2", {"q": "Tom", "source": "en", "target": "en"})
    assert fetched.body == b"Tom\n"
    assert (unknown.status, google.status) == (400, 400)


async def test_libretranslate_gives_as_many_alternatives_as_the_model_has_beams():
    request = {"q": "It is raining.", "source": "en", "target": "de", "alternatives": 10}
    async with gateway() as http:
        reply = await http.post("/translate", request)
    assert reply.status == 200, reply.body
    assert 1 <= len(reply.json["alternatives"]) <= LIMITS.max_beam_size - 1


async def test_libretranslate_answers_tools_that_ask_before_they_translate():
    async with gateway() as http:
        languages = await http.form("/languages", {})
        detection = await http.post("/detect", {"q": "Das ist gut."})
        nothing = await http.post("/detect", {"q": "12"})
        settings, health, spec = [await http.get(path) for path in ("/frontend/settings", "/health", "/spec")]
        broken = await http.send("POST", "/translate", b'{"q": "Tom" "source": "en"}', "application/json")
    assert languages.json[0] == {"code": "en", "name": "English", "targets": ["de", "en"]}
    assert detection.json[0]["language"] == "de"
    assert nothing.json == [{"confidence": 0.0, "language": "en"}]
    assert settings.json["language"]["target"] == {"code": "de", "name": "German"}
    assert health.json == {"status": "ok"}
    assert "/translate" in spec.json["paths"]
    assert broken.status == 400


async def test_google_v2_reads_html_unless_it_is_told_otherwise():
    path = "/language/translate/v2?key=k&prettyPrint=false"
    async with gateway() as http:
        html = await http.post(path, {"q": ["Tom &amp; <b>Mary</b>"], "target": "de", "cid": [], "model": None})
        plain = await http.post(path, {"q": ["Tom & Mary"], "target": "de", "source": "en", "format": "text"})
        languages = await http.get("/language/translate/v2/languages?target=en")
        detected = await http.post("/language/translate/v2/detect", {"q": ["Das ist gut.", "This is good."]})
        missing = await http.post(path, {"target": "de"})
    assert html.json["data"]["translations"][0]["translatedText"] == "Tom &amp; <b>Mary</b>"
    assert plain.json == {"data": {"translations": [{"translatedText": "Tom & Mary"}]}}
    assert languages.json["data"]["languages"] == [
        {"language": "de", "name": "German"},
        {"language": "en", "name": "English"},
    ]
    assert [each[0]["language"] for each in detected.json["data"]["detections"]] == ["de", "en"]
    assert (missing.status, missing.json["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_google_v3_over_rest():
    parent = "/v3/projects/p/locations/global"
    async with gateway() as http:
        request = {"contents": ["It is raining."], "mimeType": "text/plain", "targetLanguageCode": "de"}
        translated = await http.post(f"{parent}:translateText?$alt=json;enum-encoding=int", request)
        detected = await http.post(f"{parent}:detectLanguage", {"content": "Das ist gut."})
        languages = await http.get(f"{parent}/supportedLanguages?displayLanguageCode=en")
        refused = await http.post(f"{parent}:translateText", {**request, "transliterationConfig": {}})
    assert translated.json == {"translations": [{"translatedText": "It is raining.", "detectedLanguageCode": "en"}]}
    assert detected.json["languages"][0]["languageCode"] == "de"
    assert languages.json["languages"][0] == {
        "languageCode": "de",
        "supportSource": False,
        "supportTarget": True,
        "displayName": "German",
    }
    assert (refused.status, refused.json["error"]["message"]) == (501, "transliterationConfig is not supported")


async def test_a_text_in_the_target_language_stays_as_it_is_and_an_empty_one_too():
    async with gateway() as http:
        texts = ["Das ist ein Haus.", "", "This is a house."]
        reply = await http.form("/v2/translate", {"text": texts, "target_lang": "DE"})
    found = [(each["detected_source_language"], each["text"]) for each in reply.json["translations"]]
    assert found == [("DE", texts[0]), ("EN", ""), ("EN", texts[2])]


async def test_more_texts_than_a_call_may_have_are_sent_in_several():
    async with gateway(max_texts=8) as http:
        texts = [f"Number {count}." for count in range(50)]
        reply = await http.post("/translate", {"q": texts, "source": "en", "target": "de"})
        assert http.server.metric("lingon_requests_total", method="Translate", code="OK") == 7
    assert reply.json["translatedText"] == texts


async def test_an_api_that_was_not_chosen_has_no_route():
    async with gateway(http_apis=("deepl",)) as http:
        assert (await http.get("/v2/usage")).status == 200
        for path in ("/", "/v1/models", "/languages", "/language/translate/v2/languages"):
            assert (await http.get(path)).status == 404


async def test_the_language_of_a_page_is_that_of_its_text_and_not_of_its_links():
    page = (
        '<a href="https://www.zeitung.de/das-ist-gut-und-das-ist-ein-haus" title="Das ist ein Haus.">This is good.</a>'
    )
    async with gateway() as http:
        reply = await http.post("/language/translate/v2", {"q": page, "target": "de"})
    assert reply.json["data"]["translations"][0]["detectedSourceLanguage"] == "en"


async def test_a_text_in_the_target_language_stays_though_no_model_translates_into_it():
    async with gateway() as http:
        for source in ("auto", "AUTO", "en"):
            reply = await http.post("/translate", {"q": "This is a house.", "source": source, "target": "en"})
            assert reply.json["translatedText"] == "This is a house."
        other = await http.post("/translate", {"q": "Das ist ein Haus.", "source": "auto", "target": "en"})
    assert (other.status, other.json["error"]) == (400, "no model translates into 'en'")  # it is known as a source


async def test_a_null_in_a_list_is_refused_and_not_left_out():
    async with gateway() as http:
        reply = await http.post("/v2/translate", {"text": ["Good.", None, "Bad."], "target_lang": "DE"})
    assert (reply.status, reply.json["message"]) == (400, "text[1] must be text, got null")


async def test_a_text_that_begins_with_a_bracket_is_no_list():
    fields = {"q": "[Note] It is raining.", "source": "en", "target": "de"}
    async with gateway() as http:
        form = await http.form("/translate", fields)
        listed = await http.post("/translate", {"api_key": "q", **fields, "q": [fields["q"]]})
    assert form.json["translatedText"] == fields["q"]
    assert listed.json["translatedText"] == [fields["q"]]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_origin_may_call_only_if_it_is_listed(site: str):
    request = {"texts": ["Tom"]}
    headers = {"origin": "https://example.com", "sec-fetch-site": site}
    async with gateway() as http:
        refused = await http.post("/v1/translate", request, headers)
        extension = await http.post("/v1/translate", request, {**headers, "origin": "moz-extension://a"})
        same = await http.post("/v1/translate", request, {**headers, "sec-fetch-site": "same-origin"})
    async with gateway(http_cors=("https://example.com",)) as http:
        listed = await http.post("/v1/translate", request, headers)
    assert [each.status for each in (refused, extension, same, listed)] == [403, 200, 200, 200]
    assert "--http-cors does not list them" in refused.json["message"]


async def test_a_proxy_that_passes_on_a_strange_address_breaks_no_call():
    async with gateway(http_trusted_proxies="127.0.0.1") as http:
        reply = await http.get("/v1/models", {"x-forwarded-for": "\u00e9", "authorization": "Bearer k"})
    assert reply.status == 200


def test_the_time_of_a_retry_is_never_too_early():
    assert json_error(429, b"{}", Problem(429, "", retry_after=39.4)).headers["retry-after"] == "40"
