"""Whether strings that are kept stay whole, and tags around them, in all arrangements and formats, in this process.

    python -m lingon.bench.tools.arrangements models/en-de models/en-fr --cases 200000

Each form of strings is put into each arrangement, in each format, greedy and with a beam. Prints how many of the
translations have a fault, by arrangement, by form and by format, and the first ones of each kind.
"""

from __future__ import annotations

import io
import random
import re
import string
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from html import unescape
from itertools import count, product
from pathlib import Path
from typing import Annotated, Any
from xml.sax.saxutils import escape

import typer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import ResumeFile, keep, machine, show
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
    """Return a string with the punctuation of an example, with other letters and figures."""
    fixed = [found.span() for found in _FIXED.finditer(example)]

    def other(run: re.Match[str]) -> str:
        if any(begin < run.end() and run.start() < end for begin, end in fixed):
            return run[0]
        return "".join(rng.choice(_others(character)) for character in run[0])

    return _LETTERS_OR_FIGURES.sub(other, example)


def is_found(text: str) -> bool:
    """Return whether a string is kept as a whole, between words."""
    before = "see "
    return [span[:2] for span in find_protected(f"{before}{text} now")] == [(len(before), len(before) + len(text))]


def _others(character: str) -> str:
    """Return the characters that may replace a letter or figure. A figure of base 16 stays one."""
    kinds = string.digits, "abcdef", "ABCDEF", string.ascii_lowercase
    return next((kind for kind in kinds if character in kind), string.ascii_uppercase)


OPENING, CLOSING = "\ue000\ue002", "\ue001\ue003"
"""The characters that represent the start and the end tags of two kinds of elements."""

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
"""The words before and after a string in a sentence."""

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
    """A text with strings that are kept, and characters of OPENING and CLOSING, which represent tags.

    strings: those in it, each once
    """

    text: str
    strings: tuple[str, ...]

    @property
    def is_tagged(self) -> bool:
        """Whether it has tags."""
        return any(opening in self.text for opening in OPENING)


def case_of(arrangement: str, strings: Sequence[str], rng: random.Random) -> Case:
    """Return a text in which two strings are in an arrangement, with random words and a random frame."""
    form = ARRANGEMENTS[arrangement]
    frame = rng.choice(FRAMES)
    meaning = {"A": strings[0], "B": strings[1], **dict(zip("<>[{]}", (*frame, *OPENING, *CLOSING), strict=True))}
    text = "".join(rng.choice(WORDS) if each == "W" else meaning.get(each, each) for each in form)
    used = [string for name, string in zip("AB", strings, strict=True) if name in form]
    return Case(text, tuple(dict.fromkeys(used)))


def are_found(case: Case) -> bool:
    """Return whether all strings of a case are kept in its text. A neighbour may make another string of one."""
    text = without_tags(case.text)
    kept = [text[begin:end] for begin, end, _ in find_protected(text)]
    return all(text.count(string) <= sum(each.count(string) for each in kept) for string in case.strings)


def without_tags(text: str) -> str:
    """Return a text without the characters that represent tags."""
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
    """Replace the elements of a text, whose end tags may be alike, by the characters that represent tags."""
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
    """Return the runs of a paragraph, in which elements are formats."""
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
    """Return the text of runs, with the characters that represent tags where formats begin and end."""
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
    """Return whether no element of a text has another one beside words in it."""
    return not re.search(f"[{OPENING}][^{OPENING}{CLOSING}]+[{OPENING}]", case.text)


def _has_no_sign(case: Case) -> bool:
    """Return whether a text has no tag of its own, which these formats would read as one."""
    return not re.search(r"[<>&]|\{\\", case.text)


def _is_cue(case: Case) -> bool:
    """Return whether a text is one of subtitles. Without an end mark it would continue in the next cue.

    In a path without a drive or a host the marks of subtitles are marks: a hard blank and a line break.
    """
    has_marks = any(re.search(r"\\[hN]", string) and string[1:3] != ":\\" for string in case.strings)
    return _has_no_sign(case) and without_tags(case.text)[-1:] in ".?!" and not has_marks


def _has_no_mark(case: Case) -> bool:
    """Return whether a text has none of the characters that Markdown reads."""
    nested = re.search(f"[{OPENING}{CLOSING}]{{2}}|\\w[{OPENING}]|[{CLOSING}][\\w-]", case.text)
    return nested is None and not re.search(r"[*_`\[\]<>\\~^#&|]|^[-+=\d]|://|www|@|--", case.text)


