"""The requests of DeepL's clients, and of tools that speak to DeepL, beside those that translate."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.support.gateway import gateway, state_of

KEY = {"authorization": "DeepL-Auth-Key k"}


async def test_the_list_of_styles_is_empty_and_nothing_can_be_added():
    async with gateway() as http:
        for root in ("", "/deepl"):
            path = f"{root}/v3/style_rules"
            found = await http.get(f"{path}?page=0&page_size=10&detailed=true", KEY)
            created = await http.post(path, {"name": "a"}, KEY)
            one, removed = [await http.send(method, f"{path}/a-b", headers=KEY) for method in ("GET", "DELETE")]
            assert (found.status, found.json) == (200, {"style_rules": []})
            assert (created.status, created.json["message"]) == (400, "style rules are not supported")
            assert [one.status, removed.status] == [404, 404]
            assert "not supported" in one.json["message"]


async def test_other_wordings_are_refused_by_name():
    async with gateway() as http:
        reply = await http.post("/v2/write/rephrase", {"text": ["Tom"]}, KEY)
    assert (reply.status, reply.json["message"]) == (400, "other wordings of a text are not supported")


async def test_a_text_may_be_sent_in_the_address_of_a_get():
    async with gateway() as http:
        reply = await http.get("/v2/translate?text=Tom&text=Tim&source_lang=EN&target_lang=DE&auth_key=k")
    assert [each["text"] for each in reply.json["translations"]] == ["Tom", "Tim"]


async def test_a_text_in_the_target_language_or_a_variety_of_it_stays():
    async with gateway() as http:
        for source, target in (("EN", "EN-US"), ("EN", "en-gb"), ("DE", "DE"), ("en-GB", "EN")):
            request = {"text": ["proton beam", "Tom"], "source_lang": source, "target_lang": target}
            reply = await http.post("/v2/translate", request, KEY)
            assert reply.status == 200, reply.body
            assert [each["text"] for each in reply.json["translations"]] == ["proton beam", "Tom"]
            assert {each["detected_source_language"] for each in reply.json["translations"]} == {source[:2].upper()}


async def test_an_unserved_language_is_an_error_of_its_field():
    wrong = [
        ({"target_lang": "XX"}, "target_lang"),
        ({"target_lang": "XX", "source_lang": "EN"}, "target_lang"),
        ({"target_lang": "FR", "source_lang": "FR"}, "target_lang"),
        ({"target_lang": "DE", "source_lang": "XX"}, "source_lang"),
        ({"target_lang": "DE", "source_lang": "?"}, "source_lang"),
    ]
    async with gateway() as http:
        for (languages, field), count in itertools.product(wrong, (1, 2)):
            reply = await http.post("/v2/translate", {"text": ["It is raining."] * count, **languages}, KEY)
            assert reply.status == 400
            assert reply.json["message"].startswith(f"Value for '{field}' not supported: no model "), reply.json


async def test_a_pair_whose_languages_are_served_apart_is_an_error_of_both_fields():
    french = {"name": "fr-es", "source_language": "fr", "target_language": "es"}
    async with gateway(bundles=({}, french)) as http:
        request = {"text": "Tom", "source_lang": "EN", "target_lang": "ES"}
        deepl = await http.form("/v2/translate", request, KEY)
        libretranslate = await http.form("/translate", {"q": "Tom", "source": "en", "target": "es"})
    assert deepl.json["message"].startswith("Values for 'source_lang' and 'target_lang' not supported together: ")
    assert libretranslate.json["error"].startswith("no model translates from en to es")


class TestDocuments:
    async def test_a_file_has_ids_of_hexadecimal_capitals_and_no_seconds_left_when_it_is_done(self, tmp_path: Path):
        async with gateway(http_data_dir=tmp_path) as http:
            made = (await http.upload("/v2/document", "a.txt", b"Tom\n", target_lang="DE", source_lang="EN")).json
            state = await state_of(http, made)
        assert re.fullmatch("[0-9A-F]{32}", made["document_id"])
        assert re.fullmatch("[0-9A-F]{64}", made["document_key"])
        assert state == {
            "document_id": made["document_id"],
            "status": "done",
            "seconds_remaining": 0,
            "billed_characters": 4,
        }

    @pytest.mark.parametrize(
        ("name", "fields", "message"),
        [
            ("a.invalid", {}, "Invalid file: a file must end in .txt, .html, .htm, "),
            ("a.pdf", {}, "Invalid file: a file must end in .txt, .html, .htm, "),
            ("a", {"filename": "a.doc"}, "Invalid file: a file must end in .txt, .html, .htm, "),
            (
                "a.txt",
                {"output_format": "pdf"},
                "output_format must be that of the file, txt, or be left out, got 'pdf'",
            ),
            ("a.txt", {"source_lang": "de"}, "Source and target language are equal."),
            ("a.txt", {"source_lang": "xx"}, "Value for 'source_lang' not supported: "),
            ("a.txt", {"target_lang": "xx"}, "Value for 'target_lang' not supported: "),
        ],
    )
    async def test_what_cannot_be_translated_is_refused_at_the_upload(
        self, tmp_path: Path, name: str, fields: dict[str, str], message: str
    ):
        async with gateway(http_data_dir=tmp_path) as http:
            reply = await http.upload("/v2/document", name, b"Tom\n", **{"target_lang": "DE", **fields})
        assert (reply.status, reply.json["message"][: len(message)]) == (400, message)
        assert list((tmp_path / "documents").iterdir()) == []

    async def test_a_file_that_is_found_to_be_in_the_target_language_ends_with_an_error(self, tmp_path: Path):
        async with gateway(http_data_dir=tmp_path) as http:
            content = "Das ist ein Haus, und es regnet, und ich möchte wissen, wie spät es ist.\n".encode()
            state = await state_of(http, (await http.upload("/v2/document", "a.txt", content, target_lang="DE")).json)
        assert (state["status"], state["error_message"]) == ("error", "Source and target language are equal.")

    async def test_a_file_in_a_variety_of_the_target_language_stays_as_it_is(self, tmp_path: Path):
        fields = {"source_lang": "EN", "target_lang": "EN-GB", "output_format": "txt"}
        async with gateway(http_data_dir=tmp_path) as http:
            made = (await http.upload("/v2/document", "a.txt", b"Tom\n", **fields)).json
            await state_of(http, made)
            fetched = await http.form(f"/v2/document/{made['document_id']}/result", made)
        assert fetched.body == b"Tom\n"
