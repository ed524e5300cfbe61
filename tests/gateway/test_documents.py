"""Files: translated, kept for their owner only, fetched once, and gone after an hour."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from lingon.documents.text_files.plain import BLOCK_LINES
from lingon.gateway.requests.problem import Problem
from lingon.gateway.translations import kept_files
from lingon.gateway.translations.kept_files import KEEP_SECONDS, LEAST_BYTES, KeptFiles
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, Reply, gateway
from tests.support.office_files import docx, files_of, odt, paragraph, pptx, run, xlsx

DOCUMENT, DETECTED = "/v1/translate:document", "x-lingon-detected-language"
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
    ("a.xlsx", xlsx('<si><t xml:space="preserve">It is raining.</t></si>')),
    ("a.odt", odt("<text:p>It is raining.</text:p>")),
    ("a.srt", CUES),
    ("a.md", b"# It is *raining*.\n"),
]
UNITS = b"<trans-unit><source>It is raining.</source></trans-unit>"
XLIFF = b'<xliff version="1.2"><file original="a">%s</file></xliff>' % UNITS


@pytest.mark.parametrize(("name", "content"), OTHERS)
async def test_an_office_document_comes_back_with_its_formats(tmp_path: Path, name: str, content: bytes):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", name, content, target_lang="DE", source_lang="EN")).json
        state = (await done(http, made)).json
        assert (state["status"], state.get("error_message")) == ("done", None)
        key = {"document_key": made["document_key"]}
        fetched = await http.form(f"/v2/document/{made['document_id']}/result", key)
        reply = await http.upload("/translate_file", name, content, source="en", target="de")
    assert (fetched.body == content) if name in ("a.srt", "a.md") else files_of(fetched.body) == files_of(content)
    if name == "file":
        assert "a file must end in .txt, .html" in reply.body.decode()
    else:
        assert reply.json["translatedFileUrl"].endswith(Path(name).suffix)
    if content is OFFICE:
        assert state["billed_characters"] == len("It is raining.Tom & I")


@pytest.mark.parametrize(("name", "content"), OTHERS)
async def test_our_own_api_answers_a_file_with_a_file_and_keeps_none(name: str, content: bytes):
    async with gateway() as http:
        reply = await http.upload(
            DOCUMENT, name, content, targetLanguageCode="de", sourceLanguageCode="en", beamSize="4"
        )
    assert reply.status == 200, reply.body
    assert (reply.body == content) if name in ("a.srt", "a.md") else files_of(reply.body) == files_of(content)
    shown = "document.de.docx" if name == "file" else f"a.de{Path(name).suffix}"
    assert reply.headers["content-disposition"] == f"attachment; filename=\"{shown}\"; filename*=UTF-8''{shown}"
    assert DETECTED not in reply.headers


async def test_the_name_of_a_translation_has_the_characters_of_that_of_the_file():
    async with gateway() as http:
        reply = await http.upload(DOCUMENT, "Grüße 1.txt", TEXT.encode(), target_language_code="de")
    plain, coded = 'filename="Gr__e 1.de.txt"', "filename*=UTF-8''Gr%C3%BC%C3%9Fe%201.de.txt"
    assert reply.headers["content-disposition"] == f"attachment; {plain}; {coded}"
    assert reply.headers[DETECTED] == "en"


async def test_curl_gives_a_translation_its_name(tmp_path: Path):
    """curl reads no `filename*`, so that the name needs a form in ASCII too."""
    (tmp_path / "a b.txt").write_text(TEXT)
    async with gateway() as http:
        call = ["curl", "-sSOJ", http.url + DOCUMENT, "-F", "file=@a b.txt", "-F", "targetLanguageCode=de"]
        curl = await asyncio.create_subprocess_exec(*call, cwd=tmp_path)
        assert await curl.wait() == 0
    assert (tmp_path / "a b.de.txt").read_bytes() == TEXT.encode()


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        ("a.txt", b"Tom", {}, "the form must have the field 'targetLanguageCode'"),
        ("a.txt", b"Tom", {"targetLanguageCode": "de", "beamSize": "x"}, "beamSize must be 0 to 1000, got 'x'"),
        ("a.txt", b"Tom", {"targetLanguageCode": "de", "beamSize": "99"}, "beam_size"),
        (
            "a.txt",
            b"Tom",
            {"targetLanguageCode": "sv", "sourceLanguageCode": "en"},
            "no model translates from en to sv",
        ),
        ("a.doc", b"Tom", {"targetLanguageCode": "de"}, "a file must end in .txt, .html, .htm, "),
        ("a.docx", b"Tom", {"targetLanguageCode": "de"}, "the file is no archive of its kind"),
    ],
)
async def test_a_file_that_is_not_translated_is_an_error(
    name: str, content: bytes, fields: dict[str, str], message: str
):
    async with gateway() as http:
        reply = await http.upload(DOCUMENT, name, content, **fields)
        without = await http.form(DOCUMENT, {"targetLanguageCode": "de"})
    assert reply.status in (400, 404)
    assert message in reply.json["message"]
    assert without.json["message"] == "the form must have a file in the field 'file'"


async def test_the_target_language_of_a_request_is_that_of_its_file(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", "a.xlf", XLIFF, target_lang="DE", source_lang="EN")).json
        await done(http, made)
        key = {"document_key": made["document_key"]}
        fetched = await http.form(f"/v2/document/{made['document_id']}/result", key)
    assert '<file target-language="de" original="a">' in fetched.body.decode()


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
    KeptFiles(tmp_path / "documents").write_state(number, state)
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
    monkeypatch.setattr(kept_files, "MOST_BYTES", 8 * LEAST_BYTES)
    files = KeptFiles(tmp_path / "d")
    first = [files.keep_result("a", "a.txt", b"text") for _ in range(2)]
    with pytest.raises(Problem, match="there is no room for more files") as refused:
        files.keep_result("a", "a.txt", b"text")
    assert (refused.value.http_status, refused.value.retry_after) == (503, 60)
    files.remove(first[0].partition(".")[0])
    files.keep_result("a", "a.txt", b"text")
    for caller in "bcd":
        for _ in range(2):
            files.keep_result(caller, "a.txt", b"text")
    with pytest.raises(Problem, match="no room"):
        files.keep_result("e", "a.txt", b"text")
    assert files.result(first[1]) == b"text"


async def test_old_files_are_removed_without_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_files, "REMOVE_SECONDS", 0.01)
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
    files = KeptFiles(tmp_path / "d", clock=lambda: now[0])
    name = files.keep_result("a", "a.txt", b"text")
    assert files.result(name) == b"text"
    now[0] += KEEP_SECONDS + 1
    with pytest.raises(Problem, match="no such file"):
        files.result(name)
    assert list((tmp_path / "d").iterdir()) == []


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
