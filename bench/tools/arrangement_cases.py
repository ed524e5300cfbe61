"""The cases of `lingon.bench.tools.arrangements`: strings that are kept, texts that have them, and formats of texts."""

from __future__ import annotations

import io
import random
import re
import string
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from xml.sax.saxutils import escape

from lingon.documents import read_document
from lingon.errors import LingonError
from lingon.segments.kept_forms import Kind
from lingon.segments.protection import TABLE, find_protected, kept_of
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb

FORMS: Mapping[str, tuple[str, ...]] = {
    form.name: form.examples
    for form in TABLE
    if form.kind is not Kind.BORDER and all(kept_of(example) == [example] for example in form.examples)
}
"""Examples of each form. A string like an example has its punctuation, with other letters and figures."""

_LETTERS_OR_FIGURES = re.compile(r"[A-Za-z]+|[0-9]+")
_FIXED = re.compile(
    r"https?|www|%[-.\d$]*[a-z](?![a-z])|\)[a-z]\Z|if\b|date\b|\.\d?[a-z]\}\Z|\.(?:txt|py|org)\b|<x|<ph"
)
_TRIES = 20


def random_string(form: str, rng: random.Random) -> str:
    """Return a string of a form: one of its examples, or one that is like it and found as a whole in a text too."""
    example = rng.choice(FORMS[form])
    for _ in range(_TRIES):
        found = like(example, rng)
        if is_found(found):
            return found
    return example


def like(example: str, rng: random.Random) -> str:
    """Return a string with the punctuation of an example, and other letters and figures in the place of its own."""
    fixed = [found.span() for found in _FIXED.finditer(example)]

    def other(run: re.Match[str]) -> str:
        if any(begin < run.end() and run.start() < end for begin, end in fixed):
            return run[0]
        return "".join(rng.choice(_others(character)) for character in run[0])

    return _LETTERS_OR_FIGURES.sub(other, example)


def is_found(text: str) -> bool:
    """Whether a string is kept as a whole, between words."""
    before = "see "
    return [span[:2] for span in find_protected(f"{before}{text} now")] == [(len(before), len(before) + len(text))]


def _others(character: str) -> str:
    """Return what may be in the place of a letter or figure; a figure of base 16 stays one."""
    kinds = string.digits, "abcdef", "ABCDEF", string.ascii_lowercase
    return next((kind for kind in kinds if character in kind), string.ascii_uppercase)


OPENING, CLOSING = "\ue000\ue002", "\ue001\ue003"
"""What stands for the start and the end tags of two kinds of elements."""

FRAMES: Sequence[tuple[str, str]] = (
    ("Please send ", " to the office."),
    ("Hello ", ", how are you?"),
    ("You have ", " new files."),
    ("Tom wants to see ", " tomorrow."),
    ("The teacher wrote ", " on the board."),
    ("Do you want to delete ", "?"),
    ("I think that ", " is very good."),
    ("My brother bought ", " last week."),
    ("We can find ", " in the garden."),
    ("There is no ", " in this house."),
    ("Open the door and take ", " with you."),
    ("When he saw ", ", he was happy."),
)
"""What comes before and after a string in a sentence."""

WORDS = ("house", "friend", "water", "good morning", "my dog", "the new book", "a cup of tea", "Boston")

ARRANGEMENTS: Mapping[str, str] = {
    "alone": "A",
    "in a sentence": "<A>",
    "at the begin": "A is in the garden.",
    "at the end": "Tom lives in A.",
    "twice": "Tom gave A to A yesterday.",
    "two": "<A and B>",
    "two beside each other": "<A B>",
    "in a tag": "<[A]>",
    "in a tag at the begin": "[A] is in the garden.",
    "in a tag at the end": "Tom lives in [A].",
    "in a tag at the end, with the full stop": "Tom lives in [A.]",
    "in a tag with words": "<[the W A]>",
    "in a tag before words": "<[A W]> Come here.",
    "in two tags": "<[{A}]>",
    "in a tag in a tag with words": "<[the W {A}]>",
    "each in a tag": "<[A] and {B}>",
    "both in a tag": "<[A and B]>",
    "twice, in other tags": "Tom gave [A] to {A} yesterday.",
    "one in a tag": "<[A] and B>",
    "beside a tag": "<[W] A>",
    "between tags": "<[W] A {W}>",
    "touches the tag of a word": "<[W]-A>",
    "in a tag that touches a word": "<[A]-W>",
    "in a tag around the sentence": "[<A>]",
    "in a tag over two sentences": "[<A> Tom is here.] He is {happy}.",
    "before a comma": "<A, my W,>",
    "in a tag before a comma": "<[A], my W,>",
    "in a tag before a mark": "Come here, [A]!",
    "in quotation marks": '<"A">',
    "in a tag in quotation marks": '<"[A]">',
    "in quotation marks in a tag": '<["A"]>',
    "in a tag in single quotation marks": "<'[A]'>",
    "in brackets": "<the W (A)>",
    "in a tag in brackets": "<the W ([A])>",
    "in brackets in a tag": "<the W [(A)]>",
    "after a colon": "The W: A",
    "in a tag after a colon": "The W: [A]",
    "after a dash": "<the W – A –>",
}
"""Texts by their names. A, B: the strings; W: some words; <...>: in a frame; [...], {...}: elements."""


