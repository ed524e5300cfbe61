"""`lingon translate` with a document: what is written, what is refused, and that nothing half-written stays."""

from __future__ import annotations

import asyncio
import gzip
import signal
from pathlib import Path

import pytest

from lingon.cli.main import main
from tests.support.documents import docx, files_of, paragraph, run
from tests.support.echo_engine import EchoRunner, running
from tests.support.scripted_server import Command, FakeService
from tests.support.timing import eventually_blocking

CONTENT = docx(
    "".join(paragraph(run("It is "), run("raining", "<w:b/>"), run(f" in house {number}.")) for number in range(70))
)

CATALOGUE = '{"sourceLanguage": "en", "strings": {"Tom": {}}, "version": "1.0"}'
TRANSLATED = '{"localizations": {"de": {"stringUnit": {"state": "needs_review", "value": "Tom"}}}}'


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def translated(folder: Path, *more: str, runner: EchoRunner | None = None, name: str = "a.docx") -> int:
    async with running(runner) as server:
        options = ["--server", f"127.0.0.1:{server.server.port}", "--input", str(folder / name), *more]
        return await asyncio.to_thread(main, ["translate", *options])


async def test_a_document_is_written_with_its_formats(tmp_path: Path):
    (tmp_path / "a.docx").write_bytes(CONTENT)
    assert await translated(tmp_path, "--output", str(tmp_path / "b.docx"), "--batch-size", "7") == 0
    assert files_of((tmp_path / "b.docx").read_bytes()) == files_of(CONTENT)
    assert names(tmp_path) == ["a.docx", "b.docx"]


async def test_a_text_that_is_not_translated_stays_as_it_is_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    content = docx(paragraph(run("Tom")) + paragraph(run("He has been to Germany")))
    (tmp_path / "a.docx").write_bytes(content)
    runner = EchoRunner(faulty="Germany")
    assert await translated(tmp_path, "--output", str(tmp_path / "b.docx"), runner=runner) == 1
    assert "lingon: text 2: " in capfd.readouterr().err
    assert files_of((tmp_path / "b.docx").read_bytes()) == files_of(content)


def test_the_texts_of_a_document_get_its_terms_and_one_without_a_term_is_named(lingon: Command, tmp_path: Path):
    source, output, terms = tmp_path / "a.md", tmp_path / "b.md", tmp_path / "terms.tsv"
    source.write_text("# The dog\n\nA hot dog is here.\n", encoding="utf-8")
    terms.write_text("dog\tDOG\nhot\theiss\n", encoding="utf-8")
    code, _, errors = lingon("translate", "--input", source, "--output", output, "--terms", terms)
    assert (code, errors) == (0, ["lingon: text 2: warning: 1 of 2 terms are missed: hot"])
    assert output.read_text(encoding="utf-8") == "# THE DOG\n\nA HOT DOG IS HERE.\n"


def test_each_text_of_a_document_is_drawn_with_a_seed_of_its_own(lingon: Command, tmp_path: Path):
    """Two requests with one seed would draw the same numbers."""
    source, output = tmp_path / "a.md", tmp_path / "b.md"
    source.write_text("\n\n".join("abcdef"))
    files = ("--input", source, "--output", output)
    assert lingon("translate", "--seed", 5, "--batch-size", 4, *files)[0] == 0
    drawn = [sum(map(int, text.split()[1].split("+"))) for text in output.read_text().split("\n\n")]
    assert drawn == [5, 6, 7, 8, 9, 10]


def test_an_interrupt_waits_for_no_request_of_a_document(lingon: Command, tmp_path: Path, service: FakeService):
    source, output, service.delay = tmp_path / "a.md", tmp_path / "b.md", 600.0
    source.write_text("a")
    with lingon.start("translate", "--input", source, "--output", output) as process:
        eventually_blocking(lambda: service.requests)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert not output.exists()


async def test_a_file_of_translators_gets_the_target_language(tmp_path: Path):
    source, output = tmp_path / "a.xlf", tmp_path / "b.xlf"
    source.write_text('<xliff version="1.2"><file><trans-unit><source>Tom</source></trans-unit></file></xliff>')
    async with running(None) as server:
        options = ["--server", f"127.0.0.1:{server.server.port}", "--target", "de"]
        arguments = ["translate", *options, "--input", str(source), "--output", str(output)]
        assert await asyncio.to_thread(main, arguments) == 0
    assert '<file target-language="de">' in output.read_text()
    assert ">Tom</target>" in output.read_text()


