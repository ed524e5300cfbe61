"""Documents made to take long: patterns of tokens that each kind of file gives a meaning, in files of any size.

Each family has the tokens of one place in one kind of file. A pattern repeats some of them there, so that what a reader
looks for again at each token makes its time grow faster than the file. Nothing in it is a list of known faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lingon.documents import UnreadableDocument, read_document, suffix_of
from tests.support.growth import Growth, Work, growth_of
from tests.support.hostile_tokens import (
    ATTRIBUTES,
    BLOCKS,
    CATALOGUE,
    CELLS,
    CELLS_OF_TABLES,
    CODED,
    CODES,
    COLUMNS,
    DATA,
    DIALOGUES,
    ENTRIES,
    FLUENT,
    FORMULA,
    HEADER,
    JAVA,
    JSON,
    KEYS,
    LOCALISED,
    MARKDOWN,
    MARKUP,
    MESSAGE,
    MESSAGES,
    NOTES,
    OPEN,
    OPEN_FRAMES,
    PLIST,
    PLURALS,
    PROPERTIES,
    RESOURCES,
    RUN,
    SEGMENTS,
    SHEET,
    SLIDE,
    STRING,
    STRINGS,
    STRINGS_OF_APPLE,
    SUBTITLES,
    TIMES,
    UNREAD,
    VALUE,
    VARIANTS,
    WORD,
    WORD_FRAMES,
    WORDS,
    XML_TEXT,
    YAML,
)
from tests.support.office_files import DRAWING, archive, main, ods, odt, word

MEMSOURCE = 'xmlns:m="http://www.memsource.com/mxlf/2.0"'
TUV = '<tuv xml:lang="en"><seg>{}</seg></tuv>'
LEAST_BYTES, MOST_BYTES = 4_000, 512_000  # of what is repeated
EVENTS = "[Events]\nFormat: Start, End, Style, Text\nDialogue: 0:00:01.00,0:00:02.00,a,"
NUMBER = "#"  # in a token: a number that is new each time
Wrap = Callable[[str], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Patterns of one place in one kind of file.

    suffix: of the file
    place: in words
    wrap: makes a file of what is in the place
    tokens: that patterns are made of
    frames: what may be around a pattern, several times
    """

    suffix: str
    place: str
    wrap: Wrap
    tokens: Sequence[str]
    frames: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A file of any size: what is before, each unit as often as the size asks for in turn, and what is after."""

    family: Family
    before: str
    units: tuple[str, ...]
    after: str

    def content(self, size: int) -> bytes:
        """Return a file in which the repeated units have about so many bytes."""
        count = max(size // sum(len(unit.encode()) for unit in self.units), 1)
        parts = [unit.split(NUMBER) for unit in self.units]
        repeated = (str(number).join(part) for part in parts for number in range(count))
        return self.family.wrap("".join([self.before, *repeated, self.after]))

    def __str__(self) -> str:
        units = " ".join(f"n*{unit!r}" for unit in self.units)
        return f"{self.family.suffix}, {self.family.place}: {self.before!r} {units} {self.after!r}"


def patterns(seed: int, suffix: str = "") -> Iterator[Pattern]:
    """Yield patterns without end, of each family in turn; suffix: of their files, all if it is empty."""
    choices = random.Random(seed)
    families = [family for family in FAMILIES if suffix in ("", family.suffix)]
    while True:
        for family in families:
            alphabet = choices.choices(family.tokens, k=choices.choice([1, 1, 2, 3, 5]))
            units = tuple(_some(choices, alphabet, 1, 3) for _ in range(choices.choice([1, 1, 1, 2, 2, 3])))
            before, after = (_some(choices, family.tokens, 0, 2) for _ in range(2))
            for _ in range(choices.choice([0, 1, 1, 2, 8]) if family.frames else 0):
                begin, end = choices.choice(family.frames).split("{}")
                before, after = begin + before, after + end
            yield Pattern(family, before, units, after)


def _some(choices: random.Random, tokens: Sequence[str], least: int, most: int) -> str:
    return "".join(choices.choices(tokens, k=choices.randint(least, most)))


def growth(pattern: Pattern, worth: float) -> Growth:
    """Return how the time of all that is done with a file grows; worth: see `growth_of`."""

    def prepare(size: int) -> Work:
        return partial(_read_and_write, f"a{pattern.family.suffix}", pattern.content(size))

    return growth_of(prepare, LEAST_BYTES, worth=worth, most=MOST_BYTES, refusals=(UnreadableDocument,))


def _read_and_write(name: str, content: bytes) -> None:
    suffix_of(content)
    document = read_document(name, content, "de")
    assert document.characters >= 0
    document.write(document.texts)


def _in(wrap: Callable[[str], bytes], frame: str) -> Wrap:
    begin, end = frame.split("{}", 1)
    return lambda body: wrap(begin + body + end)


def _docx(body: str) -> bytes:
    return archive({"word/document.xml": word(body)})


def _pptx(body: str) -> bytes:
    return archive({"ppt/slides/slide1.xml": f'<p:sld xmlns:p="p" xmlns:a="{DRAWING}">{body}</p:sld>'})


def _xliff(body: str) -> bytes:
    unit = f'<trans-unit id="1"><source>{body}</source></trans-unit>'
    return f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>'.encode()


def _xliff_2(body: str) -> bytes:
    return f'<xliff version="2.0"><file><unit><segment><source>{body}</source></segment></unit></file></xliff>'.encode()


def _sdl(body: str) -> bytes:
    unit = f"<trans-unit id='1'><source/><seg-source>{body}</seg-source></trans-unit>"
    return f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>'.encode()


def _qt(body: str) -> bytes:
    return f"<TS><context><message><source>{body}</source></message></context></TS>".encode()


def _android(body: str) -> bytes:
    prolog = '<!DOCTYPE resources [<!ENTITY e "Tom">]>'
    space = 'xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2"'
    return f"{prolog}<resources {space}><string>{body}</string></resources>".encode()


def _book(name: str, frame: str) -> Wrap:
    return _in(lambda body: archive({"mimetype": "application/epub+zip", name: body}), frame)


def _xlsx(name: str, frame: str) -> Wrap:
    """Return what makes a workbook; name: of the file with the pattern, frame: around it."""
    files = {
        "workbook": '<workbook a="b"><calcPr a="b"/></workbook>',
        "sharedStrings": '<sst a="b"><si><t>Tom</t></si></sst>',
        "worksheets/a": '<worksheet a="b"><c t="str"><f>A1</f><v>Tom</v></c></worksheet>',
        "tables/a": '<table a="b"><tableColumn name="Tom"/></table>',
    }

    def wrap(body: str) -> bytes:
        return archive({f"xl/{each}.xml": main(content) for each, content in (files | {name: body}).items()})

    return _in(wrap, frame)


def _text(frame: str) -> Wrap:
    return _in(str.encode, frame)


def _places(suffix: str, wrap: Callable[[str], bytes], element: str, text: str) -> list[Family]:
    """Return the places that XML has beside elements; element: an empty one, text: around a text."""
    begin, end = text.split("{}")
    whole = f"{begin}Tom{end}"
    return [
        Family(suffix, "a text", _in(wrap, text), XML_TEXT),
        Family(suffix, "a comment", _in(wrap, f"{begin}<!--{{}}-->Tom{end}"), UNREAD),
        Family(suffix, "an instruction", _in(wrap, f"{begin}<?a {{}}?>Tom{end}"), UNREAD),
        Family(suffix, "CDATA", _in(wrap, f"{begin}Tom<![CDATA[{{}}]]>{end}"), UNREAD),
        Family(suffix, "a value", _in(wrap, f"<{element} b='{{}}'/>{whole}"), VALUE),
        Family(suffix, "a start tag", _in(wrap, f"<{element} {{}}/>{whole}"), ATTRIBUTES),
    ]


FAMILIES = [
    Family(".txt", "a file", str.encode, [*WORDS, *MARKUP]),
    Family(".html", "a page", str.encode, [*WORDS, *MARKUP]),
    Family(".docx", "a paragraph", _in(_docx, "<w:p><w:r><w:t>Tom</w:t></w:r>{}</w:p>"), WORD, WORD_FRAMES),
    Family(".docx", "a run", _in(_docx, "<w:p><w:r><w:rPr><w:b/></w:rPr>{}<w:t>Tom</w:t></w:r></w:p>"), RUN),
    Family(".docx", "properties", _in(_docx, "<w:p><w:r><w:rPr>{}</w:rPr><w:t>Tom</w:t></w:r></w:p>"), PROPERTIES),
    Family(
        ".docx",
        "a comment in properties",
        _in(_docx, "<w:p><w:r><w:rPr><!--{}--></w:rPr><w:t>a</w:t></w:r></w:p>"),
        NOTES,
    ),
    Family(".docx", "paragraphs", _in(_docx, "<w:p>{}</w:p>"), [*WORD, "</w:p><w:p>"]),
    *_places(".docx", _docx, "w:b", "<w:p><w:r><w:t>Tom {}</w:t></w:r></w:p>"),
    Family(".pptx", "a paragraph", _in(_pptx, "<a:p><a:r><a:t>Tom</a:t></a:r>{}</a:p>"), SLIDE),
    *_places(".pptx", _pptx, "a:b", "<a:p><a:r><a:t>Tom {}</a:t></a:r></a:p>"),
    Family(".pptx", "the tag of properties", _in(_pptx, "<a:p><a:r><a:rPr{}/><a:t>a</a:t></a:r></a:p>"), ATTRIBUTES),
    Family(".odt", "a paragraph", _in(odt, "<text:p>Tom {}</text:p>"), OPEN, OPEN_FRAMES),
    Family(".odt", "a format", _in(odt, "<text:p>Tom <text:span a='{}'>Tom<text:s/></text:span></text:p>"), VALUE),
    *_places(".odt", odt, "text:b", "<text:p>Tom {}</text:p>"),
    Family(".odp", "a slide", _in(odt, "<text:p>Tom {}</text:p>"), OPEN, OPEN_FRAMES),
    Family(".ods", "a row", ods, CELLS),
    Family(".ods", "a formula", _in(ods, "<table:table-cell table:formula='{}'/>"), [*VALUE, *FORMULA[:1]]),
    *_places(".ods", ods, "text:b", "<table:table-cell><text:p>Tom {}</text:p></table:table-cell>"),
    Family(".xlsx", "strings", _xlsx("sharedStrings", '<sst a="b">{}</sst>'), STRINGS),
    Family(".xlsx", "a string", _xlsx("sharedStrings", '<sst a="b"><si><t>Tom {}</t></si></sst>'), XML_TEXT),
    Family(
        ".xlsx",
        "a run",
        _xlsx("sharedStrings", '<sst a="b"><si><r><rPr><b/></rPr><t>Tom {}</t></r></si></sst>'),
        XML_TEXT,
    ),
    Family(".xlsx", "a sheet", _xlsx("worksheets/a", '<worksheet a="b">{}</worksheet>'), SHEET),
    Family(".xlsx", "a formula", _xlsx("worksheets/a", '<worksheet a="b"><f>{}</f></worksheet>'), FORMULA),
    Family(
        ".xlsx",
        "a header",
        _xlsx("worksheets/a", '<worksheet a="b"><oddHeader>Tom {}</oddHeader></worksheet>'),
        HEADER,
    ),
    Family(".xlsx", "a comment", _xlsx("worksheets/a", '<worksheet a="b"><!--{}--></worksheet>'), UNREAD),
    Family(".xlsx", "a table", _xlsx("tables/a", '<table a="b">{}</table>'), COLUMNS),
    Family(
        ".xlsx",
        "a column",
        _xlsx("tables/a", '<table a="b"><tableColumn {}/></table>'),
        [*ATTRIBUTES, " name='a'"],
    ),
    Family(".xlsx", "a comment in a table", _xlsx("tables/a", '<table a="b"><!--{}--></table>'), UNREAD),
    Family(
        ".xlsx",
        "the workbook",
        _xlsx("workbook", '<workbook a="b"><calcPr {}/></workbook>'),
        [*ATTRIBUTES, *VALUE],
    ),
    Family(".epub", "a page", _book("a.xhtml", "{}"), [*WORDS, *MARKUP]),
    Family(
        ".epub",
        "the contents",
        _book("a.ncx", '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">{}</ncx>'),
        ["<text>Tom &amp; #</text>", "<text>a</text>", "<b/>", " "],
    ),
    Family(".srt", "a file", str.encode, SUBTITLES),
    Family(".srt", "a cue", _text(f"{TIMES}Tom {{}}\n"), [each for each in SUBTITLES if "\n\n" not in each]),
    Family(".srt", "a line", _text(f"{TIMES}Tom {{}}\n"), [each for each in SUBTITLES if "\n" not in each]),
    Family(
        ".srt",
        "a second cue",
        _text(f"{TIMES}Tom\n\n{TIMES.replace('01', '03')}a {{}}\n"),
        ["Tom ", "a ", "a", "<i>", "</i>", "\n"],
    ),
    Family(".vtt", "a file", _text(f"WEBVTT\n\n{TIMES}Tom\n\n{{}}"), SUBTITLES),
    Family(
        ".vtt",
        "a cue",
        _text(f"WEBVTT\n\n{TIMES}Tom {{}}\n"),
        [each for each in SUBTITLES if "\n\n" not in each],
    ),
    Family(".ass", "a file", _text(f"{EVENTS}{{}}"), DIALOGUES),
    Family(".ass", "a dialogue", _text(f"{EVENTS}Tom {{}}\n"), [each for each in DIALOGUES if "\n" not in each]),
    Family(".xlf", "a unit", _in(_xliff, "Tom {}"), CODES, ["<g>{}</g>", "<mrk>{}</mrk>"]),
    *_places(".xlf", _xliff, "x", "Tom {}"),
    Family(".xlf", "a unit of version 2", _in(_xliff_2, "Tom {}"), [*CODES[:13], *CODED]),
    Family(".sdlxliff", "segments", _sdl, SEGMENTS, ["<g>{}</g>"]),
    Family(".sdlxliff", "a text in a code", _in(_xliff, "<ph><sub>{}</sub></ph>"), CODED),
    Family(
        ".mxliff",
        "a unit",
        _text(f'<xliff version="1.2" {MEMSOURCE}><trans-unit><source>{{}}</source></trans-unit></xliff>'),
        CODED,
    ),
    Family(".mqxliff", "a unit", _in(_xliff, "Tom {}"), CODES),
    Family(".tmx", "a unit", _text("<tmx><body><tu>{}</tu></body></tmx>"), VARIANTS),
    Family(".tmx", "a text", _text(f"<tmx><body><tu>{TUV}</tu></body></tmx>"), CODED, ["<hi>{}</hi>"]),
    *_places(".tmx", _text(f"<tmx><body><tu>{TUV}</tu></body></tmx>"), "x", "Tom {}"),
    Family(".ts", "messages", _text("<TS><context>{}</context></TS>"), MESSAGES),
    Family(".ts", "a message", _in(_qt, "Tom {}"), [*KEYS, *XML_TEXT]),
    *_places(".ts", _qt, "x", "Tom {}"),
    Family(".resx", "data", _text("<root><data/>{}</root>"), DATA),
    Family(".resx", "a value", _text('<root><data name="a.Text"><value>&amp;a {}</value></data></root>'), KEYS),
    Family(".resw", "a value", _text("<root><data><value>Tom {}</value></data></root>"), XML_TEXT),
    Family(".xml", "resources", _text("<resources>{}</resources>"), RESOURCES),
    Family(".xml", "a string", _in(_android, "Tom {}"), STRING, ["<b>{}</b>", "<xliff:g>{}</xliff:g>"]),
    Family(
        ".xml",
        "a plural",
        _text("<resources><plurals>{}</plurals></resources>"),
        [*RESOURCES[5:6], '<item quantity="one">Tom</item>', '<item quantity="#"/>', "\n  "],
    ),
    Family(
        ".xml",
        "entities",
        _text('<!DOCTYPE a [<!ENTITY e "Tom">{}]><resources a="&e;"/>'),
        ["<!ENTITY e# 'a'>", "<!--a-->", "\n"],
    ),
    Family(".xml", "entities in a value", _text('<!DOCTYPE a [<!ENTITY e "Tom">]><resources a="{}"/>'), ["&e;", "a"]),
    *_places(".xml", _android, "x", "Tom {}"),
    Family(".xml", "any other", _text("<a>{}</a>"), XML_TEXT),
    Family(".xml", "before the root", _text("{}<a>Tom</a>"), ["<!--a-->", "<?a b?>", "\n", "<!--", "a", "-->"]),
    Family(".svg", "a drawing", _text("<svg><text>{}</text></svg>"), XML_TEXT),
    Family(".dita", "a topic", _text("<topic><p>{}</p></topic>"), XML_TEXT),
    Family(".po", "a file", str.encode, ENTRIES),
    Family(".po", "a message", _text('msgid "Tom {}"\nmsgstr ""\n'), MESSAGE),
    Family(".po", "a page", _text('#: a.rst:1\nmsgid "Tom {}"\nmsgstr ""\n'), MESSAGE),
    Family(".po", "a page of Markdown", _text('#: a.md:1\nmsgid "Tom {}"\nmsgstr ""\n'), MESSAGE),
    Family(
        ".po",
        "a message with arguments",
        _text('#, c-format, python-brace-format, kde-format, sh-format\nmsgid "Tom {}"\nmsgstr ""\n'),
        MESSAGE,
    ),
    Family(
        ".po",
        "a plural with arguments",
        _text('#, boost-format, lisp-format\nmsgid "Tom {}"\nmsgid_plural "a"\nmsgstr[0] ""\n'),
        MESSAGE,
    ),
    Family(".po", "a header", _text('msgid ""\nmsgstr "{}"\n\nmsgid "Tom"\nmsgstr ""\n'), PLURALS),
    Family(".md", "a file", str.encode, [*MARKDOWN, *BLOCKS]),
    Family(".md", "blocks", str.encode, BLOCKS),
    Family(".md", "a paragraph", _text("Tom {}\n"), MARKDOWN),
    Family(".md", "a paragraph with references", _text("[a]: b\n\nTom {}\n"), MARKDOWN),
    Family(".md", "a list", _text("- Tom {}\n"), [*MARKDOWN, *BLOCKS]),
    Family(".md", "a cell", _text("|a|\n|-|\n|Tom {}|\n"), MARKDOWN),
    Family(".json", "a file", str.encode, JSON, ['"a": [{}],', "[{}],"]),
    Family(".json", "an object", _text('{"a": "Tom", {} "b": "Tom"}'), JSON),
    Family(".json", "an array", _text('["Tom", {} "a"]'), JSON),
    Family(".json", "a text", _text('["Tom {}"]'), LOCALISED),
    Family(".json", "a message", _text('{"a": {"message": "Tom {}"}}'), LOCALISED),
    Family(".json", "texts", lambda body: b'["' + body.replace("a", '", "').encode() + b'"]', LOCALISED),
    Family(".arb", "a file", _text('{"a": "Tom", {} "b": "Tom"}'), JSON),
    Family(".arb", "a plural", _text('{"a": "{n, plural, one {Tom {}} other {Tom}}"}'), LOCALISED),
    Family(".properties", "a file", str.encode, JAVA),
    Family(".properties", "a value", _text("a = Tom {0} {}\n"), LOCALISED),
    Family(".strings", "a file", str.encode, STRINGS_OF_APPLE),
    Family(".strings", "a text", _text('"a" = "Tom {}";'), LOCALISED),
    Family(".stringsdict", "a dictionary", _text('<plist version="1.0"><dict>{}</dict></plist>'), PLIST),
    Family(".xcstrings", "entries", _text('{"sourceLanguage": "en", "strings": {{}"z": {}}}'), CATALOGUE),
    Family(".yml", "a file", str.encode, YAML),
    Family(".yml", "texts", _text("en:\n  a: Tom\n{}"), YAML),
    Family(".yml", "a list", _text('en: [Tom, {} "a"]\n'), YAML),
    Family(".yml", "a text", _text('en:\n  a: "Tom {}"\n'), LOCALISED),
    Family(".ftl", "a file", str.encode, FLUENT),
    Family(".ftl", "a pattern", _text("a = Tom {}\n"), FLUENT),
    Family(".ftl", "a variant", _text("a = { $n ->\n *[other] Tom {}\n }\n"), FLUENT),
    Family(".csv", "a file", _text("source,target\n{}"), CELLS_OF_TABLES),
    Family(".csv", "a first row", _text("source{}\nTom\n"), CELLS_OF_TABLES),
    Family(".tsv", "a file", _text("source\tx\n{}"), CELLS_OF_TABLES),
]
SUFFIXES = tuple(dict.fromkeys(family.suffix for family in FAMILIES))
