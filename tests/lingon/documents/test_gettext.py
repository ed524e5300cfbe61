"""Files of gettext: which messages are translated, and that all else stays byte for byte."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, bounds, read_document
from lingon.documents.text_files import gettext

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals={}; plural=(n != 1);\\n"\n\n'
)
TWO = HEADER.format(2)


def texts_of(text: str) -> list[str]:
    return list(read_document("a.po", text.encode()).texts)


def translated(text: str, translate: Callable[[str], str] = str.upper) -> str:
    document = read_document("a.po", text.encode())
    return document.write(list(map(translate, document.texts))).decode()


def test_a_message_without_a_translation_gets_one_that_is_fuzzy():
    text = TWO + '# A note\n#: a.c:3\nmsgid "Tom"\nmsgstr ""\n\n#, c-format\nmsgctxt "x"\nmsgid "The %d"\nmsgstr ""\n'
    expected = text.replace('msgid "Tom"\nmsgstr ""', '#, fuzzy\nmsgid "Tom"\nmsgstr "TOM"')
    expected = expected.replace("#, c-format", "#, fuzzy, c-format").replace('%d"\nmsgstr ""', '%d"\nmsgstr "THE %D"')
    assert translated(text) == expected


def test_flags_of_an_obsolete_message_are_not_those_of_the_next_one():
    obsolete = '#, fuzzy\n#~ msgid "old"\n#~ msgstr "alt"\n\n'
    text = f'{TWO}{obsolete}msgid "Tom"\nmsgstr ""\n'
    assert translated(text) == f'{TWO}{obsolete}#, fuzzy\nmsgid "Tom"\nmsgstr "TOM"\n'


@pytest.mark.parametrize(
    "entry",
    [
        'msgid "Tom"\nmsgstr "Tim"\n',
        'msgid "Tom"\nmsgstr ""\n"Tim"\n',
        '#, fuzzy\nmsgid "Tom"\nmsgstr "Tim"\n',
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] "c"\n',
        '#~ msgid "Tom"\n#~ msgstr ""\n',
        '# msgid "Tom"\n',
        'msgid "42"\nmsgstr ""\n',
    ],
)
def test_all_other_entries_stay_byte_for_byte(entry: str):
    text = "\ufeff" + (TWO + entry).replace("\n", "\r\n")
    assert (texts_of(text), translated(text)) == ([], text)


@pytest.mark.parametrize(
    ("forms", "found"),
    [(1, ['"FILES"']), (2, ['"FILE"', '"FILES"']), (3, ['"FILE"', '"FILES"', '"FILES"'])],
)
def test_a_plural_has_as_many_forms_as_the_header_says(forms: int, found: list[str]):
    entry = 'msgid "file"\nmsgid_plural "files"\nmsgstr[0] ""\n'
    strings = "".join(f"msgstr[{number}] {text}\n" for number, text in enumerate(found))
    assert translated(HEADER.format(forms) + entry).endswith(f'msgid_plural "files"\n{strings}')


def test_a_plural_has_two_forms_without_a_header():
    assert texts_of('msgid "file"\nmsgid_plural "files"\nmsgstr[0] ""\n') == ["file", "files"]


def test_line_breaks_at_the_ends_and_escapes_stay():
    text = TWO + 'msgid ""\n"\\n"\n"Say \\"yes\\"\\\\\\tor <b>no</b>.\\n"\n"See you.\\n"\nmsgstr ""\n'
    assert texts_of(text) == ['Say "yes"\\<b i="0"/>or <s i="0">no</s>.<b i="1"/>See you.']
    lines = 'msgstr ""\n"\\n"\n"Say \\"yes\\"\\\\\\tor <b>no</b>.\\n"\n"See you.\\n"\n'
    message = text.removeprefix(TWO).partition("msgstr")[0]
    assert translated(text, str).endswith(f"#, fuzzy\n{message}{lines}")


def test_a_line_that_goes_on_is_one_sentence_with_the_next():
    text = TWO + 'msgid ""\n"the old\\n"\n"man\\n"\nmsgstr ""\n'
    assert texts_of(text) == ['the old <v i="0"/>man']
    assert translated(text, lambda _: 'der <v i="0"/>alte Mann').endswith('msgstr ""\n"der\\n"\n"alte Mann\\n"\n')


def test_control_characters_stay():
    text = TWO + 'msgid "One\\vtwo\\001three\\x1f"\nmsgstr ""\n'
    assert texts_of(text) == ['One<b i="0"/>two<b i="1"/>three']
    assert translated(text, lambda _: 'ONE<b i="0"/>TWO<b i="1"/>THREE').endswith('msgstr "ONE\\vTWO\\001THREE\\037"\n')


def test_a_long_translation_is_written_in_several_lines():
    text = translated(TWO + 'msgid "Tom"\nmsgstr ""\n', lambda _: "word " * 30 + "x" * 100)
    lines = text.partition('msgstr ""\n"word')[2].splitlines()
    assert [len(line) <= 78 for line in lines] == [True, True, False, True]
    assert texts_of(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "a\nmsgstr ""\n', "line 1 of the file is no line of a message of gettext"),
        ("Hello\n", "line 1 of the file is no line of a message of gettext"),
        ('msgid "a"\nmsgstr ""\nmsgstr ""\n', "line 3 of the file is no line of a message of gettext"),
        (TWO.replace("UTF-8", "CHARSET"), "the header of the file must say charset=UTF-8, got charset=CHARSET"),
        ('msgid "a"\nmsgstr ""\n' * 3, "the file has 3 messages; at most 2"),
        (TWO + "#" * 2000, "bytes; at most 1,000"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text: str, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "MOST_TEXT_BYTES", 1000)
    monkeypatch.setattr(gettext, "MOST_ENTRIES", 2)
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.po", text.encode())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


MESSAGES = st.lists(st.text('ab &<>"\\\n\t\u00e9.', min_size=1, max_size=12), min_size=1, max_size=4)


@given(MESSAGES)
def test_a_translation_that_is_the_message_is_written_as_the_message(messages: list[str]):
    text = TWO + "".join(f'msgid "{quoted(each)}"\nmsgstr ""\n\n' for each in messages)
    written = translated(text, str)
    assert texts_of(written) == []
    blocks = [block for block in written.split("\n\n")[1:] if "fuzzy" in block]
    found = [[line.partition('"')[2][:-1] for line in block.partition("msgstr")[2].splitlines()] for block in blocks]
    assert ["".join(lines) for lines in found] == [quoted(each) for each in messages if any(map(str.isalpha, each))]


@pytest.mark.ops
def test_msgfmt_finds_nothing_wrong(tmp_path: Path):
    if shutil.which("msgfmt") is None:
        pytest.skip("no msgfmt command")
    entry = '#, c-format\nmsgid "\\n%d file.\\n"\nmsgid_plural "\\n%d files.\\n"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    text = translated(TWO + entry, lambda text: text.replace("file", "Datei"))
    (tmp_path / "a.po").write_text(text.replace("fuzzy, ", ""))
    command = ["msgfmt", "--check-format", "--statistics", "--output-file=/dev/null", "a.po"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={"LC_ALL": "C"})
    assert "1 translated message." in done.stderr
