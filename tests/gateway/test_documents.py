"""Files: translated, kept for their owner only, fetched once, and gone after an hour."""

from __future__ import annotations

import asyncio
import stat
import sys
from functools import partial
from pathlib import Path

import pytest

from lingon.documents.pages import BLOCK_LINES
from lingon.gateway import app as app_module
from lingon.gateway import documents as documents_module
from lingon.gateway.backend import Caller
from lingon.gateway.documents import LEAST_BYTES, DocumentLimits, KeptFiles
from lingon.serving import server as server_module
from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.documents import docx, files_of, odt, paragraph, pptx, run, xlsx
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import Gateway, WholeReply, gateway
from tests.support.timing import eventually

CALLER = Caller(None, "192.0.2.1", "")
DOCUMENT, DETECTED = "/v1/translate:document", "x-lingon-detected-language"
TEXT = "It is raining.\r\n\r\n  Tom lives in Boston.\n"
HTML = "<!doctype html><p>It is <b>raining</b>.</p><script>let a = 1;</script>"


def names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def done(http: Gateway, made: dict[str, str], headers: dict[str, str] | None = None) -> WholeReply:
    """Wait until a document is translated; returns its state."""
    while True:
        path, key = f"/v2/document/{made['document_id']}", {"document_key": made["document_key"]}
        state = await http.post(path, key, headers)
        if state.json["status"] != "translating":
            return state
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(("name", "content"), [("a.txt", TEXT), ("a.html", HTML), ("file", HTML), ("file", TEXT)])
async def test_a_document_is_translated_and_fetched_once(tmp_path: Path, name: str, content: str):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", name, content.encode(), target_lang="DE", source_lang="EN")).json
        state = (await done(http, made)).json
        assert (state["status"], state["billed_characters"]) == ("done", len(content))
        path, key = f"/v2/document/{made['document_id']}", {"document_key": made["document_key"]}
        assert (await http.form(f"{path}/result", {"document_key": "0" * 64})).status == 404
        kept = list((tmp_path / "documents").rglob("*"))
        assert {stat.S_IMODE(each.stat().st_mode) for each in kept if each.is_file()} == {0o600}
        folders = [tmp_path / "documents", *(each for each in kept if each.is_dir())]
        assert {stat.S_IMODE(each.stat().st_mode) for each in folders} == {0o700}
        fetched = await http.form(f"{path}/result", key)
        assert fetched.body.decode() == content
        assert (await http.form(f"{path}/result", key)).status == 404
    assert list((tmp_path / "documents").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
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
    assert reply.json["translatedFileUrl"].endswith(".docx" if name == "file" else Path(name).suffix)
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


async def test_what_there_is_to_know_of_a_file_is_in_a_header():
    content = "It is Zo\u00eb.\n".encode("cp1252")
    async with gateway() as http:
        reply = await http.upload(DOCUMENT, "a.txt", content, targetLanguageCode="de", sourceLanguageCode="en")
        plain = await http.upload(DOCUMENT, "a.txt", b"Tom.\n", targetLanguageCode="de", sourceLanguageCode="en")
    assert (reply.status, reply.body) == (200, content)
    assert reply.headers["x-lingon-notes"] == "the file is in Windows-1252, and so is its translation"
    assert "x-lingon-notes" not in plain.headers


async def test_a_template_becomes_a_catalogue_of_the_target_language():
    content = b'msgid ""\nmsgstr "Language: \\n"\n\nmsgid "It is raining"\nmsgstr ""\n'
    async with gateway() as http:
        reply = await http.upload(DOCUMENT, "a.pot", content, targetLanguageCode="de", sourceLanguageCode="en")
    assert 'filename="a.de.po"' in reply.headers["content-disposition"]
    assert b'"Language: de\\n"' in reply.body


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
        ("a.txt", b"Tom", {"targetLanguageCode": "de", "glossaries": "legal"}, "there is no field 'glossaries'; "),
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


async def test_a_form_names_the_column_of_a_table():
    async with gateway() as http:
        fields = {"targetLanguageCode": "de", "sourceLanguageCode": "en"}
        content = b"a,target\nTom,\n"
        reply = await http.upload(DOCUMENT, "a.csv", content, **fields, column="A")
        missing = await http.upload(DOCUMENT, "a.csv", content, **fields, column="b")
    assert reply.body == b"a,target\nTom,Tom\n"
    assert missing.status == 400
    assert missing.json["message"] == "the file has no column 'b'; its columns are a, target"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b'{"a": "Tom", "b": 1}\n'),
        ("a.arb", b'{"a": "Tom"}\n'),
        ("a.properties", b"a = Tom\n"),
        ("a.strings", b'"a" = "Tom";\n'),
        ("a.yaml", b"a: Tom # a\n"),
        ("a.ftl", b"a = Tom\n"),
        ("a.tsv", b"source\tb\nTom\t1\n"),
    ],
)
async def test_files_of_keys_and_texts_are_read_in_a_process_of_their_own(name: str, content: bytes):
    async with gateway() as http:
        reply = await http.upload(DOCUMENT, name, content, targetLanguageCode="de", sourceLanguageCode="en")
    assert (reply.status, reply.body) == (200, content)