@pytest.mark.parametrize(
    ("name", "content", "options", "written"),
    [
        ("en.json", '{"a": "Tom", "b": 1}', [], '{"a": "Tom", "b": 1}'),
        ("en.yml", "en:\n  a: Tom\n", [], "de:\n  a: Tom\n"),
        ("a.csv", "en,de\nTom,\n", [], "en,de\nTom,Tom\n"),
        ("a.csv", "a,b\n1,Tom\n", ["--column", "b"], "a,b\n1,Tom\n"),
        ("a.xcstrings", CATALOGUE, [], CATALOGUE.replace("{}", TRANSLATED)),
    ],
)
async def test_a_file_of_texts_gets_the_only_language_of_the_model_where_none_is_given(
    tmp_path: Path, name: str, content: str, options: list[str], written: str
):
    (tmp_path / name).write_text(content)
    output = tmp_path / f"b{Path(name).suffix}"
    assert await translated(tmp_path, "--output", str(output), *options, name=name) == 0
    assert output.read_text() == written


async def test_a_column_is_refused_where_there_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    for name, content, status, message in (
        ("a.csv", "a,b\nTom,Tim\n", 1, "a.csv: the file has no column 'x'; its columns are a, b\n"),
        ("a.json", "{}", 1, "a.json: a column is for files that end in .csv, .tsv, got .json\n"),
        ("a.txt", "Tom", 2, "--column is for an --input that ends in .csv or .tsv\n"),
    ):
        (tmp_path / name).write_text(content)
        output = tmp_path / f"b{Path(name).suffix}"
        assert await translated(tmp_path, "--output", str(output), "--column", "x", name=name) == status
        assert capfd.readouterr().err.endswith(message)
        assert not output.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--output must name a file that ends in .docx, as the input does"),
        (["--output", "b.odt"], "--output must name a file that ends in .docx, as the input does"),
        (["--output", "b.docx", "--json"], "a document has no place for --json"),
        (["--output", "b.docx", "--scores"], "a document has no place for --json, --scores"),
        (["--output", "b.docx", "--num-hypotheses", "2"], "--num-hypotheses above 1"),
        (["--output", "b.docx", "--alternatives", "2"], "--alternatives above 1"),
        (["--output", "b.docx", "--format", "pieces"], "a document says itself how it is written"),
        (["--output", "b.docx", "--wrapped"], "--format and --wrapped are for text"),
        (["--output", "a.docx"], "a.docx"),
    ],
)
async def test_what_a_document_has_no_place_for_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], message: str
):
    (tmp_path / "a.docx").write_bytes(CONTENT)
    options = [str(tmp_path / each) if "." in each else each for each in options]
    assert await translated(tmp_path, *options) == 2
    assert message in capfd.readouterr().err
    assert names(tmp_path) == ["a.docx"]


@pytest.mark.parametrize("options", [[], ["--output", "b.rtf"]])
async def test_a_document_of_a_kind_that_is_not_read_is_no_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str]
):
    (tmp_path / "a.rtf").write_bytes(b"{\\rtf1 Tom lives here.}")
    assert await translated(tmp_path, *options, name="a.rtf") == 2
    assert "--input must end in .txt" in capfd.readouterr().err
    assert names(tmp_path) == ["a.rtf"]


async def test_a_broken_document_is_refused_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "a.docx").write_bytes(b"PK")
    assert await translated(tmp_path, "--output", str(tmp_path / "b.docx")) == 1
    assert capfd.readouterr().err.endswith("a.docx: the file is no archive of its kind: File is not a zip file\n")
    assert names(tmp_path) == ["a.docx"]


@pytest.mark.parametrize("name", ["a.tex", "a.LOG", "a.c", "a.log.gz", "a.en"])
async def test_lines_of_a_file_with_another_ending_are_text_only_on_request(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
):
    content = b'{"key": "It is raining"}\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert await translated(tmp_path, "--output", str(tmp_path / "b"), name=name) == 2
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("lingon: error: --input must end in .txt, .html, ")
    assert line.endswith(f"or have no ending, got {suffix}; with --format plain its lines are text")
    assert names(tmp_path) == [name]
    assert await translated(tmp_path, "--output", str(tmp_path / "b"), "--format", "plain", name=name) == 0
    assert (tmp_path / "b").read_bytes() == content


@pytest.mark.parametrize("name", ["a", "a.txt", "A.TXT", "a.txt.gz", "a.gz", "b.tar/a"])
async def test_lines_of_a_text_file_and_of_one_without_an_ending_are_text(tmp_path: Path, name: str):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(b"It is raining\n") if name.endswith(".gz") else b"It is raining\n")
    assert await translated(tmp_path, "--output", str(tmp_path / "out"), name=name) == 0
    assert (tmp_path / "out").read_bytes() == b"It is raining\n"


async def test_a_packed_document_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "a.po.gz").write_bytes(gzip.compress(b'msgid "Tom"\nmsgstr ""\n'))
    assert await translated(tmp_path, "--output", str(tmp_path / "b.po"), name="a.po.gz") == 2
    assert "--input must not be packed if it is a document, got a.po.gz" in capfd.readouterr().err
    assert names(tmp_path) == ["a.po.gz"]