FORMATS = (
    Format("plain", _is_plain, lambda texts: "\0".join(texts).encode(), lambda content: content.decode().split("\0")),
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


Contexts = Mapping[str, Sequence[tuple[bool, ...]]]
"""By the elements that a string is in, the outermost first: for each time, whether each of them is right around it."""


class Fault(StrEnum):
    """The worst fault of a translation."""

    LOST = "lost"  # a string is not as often in the translation as in the text
    BROKEN = "broken"  # a tag is in a string
    MOVED = "moved"  # a string is in other elements, or an element right around it is not
    TAGS = "tags"  # a tag is lost, doubled, or not nested
    MARKS = "marks"  # a quotation mark or bracket is on the other side of a tag


def fault_of(case: Case, translation: str, *, exact: bool = True) -> Fault | None:
    """Return the worst fault of a translation, with tags as the case has them; None if it has none.

    exact: whether each tag is once in the translation. Otherwise a format may be in several parts, blanks have one too,
        and an element without text is left out
    """
    if not exact:
        translation = re.sub(f"([{OPENING}]+)( +)", r"\2\1", re.sub(f"( +)([{CLOSING}]+)", r"\2\1", translation))
    plain, source = without_tags(translation), without_tags(case.text)
    if any(plain.count(string) != source.count(string) for string in case.strings):
        return Fault.LOST
    if not _is_nested(translation):
        return Fault.TAGS
    if exact and Counter(filter(_is_tag, translation)) != Counter(filter(_is_tag, case.text)):
        return Fault.TAGS
    for kept in case.strings:
        wanted, found = _contexts(case.text, kept), _contexts(translation, kept)
        if sum(map(len, wanted.values())) != sum(map(len, found.values())):
            return Fault.BROKEN
        if any(_is_moved(each, found.get(elements, ())) for elements, each in wanted.items()):
            return Fault.MOVED
    return Fault.MARKS if _unbalanced(translation) > _unbalanced(case.text) else None


def _is_tag(character: str) -> bool:
    return character in OPENING or character in CLOSING


def _is_nested(text: str) -> bool:
    opened = list[str]()
    for character in filter(_is_tag, text):
        if character in OPENING:
            opened.append(character)
        elif not opened or OPENING.index(opened.pop()) != CLOSING.index(character):
            return False
    return not opened


def _is_moved(wanted: Sequence[tuple[bool, ...]], found: Sequence[tuple[bool, ...]]) -> bool:
    """Return whether a string is not as often in some elements, or fewer of these are right around it."""
    right = [list(map(sum, zip(*each, strict=True))) for each in (wanted, found)]
    return len(wanted) != len(found) or any(after < before for before, after in zip(*right, strict=True))


def _contexts(text: str, string: str) -> Contexts:
    """Return the elements around each occurrence of a string without tags."""
    contexts: dict[str, list[tuple[bool, ...]]] = {}
    at = text.find(string)
    while at >= 0:
        opened, end = list[int](), at + len(string)
        for position in range(at):
            if text[position] in OPENING:
                opened.append(position)
            elif text[position] in CLOSING:
                opened.pop()
        inside = (
            (text[position + 1 : at].strip(OPENING), text[end : _end(text, position)].strip(CLOSING))
            for position in opened
        )
        contexts.setdefault("".join(text[position] for position in opened), []).append(
            tuple(not before and not after for before, after in inside)
        )
        at = text.find(string, at + 1)
    return contexts


def _end(text: str, start: int) -> int:
    """Return the index of the end tag of an element. start: of its start tag."""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] in OPENING) - (text[position] in CLOSING)
        if not depth:
            return position
    return len(text)


def _unbalanced(text: str) -> int:
    """Return how many elements have one mark of a pair of brackets or quotation marks."""
    found = 0
    for start in (position for position, character in enumerate(text) if character in OPENING):
        inside = text[start : _end(text, start)]
        quotes = sum(map(inside.count, '"„“”«»'))
        found += inside.count("(") != inside.count(")") or quotes % 2 == 1
    return found


BEAMS = (1, 4)
_SHOWN = dict(zip(map(ord, OPENING + CLOSING), ("<b>", "<i>", "</b>", "</i>"), strict=True))


