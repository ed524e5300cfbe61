"""Files: translated, kept for their owner only, fetched once, and gone after an hour."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from lingon.documents.texts import BLOCK_LINES
from lingon.gateway.requests.problem import Problem
from lingon.gateway.translations import documents as documents_module
from lingon.gateway.translations.documents import KEEP_SECONDS, LEAST_BYTES, Documents
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, Reply, gateway
from tests.support.office_files import docx, files_of, odt, paragraph, pptx, run

TEXT = "It is raining.\r\n\r\n  Tom lives in Boston.\n"
HTML = "<!doctype html><p>It is <b>raining</b>.</p><script>let a = 1;</script>"


async def done(http: Gateway, made: dict[str, str]) -> Reply:
    """Wait until a document is translated; returns its state."""
    states: list[Reply] = []

    async def ended() -> bool:
        states.append(await http.post(f"/v2/document/{made['document_id']}", {"document_key": made["document_key"]}))
        return states[-1].json["status"] in ("done", "error")

    for _ in range(100):
        if await ended():
            break
    return states[-1]


@pytest.mark.parametrize(("name", "content"), [("a.txt", TEXT), ("a.html", HTML), ("file", HTML), ("file", TEXT)])
async def test_a_document_is_translated_and_fetched_once(tmp_path: Path, name: str, content: str):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", name, content.encode(), target_lang="DE", source_lang="EN")).json
        state = (await done(http, made)).json
        assert (state["status"], state["billed_characters"]) == ("done", len(content))
        path, key = f"/v2/document/{made['document_id']}", {"document_key": made["document_key"]}
        assert (await http.form(f"{path}/result", {"document_key": "0" * 64})).status == 404
        kept = list((tmp_path / "documents").iterdir())
        assert {stat.S_IMODE(each.stat().st_mode) for each in kept} == {0o600}
        assert stat.S_IMODE((tmp_path / "documents").stat().st_mode) == 0o700
        fetched = await http.form(f"{path}/result", key)
        assert fetched.body.decode() == content
        assert (await http.form(f"{path}/result", key)).status == 404
    assert list((tmp_path / "documents").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.doc", b"PK", "a file must end in .txt, .html, .htm, "),
        ("a.docx", b"PK", "the file is no archive of its kind"),
        ("a.txt", b"\xff", "the file is not UTF-8"),
    ],
)
async def test_a_document_that_cannot_be_read_ends_with_an_error(
    tmp_path: Path, name: str, content: bytes, message: str
):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", name, content, target_lang="DE")).json
        state = (await done(http, made)).json
        assert (state["status"], message in state["error_message"]) == ("error", True), state


OFFICE = docx(paragraph(run("It is "), run("raining", "<w:b/>"), run(".")), header1=paragraph(run("Tom & I")))
CUES = b"1\n00:00:01,000 --> 00:00:02,000\nIt is\n\n2\n00:00:02,000 --> 00:00:03,000\nraining.\n"
OTHERS = [
    ("a.docx", OFFICE),
    ("file", OFFICE),
    ("a.pptx", pptx("<a:r><a:t>It is raining.</a:t></a:r>")),
    ("a.odt", odt("<text:p>It is raining.</text:p>")),
    ("a.srt", CUES),
]


@pytest.mark.parametrize(("name", "content"), OTHERS)
async def test_an_office_document_comes_back_with_its_formats(tmp_path: Path, name: str, content: bytes):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", name, content, target_lang="DE", source_lang="EN")).json
        state = (await done(http, made)).json
        assert (state["status"], state.get("error_message")) == ("done", None)
        key = {"document_key": made["document_key"]}
        fetched = await http.form(f"/v2/document/{made['document_id']}/result", key)
        reply = await http.upload("/translate_file", name, content, source="en", target="de")
    assert (fetched.body == content) if name == "a.srt" else files_of(fetched.body) == files_of(content)
    if name == "file":
        assert "a file must end in .txt, .html" in reply.body.decode()
    else:
        assert reply.json["translatedFileUrl"].endswith(Path(name).suffix)
    if content is OFFICE:
        assert state["billed_characters"] == len("It is raining.Tom & I")


async def test_what_a_document_takes_in_memory_counts_as_the_body_of_its_request(tmp_path: Path):
    content = docx(paragraph(run("Tom")), header1="<!--" + "x" * (20 << 20) + "-->")
    async with gateway(http_data_dir=tmp_path) as http:
        uploads = [http.upload("/translate_file", "a.docx", content, source="en", target="de") for _ in range(2)]
        first, second = await asyncio.gather(*uploads)
        after = await http.upload("/translate_file", "a.docx", content, source="en", target="de")
    assert sorted([first.status, second.status]) == [200, 503]
    assert after.status == 200


async def test_a_document_that_a_restart_cut_short_is_an_error(tmp_path: Path):
    number = "0" * 32
    state = {"status": "translating", "key": _digest("k"), "suffix": ".txt"}
    Documents(tmp_path / "documents").write_state(number, state)
    async with gateway(http_data_dir=tmp_path) as http:
        state = (await http.form(f"/v2/document/{number}", {"document_key": "k"})).json
    assert state["status"] == "error"
    assert "restarted" in state["error_message"]


async def test_libretranslate_translates_a_file_and_says_where_it_is(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        reply = await http.upload("/translate_file", "a.txt", TEXT.encode(), source="en", target="de")
        where = reply.json["translatedFileUrl"]
        assert where.startswith(f"{http.url}/download_file/")
        assert (await http.get(where.removeprefix(http.url))).body.decode() == TEXT
        for name in ("../manifest.json", "%2e%2e%2fkeys.toml", "a.txt"):
            assert (await http.get(f"/download_file/{name}")).status == 404


async def test_without_a_folder_files_are_not_supported():
    async with gateway() as http:
        assert (await http.upload("/v2/document", "a.txt", b"Tom", target_lang="DE")).status == 400
        assert (await http.upload("/translate_file", "a.txt", b"Tom", source="en", target="de")).status == 400


def test_files_beyond_the_room_are_refused_and_those_of_one_caller_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents_module, "MOST_BYTES", 8 * LEAST_BYTES)
    documents = Documents(tmp_path / "d")
    first = [documents.keep_result("a", "a.txt", b"text") for _ in range(2)]
    with pytest.raises(Problem, match="there is no room for more files") as refused:
        documents.keep_result("a", "a.txt", b"text")
    assert (refused.value.http_status, refused.value.retry_after) == (503, 60)
    documents.remove(first[0].partition(".")[0])
    documents.keep_result("a", "a.txt", b"text")
    for caller in "bcd":
        for _ in range(2):
            documents.keep_result(caller, "a.txt", b"text")
    with pytest.raises(Problem, match="no room"):
        documents.keep_result("e", "a.txt", b"text")
    assert documents.result(first[1]) == b"text"


async def test_old_files_are_removed_without_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents_module, "REMOVE_SECONDS", 0.01)
    async with gateway(http_data_dir=tmp_path):
        old = tmp_path / "documents" / "old.txt"
        old.write_bytes(b"text")
        os.utime(old, (0, 0))
        await eventually(lambda: not old.exists())


async def test_the_language_of_a_file_is_detected_once(tmp_path: Path):
    text = "Tom lives in a house.\n" * BLOCK_LINES + "Das ist gut.\n"
    async with gateway(http_data_dir=tmp_path) as http:
        reply = await http.upload("/translate_file", "a.txt", text.encode(), source="auto", target="de")
        assert reply.status == 200, reply.body
        assert http.server.metric("lingon_requests_total", method="DetectLanguages", code="OK") == 1


def test_a_file_that_nobody_fetches_is_removed_after_an_hour(tmp_path: Path):
    now = [time.time()]
    documents = Documents(tmp_path / "d", clock=lambda: now[0])
    name = documents.keep_result("a", "a.txt", b"text")
    assert documents.result(name) == b"text"
    now[0] += KEEP_SECONDS + 1
    with pytest.raises(Problem, match="no such file"):
        documents.result(name)
    assert list((tmp_path / "d").iterdir()) == []


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