async def test_the_target_language_of_a_request_is_that_of_its_file(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        made = (await http.upload("/v2/document", "a.xlf", XLIFF, target_lang="DE", source_lang="EN")).json
        await done(http, made)
        key = {"document_key": made["document_key"]}
        fetched = await http.form(f"/v2/document/{made['document_id']}/result", key)
    assert '<file target-language="de" original="a">' in fetched.body.decode()


TEXT = "It is raining."
LOCALISATION = [
    ("a.ts", f'<TS version="2.1"><message><source>{TEXT}</source></message></TS>', f">{TEXT}</translation>"),
    ("a.tmx", f'<tmx><body><tu><tuv xml:lang="en"><seg>{TEXT}</seg></tuv></tu></body></tmx>', '<tuv xml:lang="de" '),
    ("a.resx", f"<root><data><value>{TEXT}</value></data></root>", TEXT),
    ("a.xml", f"<resources><string>{TEXT}</string></resources>", TEXT),
    ("a.xml", f"<shop>{TEXT}</shop>", TEXT),
    ("file", f'<?xml version="1.0"?><tmx><body><tu><tuv xml:lang="en"><seg>{TEXT}</seg></tuv></tu></body></tmx>', TEXT),
    ("a.sdlxliff", XLIFF.decode(), f">{TEXT}</target>"),
]


@pytest.mark.parametrize(("name", "content", "written"), LOCALISATION)
async def test_a_file_of_localisation_comes_back_as_one(name: str, content: str, written: str):
    async with gateway() as http:
        fields = {"sourceLanguageCode": "en", "targetLanguageCode": "de"}
        reply = await http.upload(DOCUMENT, name, content.encode(), **fields)
    assert reply.status == 200
    assert written in reply.body.decode()
    suffix = ".tmx" if name == "file" else Path(name).suffix
    assert f'.de{suffix}"' in reply.headers["content-disposition"]


async def test_the_texts_of_a_document_count_as_the_body_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "HTTP_BYTES", 1 << 20)
    content = docx("".join(paragraph(run("It is raining. " * 4000)) for _ in range(10)))  # 600 KB in 6 KB
    async with gateway(http_data_dir=tmp_path) as http:
        reply = await http.upload("/translate_file", "a.docx", content, source="en", target="de")
        after = await http.upload("/translate_file", "a.docx", OFFICE, source="en", target="de")
    assert (reply.status, after.status) == (503, 200)
    assert "the bodies of requests of this address may hold 524,288 bytes" in reply.json["error"]


async def test_a_document_that_a_restart_cut_short_is_an_error(tmp_path: Path):
    kept = await KeptFiles(tmp_path / "documents").begin("deepl", CALLER, 1, "k")
    async with gateway(http_data_dir=tmp_path) as http:
        state = (await http.form(f"/v2/document/{kept.number}", {"document_key": "k"})).json
    assert state["status"] == "error"
    assert "restarted" in state["error_message"]


async def test_a_restart_forgets_no_file_and_removes_what_is_none(tmp_path: Path):
    files, damages = (
        KeptFiles(tmp_path),
        ("", "[", '{"number": 1}', "[" * 100_000, '{"number": "0", "api": [], "owner": {}}'),
    )
    kept = await files.begin("deepl", CALLER, 1)
    await files.finish(kept, ".txt", b"text", 4)
    for number, record in enumerate(damages):
        (tmp_path / f"{number:032x}").mkdir()
        (tmp_path / f"{number:032x}" / "record.json").write_text(record)
    (tmp_path / "notes.txt").write_text("of somebody else")
    again = KeptFiles(tmp_path)
    found = again.find(kept.number, "deepl", CALLER)
    assert (found, await again.content(found)) == (kept, b"text")
    assert names_in(tmp_path) == {kept.number, "notes.txt"}


async def test_a_file_belongs_to_the_api_and_to_the_key_that_it_came_by(tmp_path: Path):
    keys = write_key_file(tmp_path, {"a": (key := new_key()), "b": (other := new_key())})
    own, foreign = ({"authorization": f"Bearer {each}"} for each in (key, other))
    async with gateway(api_keys=keys, http_data_dir=tmp_path / "data") as http:
        made = (await http.upload("/v2/document", "a.txt", TEXT.encode(), target_lang="DE", auth_key=key)).json
        path, secret = f"/v2/document/{made['document_id']}", f"?document_key={made['document_key']}"
        assert (await done(http, made, own)).json["status"] == "done"
        for way, headers, status in (
            (f"{path}{secret}", {}, 403),
            (f"{path}{secret}", foreign, 404),
            (f"{path}/result{secret}", {}, 403),
            (f"{path}/result{secret}", foreign, 404),
            (f"{path}/result?document_key={'0' * 64}", own, 404),
            (f"/download_file/{made['document_id']}.txt", own, 404),
        ):
            assert (await http.get(way, headers)).status == status, way
        assert (await http.get(f"{path}/result{secret}", own)).body == TEXT.encode()
        reply = await http.upload("/translate_file", "a.txt", TEXT.encode(), source="en", target="de", api_key=key)
        where = reply.json["translatedFileUrl"].removeprefix(http.url)
        assert [(await http.get(where, headers)).status for headers in ({}, foreign, own)] == [403, 404, 200]
        assert (await http.get(f"/v2/document/{Path(where).stem}", own)).status == 404
        assert (await http.get(f"{where}?api_key={key}")).body == TEXT.encode()