@pytest.mark.parametrize("codec", ["cp1252", "utf-16", "utf-16-le"])
async def test_lines_in_another_encoding_are_read_and_that_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], codec: str
):
    lines = "Tom drinks in the caf\u00e9.\r\nIt is Zo\u00eb.\n\nIt is.\n"
    (tmp_path / "a.txt").write_bytes(lines.encode(codec))
    assert await translated(tmp_path, "--output", str(tmp_path / "b"), name="a.txt") == 0
    assert (tmp_path / "b").read_text() == lines.replace("\r", "")
    name = "Windows-1252" if codec == "cp1252" else "UTF-16-LE"
    assert f"a.txt: the file is in {name}; its translation is in UTF-8\n" in capfd.readouterr().err


@pytest.mark.parametrize("content", [b"Tom\nIt is \xff\xfe\x81.\n", b"Tom\nIt \x00 is \xff.\n"])
async def test_a_line_that_is_not_utf_8_is_named_if_its_encoding_cannot_be_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes
):
    (tmp_path / "a.txt").write_bytes(content)
    assert await translated(tmp_path, "--output", str(tmp_path / "b"), name="a.txt") == 1
    assert "a.txt:2: not UTF-8" in capfd.readouterr().err


@pytest.mark.parametrize("written", [True, False])
async def test_a_page_keeps_the_encoding_that_it_says(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], written: bool
):
    page = '<meta charset="iso-8859-1"><p>It is Zo\u00eb</p>\n'.encode("cp1252")
    (tmp_path / "a.html").write_bytes(page)
    output = ("--output", str(tmp_path / "b.html")) if written else ()
    assert await translated(tmp_path, *output, name="a.html") == 0
    assert ((tmp_path / "b.html").read_bytes() if written else capfdbinary.readouterr().out) == page


async def test_a_template_may_become_a_catalogue(tmp_path: Path):
    (tmp_path / "a.pot").write_text('msgid "It is raining"\nmsgstr ""\n')
    assert await translated(tmp_path, "--output", str(tmp_path / "de.po"), name="a.pot") == 0
    assert 'msgstr "It is raining"' in (tmp_path / "de.po").read_text()


async def test_what_is_said_of_a_document_is_on_standard_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    content = "1\n00:00:01,000 --> 00:00:02,000\nIt is Zo\u00eb\n".encode("cp1252")
    (tmp_path / "a.srt").write_bytes(content)
    assert await translated(tmp_path, "--output", str(tmp_path / "b.srt"), name="a.srt") == 0
    assert (tmp_path / "b.srt").read_bytes() == content
    assert "a.srt: the file is in Windows-1252, and so is its translation\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.po", 'msgid ""\nmsgstr "Language: \\n"\n\nmsgid "It is raining"\nmsgstr ""\n', '"Language: de\\n"'),
        (
            "a.xlf",
            '<xliff version="1.2"><file><trans-unit><source>Tom</source></trans-unit></file></xliff>',
            'target-language="de"',
        ),
    ],
)
async def test_a_file_that_says_its_language_gets_that_of_the_only_model(
    tmp_path: Path, name: str, content: str, said: str
):
    (tmp_path / name).write_text(content)
    output = tmp_path / f"b.{name}"
    assert await translated(tmp_path, "--output", str(output), name=name) == 0
    assert said in output.read_text()


@pytest.mark.parametrize("suffix", [".xml", ".svg", ".dita"])
async def test_a_file_of_xml_is_a_text_on_request(tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]):
    source, output = tmp_path / f"a{suffix}", tmp_path / "b.txt"
    source.write_text("<resources><string translatable='false'>Tom</string></resources>\n")
    assert await translated(tmp_path, "--output", str(output), name=source.name) == 2
    assert f"--output must name a file that ends in {suffix}, as the input does" in capfd.readouterr().err
    assert await translated(tmp_path, "--output", str(output), "--format", "xml", name=source.name) == 0
    assert output.read_text() == source.read_text()


async def test_a_file_of_typescript_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "a.ts").write_text('export const greeting: string = "Hello";\n')
    assert await translated(tmp_path, "--output", str(tmp_path / "b.ts"), name="a.ts") == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("a.ts: the file has no messages of Qt; files of TypeScript are not translated")
    assert names(tmp_path) == ["a.ts"]


async def test_a_translation_that_is_too_long_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    unit = '<trans-unit id="u" maxwidth="2" size-unit="char"><source>Tom</source></trans-unit>'
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2"><file>{unit}</file></xliff>')
    assert await translated(tmp_path, "--output", str(tmp_path / "b.xlf"), name="a.xlf") == 0
    said = "a.xlf: 1 translation is longer than the file allows, and marked in it: unit 'u' has 3 characters, at most 2"
    assert said in capfd.readouterr().err
