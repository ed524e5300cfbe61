"""Files of GNU gettext (.po, .pot): messages without a translation are translated, and marked as fuzzy.

All other lines are copied byte for byte, but for the header, which says the language, its plural forms and the
encoding. A translation that `msgfmt --check` would refuse is not written. polib 1.2 is not used: it refuses
strings beside each other in one line, and writes all entries again, with other line breaks.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from gettext import c2py  # reads the formula of a header, and refuses a long one

from lingon.documents.document import Document, UnreadableDocument, check_marks, check_size
from lingon.documents.encodings import UTF_8, Encoding, codec_of, read_encoded
from lingon.documents.inline import (
    Around,
    FormattedText,
    InlineText,
    Node,
    Point,
    marks_in,
    named_tag,
    paired,
    tags_of,
    text_options,
    with_breaks,
    without_marks,
    write,
)
from lingon.language_tags import is_same_language

# The entries of a file of gettext, by the lines that they have, so that all others are copied byte for byte.

_KEYWORD = re.compile(r"(?P<name>msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,2}\])?)[ \t]*(?=\"|\Z)")
# They give nothing back, see xml_tree. Strings beside each other are one, as in C.
_STRINGS = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"\s*+)++\Z')
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2}))")
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = {chr(code): f"\\{code:03o}" for code in range(32)}
_ESCAPES |= {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {'"': '\\"', "\\": "\\\\"}
LINE_CHARACTERS = 76  # of the text in a line, as gettext writes it


@dataclass(slots=True)
class GettextEntry:
    """An entry, by the numbers of its lines.

    begin: that of its first line that is no comment for people: of flags, of an earlier message, or of a string
    flags: by the numbers of the lines that have them
    references: the positions that it is from
    lines: of its strings, by the names of their keywords, such as msgstr[1], with their escapes resolved
    start: that of the first line with a translation
    last: that of the line after it
    """

    begin: int
    flags: dict[int, list[str]] = field(default_factory=dict)
    references: str = ""
    lines: dict[str, list[str]] = field(default_factory=dict)
    start: int = 0
    last: int = 0

    def string(self, name: str) -> str:
        """Return a string, empty if the entry has none of this name."""
        return "".join(self.lines.get(name, ()))

    @property
    def translations(self) -> list[str]:
        """Its translations."""
        return [self.string(name) for name in self.lines if name.startswith("msgstr")]

    @property
    def is_header(self) -> bool:
        """Whether it is the header, which has no message."""
        return "msgid" in self.lines and not self.string("msgid") and "msgctxt" not in self.lines

    @property
    def waits(self) -> bool:
        """Whether it has no translation."""
        return bool(self.string("msgid")) and bool(self.translations) and not any(self.translations)

    @property
    def has_plural(self) -> bool:
        """Whether it has a plural."""
        return "msgid_plural" in self.lines

    @property
    def flag_names(self) -> set[str]:
        """Its flags."""
        return {flag for flags in self.flags.values() for flag in flags}


def entries_of(lines: Sequence[str]) -> list[GettextEntry]:
    """Return the entries of a file. Obsolete ones are comments. Raises UnreadableDocument."""
    found: list[GettextEntry] = []
    name, begin, flags, references = "", -1, dict[int, list[str]](), list[str]()
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("#") or not text:
            if text.startswith("#~"):
                begin, flags, references = -1, {}, []
            elif text.startswith(("#,", "#|")):
                begin = number if begin < 0 else begin
            if text.startswith("#:"):
                references.append(text[2:])
            if text.startswith("#,"):
                flags[number] = [flag.strip() for flag in text[2:].split(",")]
            name = ""
            continue
        keyword = _KEYWORD.match(text)
        if keyword is not None:
            starts = keyword["name"] == "msgctxt" or (keyword["name"] == "msgid" and name != "msgctxt")
            if starts:
                found.append(GettextEntry(number if begin < 0 else begin, flags, " ".join(references)))
                begin, flags, references = -1, {}, []
            name = keyword["name"]
        _add(found, name, text[keyword.end() if keyword else 0 :], number, begins=keyword is not None)
    return found


def _add(entries: list[GettextEntry], name: str, text: str, number: int, *, begins: bool) -> None:
    """Add a line to the last entry."""
    readable = _STRINGS.match(text) or (begins and not text)
    if not entries or not name or not readable or (begins and name in entries[-1].lines):
        raise UnreadableDocument(f"line {number + 1} of the file is no line of a message of gettext")
    entry = entries[-1]
    strings = (_ESCAPE.sub(_character, string) for string in _STRING.findall(text))
    entry.lines.setdefault(name, []).append("".join(strings))
    if name.startswith("msgstr"):
        entry.start = entry.start or number
    entry.last = number + 1


def _character(escape: re.Match[str]) -> str:
    letter, octal, hexadecimal = escape.groups()
    if letter:
        return _CHARACTERS.get(letter, letter)
    return chr(int(octal, 8) if octal else int(hexadecimal, 16))


def string_lines(name: str, text: str, end: str) -> Iterator[str]:
    """Yield the lines of a string. A long one, or one of several lines, begins below its keyword as gettext does it."""
    parts = [part for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text) for part in _wrapped(line)]
    yield f'{name} "{"".join(parts) if len(parts) < 2 else ""}"{end}'
    if len(parts) > 1:
        yield from (f'"{part}"{end}' for part in parts)


def escaped(text: str) -> str:
    """Return a text as it is between quotation marks."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def _wrapped(line: str) -> Iterator[str]:
    """Yield the parts of a line that lines of a file hold."""
    part = ""
    for word in re.findall(r"[^ ]* *", escaped(line)):
        if part and len(part) + len(word.rstrip()) > LINE_CHARACTERS:
            yield part
            part = ""
        part += word
    yield part


