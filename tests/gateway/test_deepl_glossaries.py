"""Glossaries of DeepL's API: the requests of its clients and of Weblate, and what is refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.gateway import Gateway, WholeReply, gateway, state_of

KEY = {"authorization": "DeepL-Auth-Key k"}
PAIR = {"source_lang": "en", "target_lang": "de"}
SINGLE = {"name": "Mine", **PAIR, "entries": "Tom\tThomas\nsea\tOzean", "entries_format": "tsv"}
BACK = {"source_lang": "de", "target_lang": "en", "entries": "Ozean\tsea"}
SEVERAL = {"name": "Both", "dictionaries": [{**PAIR, "entries": "Tom\tThomas"}, BACK]}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(data_dir=tmp_path / "kept", http_data_dir=tmp_path / "files") as http:
        yield http


async def made(http: Gateway, content: Any, version: str = "v2") -> Any:
    reply = await http.post(f"/{version}/glossaries", content, KEY)
    assert reply.status == 201, reply.body
    return reply.json


async def change(http: Gateway, method: str, path: str, content: Any = None) -> WholeReply:
    body = b"" if content is None else json.dumps(content).encode()
    return await http.send(method, path, body, "application/json" if body else "", KEY)


async def texts_of(http: Gateway, text: str, **fields: Any) -> WholeReply:
    return await http.post("/v2/translate", {"text": [text], "source_lang": "EN", "target_lang": "DE", **fields}, KEY)


async def translated(http: Gateway, text: str, **fields: Any) -> str:
    reply = await texts_of(http, text, **fields)
    assert reply.status == 200, reply.body
    return str(reply.json["translations"][0]["text"])


class TestVersion2:
    async def test_a_glossary_is_created_shown_listed_read_and_removed(self, http: Gateway):
        glossary = await made(http, SINGLE)
        where = f"/v2/glossaries/{glossary['glossary_id']}"
        assert glossary["name"] == "Mine"
        assert (glossary["ready"], glossary["entry_count"]) == (True, 2)
        assert (glossary["source_lang"], glossary["target_lang"]) == ("en", "de")
        assert TIME.fullmatch(glossary["creation_time"])
        assert (await http.get(where, KEY)).json == glossary
        assert (await http.get("/v2/glossaries", KEY)).json == {"glossaries": [glossary]}
        entries = await http.get(f"{where}/entries", {**KEY, "accept": "text/tab-separated-values"})
        assert entries.headers["content-type"].startswith("text/tab-separated-values")
        assert entries.body.decode() == SINGLE["entries"]
        removed = await change(http, "DELETE", where)
        assert (removed.status, removed.body) == (204, b"")
        assert (await http.get(where, KEY)).status == 404
        assert (await change(http, "DELETE", where)).status == 404

    async def test_entries_of_csv_may_name_their_languages(self, http: Gateway):
        entries = 'Tom,Thomas,en,de\n"a, b","c ""d""",en,de\n'
        glossary = await made(http, {**SINGLE, "entries": entries, "entries_format": "csv"})
        found = await http.get(f"/v2/glossaries/{glossary['glossary_id']}/entries", KEY)
        assert found.body.decode() == 'Tom\tThomas\na, b\tc "d"'

    async def test_it_is_used_by_texts_and_documents_that_ask_for_it(self, http: Gateway):
        glossary = (await made(http, SINGLE))["glossary_id"]
        assert await translated(http, "Tom lives in Boston.") == "Tom lives in Boston."
        assert await translated(http, "Tom lives in Boston.", glossary_id=glossary) == "Thomas lives in Boston."
        assert await translated(http, "Tom", target_lang="DE-AT", glossary_id=glossary) == "Thomas"
        fields = {"source_lang": "EN", "target_lang": "DE", "glossary_id": glossary, "auth_key": "k"}
        document = (await http.upload("/v2/document", "a.txt", b"Tom lives in Boston.\n", **fields)).json
        await state_of(http, {**document, "auth_key": "k"})
        fetched = await http.form(f"/v2/document/{document['document_id']}/result", {**document, "auth_key": "k"})
        assert fetched.body == b"Thomas lives in Boston.\n"

    async def test_one_of_several_pairs_is_not_in_version_2(self, http: Gateway):
        glossary = (await made(http, SEVERAL, "v3"))["glossary_id"]
        assert (await http.get("/v2/glossaries", KEY)).json == {"glossaries": []}
        for path in ("", "/entries"):
            reply = await http.get(f"/v2/glossaries/{glossary}{path}", KEY)
            assert reply.status == 404
            assert reply.json["message"] == "Glossary not found: it has 2 dictionaries; use /v3/glossaries"


