"""Files of gettext: which messages are translated, and that all else stays byte for byte."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: {}\\n"\n\n'
TWO = HEADER.format("nplurals=2; plural=(n != 1);")


def texts_of(text: str, target: str = "") -> list[str]:
    return list(read_document("a.po", text.encode(), target).texts)


def capitals(text: str) -> str:
    """The text in capitals, but for arguments and tags."""
    return re.sub(
        r"%[^ .]*[a-z]|\{[^{}]*\}|<[^<>]*>|[a-z]+", lambda part: part[0].upper() if part[0].isalpha() else part[0], text
    )


def translated(text: str, translate: Callable[[str], str] = capitals, target: str = "") -> str:
    document = read_document("a.po", text.encode(), target)
    return document.write(list(map(translate, document.texts))).decode()


def notes_of(text: str, translate: Callable[[str], str]) -> list[str]:
    document = read_document("a.po", text.encode())
    document.write(list(map(translate, document.texts)))
    return document.notes


def test_a_message_without_a_translation_gets_one_that_is_fuzzy():
    text = TWO + '# A note\n#: a.c:3\nmsgid "Tom"\nmsgstr ""\n\n#, c-format\nmsgctxt "x"\nmsgid "The %d"\nmsgstr ""\n'
    expected = text.replace('msgid "Tom"\nmsgstr ""', '#, fuzzy\nmsgid "Tom"\nmsgstr "TOM"')
    expected = expected.replace("#, c-format", "#, fuzzy, c-format").replace('%d"\nmsgstr ""', '%d"\nmsgstr "THE %d"')
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
    [
        ("nplurals=1; plural=0;", ['"FILES"']),
        ("nplurals=2; plural=(n != 1);", ['"FILE"', '"FILES"']),
        ("nplurals=3; plural=(n==1 ? 0 : n==0 ? 2 : 1);", ['"FILE"', '"FILES"', '"FILES"']),
        ("nplurals=3; plural=(n==1 ? 2 : n==0 ? 0 : 1);", ['"FILES"', '"FILES"', '"FILE"']),
    ],
)
def test_the_singular_is_the_form_of_the_number_one(forms: str, found: list[str]):
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
        ('msgid "a"\nmsgstr ""\n' * 3, "the file has 3 messages; at most 2"),
        (TWO + "#" * 2000, "bytes; at most 1,000"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text: str, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.documents.document.MOST_TEXT_BYTES", 1000)
    monkeypatch.setattr("lingon.documents.gettext.MOST_ENTRIES", 2)
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


SAYS_ONE = 'msgid "One file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
HAS_NUMBER = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
ARABIC = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;"


@pytest.mark.parametrize(
    ("forms", "entry", "found"),
    [
        (RUSSIAN, HAS_NUMBER, ["%d FILE", "%d FILES", "%d FILES"]),
        (RUSSIAN, SAYS_ONE, ["%d FILES", "%d FILES", "%d FILES"]),  # form 0 is that of 21 too
        (ARABIC, HAS_NUMBER, ["%d FILES", "%d FILE", *["%d FILES"] * 4]),
        (ARABIC, SAYS_ONE, ["%d FILES", "ONE FILE", *["%d FILES"] * 4]),
        ("nplurals=2; plural=n > 1;", SAYS_ONE, ["%d FILES", "%d FILES"]),  # form 0 is that of 0 too
        ("nplurals=2; plural=n > 1;", HAS_NUMBER, ["%d FILE", "%d FILES"]),
        ("nplurals=2; plural=n != 1;", SAYS_ONE, ["ONE FILE", "%d FILES"]),
        ("nplurals=1; plural=0;", SAYS_ONE, ["%d FILES"]),
    ],
)
def test_a_singular_that_says_one_stands_for_no_other_number(forms: str, entry: str, found: list[str]):
    written = translated(HEADER.format(forms) + entry)
    assert re.findall(r'(?m)^msgstr\[(\d)\] "(.*)"$', written) == [
        (str(place), text) for place, text in enumerate(found)
    ]


@pytest.mark.parametrize(
    "forms", ["nplurals=INTEGER; plural=EXPRESSION;", "nplurals=2; plural=n/0;", "nplurals=2; plural=n;", "many"]
)
@pytest.mark.parametrize(("target", "count"), [("de", 2), ("ar", 6), ("ru", 3), ("pt-BR", 2), ("ja", 1), ("", 2)])
def test_forms_that_the_header_does_not_say_are_those_of_the_target(forms: str, target: str, count: int):
    written = translated(HEADER.format(forms) + HAS_NUMBER, target=target)
    assert f"nplurals={count}; " in written
    assert len(re.findall(r"(?m)^msgstr\[", written)) == count


def test_a_file_without_a_header_gets_one():
    written = translated(HAS_NUMBER, target="cs")
    assert written.startswith('msgid ""\nmsgstr ""\n"Language: cs\\n"\n"Plural-Forms: nplurals=3; ')
    assert '"Content-Type: text/plain; charset=UTF-8\\n"\n' in written
    assert written.endswith(
        "\n\n#, fuzzy\n" + HAS_NUMBER.replace('""', '"%d FILE"') + 'msgstr[1] "%d FILES"\nmsgstr[2] "%d FILES"\n'
    )


TEMPLATE = (
    '# A note\n#, fuzzy\nmsgid ""\nmsgstr ""\n"Project-Id-Version: PACKAGE\\n"\n"Language: \\n"\n'
    '"Content-Type: text/plain; charset=CHARSET\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)


@pytest.mark.parametrize(("target", "name"), [("de", "de"), ("pt-BR", "pt_BR"), ("zh-Hans", "zh_CN"), ("ar", "ar")])
def test_a_template_becomes_a_file_of_the_target_language(target: str, name: str):
    written = translated(TEMPLATE + 'msgid "Caf\u00e9"\nmsgstr ""\n' + HAS_NUMBER, target=target)
    expected = TEMPLATE.replace("#, fuzzy\n", "").replace("Language: ", f"Language: {name}").replace("CHARSET", "UTF-8")
    head = expected.partition('"Plural-Forms')[0]
    assert written.startswith(head)
    assert (f"nplurals={6 if target == 'ar' else 1 if name == 'zh_CN' else 2};" in written) is True


@pytest.mark.parametrize("language", ["de", "de_AT", "DE"])
def test_a_header_in_the_target_language_stays_byte_for_byte(language: str):
    header = TWO.replace('"Content', f'"Language: {language}\\n"\n"Content')
    written = translated(header + 'msgid "Tom"\nmsgstr ""\n', target="de")
    assert written == header + '#, fuzzy\nmsgid "Tom"\nmsgstr "TOM"\n'


def test_plurals_that_are_translated_keep_their_forms():
    text = TWO.replace('"Content', '"Language: en\\n"\n"Content') + HAS_NUMBER.replace('""', '"%d a"\nmsgstr[1] "%d b"')
    written = translated(text + HAS_NUMBER.replace("file", "page"), target="ar")
    assert "nplurals=2; plural=(n != 1);" in written
    assert "Language: ar" in written


@pytest.mark.parametrize(
    ("charset", "codec"),
    [("ISO-8859-1", "latin-1"), ("windows-1252", "cp1252"), ("KOI8-R", "koi8-r"), ("EUC-JP", "euc-jp")],
)
def test_a_file_keeps_the_encoding_of_its_header(charset: str, codec: str):
    text = TWO.replace("UTF-8", charset) + 'msgid "Tom"\nmsgstr ""\n'
    document = read_document("a.po", text.encode(codec))
    letter = {"koi8-r": "\u0416", "euc-jp": "\u4e00"}.get(codec, "\u00e9")
    assert document.write([letter]) == text.replace('Tom"\nmsgstr ""', f'Tom"\nmsgstr "{letter}"').replace(
        'msgid "Tom', '#, fuzzy\nmsgid "Tom'
    ).encode(codec)
    document = read_document("a.po", text.encode(codec))
    written = document.write(["\u0416\u0142\U0001f600"]).decode()
    assert "charset=UTF-8" in written
    assert any("its translation is in UTF-8" in note for note in document.notes)


def test_strings_beside_each_other_are_one():
    text = TWO + 'msgid "The " "old" \t"man"\nmsgstr ""\n\nmsgid\n"Tom "\n"and" " I"\nmsgstr\n""\n'
    assert texts_of(text) == ["The oldman", "Tom and I"]
    assert translated(text).count('msgstr "T') == 2


def test_an_earlier_message_stays_below_the_flags():
    text = TWO + '#. note\n#| msgid "Tim"\nmsgid "Tom"\nmsgstr ""\n\n#, c-format\n#| msgid "x"\nmsgid "y"\nmsgstr ""\n'
    written = translated(text)
    assert '#. note\n#, fuzzy\n#| msgid "Tim"\nmsgid "Tom"\nmsgstr "TOM"\n' in written
    assert '#, fuzzy, c-format\n#| msgid "x"\nmsgid "y"\nmsgstr "Y"\n' in written


def entry(flag: str, message: str) -> str:
    return f'#, {flag}\nmsgid "{quoted(message)}"\nmsgstr ""\n'


@pytest.mark.parametrize(
    ("flag", "message", "translation", "written"),
    [
        ("c-format", "%s has %d files", "%d files has %s", "%2$d files has %1$s"),
        ("c-format", "%s of %s in %d", "in %d %s of %s", "in %3$d %1$s of %2$s"),
        ("c-format", "%s: %5.2f%% of %lu", "%lu: %5.2f%% of %s", "%3$lu: %2$5.2f%% of %1$s"),
        ("c-format", "%s: %m in %d", "%d: %m in %s", "%2$d: %m in %1$s"),
        ("c-format", "%<PRIu64> of %s", "%s of %<PRIu64>", "%2$s of %1$<PRIu64>"),
        ("php-format", "%s has %d", "%d has %s", "%2$d has %1$s"),
        ("objc-format", "%@ has %d", "%d has %@", "%2$d has %1$@"),
        ("c-format", "%1$s has %2$d", "%2$d has %1$s", "%2$d has %1$s"),
        ("c-format", "%*d of %s", "%s of %*d", "%*d of %s"),
        ("python-format", "%s has %d", "%d has %s", "%s has %d"),
        ("python-format", "%(a)s has %(b)d", "%(b)d has %(a)s", "%(b)d has %(a)s"),
        ("python-brace-format", "{a} has {b}", "{b} has {a}", "{b} has {a}"),
        ("ruby-format", "%{a} has %<b>d", "%<b>d has %{a}", "%<b>d has %{a}"),
        ("qt-format", "%1 has %2", "%2 has %1", "%2 has %1"),
        ("no-c-format", "%s has %d", "%d has %s", "%d has %s"),
        ("c-format", "100%% of %d", "%d von 100%%", "%d von 100%%"),
    ],
)
def test_arguments_that_change_places_get_numbers_or_the_order_of_the_source(
    flag: str, message: str, translation: str, written: str
):
    text = TWO + entry(flag, message)
    assert f'msgstr "{written}"\n' in translated(text, lambda _: escape(translation))
    reordered = flag != "no-c-format" and translation.split() != written.split() and "$" not in written
    assert (
        any("in the order of the source" in note for note in notes_of(text, lambda _: escape(translation))) == reordered
    )


@pytest.mark.parametrize(
    ("flag", "message", "translation"),
    [
        ("c-format", "%s has %d", "%s has"),
        ("c-format", "%s has %d", "%s has %d %d"),
        ("c-format", "%s has %d", "%s has %i"),
        ("c-format", "%d%% of it", "%d% of it"),
        ("python-format", "%(a)s has it", "%(b)s has it"),
        ("python-brace-format", "{a} has it", "has it"),
        ("qt-format", "%1 has %2", "%1 has"),
        ("java-format", "{0} has {1}", "{0} has {0}"),
        ("sh-format", "$a has ${b}", "$a has"),
        ("boost-format", "%1% has %2%", "%1% has"),
    ],
)
def test_a_translation_with_other_arguments_is_not_written_and_that_is_said(flag: str, message: str, translation: str):
    text = TWO + 'msgid "Yes"\nmsgstr "Ja"\n\n' + entry(flag, message)
    assert translated(text, lambda _: escape(translation)) == text
    (note,) = notes_of(text, lambda _: escape(translation))
    assert (
        note
        == "messages stay without a translation, for theirs has other arguments or line ends: 1, the first at line 11"
    )


def test_a_message_that_is_none_of_its_format_is_compared_with_nothing():
    text = TWO + entry("c-format", "100 %! of it")
    assert 'msgstr "all of it"' in translated(text, lambda _: "all of it")


def checked(text: str, folder: Path) -> str:
    """What msgfmt says of a file whose translations have been read."""
    if shutil.which("msgfmt") is None:
        pytest.skip("no msgfmt command")
    (folder / "a.po").write_text(re.sub(r"(?m)^#, fuzzy(, |$)", lambda flag: "#, " if flag[1] else "# read", text))
    command = ["msgfmt", "--check", "--statistics", "--output-file=/dev/null", "a.po"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.ops
def test_msgfmt_finds_nothing_wrong(tmp_path: Path):
    entry = '#, c-format\nmsgid "\\n%d file.\\n"\nmsgid_plural "\\n%d files.\\n"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    text = translated(TWO + entry, lambda text: text.replace("file", "Datei"))
    assert "1 translated message." in checked(text, tmp_path)


ENDS_LINE = 'msgid "%d file\\n"\nmsgid_plural "%d files\\n"\nmsgstr[0] ""\n'
LANGUAGES = [
    "de",
    "fr",
    "ru",
    "ar",
    "cs",
    "pl",
    "ja",
    "lt",
    "ro",
    "sl",
    "lv",
    "cy",
    "ga",
    "gd",
    "mt",
    "is",
    "pt-BR",
    "he",
    "",
]
FORMATTED = [
    ("c-format", "%s has %d of it"),
    ("php-format", "%s has %d of it"),
    ("python-format", "%(a)s has %(b)d of it"),
    ("python-brace-format", "{a} has {b:>5} of it"),
    ("java-format", "{0} has {1} of it"),
    ("qt-format", "%1 has %2 of it"),
    ("objc-format", "%@ has %d of it"),
    ("lua-format", "%s has %d of it"),
    ("tcl-format", "%s has %d of it"),
    ("boost-format", "%1% has %2% of it"),
    ("sh-format", "$a has ${b} of it"),
    ("perl-brace-format", "{a} has {b} of it"),
    ("csharp-format", "{0} has {1} of it"),
]


@pytest.mark.ops
@pytest.mark.parametrize("head", ["", TEMPLATE, TWO], ids=["none", "template", "two"])
@pytest.mark.parametrize("target", LANGUAGES)
def test_msgfmt_accepts_every_translation_that_is_written(head: str, target: str, tmp_path: Path):
    """Words are turned around, left out and doubled; the numbers of files are in many languages."""
    plurals = [f"#, c-format\n{each}" for each in (HAS_NUMBER, SAYS_ONE, ENDS_LINE)]
    entries = [*(entry(*each) for each in FORMATTED), *plurals]
    named = (each.replace("msgid", f'msgctxt "{number}"\nmsgid', 1) for number, each in enumerate(entries))
    text = head + "\n".join(named)
    ways = [
        lambda text: " ".join(text.split()[::-1]),
        lambda text: text.partition(" ")[2],
        lambda text: f"{text} {text}",
        str,
    ]
    for way in ways:
        checked(translated(text, way, target), tmp_path)


REST = [
    ("Use ``--force <b>`` here", 'Use <v i="0"/> here'),
    ("See :ref:`the guide <guide>` here", 'See <s i="0">the guide</s> here'),
    ("See `the manual <https://a.b/c>`_ here", 'See <s i="0">the manual</s> here'),
    ("See :func:`os.path.join` and `name`_ here", 'See <v i="0"/> and <v i="1"/> here'),
    ("See |version| and [1]_ here", 'See <v i="0"/> and <v i="1"/> here'),
    ("Press :guilabel:`Save file` here", 'Press <s i="0">Save file</s> here'),
    ("The **old house** and *this page* here", 'The <s i="0">old house</s> and <s i="1">this page</s> here'),
    ("2 * 3 * 4 and a*b*c", "2 * 3 * 4 and a*b*c"),
]
MARKED = [
    ("Use `a <b> _c_` here", 'Use <v i="0"/> here'),
    ("See [the manual](https://a.b/c) here", 'See <s i="0">the manual</s> here'),
    ("The **old house** and _this page_ here", 'The <s i="0">old house</s> and <s i="1">this page</s> here'),
    ("See ![the sea](a.png) and <b>here</b>", 'See <v i="0"/> and <s i="0">here</s>'),
    ("a_b_c and 2 * 3 * 4", "a_b_c and 2 * 3 * 4"),
]


@pytest.mark.parametrize(
    ("comment", "message", "found"),
    [
        *(("#: ../a/index.rst:12", *each) for each in REST),
        *(("#, rst-text", *each) for each in REST),
        *(("#: a.py:3 docs/a.md:7", *each) for each in MARKED),
        *(("#, md-text", *each) for each in MARKED),
    ],
)
def test_light_markup_of_a_message_is_around_its_text(comment: str, message: str, found: str):
    text = f'{TWO}{comment}\nmsgid "{quoted(message)}"\nmsgstr ""\n'
    assert texts_of(text) == [found]
    assert f'msgstr "{quoted(message)}"' in translated(text, str)
    written = translated(text, lambda text: text.replace("here", "hier"))
    assert f'msgstr "{quoted(message.replace("here", "hier"))}"' in written


def test_marks_in_messages_of_programs_are_text():
    assert texts_of(TWO + '#: a.c:3\nmsgid "The *old* `house`"\nmsgstr ""\n') == ["The *old* `house`"]