# The header of a file of gettext: its fields, and its lines with some fields of another value.

_CHARSET = re.compile(rb'"?Content-Type:[^\r\n"]{0,200}?\bcharset=([\w.:-]{1,40})', re.IGNORECASE)
_FIELD = re.compile(r"([A-Za-z][\w-]*+)[ \t]*+:[ \t]*+(.*)", re.DOTALL)
HEAD_BYTES = 65_536  # of a file, in which its header is
LANGUAGE, FORMS, TYPE = "Language", "Plural-Forms", "Content-Type"
_NEW = {"MIME-Version": "1.0", TYPE: "text/plain; charset=UTF-8", "Content-Transfer-Encoding": "8bit"}
_SCRIPTS = {"zh-hans": "zh_CN", "zh-hant": "zh_TW", "sr-latn": "sr@latin"}  # as gettext names them


def charset_of(content: bytes) -> str:
    """Return the encoding that the header of a file says, empty if it says none."""
    found = _CHARSET.search(content, 0, HEAD_BYTES)
    return found[1].decode() if found else ""


def fields_of(header: str) -> dict[str, str]:
    """Return the values of fields by their names."""
    found = (_FIELD.fullmatch(line) for line in header.split("\n"))
    return {field[1]: field[2].strip() for field in found if field}


def language_name(tag: str) -> str:
    """Return the name that gettext has for a language, such as pt_BR."""
    return _SCRIPTS.get(tag.lower(), tag.replace("-", "_"))