class TestVersion3:
    async def test_a_glossary_has_a_dictionary_for_each_pair(self, http: Gateway):
        glossary = await made(http, SEVERAL, "v3")
        where = f"/v3/glossaries/{glossary['glossary_id']}"
        counted = [
            {"source_lang": "de", "target_lang": "en", "entry_count": 1},
            {"source_lang": "en", "target_lang": "de", "entry_count": 1},
        ]
        assert (glossary["name"], glossary["dictionaries"]) == ("Both", counted)
        assert (await http.get(where, KEY)).json == glossary
        assert (await http.get("/v3/glossaries", KEY)).json == {"glossaries": [glossary]}
        one = await http.get(f"{where}/entries?source_lang=EN&target_lang=DE", KEY)
        assert one.json == {"dictionaries": [{**PAIR, "entries": "Tom\tThomas", "entries_format": "tsv"}]}
        assert len((await http.get(f"{where}/entries", KEY)).json["dictionaries"]) == 2
        none = await http.get(f"{where}/entries?source_lang=EN&target_lang=FR", KEY)
        assert none.status == 404
        assert none.json["message"].startswith("Glossary not found: ")

    async def test_an_edit_renames_it_or_adds_entries_and_one_of_the_same_source_is_replaced(self, http: Gateway):
        where = f"/v3/glossaries/{(await made(http, SEVERAL, 'v3'))['glossary_id']}"
        renamed = await change(http, "PATCH", where, {"name": "New"})
        assert (renamed.status, renamed.json["name"], len(renamed.json["dictionaries"])) == (200, "New", 2)
        for entries in ("sea,Ozean", "Tom,Tomas"):
            more = {**PAIR, "entries": entries, "entries_format": "csv"}
            edited = await change(http, "PATCH", where, {"dictionaries": [more]})
            assert (edited.json["name"], edited.json["dictionaries"][1]["entry_count"]) == ("New", 2)
        found = await http.get(f"{where}/entries?source_lang=en&target_lang=de", KEY)
        assert found.json["dictionaries"][0]["entries"] == "Tom\tTomas\nsea\tOzean"

    async def test_edits_at_the_same_time_are_all_made(self, http: Gateway):
        where = f"/v3/glossaries/{(await made(http, SEVERAL, 'v3'))['glossary_id']}"
        edits = [{"dictionaries": [{**PAIR, "entries": f"word{number}\tWort{number}"}]} for number in range(4)]
        replies = await asyncio.gather(*(change(http, "PATCH", where, edit) for edit in edits))
        assert [each.status for each in replies] == [200] * 4
        found = await http.get(f"{where}/entries?source_lang=en&target_lang=de", KEY)
        assert len(found.json["dictionaries"][0]["entries"].splitlines()) == 5

    async def test_a_dictionary_is_replaced_made_and_removed(self, http: Gateway):
        where = f"/v3/glossaries/{(await made(http, SEVERAL, 'v3'))['glossary_id']}"
        replaced = await change(http, "PUT", f"{where}/dictionaries", {**PAIR, "entries": "a\tb\nc\td\ne\tf"})
        assert (replaced.status, replaced.json) == (200, {**PAIR, "entry_count": 3})
        french = {"source_lang": "en", "target_lang": "fr", "entries": "a\tb"}
        assert (await change(http, "PUT", f"{where}/dictionaries", french)).json["target_lang"] == "fr"
        removed = await change(http, "DELETE", f"{where}/dictionaries?source_lang=EN&target_lang=FR")
        assert removed.status == 204
        assert len((await http.get(where, KEY)).json["dictionaries"]) == 2
        assert (await change(http, "DELETE", f"{where}/dictionaries?source_lang=EN&target_lang=FR")).status == 404

    async def test_the_form_of_the_node_client_numbers_the_dictionaries(self, http: Gateway):
        fields = {"name": "Both"}
        for number, dictionary in enumerate(SEVERAL["dictionaries"]):
            fields |= {f"dictionaries[{number}].{name}": value for name, value in dictionary.items()}  # type: ignore[attr-defined]
        reply = await http.form("/v3/glossaries", fields, KEY)
        assert (reply.status, len(reply.json["dictionaries"])) == (201, 2)

    async def test_several_glossaries_are_used_together(self, http: Gateway):
        entries = ("Tom\tThomas", "Tom\tTim\nsea\tOzean")
        names = [(await made(http, {**SINGLE, "entries": each}))["glossary_id"] for each in entries]
        texts = {"Tom lives in Boston.": "Thomas lives in Boston.", "Where is the sea?": "Where is the Ozean?"}
        for text, translation in texts.items():
            assert await translated(http, text, glossary_ids=names) == translation
            form = {"text": text, "source_lang": "EN", "target_lang": "DE", "glossary_ids": ",".join(names)}
            assert (await http.form("/v2/translate", form, KEY)).json["translations"][0]["text"] == translation


