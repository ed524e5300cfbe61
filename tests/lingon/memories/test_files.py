"""Files of translation memories: what programs write is read, what is written is read back, bad ones get one line."""

from __future__ import annotations

import gzip
import io
import random
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.errors import CorpusError
from lingon.memories.files import read_segments, write_segments
from lingon.memories.segment import Segment, SegmentError
from lingon.memories.units import read_units

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" segtype="sentence" datatype="xml" adminlang="en" o-tmf="x"/><body>
{}
</body></tmx>"""
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="shop.html" source-language="en" target-language="de" datatype="html"><body>{}</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f1" original="shop.md">{}</file></xliff>"""
SEGMENTS = [
    Segment("Save & <close>", "Sichern, „schließen“", "Open\nfile", "Quit", "Ann & Co", 1_700_000_000_000),
    Segment("Emoji 🙂;\tü", "b,\r\nc"),
    Segment('"quoted" text', "x", origin="a.tmx"),
]


def read(content: str | bytes, name: str, source: str = "", target: str = "") -> list[Segment]:
    return list(read_segments(content if isinstance(content, bytes) else content.encode(), source, target, name=name))


def unit(*texts: tuple[str, str], start: str = "<tu>", props: str = "") -> str:
    variants = "".join(f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>' for language, text in texts)
    return f"{start}{props}{variants}</tu>"


def test_a_unit_gives_the_texts_of_the_two_languages():
    content = TMX.format(unit(("en-US", "One"), ("fr", "Un"), ("de-DE", "Eins"), ("de-AT", "Ans")))
    assert read(content, "a.tmx", "en", "de") == [Segment("One", "Eins")]
    assert read(content, "a.tmx", "en", "de-AT") == [Segment("One", "Ans")]
    assert read(content, "a.tmx", "de", "fr-CA") == [Segment("Eins", "Un")]
    assert read(content, "a.tmx") == [Segment("One", "Un")]


def test_a_unit_without_one_of_the_languages_or_a_text_is_left_out():
    units = [unit(("en", "One"), ("fr", "Un")), unit(("en", "Two"), ("de", " ")), unit(("en", "Three"), ("de", "Drei"))]
    assert read(TMX.format("".join(units)), "a.tmx", "en", "de") == [Segment("Three", "Drei")]


def test_a_file_without_the_languages_names_those_that_it_has():
    with pytest.raises(CorpusError) as caught:
        read(TMX.format(unit(("en", "One"), ("fr", "Un"))), "a.tmx", "en", "de")
    assert str(caught.value) == "a.tmx: no unit has texts in en and de; there are 'en', 'fr'"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('Press <bpt i="1">&lt;b&gt;</bpt>OK<ept i="1">&lt;/b&gt;</ept> now', "Press OK now"),
        ("You have <ph>{0}</ph> new <ph>%s</ph>.", "You have {0} new %s."),
        ('A <ph type="br">&lt;br/&gt;</ph>B <it pos="begin">\\b </it>C', "A B C"),
        ("A <hi>green</hi> house", "A green house"),
        ('A <ph>&lt;img alt="<sub>Cat</sub>"&gt;</ph>B', "A B"),
        ("  1 &lt; 2 &amp; 3\n", "1 < 2 & 3"),
        ("<ut>{\\i </ut>x<ut>}</ut>", "{\\i x}"),
    ],
)
def test_codes_of_markup_are_left_out_and_those_of_placeholders_are_kept(written, text):
    assert read(TMX.format(unit(("en", written), ("de", "x"))), "a.tmx") == [Segment(text, "x")]


def test_context_origin_and_time_are_read():
    props = (
        '<prop type="x-context-pre">&lt;seg&gt;Tom &amp;amp; &lt;bpt/&gt;Jerry&lt;/seg&gt;</prop>'
        '<prop type="x-other">no</prop><prop type="x-context-post">After</prop>'
    )
    start = '<tu creationid="Ann" creationdate="20200101T000000Z" changedate="20260102T030405Z">'
    (segment,) = read(TMX.format(unit(("en", "One"), ("de", "Eins"), start=start, props=props)), "a.tmx")
    assert segment == Segment("One", "Eins", "Tom & Jerry", "After", "Ann", 1_767_323_045_000)


def test_a_memory_in_utf_16_is_read():
    content = TMX.format(unit(("en", "One"), ("de", "Größe"))).replace('encoding="UTF-8"', 'encoding="UTF-16"')
    assert read(content.encode("utf-16"), "a.tmx") == [Segment("One", "Größe")]