def header_lines(entry: GettextEntry, lines: Sequence[str], fields: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a header with other values of fields, in the lines that these have, or after the last one.

    The flag fuzzy of a template is left out: msgfmt would leave out the header, which says the encoding.
    """
    end = "\r\n" if lines[entry.start].endswith("\r\n") else "\n"
    for number in range(entry.begin, entry.start):
        flags = entry.flags.get(number)
        if flags is None or "fuzzy" not in flags:
            yield lines[number]
        elif rest := [flag for flag in flags if flag != "fuzzy"]:
            yield f"#, {', '.join(rest)}{end}"
    left, parts = dict(fields), entry.lines["msgstr"]
    if not all(part.endswith("\n") or not part for part in parts):  # fields that go over lines
        values = fields_of(entry.string("msgstr")) | left
        yield from string_lines("msgstr", "".join(f"{name}: {value}\n" for name, value in values.items()), end)
        return
    for number, part in zip(range(entry.start, entry.last), parts, strict=True):
        field = _FIELD.fullmatch(part.removesuffix("\n"))
        if field is None or field[1] not in left or part.count("\n") != 1:
            yield lines[number]
        else:
            written = f'"{escaped(f"{field[1]}: {left.pop(field[1])}")}\\n"{end}'
            yield written if number > entry.start else f'msgstr ""{end}{written}'
    yield from (f'"{escaped(f"{name}: {value}")}\\n"{end}' for name, value in left.items())


def new_header(fields: Mapping[str, str], end: str) -> Iterator[str]:
    """Yield the lines of a header for a file that has none."""
    yield from (f'msgid ""{end}', f'msgstr ""{end}')
    yield from (f'"{escaped(f"{name}: {value}")}\\n"{end}' for name, value in {**fields, **_NEW, **fields}.items())
    yield end


# The plural forms of languages: which numbers have which form, by the formula of a header or of the language.
# GNU gettext, manual, 11.2.6. The formulas are those of its table and of Unicode CLDR as gettext writes them.

_ONE = "nplurals=2; plural=(n != 1);"
_FORMULAS = {
    "nplurals=1; plural=0;": "bo dz id ig ja jv kde km ko lo ms my sah ses sg su th to vi wo yo yue zh",
    "nplurals=2; plural=(n > 1);": "ak am as bh bn fa fil fr gu guw hi hy kab kn ln mg nso oc pa pt-br si ti tl wa zu",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);": (
        "be bs hr ru sh sr uk"
    ),
    "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;": "cs sk",
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);": "csb pl szl",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);": "lt sgs",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);": "lv ltg",
    "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100>0 && n%100<20)) ? 1 : 2);": "mo ro",
    "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);": "sl dsb hsb",
    "nplurals=2; plural=(n%10!=1 || n%100==11);": "is mk",
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);": "ar ars",
    "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);": "ga",
    "nplurals=4; plural=(n==1 || n==11) ? 0 : (n==2 || n==12) ? 1 : (n > 2 && n < 20) ? 2 : 3;": "gd",
    "nplurals=4; plural=(n==1) ? 0 : (n==2) ? 1 : (n != 8 && n != 11) ? 2 : 3;": "cy",
    "nplurals=4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3);": "mt",
}
_BY_LANGUAGE = {language: formula for formula, languages in _FORMULAS.items() for language in languages.split()}
_FORMULA = re.compile(r"\s*+nplurals\s*+=\s*+(\d{1,2})\s*+;\s*+plural\s*+=\s*+([^;]{1,900})")
MOST_FORMS = 10
MOST_NUMBER = 1000  # up to which numbers are looked at


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of a plural.

    count: of them; one: that of the number 1; alone: whether no other number has that
    """

    count: int
    one: int
    alone: bool

    def texts(self, *, alike: bool) -> list[int]:
        """Return for each form whether it is the singular, 0, or the plural, 1.

        alike: whether the singular has the same arguments as the plural: else it says the number, and is for 1 alone
        """
        singular = self.count > 1 and (self.alone or alike)
        return [int(not (singular and form == self.one)) for form in range(self.count)]


def formula_of(language: str) -> str:
    """Return the value of Plural-Forms for a language, empty if the language is empty."""
    tag = language.lower().replace("_", "-")
    base = tag.partition("-")[0]
    return (_BY_LANGUAGE.get("-".join(tag.split("-")[:2])) or _BY_LANGUAGE.get(base, _ONE)) if tag else ""


def forms_of(formula: str) -> Forms | None:
    """Return the forms that a value of Plural-Forms describes, or None if it describes none."""
    found = _FORMULA.match(formula)
    if found is None or not 1 <= int(found[1]) <= MOST_FORMS:
        return None
    count = int(found[1])
    try:
        compute = c2py(found[2].strip())
        forms: Sequence[int] = [int(compute(number)) for number in range(MOST_NUMBER + 1)]
    except (ValueError, ArithmeticError, RecursionError):
        return None
    if not all(0 <= form < count for form in forms):
        return None
    return Forms(count, forms[1], forms.count(forms[1]) == 1)


# The arguments in messages of programs, by their flags: a translation has those of its message, or it is refused.
# What a message must have is what `msgfmt --check-format` demands, and a little more: arguments are compared as they
# are written. Where they change places, they get numbers in formats that have these.

_PERCENT = re.compile(
    r"%\{\w{1,100}\}|%(?:(?P<number>\d{1,4})\$)?(?:\([^()]{0,200}\)|<(?!PRI)\w{1,100}>)?"
    r"[-+ #0'I,(]{0,9}(?:\*|\d{0,9})(?:\.(?:\*|\d{0,9}))?(?:hh|h|ll|l|L|q|j|z|t|w)?"
    r"(?:[diouxXeEfFgGaAcspnCSm@brBTD%]|<PRI\w{1,16}>)"
)
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]{0,200}\}")
_NUMBERS = re.compile(r"%%|%L?\d{1,2}|%L?n")
_BETWEEN = re.compile(r"%%|%\d{1,2}%|%\|[^|]{1,40}\|")
_VARIABLES = re.compile(r"\$\{\w{1,100}\}|\$\w{1,100}")
_TILDES = re.compile(r"~(?:[-+\d,'#vV:@]{0,20})[A-Za-z%~&*?{}\[\]();^|_/$<>]")