@dataclass(frozen=True, slots=True)
class Batch:
    """One case of each form in each arrangement, in one format and with one size of the beam.

    number: of the round, of which each has other strings and words
    """

    format: Format
    beam_size: int
    number: int
    seed: int

    @property
    def key(self) -> str:
        """The name of the batch in a run."""
        return f"{self.format.name}, beam {self.beam_size}, {self.number}"

    def cases(self, every: int = 1) -> Iterator[tuple[str, str, Case]]:
        """Yield the arrangement, the form and the case of each that the format can hold, or of one of `every`."""
        rng = random.Random(f"{self.seed} {self.key}")
        chosen = [*product(ARRANGEMENTS, FORMS)]
        for arrangement, form in chosen[rng.randrange(every) :: every]:
            strings = random_string(form, rng), random_string(rng.choice(list(FORMS)), rng)
            case = case_of(arrangement, strings, rng)
            if self.format.holds(case) and are_found(case):
                yield arrangement, form, case

    def measured(self, translator: LocalTranslator, model: str, every: int = 1) -> dict[str, Any]:
        """Return the number of cases of each kind, and all faults. every: see `cases`."""
        named = list(self.cases(every))
        options = pb.DecodingOptions(beam_size=self.beam_size, long_text=pb.LONG_TEXT_POLICY_SPLIT)
        found = translate(translator, self.format, [case for _, _, case in named], options)
        faults = [
            {
                "model": model,
                "beam": self.beam_size,
                "format": self.format.name,
                "arrangement": arrangement,
                "form": form,
                "fault": fault,
                "text": case.text.translate(_SHOWN),
                "translation": translation.translate(_SHOWN),
            }
            for (arrangement, form, case), translation in zip(named, found, strict=True)
            if (fault := fault_of(case, translation, exact=self.format.exact)) is not None
        ]
        counted = Counter(arrangement for arrangement, _, _ in named), Counter(form for _, form, _ in named)
        return {
            "model": model,
            "beam": self.beam_size,
            "format": self.format.name,
            "cases": len(named),
            "arrangement": counted[0],
            "form": counted[1],
            "faults": faults,
        }


def batches(seed: int) -> Iterator[Batch]:
    """Yield the batches of one round after the other, without an end."""
    for number in count():
        for format, beam_size in product(FORMATS, BEAMS):
            yield Batch(format, beam_size, number, seed)


def summed(records: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the cases and the faults of all records, and by model, beam, format, arrangement and form."""
    faults = [fault for record in records for fault in record["faults"]]
    total = {"cases": sum(record["cases"] for record in records), **_kinds(faults)}
    tables = {"total": [total]}
    for name in ("model", "beam", "format", "arrangement", "form"):
        cases = Counter[Any]()
        for record in records:
            cases.update(record[name] if name in ("arrangement", "form") else {record[name]: record["cases"]})
        tables[name] = [
            {name: value, "cases": number, **_kinds([fault for fault in faults if fault[name] == value])}
            for value, number in cases.items()
        ]
    return tables


def _kinds(faults: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many faults of each kind there are."""
    kinds = Counter(fault["fault"] for fault in faults)
    return {kind.value: kinds[kind.value] for kind in Fault}


RESUMED = Path("build/bench/arrangements.jsonl")
SHOWN = 60  # faults that are printed


def main(
    models: Annotated[list[Path], typer.Argument(help="Bundles, one for each pair.")],
    cases: Annotated[int, typer.Option(min=1, help="Cases, at least.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Of the random strings and words.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Of so many cases, one is tried, as a trial run.")] = 1,
    resume: Annotated[bool, typer.Option(help=f"Go on with a run that was ended; it is in {RESUMED}.")] = False,
    results: ToolResults = None,
) -> None:
    """Print, and save if asked for, how many cases have a fault."""
    head = {"models": list(map(str, models)), "cases": cases, "seed": seed, "every": every, "machine": machine()}
    file = ResumeFile(RESUMED, head, resume=resume)
    records = list[dict[str, Any]]()
    for model in models:
        with LocalTranslator(model) as translator:
            records += _measured(translator, model.name, cases // len(models), batches(seed), every, file)
    rows = summed(records)
    faults = [fault for record in records for fault in record["faults"]]
    for name, found in rows.items():
        show(found, title=name)
    for fault in faults[:SHOWN]:
        typer.echo(str(fault))
    (total,) = rows.pop("total")
    saved = [{"by": name, **row} for name, found in rows.items() for row in found]
    keep("arrangements", [total, *saved], results, seed=seed, faults=faults)
    file.delete()


def _measured(
    translator: LocalTranslator, model: str, cases: int, batches: Iterator[Batch], every: int, file: ResumeFile
) -> list[dict[str, Any]]:
    """Return the records of a model, with this number of cases or a few more, also from the file of an earlier run."""
    records, done, began, known = list[dict[str, Any]](), 0, time.monotonic(), 0
    for batch in batches:
        key = f"{model} {batch.key}"
        is_known = key in file
        record = file.record(key, partial(batch.measured, translator, model, every))
        known += record["cases"] if is_known else 0
        records.append(record)
        done += record["cases"]
        rate = (done - known) / (time.monotonic() - began)
        faults = sum(len(each["faults"]) for each in records)
        typer.echo(f"{model}: {done:,} of {cases:,} cases, {faults} with a fault, {rate:.0f} a second", err=True)
        if done >= cases:
            break
    return records


if __name__ == "__main__":
    typer.run(main)