async def test_no_route_reads_a_file_before_it_knows_the_caller(tmp_path: Path):
    keys, content = write_key_file(tmp_path, {"a": new_key()}), docx(paragraph(run("Tom")))
    async with gateway(api_keys=keys, http_data_dir=tmp_path / "data") as http:
        for path in (DOCUMENT, "/v2/document", "/translate_file"):
            for sent in (content, docx("<w:p/>"), b"not a document"):
                reply = await http.upload(path, "a.docx", sent, target_lang="DE", source="en", target="de")
                assert reply.status in (401, 403), (path, reply.body)
    assert list((tmp_path / "data" / "documents").iterdir()) == []


async def test_a_document_waits_while_the_queue_of_the_server_is_full(tmp_path: Path):
    runner = EchoRunner()
    async with gateway(runner, http_data_dir=tmp_path, max_queue_texts=1, max_rows=1, engines=1) as http:
        runner.gate.clear()

        def refused() -> float:
            return http.server.metric("lingon_requests_total", method="Translate", code="RESOURCE_EXHAUSTED")

        model, texts = {"model": "en-de", "version": "1"}, list[asyncio.Task[WholeReply]]()
        for metric in ("lingon_running_sentences", "lingon_queue_depth"):
            texts.append(asyncio.create_task(http.post("/v1/translate", {"texts": ["Tom"]})))
            await eventually(lambda metric=metric: http.server.metric(metric, **model) == 1)
        made = (await http.upload("/v2/document", "a.txt", b"Tom", target_lang="DE", source_lang="EN")).json
        await eventually(lambda: refused() >= 1)
        runner.gate.set()
        assert (await done(http, made)).json["status"] == "done"
        await asyncio.gather(*texts)


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


async def test_old_files_are_removed_without_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents_module, "REMOVE_SECONDS", 0.01)
    old = await KeptFiles(tmp_path / "documents", clock=lambda: 0).begin("deepl", CALLER, 1)
    async with gateway(http_data_dir=tmp_path):
        await eventually(lambda: not (tmp_path / "documents" / old.number).exists())


async def test_the_language_of_a_file_is_detected_once(tmp_path: Path):
    text = "Tom lives in a house.\n" * BLOCK_LINES + "Das ist gut.\n"
    async with gateway(http_data_dir=tmp_path) as http:
        reply = await http.upload("/translate_file", "a.txt", text.encode(), source="auto", target="de")
        assert reply.status == 200, reply.body
        assert http.server.metric("lingon_requests_total", method="DetectLanguages", code="OK") == 1


async def test_keys_of_its_own_making_give_a_caller_no_more_room_where_none_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents_module, "MOST_BYTES", 8 * LEAST_BYTES)
    async with gateway(http_data_dir=tmp_path) as http:
        found = [
            await http.upload("/translate_file", "a.txt", b"Tom", source="en", target="de", api_key=f"k{number}")
            for number in range(4)
        ]
        assert [reply.status for reply in found] == [200, 200, 503, 503]
        where = found[0].json["translatedFileUrl"].removeprefix(http.url)
        assert [(await http.get(f"{where}{key}")).body for key in ("", "?api_key=other")] == [b"Tom"] * 2


async def test_a_document_whose_process_cannot_be_started_ends_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with gateway(http_data_dir=tmp_path) as http:
        monkeypatch.setattr(sys, "executable", "/no/python")
        made = (await http.upload("/v2/document", "a.txt", b"Tom", target_lang="DE", source_lang="EN")).json
        async with asyncio.timeout(10):
            state = (await done(http, made)).json
    assert (state["status"], "No such file" in state["message"]) == ("error", False)


async def test_all_documents_that_are_accepted_are_translated_however_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app_module, "DocumentLimits", partial(DocumentLimits, waiting=2))
    async with gateway(http_data_dir=tmp_path) as http:
        fields = {"target_lang": "DE", "source_lang": "EN"}
        sent = [http.upload("/v2/document", "a.txt", f"Tom {number}.".encode(), **fields) for number in range(8)]
        made = [reply.json for reply in await asyncio.gather(*sent)]
        states = [(await done(http, each)).json for each in made]
    assert [(state["status"], state.get("message")) for state in states] == [("done", None)] * len(made)