@dataclass(frozen=True, slots=True)
class Case:
    """A text with strings that are kept, and characters of OPENING and CLOSING, which stand for tags.

    strings: those in it, each once
    """

    text: str
    strings: tuple[str, ...]

    @property
    def is_tagged(self) -> bool:
        """Whether it has tags."""
        return any(opening in self.text for opening in OPENING)


def case_of(arrangement: str, strings: Sequence[str], rng: random.Random) -> Case:
    """Return a text in which two strings are in an arrangement; words and frame are random."""
    form = ARRANGEMENTS[arrangement]
    frame = rng.choice(FRAMES)
    meaning = {"A": strings[0], "B": strings[1], **dict(zip("<>[{]}", (*frame, *OPENING, *CLOSING), strict=True))}
    text = "".join(rng.choice(WORDS) if each == "W" else meaning.get(each, each) for each in form)
    used = [string for name, string in zip("AB", strings, strict=True) if name in form]
    return Case(text, tuple(dict.fromkeys(used)))


def are_found(case: Case) -> bool:
    """Whether all strings of a case are kept in its text: what touches some of them makes them other strings."""
    text = without_tags(case.text)
    kept = [text[begin:end] for begin, end, _ in find_protected(text)]
    return all(text.count(string) <= sum(each.count(string) for each in kept) for string in case.strings)


def without_tags(text: str) -> str:
    """Return a text without the characters that stand for tags."""
    return text.translate(dict.fromkeys(map(ord, OPENING + CLOSING)))


