"""Translation memories of DeepL's API: their lists, their segments, and the jobs that import and export them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lingon.gateway.backend import Caller
from lingon.gateway.deepl_memories import JOB_SECONDS, Job, Jobs
from lingon.gateway.problem import Problem
from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.gateway import Gateway, WholeReply, gateway

KEY = {"authorization": "DeepL-Auth-Key k"}
ROOT = "/v3/translation_memories"


def tmx(*pairs: tuple[str, str], target: str = "de") -> bytes:
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{one}</seg></tuv><tuv xml:lang="{target}"><seg>{other}</seg></tuv></tu>'
        for one, other in pairs
    )
    head = (
        'srclang="en" datatype="plaintext" segtype="sentence" adminlang="en" creationtool="t" creationtoolversion="1"'
    )
    return f'<tmx version="1.4"><header {head} o-tmf="t"/><body>{units}</body></tmx>'.encode()


FILE = tmx(("Tom lives in Boston.", "Tom wohnt da."), ("Good &amp; bad", "Gut &amp; schlecht"), ("The end", "Aus"))


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(data_dir=tmp_path) as http:
        yield http


async def send(http: Gateway, method: str, path: str, content: Any = None, headers: Any = KEY) -> WholeReply:
    body = b"" if content is None else json.dumps(content).encode()
    return await http.send(method, path, body, "application/json" if body else "", headers)


async def job_of(http: Gateway, size: int, label: str = "Mine") -> Any:
    source = {"file_name": "mine.tmx", "content_length": size}
    reply = await send(http, "POST", f"{ROOT}/import", {"source_file": source, "parameters": {"display_name": label}})
    assert reply.status == 201, reply.body
    return reply.json


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


async def ended(http: Gateway, job: str, headers: Any = KEY) -> Any:
    """Return a job once it has ended."""
    while True:
        found = (await send(http, "GET", f"{ROOT}/jobs/{job}", headers=headers)).json
        if found["results"][0]["status"] in ("completed", "failed"):
            return found
        await asyncio.sleep(0.01)


async def imported(http: Gateway, content: bytes = FILE, label: str = "Mine") -> str:
    """Import a file as the clients do, and return the ID of the memory."""
    job = await job_of(http, len(content), label)
    # The clients send no key with the file.
    sent = await http.send("PUT", path_of(job["upload_url"]), content, "application/xml")
    assert sent.status == 200, sent.body
    (result,) = (await ended(http, job["job_id"]))["results"]
    assert result["status"] == "completed", result
    return str(result["translation_memory_id"])


async def translated(http: Gateway, text: str, **fields: Any) -> WholeReply:
    request = {"text": [text], "source_lang": "EN", "target_lang": "DE", **fields}
    return await http.post("/v2/translate", request, KEY)


async def test_a_file_is_imported_and_used_by_translations_that_ask_for_it(http: Gateway):
    memory = await imported(http)
    shown = (await http.get(f"{ROOT}/{memory}", KEY)).json
    assert (shown["name"], shown["source_language"], shown["target_languages"]) == ("Mine", "en", ["de"])
    assert shown["segment_count"] == 3
    assert (await http.get(f"{ROOT}?page=0&page_size=25", KEY)).json["translation_memories"] == [shown]
    assert (await http.get(f"{ROOT}?page=1&page_size=25", KEY)).json["translation_memories"] == []
    texts = [
        (await translated(http, "Tom lives in Boston.", **fields)).json["translations"][0]["text"]
        for fields in ({}, {"translation_memory_id": memory, "translation_memory_threshold": 100})
    ]
    assert texts == ["Tom lives in Boston.", "Tom wohnt da."]


async def test_a_job_says_what_it_waits_for_and_what_it_made(http: Gateway):
    job = await job_of(http, len(FILE))
    waiting = (await send(http, "GET", f"{ROOT}/jobs/{job['job_id']}")).json
    assert (waiting["operation"], waiting["product"]) == ("import", "translation_memory")
    assert (waiting["parameters"], waiting["source_file"]["content_length"]) == ({"display_name": "Mine"}, len(FILE))
    assert waiting["results"][0]["status"] == "awaiting_input"
    await http.send("PUT", path_of(job["upload_url"]), FILE, "application/xml")
    again = await http.send("PUT", path_of(job["upload_url"]), FILE, "application/xml")
    assert (again.status, "waits for no file" in again.json["message"]) == (409, True)
    (result,) = (await ended(http, job["job_id"]))["results"]
    assert (result["status"], result["skipped_segment_count"]) == ("completed", 0)


async def test_an_export_has_what_was_imported(http: Gateway):
    memory = await imported(http)
    reply = await send(http, "POST", f"{ROOT}/{memory}/export")
    assert (reply.status, reply.json["parameters"]) == (202, {"translation_memory_id": memory})
    job = (await send(http, "GET", f"{ROOT}/jobs/{reply.json['job_id']}")).json
    fetched = await http.send("GET", path_of(job["results"][0]["download_url"]))
    assert fetched.status == 200
    again = await imported(http, fetched.body, "Again")
    pages = [(await http.get(f"{ROOT}/{each}/segments", KEY)).json["segments"] for each in (memory, again)]
    texts = [[(each["source_text"], each["targets"][0]["target_text"]) for each in page] for page in pages]
    assert (
        texts[0]
        == texts[1]
        == [("Tom lives in Boston.", "Tom wohnt da."), ("Good & bad", "Gut & schlecht"), ("The end", "Aus")]
    )


async def test_segments_are_listed_in_pages_and_filtered(http: Gateway):
    memory = await imported(http)
    found, cursor = [], ""
    while True:
        path = f"{ROOT}/{memory}/segments?page_size=2" + (f"&page_cursor={cursor}" if cursor else "")
        page = (await http.get(path, KEY)).json
        assert page["segment_count"] == 3
        found.append([each["source_text"] for each in page["segments"]])
        if not (cursor := page.get("next_page_cursor", "")):
            break
    assert found == [["Tom lives in Boston.", "Good & bad"], ["The end"]]
    filters = {"WOHNT": 1, "WOHNT&filter_case_sensitive=true": 0, "en": 1}
    for chosen, count in filters.items():
        page = (await http.get(f"{ROOT}/{memory}/segments?filter_text={chosen}", KEY)).json
        assert len(page["segments"]) == count
    assert (await http.get(f"{ROOT}/{memory}/segments?filter_text=a", KEY)).status == 400


async def test_a_memory_is_removed(http: Gateway):
    memory = await imported(http)
    assert (await send(http, "DELETE", f"{ROOT}/{memory}")).status == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/segments"), ("POST", "/export")):
        reply = await send(http, method, f"{ROOT}/{memory}{path}")
        assert (reply.status, reply.json["message"]) == (404, "Translation memory not found")


async def test_an_import_of_a_file_that_cannot_be_read_fails_and_stores_nothing(http: Gateway):
    broken = FILE[:-20]
    job = await job_of(http, len(broken))
    await http.send("PUT", path_of(job["upload_url"]), broken, "application/xml")
    (result,) = (await ended(http, job["job_id"]))["results"]
    assert result["status"] == "failed"
    assert "\n" not in result["error"]["message"]
    assert (await http.get(ROOT, KEY)).json["translation_memories"] == []


async def test_a_file_of_another_size_or_another_address_is_refused(http: Gateway):
    job = await job_of(http, 10)
    where = path_of(job["upload_url"])
    assert (await http.send("PUT", where, b"<tmx/>", "application/xml")).status == 400
    wrong = where.replace("/file", "x/file")
    assert (await http.send("PUT", wrong, b"<tmx/>" * 2, "application/xml")).status == 404
    assert (await http.send("GET", where)).status == 404
    large = {"file_name": "a.tmx", "content_length": 17 << 20}
    refused = await send(http, "POST", f"{ROOT}/import", {"source_file": large})
    assert (refused.status, "16,777,216 bytes at most" in refused.json["message"]) == (413, True)
    assert (await send(http, "POST", f"{ROOT}/import", {"source_file": {"file_name": "a"}})).status == 400


async def test_a_key_does_not_see_the_memories_and_the_jobs_of_another(tmp_path: Path):
    keys = {"web": new_key(), "other": new_key()}
    own, other = ({"authorization": f"DeepL-Auth-Key {key}"} for key in keys.values())
    async with gateway(data_dir=tmp_path / "kept", api_keys=write_key_file(tmp_path, keys)) as http:
        source = {"file_name": "mine.tmx", "content_length": len(FILE)}
        job = (await send(http, "POST", f"{ROOT}/import", {"source_file": source}, own)).json
        assert (await http.send("PUT", path_of(job["upload_url"]), FILE, "application/xml")).status == 200
        (result,) = (await ended(http, job["job_id"], own))["results"]
        memory = result["translation_memory_id"]
        paths = (f"{ROOT}/jobs/{job['job_id']}", f"{ROOT}/{memory}", f"{ROOT}/{memory}/segments")
        assert [(await http.get(path, own)).status for path in paths] == [200] * 3
        assert [(await http.get(path, other)).status for path in paths] == [404] * 3
        assert (await http.get(ROOT, other)).json["translation_memories"] == []
        request = {"text": "a", "source_lang": "EN", "target_lang": "DE", "translation_memory_id": memory}
        assert (await http.post("/v2/translate", request, other)).status == 404


async def test_a_translation_with_a_memory_of_other_languages_is_refused(http: Gateway):
    memory = await imported(http, tmx(("Hello", "Bonjour"), target="fr"))
    reply = await translated(http, "Hello", translation_memory_id=memory)
    assert (reply.status, reply.json["message"]) == (400, f"the translation memory {memory!r} is from en to fr")
    assert (await translated(http, "Hello", translation_memory_id="unknown")).status == 404
    wrong = await translated(http, "Hello", translation_memory_id=memory, translation_memory_threshold=101)
    assert (wrong.status, wrong.json["message"]) == (400, "translation_memory_threshold must be 0 to 100, got '101'")


def test_a_caller_has_a_quarter_of_the_jobs_and_a_job_ends_after_an_hour():
    now = [time.time()]
    jobs, callers = Jobs(most=8, clock=lambda: now[0]), [Caller(key, "192.0.2.1", "") for key in "ab"]

    def add(caller: Caller) -> Job:
        return jobs.add(Job(operation="import", caller=caller, holder=caller, status="awaiting_input"))

    first, _ = add(callers[0]), add(callers[0])
    with pytest.raises(Problem, match="too many import and export jobs"):
        add(callers[0])
    other = add(callers[1])
    assert jobs.find(other.number, callers[1]) is other
    for number, caller in ((first.number, callers[1]), ("unknown", callers[0])):
        with pytest.raises(Problem, match="no such job"):
            jobs.find(number, caller)
    now[0] += JOB_SECONDS + 1
    with pytest.raises(Problem, match="no such job"):
        jobs.find(first.number, callers[0])
    add(callers[0])


async def test_a_server_that_keeps_nothing_has_an_empty_list_and_refuses_imports():
    async with gateway() as http:
        listed = (await http.get(ROOT, KEY)).json
        refused = await send(
            http, "POST", f"{ROOT}/import", {"source_file": {"file_name": "a.tmx", "content_length": 1}}
        )
    assert listed["translation_memories"] == []
    assert refused.status == 400