@dataclass(frozen=True, slots=True)
class ArgumentFormat:
    """How a kind of programs writes arguments.

    pattern: of them, and of signs that stand for themselves
    ordered: whether they have their values by their order; numbered: whether they may have numbers instead
    sign: that begins an argument, and is nothing else, empty if it may be text
    """

    pattern: re.Pattern[str]
    ordered: bool = True
    numbered: bool = False
    sign: str = ""


_C, _PYTHON = ArgumentFormat(_PERCENT, numbered=True, sign="%"), ArgumentFormat(_PERCENT, sign="%")
_NAMED = ArgumentFormat(_BRACES, ordered=False)
FORMATS = {
    **dict.fromkeys(("c", "objc", "php", "perl", "ruby", "java-printf", "awk", "tcl", "gcc-internal"), _C),
    **dict.fromkeys(("gfc-internal", "elisp", "librep", "sh-printf"), _C),
    **dict.fromkeys(("python", "lua", "javascript"), _PYTHON),
    **dict.fromkeys(("python-brace", "perl-brace", "java", "csharp", "rust", "d"), _NAMED),
    **dict.fromkeys(
        ("qt", "qt-plural", "kde", "kde-kuit", "ycp", "smalltalk"), ArgumentFormat(_NUMBERS, ordered=False)
    ),
    **dict.fromkeys(("lisp", "scheme", "gimp-scheme"), ArgumentFormat(_TILDES)),
    "boost": ArgumentFormat(_BETWEEN, ordered=False),
    "sh": ArgumentFormat(_VARIABLES, ordered=False),
}
"""Formats by the names of their flags, without "-format"."""

SAME, NUMBERED, REORDERED = range(3)
"""What was done with the arguments of a translation: nothing, they got numbers, or the order of the message."""


def formats_of(flags: Iterable[str]) -> list[ArgumentFormat]:
    """Return the formats that flags name."""
    return [FORMATS[name] for flag in flags if (name := flag.removesuffix("-format")) != flag and name in FORMATS]


def arguments_of(text: str) -> list[str]:
    """Return what may be arguments in a message without flags, sorted."""
    return sorted(
        each[0] for pattern in (_PERCENT, _BRACES) for each in pattern.finditer(text) if _is_argument(each[0])
    )


def fitted(formats: Sequence[ArgumentFormat], message: str, translation: str) -> tuple[str, int] | None:
    """Return a translation with the arguments of its message, and what was done, or None if it has others."""
    done = SAME
    for format in formats:
        found = _fitted(format, message, translation)
        if found is None:
            return None
        translation, done = found[0], max(done, found[1])
    return translation, done


def _fitted(format: ArgumentFormat, message: str, translation: str) -> tuple[str, int] | None:
    wanted, found = (list(format.pattern.finditer(text)) for text in (message, translation))
    if format.sign and format.sign in format.pattern.sub("", message):
        return translation, SAME  # the message is none of this format: msgfmt looks no further
    if format.sign and format.sign in format.pattern.sub("", translation):
        return None
    names, others = ([each[0] for each in each_of if _is_argument(each[0])] for each_of in (wanted, found))
    if not format.ordered:
        return (translation, SAME) if set(names) == set(others) else None
    if sorted(names) != sorted(others):
        return None
    if names == others or all(each["number"] or _is_named(each[0]) for each in wanted if _is_argument(each[0])):
        return translation, SAME
    if format.numbered and not any("*" in name for name in names):
        return _with_numbers(format, names, translation), NUMBERED
    order = iter(names)
    return format.pattern.sub(lambda each: next(order) if _is_argument(each[0]) else each[0], translation), REORDERED