_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_XLIFF = "urn:oasis:names:tc:xliff:document:1.2"
_RUN = re.compile(r"<w:r>(<w:rPr>.*?</w:rPr>)?<w:t[^>]*>([^<]*)</w:t></w:r>", re.DOTALL)
_STRINGS = r'((?:"(?:[^"\\]|\\.)*"\n?)+)'
_PO = re.compile(rf"^msgid {_STRINGS}msgstr {_STRINGS}", re.MULTILINE)
_UNIT = re.compile(r"<source>(.*?)</source>\s*(?:<target[^>]*>(.*?)</target>)?", re.DOTALL)
_STYLES = "biu"


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    holds: whether a text can be written in it so that its strings mean themselves
    write: returns a document with a unit for each text; read: returns the texts of these units
    suffix: of a document; empty for a request of texts, each a unit of this text_format
    exact: whether it has each element of a text, and not formats of which one may be in parts, or none if it is empty
    """

    name: str
    holds: Callable[[Case], bool]
    write: Callable[[Sequence[str]], bytes]
    read: Callable[[bytes], list[str]]
    suffix: str = ""
    text_format: pb.TextFormat.ValueType = pb.TEXT_FORMAT_PLAIN
    exact: bool = True


def translate(
    translator: LocalTranslator, format: Format, cases: Sequence[Case], options: pb.DecodingOptions
) -> list[str]:
    """Return the translations of cases in a format."""
    written = format.write([case.text for case in cases])
    if format.suffix:
        document = read_document(f"cases{format.suffix}", written)
        found = _translated(translator, document.texts, document.options, options)
        return format.read(document.write(found))
    units = written.decode().split("\0")
    found = _translated(translator, units, pb.TextOptions(format=format.text_format), options)
    return format.read("\0".join(found).encode())


def _translated(
    translator: LocalTranslator, texts: Sequence[str], text: pb.TextOptions, options: pb.DecodingOptions
) -> list[str]:
    response = translator.translate(pb.TranslateRequest(texts=texts, text=text, options=options))
    refused = [result.status.message for result in response.results if result.status.code]
    if refused:
        raise LingonError(f"a model must translate all cases, and refused {len(refused)}: {refused[0]}")
    return [result.hypotheses[0].text for result in response.results]


def _tagged(text: str, names: Sequence[str]) -> str:
    """Return an escaped text with elements of two names."""
    for opening, closing, name in zip(OPENING, CLOSING, names, strict=True):
        text = text.replace(opening, f"<{name}>").replace(closing, f"</{name.split()[0]}>")
    return text


def _untagged(text: str, names: Sequence[str]) -> str:
    """Return a text with the characters that stand for tags in the place of elements, whose end tags may be alike."""
    opened = list[int]()

    def stand_in(tag: re.Match[str]) -> str:
        if tag[0].startswith("</"):
            return CLOSING[opened.pop()]
        opened.append(next(number for number, name in enumerate(names) if tag[0] == f"<{name}>"))
        return OPENING[opened[-1]]

    alike = "|".join(re.escape(f"<{name}>") + "|" + re.escape(f"</{name.split()[0]}>") for name in names)
    return re.sub(alike, stand_in, text)


def _markup(name: str, around: tuple[str, str], text_format: pb.TextFormat.ValueType) -> Format:
    """Return HTML or XML, each text in an element."""
    names = "bi"

    def write(texts: Sequence[str]) -> bytes:
        return "\0".join(f"{around[0]}{_tagged(escape(text), names)}{around[1]}" for text in texts).encode()

    def read(content: bytes) -> list[str]:
        units = (unit.removeprefix(around[0]).removesuffix(around[1]) for unit in content.decode().split("\0"))
        return [unescape(_untagged(unit, names)) for unit in units]

    return Format(name, lambda case: True, write, read, text_format=text_format)


def _write_po(texts: Sequence[str]) -> bytes:
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    messages = (_tagged(text, "bi").replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    contexts = (f'msgctxt "{number}"\nmsgid "{message}"\nmsgstr ""\n' for number, message in enumerate(messages))
    return "\n".join([head, *contexts]).encode()


def _read_po(content: bytes) -> list[str]:
    found = list[str]()
    for message, translation in _PO.findall(content.decode())[1:]:
        strings = [re.findall(r'"((?:[^"\\]|\\.)*)"', each) for each in (translation, message)]
        string = "".join(strings[0]) or "".join(strings[1])
        found.append(_untagged(re.sub(r"\\(.)", r"\1", string), "bi"))
    return found


def _write_xliff(texts: Sequence[str]) -> bytes:
    names = 'g id="1"', 'g id="2"'
    units = (
        f'<trans-unit id="{number}"><source>{_tagged(escape(text), names)}</source></trans-unit>'
        for number, text in enumerate(texts)
    )
    file = f'<file source-language="en" datatype="plaintext" original="a"><body>{"".join(units)}</body></file>'
    return f'<xliff version="1.2" xmlns="{_XLIFF}">{file}</xliff>'.encode()


def _read_xliff(content: bytes) -> list[str]:
    units = (target or source for source, target in _UNIT.findall(content.decode()))
    return [unescape(_untagged(unit, ('g id="1"', 'g id="2"'))) for unit in units]


def _write_docx(texts: Sequence[str]) -> bytes:
    paragraphs = "".join(f"<w:p>{''.join(_runs(text))}</w:p>" for text in texts)
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}</w:body></w:document>'
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", document)
    return packed.getvalue()


def _runs(text: str) -> list[str]:
    """Return the runs of a paragraph; elements are formats."""
    runs, styles = list[str](), ""
    for part in re.split(f"([{OPENING}{CLOSING}])", text):
        if part and part in OPENING:
            styles += _STYLES[OPENING.index(part)]
        elif part and part in CLOSING:
            styles = styles.replace(_STYLES[CLOSING.index(part)], "")
        elif part:
            format = "".join(f"<w:{style}/>" for style in styles)
            properties = f"<w:rPr>{format}</w:rPr>" if format else ""
            runs.append(f'<w:r>{properties}<w:t xml:space="preserve">{escape(part)}</w:t></w:r>')
    return runs


def _read_docx(content: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        document = archive.read("word/document.xml").decode()
    return [_of_runs(_RUN.findall(each)) for each in re.findall(r"<w:p>(.*?)</w:p>", document, re.DOTALL)]


def _of_runs(runs: Sequence[tuple[str, str]]) -> str:
    """Return the text of runs, with the characters that stand for tags where formats begin and end."""
    text, opened = "", ""
    for properties, written in [*runs, ("", "")]:
        styles = re.findall(f"<w:([{_STYLES}])/>", properties)
        while opened and not set(opened) <= set(styles):
            text += CLOSING[_STYLES.index(opened[-1])]
            opened = opened[:-1]
        for style in styles:
            if style not in opened:
                text += OPENING[_STYLES.index(style)]
                opened += style
        text += unescape(written)
    return text


def _write_srt(texts: Sequence[str]) -> bytes:
    cues = (
        f"{number}\n00:{number // 60:02}:{number % 60:02},000 --> 00:{number // 60:02}:{number % 60:02},900\n"
        f"{_tagged(text, 'bi')}\n"
        for number, text in enumerate(texts, start=1)
    )
    return "\n".join(cues).encode()


def _read_srt(content: bytes) -> list[str]:
    cues = re.split(r"\n\n(?=\d+\n\d\d:)", content.decode().strip("\n"))
    return [_untagged(cue.split("\n", 2)[2], "bi") for cue in cues]


def _write_markdown(texts: Sequence[str]) -> bytes:
    return "\n\n".join(_emphasised(text) for text in texts).encode()


def _emphasised(text: str) -> str:
    for opening, closing, mark in zip(OPENING, CLOSING, ("**", "*"), strict=True):
        text = text.replace(opening, mark).replace(closing, mark)
    return text


def _read_markdown(content: bytes) -> list[str]:
    return [_of_emphasis(text) for text in content.decode().strip("\n").split("\n\n")]


def _of_emphasis(text: str) -> str:
    opened = list[int]()

    def stand_in(mark: re.Match[str]) -> str:
        number = 0 if mark[0] == "**" else 1
        if opened and opened[-1] == number:
            return CLOSING[opened.pop()]
        opened.append(number)
        return OPENING[number]

    return re.sub(r"\*\*|\*", stand_in, text)


def _is_plain(case: Case) -> bool:
    return not case.is_tagged


def _has_no_words_beside_an_element(case: Case) -> bool:
    """Whether a text has no element with another one beside words in it."""
    return not re.search(f"[{OPENING}][^{OPENING}{CLOSING}]+[{OPENING}]", case.text)


def _has_no_sign(case: Case) -> bool:
    """Whether a text has no tag of its own, which these formats read as tags."""
    return not re.search(r"[<>&]|\{\\", case.text)


def _is_cue(case: Case) -> bool:
    """Whether a text is one of subtitles; without an end mark it goes on in the next cue.

    In a path without a drive or a host the marks of subtitles are marks: a hard blank and a line break.
    """
    has_marks = any(re.search(r"\\[hN]", string) and string[1:3] != ":\\" for string in case.strings)
    return _has_no_sign(case) and without_tags(case.text)[-1:] in ".?!" and not has_marks


def _has_no_mark(case: Case) -> bool:
    """Whether a text has none of the characters that Markdown reads."""
    nested = re.search(f"[{OPENING}{CLOSING}]{{2}}|\\w[{OPENING}]|[{CLOSING}][\\w-]", case.text)
    return nested is None and not re.search(r"[*_`\[\]<>\\~^#&|]|^[-+=\d]|://|www|@|--", case.text)


FORMATS = (
    Format(
        "plain",
        _is_plain,
        lambda texts: "\0".join(texts).encode(),
        lambda content: content.decode().split("\0"),
    ),
    _markup("HTML", ("<p>", "</p>"), pb.TEXT_FORMAT_HTML),
    _markup("cell of HTML", ("<table><tr><td>", "</td></tr></table>"), pb.TEXT_FORMAT_HTML),
    _markup("list of HTML", ("<ul><li>", "</li></ul>"), pb.TEXT_FORMAT_HTML),
    _markup("XML", ("<p>", "</p>"), pb.TEXT_FORMAT_XML),
    Format("XLIFF", lambda case: True, _write_xliff, _read_xliff, ".xlf"),
    Format(".docx", _has_no_words_beside_an_element, _write_docx, _read_docx, ".docx", exact=False),
    Format(".po", _has_no_sign, _write_po, _read_po, ".po"),
    Format(".srt", _is_cue, _write_srt, _read_srt, ".srt"),
    Format(".md", _has_no_mark, _write_markdown, _read_markdown, ".md", exact=False),
)