class TestWeblate:
    """What its DeepL machinery sends: it finds a glossary by its name, which has the checksum of the entries."""

    async def test_its_requests_of_version_2(self, http: Gateway):
        pairs = (await http.get("/v2/glossary-language-pairs", KEY)).json["supported_languages"]
        assert ("EN", "DE") in {(each["source_lang"].upper(), each["target_lang"].upper()) for each in pairs}
        used = {}
        for checksum, entries in (("1", "Tom\tThomas"), ("2", "Tom\tTommy")):
            name = f"weblate:7:EN:DE:{checksum}"
            listed = (await http.get("/v2/glossaries", KEY)).json["glossaries"]
            for stale in (each for each in listed if each["name"].startswith("weblate:7:EN:DE:")):
                assert (await change(http, "DELETE", f"/v2/glossaries/{stale['glossary_id']}")).status == 204
            request = {"name": name, "source_lang": "EN", "target_lang": "DE", "entries": entries}
            await http.post("/v2/glossaries", {**request, "entries_format": "tsv"}, KEY)
            listed = (await http.get("/v2/glossaries", KEY)).json["glossaries"]
            (found,) = (each["glossary_id"] for each in listed if each["name"] == name)
            options = {"formality": "default", "tag_handling": "xml", "ignore_tags": ["x"]}
            used[checksum] = await translated(http, "Tom", glossary_id=found, **options)
        assert used == {"1": "Thomas", "2": "Tommy"}

    async def test_its_requests_of_version_3(self, http: Gateway):
        texts = (await http.get("/v3/languages?resource=translate_text", KEY)).json
        assert {each["lang"].upper() for each in texts if each["usable_as_target"]} == {"DE"}
        languages = (await http.get("/v3/languages?resource=glossary", KEY)).json
        assert {each["lang"].upper() for each in languages if each["usable_as_source"]} == {"EN"}
        assert {each["lang"].upper() for each in languages if each["usable_as_target"]} == {"DE"}
        assert all("features" in each for each in languages)
        first = {"name": "weblate:7:EN:DE:1", "dictionaries": [{**PAIR, "entries": "Tom\tThomas"}]}
        glossary = (await made(http, first, "v3"))["glossary_id"]
        assert await translated(http, "Tom", glossary_id=glossary) == "Thomas"
        where = f"/v3/glossaries/{glossary}"
        new = {**PAIR, "entries": "Tom\tTommy", "entries_format": "tsv"}
        assert (await change(http, "PUT", f"{where}/dictionaries", new)).status == 200
        assert (await change(http, "PATCH", where, {"name": "weblate:7:EN:DE:2"})).status == 200
        (listed,) = (await http.get("/v3/glossaries", KEY)).json["glossaries"]
        assert (listed["name"], listed["glossary_id"]) == ("weblate:7:EN:DE:2", glossary)
        assert await translated(http, "Tom", glossary_id=glossary) == "Tommy"