def _with_numbers(format: ArgumentFormat, names: Sequence[str], translation: str) -> str:
    """Return a translation whose arguments have the numbers of those of its message."""
    positions = defaultdict[str, deque[int]](deque)
    for position, name in enumerate(name for name in names if not name.endswith("m")):  # %m has no value of its own
        positions[name].append(position + 1)

    def numbered(argument: re.Match[str]) -> str:
        places_of = positions.get(argument[0])
        return f"%{places_of.popleft()}${argument[0][1:]}" if places_of else argument[0]

    return format.pattern.sub(numbered, translation)


def _is_argument(text: str) -> bool:
    return not text.endswith(("%%", "{{", "}}", "~~", "~%"))


def _is_named(text: str) -> bool:
    return text[1:2] in "(<{" and text[:1] == "%"


# Light markup in messages: reStructuredText and Markdown, where a file or a flag says that a message has it.
# Manuals in Sphinx and other generators are translated by files of gettext whose references name the pages. Code,
# targets and addresses stay as they are. Emphasis, links and labels are around their text.

REST, MARKDOWN = "rst", "md"
_FLAGS = {"rst-text": REST, "md-text": MARKDOWN}
_PAGE = re.compile(r"\.(rst|md|markdown|mdx)(?=:\d|\s|\Z)")
_BEGIN, _END = r"(?<![\w\\`*])", r"(?![\w`*])"
_MARKS = {
    REST: re.compile(
        rf"(?P<kept>``[^`\n](?:[^`]|`(?!`))*+``|\|[^\s|][^|\n]{{0,100}}\||\[[\w#*.-]{{1,40}}\]_{_END})"
        rf"|(?P<before>{_BEGIN}(?::(?:guilabel|menuselection|strong|emphasis|sub|sup|abbr|dfn):)`)"
        r"(?P<text>[^`\n<>]{1,300})(?P<after>`)"
        rf"|(?P<before2>{_BEGIN}(?::[\w:.+-]{{1,60}}:)?`)(?P<text2>[^`\n<>]{{1,300}}?)"
        r"(?P<after2>\s?<[^`<>\n]{1,500}>`_{0,2})"
        rf"|(?P<role>{_BEGIN}:[\w:.+-]{{1,60}}:`[^`\n]{{1,500}}`|{_BEGIN}`[^`\n]{{1,300}}`_{{0,2}})"
        rf"|(?P<before3>{_BEGIN}\*\*)(?P<text3>[^\s*](?:[^*\n]{{0,300}}[^\s*])?)(?P<after3>\*\*{_END})"
        rf"|(?P<before4>{_BEGIN}\*)(?P<text4>[^\s*](?:[^*\n]{{0,300}}[^\s*])?)(?P<after4>\*{_END})"
    ),
    MARKDOWN: re.compile(
        r"(?P<kept>`[^`\n]{1,500}`|``[^\n]{1,500}?``|!\[[^\[\]\n]{0,300}\]\([^()\s]{1,500}\))"
        r"|(?P<before>\[)(?P<text>[^\[\]\n]{1,300})(?P<after>\]\([^()\n]{1,500}\)|\]\[[^\[\]\n]{0,300}\])"
        rf"|(?P<before2>{_BEGIN}(?:\*\*|__))(?P<text2>[^\s*_](?:[^*_\n]{{0,300}}[^\s*_])?)(?P<after2>(?:\*\*|__){_END})"
        rf"|(?P<before3>{_BEGIN}[*_])(?P<text3>[^\s*_](?:[^*_\n]{{0,300}}[^\s*_])?)(?P<after3>[*_]{_END})"
    ),
}


def markup_of(flags: set[str], references: str) -> str:
    """Return the markup of a message, REST or MARKDOWN, empty if it has none.

    flags: of the message; references: the positions that it is from
    """
    for flag, markup in _FLAGS.items():
        if flag in flags:
            return markup
    page = _PAGE.search(references)
    return "" if page is None else REST if page[1] == "rst" else MARKDOWN


def with_marks(text: str, markup: str) -> Iterator[Node[bytes]]:
    """Yield a text with what its markup marks. All patterns are bounded, so that a mark without an end costs little."""
    if not markup:
        yield FormattedText(text)
        return
    at = 0
    for found in _MARKS[markup].finditer(text):
        yield FormattedText(text[at : found.start()])
        at = found.end()
        groups = found.groupdict()
        name = next((name for name, value in groups.items() if name.startswith("text") and value), "")
        if not name:
            yield Point(found[0].encode())
            continue
        number = name.removeprefix("text")
        before, after = groups[f"before{number}"], groups[f"after{number}"]
        yield Around(before.encode(), [FormattedText(groups[name])], after.encode())
    yield FormattedText(text[at:])