def test_units_of_xliff_have_the_neighbours_of_their_file():
    units = (
        '<trans-unit id="1"><source>One</source><target>Eins</target></trans-unit>'
        '<trans-unit id="2"><source>Two</source></trans-unit>'
        '<trans-unit id="3"><source>Three</source><target state="new">Three</target></trans-unit>'
        '<trans-unit id="4"><source>Hi <x id="1" equiv-text="{name}"/><g id="2">you</g></source><target>Hallo '
        '<x id="1" equiv-text="{name}"/><g id="2">du</g></target><alt-trans><source>No</source><target>No</target>'
        "</alt-trans></trans-unit>"
    )
    assert read(XLIFF.format(units), "a.xlf", "en", "de") == [
        Segment("One", "Eins", "", "Two", "shop.html"),
        Segment("Hi {name}you", "Hallo {name}du", "Three", "", "shop.html"),
    ]


def test_a_unit_of_xliff_that_is_cut_gives_its_segments():
    cut = (
        '<trans-unit id="1"><source>One. Two.</source>'
        '<seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source>'
        '<target><mrk mtype="seg" mid="1">Eins.</mrk> <mrk mtype="seg" mid="2"></mrk></target></trans-unit>'
    )
    assert read(XLIFF.format(cut), "a.sdlxliff") == [Segment("One.", "Eins.", "", "Two.", "shop.html")]
    version_2 = (
        '<unit id="1"><segment state="final"><source>One <pc id="1">a</pc></source><target>Eins '
        '<pc id="1">a</pc></target></segment>'
        '<segment state="initial"><source>Two</source><target>Two</target></segment></unit>'
    )
    assert read(XLIFF_2.format(version_2), "a.xliff", "en", "de") == [Segment("One a", "Eins a", "", "Two", "shop.md")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "Source,Target,Origin\nOne,Eins,x\n\nTwo,Zwei,\n"),
        ("a.csv", "\ufeffsource;before;target;origin\r\nOne;;Eins;x\r\nTwo;;Zwei;\r\n"),
        ("a.tsv", "target\torigin\tsource\nEins\tx\tOne\nZwei\t\tTwo"),
    ],
)
def test_a_table_with_names_is_read_by_them(name, content):
    assert read(content, name) == [Segment("One", "Eins", origin="x"), Segment("Two", "Zwei")]


def test_a_table_without_names_has_source_and_target_first():
    assert read('One,"Eins, ""1"""\n', "a.csv") == [Segment("One", 'Eins, "1"')]
    assert read('"One\tEins"\n', "a.tsv") == [Segment('"One', 'Eins"')]


@pytest.mark.parametrize("name", ["a.tmx", "a.csv", "a.tmx.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    path = tmp_path / name.removesuffix(".gz")
    assert write_segments(path, SEGMENTS, "en", "de") == len(SEGMENTS)
    if name.endswith(".gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((tmp_path / "a.tmx").read_bytes()))
    assert list(read_segments(path, "en", "de")) == SEGMENTS


def test_what_is_written_to_xliff_and_tsv_is_read_back_but_for_what_they_cannot_hold(tmp_path):
    plain = [Segment("a & b", "c"), Segment("d", "e < f")]
    for name in ("a.xlf", "a.xliff", "a.tsv"):
        write_segments(tmp_path / name, plain, "en", "de")
        found = [replace(each, before="", after="", origin="") for each in read_segments(tmp_path / name, "en", "de")]
        assert found == plain, name
    with pytest.raises(SegmentError, match=r"segment 2: the source has a tab or a line end, which a \.tsv"):
        write_segments(tmp_path / "a.tsv", [plain[0], SEGMENTS[1]], "en", "de")
    assert list(read_segments(tmp_path / "a.tsv")) == plain, "the earlier file stays"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "a.xlf", "a.xliff"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.docx", "", "a.docx: a translation memory must end in .tmx, .xliff, .xlf, .sdlxliff, .csv, .tsv, got .docx"),
        (
            "memory",
            "",
            "memory: a translation memory must end in .tmx, .xliff, .xlf, .sdlxliff, .csv, .tsv, got no ending",
        ),
        ("a.tmx", "<tmx><body>", "a.tmx: line 1, column 12: the XML is not well-formed"),
        (
            "a.tmx",
            '<?xml version="1.0" encoding="x-mac"?><tmx/>',
            "a.tmx: line 1: the file is in an encoding that is not read; save it as UTF-8",
        ),
        ("a.tmx", "<html/>", "a.tmx: line 1: the file is no translation memory: its root is html, not tmx or xliff"),
        ("a.tmx", "<a>" * 9, "a.tmx: line 1: the file is no translation memory: its root is a, not tmx or xliff"),
        ("a.tmx", "<tmx>" * 99, "a.tmx: line 1: an element is in more than 64 others"),
        (
            "a.tmx",
            '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>',
            "a.tmx: line 1: the XML in the file has a document type with declarations, which are not read",
        ),
        (
            "a.tmx",
            TMX.format(unit(("en", "a" * 10_001), ("de", "b"))),
            "a.tmx: segment 1: the source has 10,001 characters; at most 10,000",
        ),
        ("a.csv", "source,target\nOne\n", "a.csv:2: the row has 1 columns; source and target are at least 2"),
        ("a.csv", 'One,"Eins\n', "a.csv: line 1: unexpected end of data"),
        ("a.csv", "a,b\nOne,\n", "a.csv: segment 2: the target is empty"),
        ("a.tsv", "a\tb\nOne\tE\x00\n", "a.tsv: segment 2: the target has the character U+0000, which is no text"),
        ("a.csv", b"One,\xff\n", "a.csv:1: not UTF-8 (invalid start byte at byte 4 of the line)"),
        ("a.csv", "source,target,changed\na,b,soon\n", "a.csv:2: changed must be milliseconds since 1970, got 'soon'"),
        ("a.csv", "a" * (2**22 + 9), "a.csv:1: has more than 4,194,304 bytes without a line feed; split the line"),
        ("a.tmx.gz", b"no", "a.tmx.gz:1: Not a gzipped file (b'no')"),
    ],
    ids=range(17),
)
def test_a_bad_file_gets_one_line(name, content, message):
    with pytest.raises(CorpusError) as caught:
        read(content, name)
    assert str(caught.value) == message


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.tmx: No such file or directory"):
        list(read_segments(tmp_path / "a.tmx"))


class Endless(io.RawIOBase):
    """A file that begins a tag, or a text, and goes on for ever."""

    def __init__(self, begin: bytes) -> None:
        self.left, self.read_bytes = begin, 0

    def read(self, size: int = -1) -> bytes:
        found, self.left = self.left or b"x" * size, b""
        self.read_bytes += len(found)
        return found


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        (b"<tmx a='", "a tag or comment has more than 1,048,576 bytes"),
        (b"<tmx><!--", "a tag or comment has more than 1,048,576 bytes"),
        (b"<tmx><body><tu><tuv><seg>", "a text has more than 640,000 characters with its codes"),
    ],
)
def test_a_tag_or_text_without_end_is_refused_before_it_fills_the_memory(begin, message):
    file = Endless(begin)
    with pytest.raises(Exception, match=message):
        list(read_units(file))
    assert file.read_bytes < 3 << 20