class TestRefused:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"name": ""}, "Parameter 'name' not specified."),
            ({"source_lang": ""}, "Parameter 'source_lang' not specified."),
            ({"target_lang": ""}, "Parameter 'target_lang' not specified."),
            ({"entries": ""}, "Parameter 'entries' not specified."),
            ({"entries": "\n\n"}, "Invalid glossary entries provided: "),
            ({"entries": "Tom\tThomas\nsea"}, "Invalid glossary entries provided: "),
            ({"entries": "Tom\tThomas\nsea\t"}, "Invalid glossary entries provided: "),
            ({"entries_format": "xlsx"}, "entries_format must be one of tsv, csv, got 'xlsx'"),
        ],
    )
    async def test_a_glossary_that_is_not_whole_is_refused_and_nothing_is_stored(
        self, http: Gateway, wrong: dict[str, str], message: str
    ):
        reply = await http.post("/v2/glossaries", {**SINGLE, **wrong}, KEY)
        several = await http.post("/v3/glossaries", {"name": "a", "dictionaries": [BACK, {**SINGLE, **wrong}]}, KEY)
        if "name" not in wrong:
            assert (several.status, several.json["message"]) == (400, reply.json["message"])
            assert (await http.get("/v3/glossaries", KEY)).json == {"glossaries": []}
        assert (reply.status, reply.json["message"][: len(message)]) == (400, message)

    async def test_the_entry_that_cannot_be_read_is_named_by_its_number(self, http: Gateway):
        reply = await http.post("/v2/glossaries", {**SINGLE, "entries": "a\tb\nc\td\nsea"}, KEY)
        assert re.search(r"\b3\b", reply.json["message"])

    async def test_nothing_stays_of_a_glossary_whose_second_dictionary_the_server_refuses(self, http: Gateway):
        broken = {"source_lang": "not a language", "target_lang": "de", "entries": "a\tb"}
        reply = await http.post("/v3/glossaries", {"name": "a", "dictionaries": [BACK, broken]}, KEY)
        assert reply.status == 400
        assert (await http.get("/v3/glossaries", KEY)).json == {"glossaries": []}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"name": "a"}, "Parameter 'dictionaries' not specified."),
            ({"name": "a", "dictionaries": ["x"]}, "dictionaries must be an object, got str"),
            ({"name": "a", "dictionaries[1].entries": "a\tb"}, "dictionaries must be numbered from 0 without gaps"),
            ({"name": "a", "dictionaries": [{}] * 101}, "dictionaries may have 100 objects at most, got 101"),
            (
                {"name": "a", "dictionaries": [BACK, BACK]},
                "2 dictionaries of 1 pairs of languages; give one for each pair",
            ),
        ],
    )
    async def test_dictionaries_of_another_form_are_refused(self, http: Gateway, content: Any, message: str):
        reply = await http.post("/v3/glossaries", content, KEY)
        assert (reply.status, reply.json["message"]) == (400, message)

    async def test_a_translation_with_a_glossary_that_has_no_effect_is_refused(self, http: Gateway):
        glossary = (await made(http, SINGLE))["glossary_id"]
        wrong = {
            "source_lang": (
                {"source_lang": "", "glossary_id": glossary},
                400,
                "'source_lang' not specified: a glossary",
            ),
            "pair": ({"source_lang": "FR", "glossary_id": glossary}, 400, "has no entries from fr to de"),
            "unknown": ({"glossary_id": "unknown"}, 404, "Glossary not found"),
            "both": ({"glossary_id": glossary, "glossary_ids": [glossary]}, 400, "exclude each other"),
            "many": ({"glossary_ids": [glossary] * 6}, 400, "5 glossaries at most, got 6"),
        }
        for fields, status, message in wrong.values():
            reply = await texts_of(http, "Tom", **fields)
            assert reply.status == status
            assert message in reply.json["message"]


async def test_a_key_does_not_see_the_glossaries_of_another(tmp_path: Path):
    keys = {"web": new_key(), "other": new_key()}
    own, other = ({"authorization": f"DeepL-Auth-Key {key}"} for key in keys.values())
    async with gateway(data_dir=tmp_path / "kept", api_keys=write_key_file(tmp_path, keys)) as http:
        glossary = (await http.post("/v2/glossaries", SINGLE, own)).json["glossary_id"]
        assert len((await http.get("/v2/glossaries", own)).json["glossaries"]) == 1
        assert (await http.get("/v2/glossaries", other)).json == {"glossaries": []}
        assert (await http.get(f"/v2/glossaries/{glossary}", other)).status == 404
        assert (await http.send("DELETE", f"/v2/glossaries/{glossary}", headers=other)).status == 404
        request = {"text": "Tom", "source_lang": "EN", "target_lang": "DE", "glossary_id": glossary}
        replies = [await http.post("/v2/translate", request, each) for each in (own, other)]
    assert [each.status for each in replies] == [200, 404]


async def test_a_caller_that_may_keep_no_more_gets_the_status_of_a_full_account(tmp_path: Path):
    async with gateway(data_dir=tmp_path, max_glossaries=1, max_glossary_entries=2) as http:
        assert (await http.post("/v2/glossaries", {**SINGLE, "entries": "a\tb\nc\td\ne\tf"}, KEY)).status == 456
        await made(http, SINGLE)
        reply = await http.post("/v2/glossaries", SINGLE, KEY)
    assert (reply.status, "remove one" in reply.json["message"]) == (456, True)


async def test_a_server_that_keeps_nothing_has_empty_lists_and_refuses_glossaries_at_once():
    async with gateway() as http:
        for path in ("/v2/glossaries", "/v3/glossaries"):
            assert (await http.get(path, KEY)).json == {"glossaries": []}
        assert (await http.get("/v2/glossary-language-pairs", KEY)).json == {"supported_languages": []}
        languages = (await http.get("/v3/languages?resource=glossary", KEY)).json
        created = await http.post("/v2/glossaries", SINGLE, KEY)
        used = await texts_of(http, "Tom", glossary_id="a")
    assert languages == []
    assert [created.status, used.status] == [400, 400]
    assert "--data-dir" in created.json["message"]