MOST_ENTRIES = 50_000
TWO_FORMS = "nplurals=2; plural=(n != 1);"  # of a file that does not say its language
_DONE = {
    None: "messages stay without a translation, for theirs has other arguments or line ends",
    REORDERED: "messages have their arguments in the order of the source, which has to be checked",
}


class _GettextMessage:
    """A message to translate. Blank characters and line breaks at its ends stay, as msgfmt demands."""

    def __init__(self, message: str, markup: str = "") -> None:
        """markup: see `markup_of`."""
        self.message = message
        nodes: list[Node[bytes]] = []
        for node in with_marks(message, markup):
            nodes += _with_tags(node.text, markup) if isinstance(node, FormattedText) else [node]
        self.inline = InlineText(paired(nodes, lambda point: named_tag(point.content.decode())))

    def translated(self, translation: str) -> str:
        """Return the message of a translation."""
        nodes = self.inline.translated(translation)
        return without_marks(write(nodes, lambda piece: piece.text.encode(), bytes).decode())


def _with_tags(text: str, markup: str) -> Iterator[Node[bytes]]:
    """Yield a text with its tags and line breaks as points. ReStructuredText has no tags."""
    at = 0
    for tag in tags_of(text) if markup != REST else ():
        yield from with_breaks(text[at : tag.start()], str.encode)
        yield Point(tag[0].encode())
        at = tag.end()
    yield from with_breaks(text[at:], str.encode)


@dataclass(frozen=True, slots=True)
class _Job:
    """An entry to translate.

    texts: its messages; forms: which of them is each form of its plural, empty without a plural
    """

    entry: GettextEntry
    texts: Sequence[_GettextMessage]
    forms: Sequence[int]


