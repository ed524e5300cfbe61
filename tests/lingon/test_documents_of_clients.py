"""Documents that clients translate: what is written, in which language, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lingon import DocumentResult, ServerError
from lingon.cli.main import main
from lingon.client.protocol import options_of
from lingon.documents import UnreadableDocument, read_document
from lingon.errors import SettingsError
from tests.support.documents import docx, files_of, paragraph, run
from tests.support.echo_engine import EchoRunner, running
from tests.support.gateway import BUNDLES, TwoModels

TWO: dict[str, Any] = {"bundles": BUNDLES, "loader": TwoModels}
Ask = Callable[..., Awaitable[Any]]


async def test_a_document_is_translated_into_one_of_its_kind(ask: Ask) -> None:
    content = docx(
        "".join(paragraph(run("It is "), run("raining", "<w:b/>"), run(f" in house {each}.")) for each in range(300))
    )
    async with running() as server:
        found = await ask(server, "translate_document", "a.docx", content)
    assert files_of(found.content) == files_of(content)
    assert found == DocumentResult(
        found.content, "", sum(len(f"It is raining in house {each}.") for each in range(300))
    )


@pytest.mark.parametrize(
    ("name", "content", "written"),
    [
        ("a.txt", b"The sea.\n\nThe sea.\n", "La mer.\n\nLa mer.\n"),
        ("a.html", b"<p>The sea.</p><p>&lt;</p>", "<p>La mer.</p><p>&lt;</p>"),
        ("b.txt", b"The sea.\n" + b"\n" * 200 + b"The sea.\n", "La mer.\n" + "\n" * 200 + "La mer.\n"),
        ("A.MD", b"# The sea.\n\n- The sea.\n", "# La mer.\n\n- La mer.\n"),
    ],
)
async def test_a_document_says_how_its_texts_are_read(ask: Ask, name: str, content: bytes, written: str) -> None:
    async with running(**TWO) as server:
        found = await ask(server, "translate_document", name, content, source="en", target="fr")
    assert (found.content.decode(), found.source, found.failures) == (written, "en", ())


async def test_a_text_that_is_not_translated_stays_and_is_in_the_failures(ask: Ask) -> None:
    async with running(EchoRunner(faulty="Germany")) as server:
        found = await ask(server, "translate_document", "a.md", b"Tom\n\nHe has been to Germany\n")
    assert found.content == b"Tom\n\nHe has been to Germany\n"
    ((text, error),) = found.failures
    assert text == "He has been to Germany"
    assert isinstance(error, ServerError)


async def test_the_language_of_a_document_is_that_of_all_its_texts(ask: Ask) -> None:
    german = "Der alte Mann.\n\nDas Meer.\n\nThe sea.\n\n" + "Der alte Mann.\n\n" * 3
    async with running(**TWO) as server:
        found = await ask(server, "translate_document", "a.txt", german.encode(), source="auto", target="fr")
        assert found.source == "de"
        assert found.content.decode().startswith("Le vieil homme.\n\nLa mer.\n\n")
        assert await ask(server, "find_source", german.split("\n\n"), target="fr") == "de"
        options = {"source": "auto", "target": "fr", "same_language": True}  # as they always are in a document
        assert await ask(server, "translate_document", "a.txt", german.encode(), **options) == found


async def test_a_document_in_the_target_language_stays_as_it_is(
    ask: Ask, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    french = "Je voudrais savoir quelle heure il est, et où.\n".encode()
    (tmp_path / "a.srt").write_bytes(b"1\n00:00:01,000 --> 00:00:02,000\n" + french)
    async with running(**TWO) as server:
        found = await ask(server, "translate_document", "a.txt", french, source="auto", target="fr")
        files = ["--input", str(tmp_path / "a.srt"), "--output", str(tmp_path / "b.srt")]
        languages = ["--source", "auto", "--target", "fr", "--server", f"127.0.0.1:{server.server.port}"]
        assert await asyncio.to_thread(main, ["translate", *files, *languages]) == 0
    assert found == DocumentResult(french, "fr", len(french.decode()))
    assert (tmp_path / "b.srt").read_bytes() == (tmp_path / "a.srt").read_bytes()
    assert f"lingon: {tmp_path}/a.srt is in fr already, and is written as it is\n" in capfd.readouterr().err


async def test_the_command_finds_one_language_for_a_document(tmp_path: Path) -> None:
    """A subtitle alone, such as "Tom", fits several languages."""
    subtitles = ["Der alte Mann.", "The sea.", "Das Meer.", "Der alte Mann."]
    text = "".join(f"{at + 1}\n00:00:0{at},000 --> 00:00:0{at},900\n{each}\n\n" for at, each in enumerate(subtitles))
    (tmp_path / "a.srt").write_text(text)
    async with running(**TWO) as server:
        files = ["--input", str(tmp_path / "a.srt"), "--output", str(tmp_path / "b.srt")]
        languages = ["--source", "auto", "--target", "fr", "--server", f"127.0.0.1:{server.server.port}"]
        assert await asyncio.to_thread(main, ["translate", *files, *languages]) == 0
    assert "Le vieil homme." in (tmp_path / "b.srt").read_text()


async def test_a_table_has_a_column_and_the_only_language_of_the_model(ask: Ask) -> None:
    async with running() as server:
        for options, content, written in (
            ({}, b"en,de\nTom,\n", b"en,de\nTom,Tom\n"),
            ({"column": "a"}, b"a,target\nTom,\n", b"a,target\nTom,Tom\n"),
            ({"column": 1}, b"Tom,\n", b"Tom,\n"),
        ):
            assert (await ask(server, "translate_document", "a.csv", content, **options)).content == written
        with pytest.raises(UnreadableDocument, match="the file has no column 'x'"):
            await ask(server, "translate_document", "a.csv", b"a,b\n", column="x")


async def test_several_languages_of_models_are_none_for_a_file(ask: Ask) -> None:
    content = b'{"sourceLanguage": "en", "strings": {}}'
    async with running(**TWO) as server:
        with pytest.raises(UnreadableDocument, match="several languages; say which one"):
            await ask(server, "translate_document", "a.xcstrings", content, source="en")
        found = await ask(server, "translate_document", "a.yml", b"de:\n  a: Das Meer.\n", model="de-en")
        assert found.content.startswith(b"en:\n")


async def test_a_document_without_text_has_no_language(ask: Ask) -> None:
    async with running(**TWO) as server:
        blank = b"\n" * 100
        assert await ask(server, "translate_document", "a.txt", blank, source="auto", target="fr") == DocumentResult(
            blank, "", 0
        )


async def test_a_document_in_a_language_without_a_model_is_refused(ask: Ask) -> None:
    czech = "Dnes je krásné počasí a všichni lidé jsou venku v parku na procházce.".encode()
    async with running(**TWO) as server:
        with pytest.raises(ServerError, match="no model translates from it"):
            await ask(server, "translate_document", "a.txt", czech, source="auto", target="fr")


@pytest.mark.parametrize(
    ("name", "content", "options", "error", "message"),
    [
        ("a.pdf", b"", {}, UnreadableDocument, "a file must end in .txt, .* got .pdf"),
        ("a.docx", b"no archive", {}, UnreadableDocument, "the file is no archive of its kind"),
        ("a.txt", b"\xff", {}, UnreadableDocument, "the file is not UTF-8"),
        ("a.txt", "Tom", {}, SettingsError, "the content of a document must be bytes, got str"),
        ("a.docx", None, {}, SettingsError, "the content of a document must be bytes, got NoneType"),
        ("a.txt", b"Tom", {"format": "html"}, SettingsError, "format is for text; a document says itself"),
        ("a.txt", b"Tom", {"splitting_tags": ["b"]}, SettingsError, "splitting_tags is for text"),
        ("a.txt", b"Tom", {"source": "auto"}, SettingsError, '"auto" needs a target language'),
        ("a.txt", b"Tom", {"beam": 3}, TypeError, "beam"),
    ],
)
async def test_what_cannot_be_translated_is_refused(
    ask: Ask, name: str, content: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with running() as server:
        with pytest.raises(error, match=message):
            await ask(server, "translate_document", name, content, **options)


async def test_a_file_that_says_its_language_gets_that_of_the_only_model(ask: Ask) -> None:
    template = b'msgid ""\nmsgstr "Language: \\n"\n\nmsgid "It is raining"\nmsgstr ""\n'
    async with running() as server:
        found = await ask(server, "translate_document", "a.pot", template)
    assert b'"Language: de\\n"' in found.content
    async with running(**TWO) as server:  # several languages
        found = await ask(server, "translate_document", "a.pot", template, source="en", target="fr")
    assert b'"Language: fr\\n"' in found.content


async def test_what_there_is_to_know_of_a_file_is_in_the_notes(ask: Ask) -> None:
    async with running() as server:
        found = await ask(server, "translate_document", "a.txt", "It is Zo\u00eb.\n".encode("cp1252"))
    assert found.content == "It is Zo\u00eb.\n".encode("cp1252")
    assert found.notes == ("the file is in Windows-1252, and so is its translation",)


XLIFF = '<xliff version="1.2"><file{}><trans-unit><source>The sea.</source></trans-unit></file></xliff>'


async def test_of_several_target_languages_none_is_said(ask: Ask) -> None:
    async with running(**TWO) as server:
        models = await ask(server, "list_models")
        assert len({model.target_language for model in models}) > 1
        content = XLIFF.format(' source-language="en"').encode()
        named = await ask(server, "translate_document", "a.xlf", content, model=models[0].name)
        with pytest.raises(UnreadableDocument, match="give the target language"):
            await ask(server, "translate_document", "a.tmx", b"<tmx><body/></tmx>")
    assert f'target-language="{models[0].target_language}"' in named.content.decode()


async def test_the_notes_of_a_file_are_in_the_result(ask: Ask) -> None:
    async with running() as server:
        found = await ask(server, "translate_document", "a.xml", b"<shop>The sea.</shop>")
    assert len(found.notes) == 1
    assert "its root is shop" in found.notes[0]


async def test_what_a_kind_of_xml_ignores_is_ignored_beside_what_the_caller_says(ask: Ask) -> None:
    text = "<topic><p>The sea.</p><codeblock>The sea.</codeblock><q>The sea.</q></topic>"
    async with running(**TWO) as server:
        options = {"source": "en", "target": "fr", "ignore_tags": ["q"]}
        found = await ask(server, "translate_document", "a.dita", text.encode(), **options)
    assert found.content.decode() == text.replace("<p>The sea.", "<p>La mer.")


def test_words_that_a_document_keeps_are_kept_beside_those_of_the_options() -> None:
    document = read_document("a.md", b"Water is H~2~O here.\n")
    assert options_of(document, {"keep": ["Lingon"]})["keep"] == ["Lingon", "H~2~O"]
    assert options_of(document, {})["keep"] == ["H~2~O"]
    assert "keep" not in options_of(document, {"forced_words": ["Wasser"]})  # servers refuse both together
    assert "keep" not in options_of(read_document("a.md", b"Water\n"), {})