def test_a_large_file_is_read_in_little_memory():
    class Units(io.RawIOBase):
        def __init__(self) -> None:
            self.left, self.given = TMX.split("{}", maxsplit=1)[0].encode(), 0

        def read(self, size: int = -1) -> bytes:
            found, self.left = self.left, b""
            if not found and self.given < 400:
                self.given += 1
                found = unit(("en", "One " * 50), ("de", "Eins " * 50)).encode() * 100
            elif not found and self.given == 400:
                self.given += 1
                found = b"</body></tmx>"
            return found

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in read_units(Units())) == 40_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000, "KiB, of 20 MB that were read"


def test_path_and_content_are_read_alike(tmp_path: Path):
    content = TMX.format(unit(("en", "One"), ("de", "Eins")))
    (tmp_path / "a.tmx").write_text(content)
    assert list(read_segments(tmp_path / "a.tmx")) == read(content, "a.tmx")


@pytest.mark.parametrize("name", ["a.tmx", "a.xlf", "a.csv", "a.tsv"])
def test_a_damaged_file_gives_segments_or_one_line(name):
    marks = ["<", ">", "&", "</seg>", "<seg>", "</tu>", "<mrk mtype='seg'>", "<target>", "\0", "<!--", '"', "\n", ","]
    props = '<prop type="x-context-pre">before</prop>'
    written = {
        "a.tmx": TMX.format(unit(("en", 'One <bpt i="1">b</bpt>'), ("de", "Eins"), props=props)),
        "a.xlf": XLIFF.format('<trans-unit id="1"><source>One</source><target>Eins</target></trans-unit>'),
        "a.csv": 'source,target,changed\n"One ""1""",Eins,5\n',
        "a.tsv": "source\ttarget\tchanged\nOne\tEins\t5\n",
    }[name].encode()
    choice, refused = random.Random(5), list[str]()
    for _ in range(400):
        content = bytearray(written)
        for _ in range(choice.randint(1, 4)):
            at = choice.randrange(len(content))
            match choice.randrange(3):
                case 0:
                    content[at:at] = choice.choice(marks).encode()
                case 1:
                    del content[at : at + choice.randint(1, 20)]
                case _:
                    content[at] = choice.randrange(256)
        try:
            read(bytes(content), name, "en", "de")
        except CorpusError as error:
            refused.append(str(error))
    assert len(refused) > 40
    assert [message for message in refused if "\n" in message] == []