class _GettextFile:
    """A file of gettext. target: the language to translate to, empty if it is not known."""

    def __init__(self, content: bytes, target: str) -> None:
        """Raise UnreadableDocument for content that cannot be read."""
        text, self._encoding = read_encoded(content, charset_of(content))
        self._lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
        self._entries = entries_of(self._lines)
        self._header = next((entry for entry in self._entries if entry.is_header), None)
        self._fields = fields_of(self._header.string("msgstr")) if self._header else {}
        self.notes: list[str] = []
        self._changes = dict(self._new_fields(target))
        self.jobs = list(self._jobs())

    @property
    def texts(self) -> list[str]:
        """To translate."""
        return [text.inline.text for job in self.jobs for text in job.texts]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""
        each, edits, done = iter(translations), dict[int, tuple[int, list[str]]](), dict[int | None, list[int]]()
        for job in self.jobs:
            messages, how = self._fitted(job, [text.translated(next(each)) for text in job.texts])
            done.setdefault(how, []).append(job.entry.start)
            if how is not None:
                edits[job.entry.begin] = job.entry.last, list(self._entry_lines(job, messages))
        for outcome, lines in done.items():
            if outcome in _DONE:
                self.notes.append(f"{_DONE[outcome]}: {len(lines):,}, the first at line {lines[0] + 1:,}")
        return self._encoded(edits)

    def _new_fields(self, target: str) -> Iterator[tuple[str, str]]:
        """Yield the fields of the header that change, and their values."""
        language = self._fields.get(LANGUAGE)
        other = language is not None and bool(target) and not is_same_language(language, target)
        if target and (other or language is None):
            yield LANGUAGE, language_name(target)
        plurals = [entry for entry in self._entries if entry.has_plural]
        formula = self._fields.get(FORMS, "")
        chosen = formula_of(target) or TWO_FORMS
        if other and not any(any(entry.translations) for entry in plurals) and formula:
            yield FORMS, chosen
        elif forms_of(formula) is None and (plurals or formula):
            if not target:
                self.notes.append(f"the header gets {FORMS}: {TWO_FORMS} for the target language is not known")
            yield FORMS, chosen

    def _jobs(self) -> Iterator[_Job]:
        """Yield what is to be translated."""
        forms = forms_of(self._changes.get(FORMS) or self._fields.get(FORMS, TWO_FORMS))
        assert forms is not None
        waiting = [entry for entry in self._entries if entry.waits]
        messages = [self._messages(entry, forms) for entry in waiting]
        check_marks(sum(marks_in(message) for each, _ in messages for message in each))
        for entry, (each, positions) in zip(waiting, messages, strict=True):
            markup = markup_of(entry.flag_names, entry.references)
            texts = [_GettextMessage(message, markup) for message in each]
            if all(text.inline.text for text in texts):
                yield _Job(entry, texts, positions)

    def _messages(self, entry: GettextEntry, forms: Forms) -> tuple[list[str], list[int]]:
        """Return the messages of an entry, and which of them is each form of its plural."""
        if not entry.has_plural:
            return [entry.string("msgid")], []
        names = ("msgid", "msgid_plural")
        one, more = (arguments_of(entry.string(name)) for name in names)
        positions = forms.texts(alike=one == more)
        used = sorted(set(positions))
        return [entry.string(names[position]) for position in used], [used.index(position) for position in positions]

    def _fitted(self, job: _Job, translations: Sequence[str]) -> tuple[list[str], int | None]:
        """Return translations with the arguments of their messages, and what was done, or None if one cannot have
        them.
        """
        formats, found, done = formats_of(job.entry.flag_names), list[str](), SAME
        for text, translation in zip(job.texts, translations, strict=True):
            fit = fitted(formats, text.message, translation)
            if fit is None or not fit[0] or _ends(fit[0]) != _ends(text.message):
                return [], None
            found.append(fit[0])
            done = max(done, fit[1])
        return found, done

    def _entry_lines(self, job: _Job, messages: Sequence[str]) -> Iterator[str]:
        """Yield the lines of an entry with its translations."""
        entry = job.entry
        end = "\r\n" if self._lines[entry.start].endswith("\r\n") else "\n"
        if not entry.flags:
            yield f"#, fuzzy{end}"
        first = min(entry.flags, default=-1)
        for number in range(entry.begin, entry.start):
            is_first = number == first and "fuzzy" not in entry.flag_names
            yield self._lines[number].replace("#,", "#, fuzzy,", 1) if is_first else self._lines[number]
        if not job.forms:
            yield from string_lines("msgstr", messages[0], end)
        for form, position in enumerate(job.forms):
            yield from string_lines(f"msgstr[{form}]", messages[position], end)

    def _encoded(self, edits: dict[int, tuple[int, list[str]]]) -> bytes:
        """Return the file with other lines; edits: the line after the old ones, and the new ones, by the first."""
        encoding, changes = self._encoding, self._changes if self.jobs else {}
        if encoding.fault("".join(line for _, lines in edits.values() for line in lines)):
            self.notes.append(f"the file is in {encoding.name}; its translation is in UTF-8, which has all characters")
            encoding = Encoding(UTF_8)
        stated = self._fields.get(TYPE, "").partition("charset=")[2].strip()
        if self.jobs and codec_of(stated) != codec_of(encoding.codec):
            changes = {**changes, TYPE: f"text/plain; charset={encoding.charset}"}
        if self._header is not None and changes:
            entry = self._header
            edits[entry.begin] = entry.last, list(header_lines(entry, self._lines, changes))
        written = list(new_header(changes, self._end)) if self._header is None and self.jobs else []
        at = 0
        for begin, (last, lines) in sorted(edits.items()):
            written += [*self._lines[at:begin], *lines]
            at = last
        return encoding.written("".join([*written, *self._lines[at:]]), self.notes)

    @property
    def _end(self) -> str:
        return "\r\n" if self._lines and self._lines[0].endswith("\r\n") else "\n"


def read_gettext(content: bytes, target: str = "") -> Document:
    """Return a file of gettext. Raises UnreadableDocument. target: the language to translate to, empty if not known."""
    check_size(len(content), "the file has")
    if (count := content.count(b"msgid")) > MOST_ENTRIES:
        raise UnreadableDocument(f"the file has {count:,} messages; at most {MOST_ENTRIES:,}")
    file = _GettextFile(content, target)
    return Document(file.texts, text_options(), file.written, file.notes)


def _ends(message: str) -> tuple[bool, bool]:
    """Return whether a message begins, and ends, with a line break: msgfmt demands the same of its translation."""
    return message.startswith("\n"), message.endswith("\n")
