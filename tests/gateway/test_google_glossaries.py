"""Glossaries of Google's API over REST: their names, addresses of entries, pages, operations, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.gateway import Gateway, WholeReply, gateway

KEY = {"x-goog-api-key": "k"}
PLACE = "projects/p/locations/global"
PAIR = {"sourceLanguageCode": "en", "targetLanguageCode": "de"}
TMX = (
    '<?xml version="1.0"?><tmx version="1.4"><header srclang="en" datatype="plaintext" segtype="phrase" adminlang="en" '
    'creationtool="t" creationtoolversion="1" o-tmf="t"/><body><tu><tuv xml:lang="en"><seg>sea</seg></tuv>'
    '<tuv xml:lang="de"><seg>Ozean</seg></tuv></tu></body></tmx>'
)


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(data_dir=tmp_path) as http:
        yield http


async def send(http: Gateway, method: str, path: str, content: Any = None) -> WholeReply:
    body = b"" if content is None else json.dumps(content).encode()
    return await http.send(method, f"/v3/{path}", body, "application/json" if body else "", KEY)


def glossary(name: str, address: str = "data:text/csv,sea%2COzean", **fields: Any) -> dict[str, Any]:
    source = {"inputConfig": {"gcsSource": {"inputUri": address}}} if address else {}
    return {"name": f"{PLACE}/glossaries/{name}", "languagePair": PAIR, **source, **fields}


def set_of(address: str, *languages: str) -> dict[str, Any]:
    """A glossary of sets of equivalent terms."""
    codes = {"languageCodesSet": {"languageCodes": languages or ["en", "de"]}}
    return {**glossary("g", address, languagePair=None), **codes}


async def made(http: Gateway, name: str, *rest: str, **fields: Any) -> Any:
    reply = await send(http, "POST", f"{PLACE}/glossaries", glossary(name, *rest, **fields))
    assert reply.status == 200, reply.body
    return reply.json


async def entries_of(http: Gateway, name: str) -> dict[str, str]:
    listed = (await send(http, "GET", f"{PLACE}/glossaries/{name}/glossaryEntries")).json.get("glossaryEntries", [])
    pairs = [each["termsPair"] for each in listed]
    return {each["sourceTerm"]["text"]: each["targetTerm"]["text"] for each in pairs}


@pytest.mark.parametrize(
    ("address", "entries"),
    [
        ("data:text/csv,sea%2COzean%0A%22a%2C%20b%22%2Cc", {"sea": "Ozean", "a, b": "c"}),
        ("data:text/tab-separated-values;charset=utf-8,sea%09Ozean", {"sea": "Ozean"}),
        (f"data:text/csv;base64,{base64.b64encode('Straße,road'.encode()).decode()}", {"Straße": "road"}),
        (f"data:application/x-tmx+xml,{quote(TMX)}", {"sea": "Ozean"}),
        ("", {}),
    ],
)
async def test_the_entries_are_in_an_address_of_data(http: Gateway, address: str, entries: dict[str, str]):
    created = await made(http, "g", address)
    assert created["response"].get("entryCount", 0) == len(entries)
    assert await entries_of(http, "g") == entries


async def test_an_operation_is_done_and_is_found_by_its_name(http: Gateway):
    created = await made(http, "g", displayName="Mine")
    types = "type.googleapis.com/google.cloud.translation.v3."
    assert created["done"] is True
    assert created["metadata"]["@type"] == f"{types}CreateGlossaryMetadata"
    assert created["response"]["@type"] == f"{types}Glossary"
    assert (await send(http, "GET", created["name"])).json == created
    assert (await send(http, "GET", f"{PLACE}/operations/delete-g")).status == 404
    shown = (await send(http, "GET", f"{PLACE}/glossaries/g")).json
    assert {**shown, "@type": f"{types}Glossary"} == created["response"]
    assert (shown["displayName"], shown["languagePair"], shown["entryCount"]) == ("Mine", PAIR, 1)
    removed = (await send(http, "DELETE", f"{PLACE}/glossaries/g")).json
    assert removed["response"]["name"] == f"{PLACE}/glossaries/g"
    assert (await send(http, "GET", removed["name"])).json["done"] is True
    assert (await send(http, "GET", created["name"])).status == 404


async def test_glossaries_are_listed_in_pages_and_filtered_by_language(http: Gateway):
    for name in "abc":
        await made(http, name)
    french = {"sourceLanguageCode": "en", "targetLanguageCode": "fr"}
    await made(http, "french", languagePair=french)
    found, token = [], ""
    while True:
        page = (await send(http, "GET", f"{PLACE}/glossaries?pageSize=2&pageToken={token}")).json
        found.append([each["name"].rpartition("/")[2] for each in page["glossaries"]])
        if not (token := page.get("nextPageToken", "")):
            break
    assert found == [["a", "b"], ["c", "french"]]
    chosen = (await send(http, "GET", f"{PLACE}/glossaries?filter={quote('src=en AND tgt=fr')}")).json
    assert [each["name"] for each in chosen["glossaries"]] == [f"{PLACE}/glossaries/french"]


async def test_entries_are_added_changed_and_removed_one_by_one(http: Gateway):
    await made(http, "g")
    entries = f"{PLACE}/glossaries/g/glossaryEntries"
    pair = {"sourceTerm": {"text": "a/b.c"}, "targetTerm": {"text": "d"}}
    added = (await send(http, "POST", entries, {"termsPair": pair})).json
    assert added["termsPair"]["sourceTerm"] == {"languageCode": "en", "text": "a/b.c"}
    assert (await send(http, "GET", added["name"])).json == added
    added["termsPair"]["targetTerm"]["text"] = "e"
    assert (await send(http, "PATCH", added["name"], added)).json == added
    assert await entries_of(http, "g") == {"sea": "Ozean", "a/b.c": "e"}
    assert (await send(http, "DELETE", added["name"])).json == {}
    assert await entries_of(http, "g") == {"sea": "Ozean"}
    for method in ("GET", "DELETE"):
        assert (await send(http, method, added["name"])).status == 404


async def test_changes_at_the_same_time_are_all_made(http: Gateway):
    await made(http, "g")
    entries = f"{PLACE}/glossaries/g/glossaryEntries"
    pairs = [{"sourceTerm": {"text": f"word{at}"}, "targetTerm": {"text": f"Wort{at}"}} for at in range(4)]
    added = await asyncio.gather(*(send(http, "POST", entries, {"termsPair": pair}) for pair in pairs))
    assert [each.status for each in added] == [200] * 4
    names = [each.json["name"] for each in added]
    changed = await asyncio.gather(
        *(
            send(http, "PATCH", name, {"termsPair": {**pair, "targetTerm": {"text": "W"}}})
            for name, pair in zip(names[:2], pairs[:2], strict=True)
        ),
        *(send(http, "DELETE", name) for name in names[2:]),
        send(http, "PATCH", f"{PLACE}/glossaries/g?updateMask=displayName", {"displayName": "New"}),
    )
    assert {each.status for each in changed} == {200}
    assert await entries_of(http, "g") == {"sea": "Ozean", **{f"word{at}": "W" for at in range(2)}}


async def test_an_update_renames_a_glossary_or_replaces_its_entries_as_the_mask_says(http: Gateway):
    await made(http, "g", displayName="Old")
    where, new = f"{PLACE}/glossaries/g", glossary("g", "data:text/csv,a%2Cb", displayName="New")
    renamed = (await send(http, "PATCH", f"{where}?updateMask=displayName", new)).json["response"]
    assert (renamed["displayName"], await entries_of(http, "g")) == ("New", {"sea": "Ozean"})
    refilled = (await send(http, "PATCH", f"{where}?updateMask=inputConfig", {**new, "displayName": "Other"})).json
    assert (refilled["response"]["displayName"], await entries_of(http, "g")) == ("New", {"a": "b"})


SETS = "en,de,fr\nTom,Thomas,Tomas\nsea,Meer,\n"


async def sets_in(http: Gateway) -> list[dict[str, str]]:
    listed = (await send(http, "GET", f"{PLACE}/glossaries/g/glossaryEntries")).json.get("glossaryEntries", [])
    return [{term["languageCode"]: term["text"] for term in each["termsSet"]["terms"]} for each in listed]


async def test_the_terms_of_a_set_are_each_others_translations(http: Gateway):
    where = f"{PLACE}/glossaries/g"
    created = (
        await send(http, "POST", f"{PLACE}/glossaries", set_of(f"data:text/csv,{quote(SETS)}", "en", "de", "fr"))
    ).json
    assert created["response"]["languageCodesSet"] == {"languageCodes": ["de", "en", "fr"]}
    assert created["response"]["entryCount"] == 2
    assert (await send(http, "GET", where)).json.items() <= created["response"].items()
    assert await sets_in(http) == [{"de": "Thomas", "en": "Tom", "fr": "Tomas"}, {"de": "Meer", "en": "sea"}]
    request = {"contents": ["Tom"], "sourceLanguageCode": "en", "targetLanguageCode": "de"}
    reply = await send(http, "POST", f"{PLACE}:translateText", {**request, "glossaryConfig": {"glossary": where}})
    assert [each["translatedText"] for each in reply.json["glossaryTranslations"]] == ["Thomas"]


async def test_sets_are_added_joined_changed_removed_and_replaced(http: Gateway):
    await send(http, "POST", f"{PLACE}/glossaries", set_of("", "en", "de", "fr"))
    where, entries = f"{PLACE}/glossaries/g", f"{PLACE}/glossaries/g/glossaryEntries"

    def entry(**terms: str) -> dict[str, Any]:
        return {"termsSet": {"terms": [{"languageCode": code, "text": text} for code, text in terms.items()]}}

    assert await sets_in(http) == []
    added = (await send(http, "POST", entries, entry(en="cat", de="Katze"))).json
    assert added == {"name": added["name"], **entry(de="Katze", en="cat")}
    assert (await send(http, "GET", added["name"])).json == added
    await send(http, "POST", entries, entry(en="sea", fr="mer"))
    await send(http, "POST", entries, entry(de="katze", fr="chat"))
    cat = {"de": "Katze", "en": "cat", "fr": "chat"}
    assert await sets_in(http) == [cat, {"en": "sea", "fr": "mer"}]
    refused = await send(http, "PATCH", added["name"], entry(de="Kater", en="sea"))
    assert (refused.status, await sets_in(http)) == (400, [cat, {"en": "sea", "fr": "mer"}])
    changed = (await send(http, "PATCH", added["name"], entry(de="Kater", en="tomcat"))).json
    assert (await send(http, "GET", changed["name"])).json == changed
    assert (await send(http, "GET", added["name"])).status == 404
    assert await sets_in(http) == [{"de": "Kater", "en": "tomcat"}, {"en": "sea", "fr": "mer"}]
    assert (await send(http, "DELETE", changed["name"])).json == {}
    assert await sets_in(http) == [{"en": "sea", "fr": "mer"}]
    for bad in (entry(en="a"), entry(en="a", es="b"), {"termsPair": {"sourceTerm": {"text": "a"}}}):
        assert (await send(http, "POST", entries, bad)).status == 400
    new = set_of("data:text/csv,en%2Cde%0Aa%2Cb", "en", "de", "fr")
    refilled = await send(http, "PATCH", f"{where}?updateMask=inputConfig", new)
    assert (refilled.json["response"]["entryCount"], await sets_in(http)) == (1, [{"de": "b", "en": "a"}])
    renamed = await send(http, "PATCH", f"{where}?updateMask=displayName", {**new, "displayName": "New"})
    assert renamed.json["response"]["displayName"] == "New"
    assert await sets_in(http) == [{"de": "b", "en": "a"}]


async def test_both_translations_are_returned(http: Gateway):
    await made(http, "g")
    request = {"contents": ["the sea", "a"], "mimeType": "text/plain", **PAIR}
    config = {"glossary": f"{PLACE}/glossaries/g", "ignoreCase": True}
    reply = await send(http, "POST", f"{PLACE}:translateText", {**request, "glossaryConfig": config})
    assert reply.json["translations"] == [{"translatedText": "the sea"}, {"translatedText": "a"}]
    shown = {"glossaryConfig": {"glossary": config["glossary"]}}
    expected = [{"translatedText": text, **shown} for text in ("the Ozean", "a")]
    assert reply.json["glossaryTranslations"] == expected
    plain = await send(http, "POST", f"{PLACE}:translateText", request)
    assert "glossaryTranslations" not in plain.json


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (glossary("g", "gs://bucket/terms.csv"), "must be a data: address, such as data:text/csv,house%2CHaus"),
        (glossary("g", "data:image/png,x"), "must be of the type text/tab-separated-values, text/csv"),
        (glossary("g", "data:text/csv;base64,!"), "is no base64"),
        (glossary("g", "data:text/csv,sea%2COzean%0Alonely"), " 2"),
        ({**glossary("g"), "name": "g"}, "glossary.name must be projects/P/locations/L/glossaries/NAME, got 'g'"),
        ({**glossary("g"), "languagePair": None}, "glossary.language_pair or glossary.language_codes_set must be"),
        ({"name": 7}, "the body is not a Glossary"),
        (set_of("data:text/csv,en%2Cde%0Asea%2CMeer%0Asea%2CSee"), "entries 1 and 2 have a term in common"),
        (set_of("data:text/csv,sea%2CMeer"), "the first row must name languages of the glossary"),
        (set_of("data:application/x-tmx+xml,x"), "of sets of equivalent terms must be of the type text/csv"),
        (set_of("", "en"), "language_codes must have 2 to 32 languages, got 1"),
    ],
)
async def test_a_glossary_that_cannot_be_stored_is_refused_in_one_line(http: Gateway, content: Any, message: str):
    reply = await send(http, "POST", f"{PLACE}/glossaries", content)
    assert (reply.status, reply.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert message in reply.json["error"]["message"]
    assert (await send(http, "GET", f"{PLACE}/glossaries")).json == {}


async def test_a_second_glossary_of_a_name_is_refused(http: Gateway):
    await made(http, "g")
    reply = await send(http, "POST", f"{PLACE}/glossaries", glossary("g"))
    assert (reply.status, reply.json["error"]["status"]) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("glossaries/unknown", 404),
        ("operations/unknown", 404),
        ("glossaries?filter=de", 400),
        ("glossaries?pageSize=-1", 400),
        ("glossaries/g/glossaryEntries?pageToken=x", 400),
        ("glossaries/g/glossaryEntries/x", 400),
        ("glossaries/g/glossaryEntries/en.de.bm9uZQ", 404),
    ],
)
async def test_what_is_not_there_and_what_is_no_name_are_told_apart(http: Gateway, path: str, status: int):
    await made(http, "g")
    assert (await send(http, "GET", f"{PLACE}/{path}")).status == status


@pytest.mark.parametrize(
    ("glossary_name", "languages", "status"),
    [("unknown", PAIR, 404), ("g", {"sourceLanguageCode": "de", "targetLanguageCode": "en"}, 400)],
)
async def test_a_translation_with_a_glossary_that_has_no_effect_is_refused(
    http: Gateway, glossary_name: str, languages: dict[str, str], status: int
):
    await made(http, "g")
    request = {"contents": ["the sea"], **languages}
    config = {"glossaryConfig": {"glossary": f"{PLACE}/glossaries/{glossary_name}"}}
    assert (await send(http, "POST", f"{PLACE}:translateText", {**request, **config})).status == status
