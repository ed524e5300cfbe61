"""Subtitles (SubRip, WebVTT, SubStation Alpha): sentences are translated whole, and given back to their cues.

A sentence that goes on in the next cue is one text, in which the border of the cues is a point. The translation is
divided where the point is. What each voice says is a segment of its cue, with lines of its own. Formats around a whole
cue, segment or line are cut off before the text is translated, and stand around all of the translation after it.
"""

from __future__ import annotations

import html
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from lingon.documents.document import Document, Edit, UnreadableDocument, check_marks, check_size, edited, unescaped
from lingon.documents.encodings import UTF_8, Encoding, read_encoded
from lingon.documents.inline import FormattedText, InlineText, Node, Point, named_tag, paired, text_options, write
from lingon.segments.protection import find_protected

_ENDS = re.compile(r"""[.!?:\u2026\u3002\uff01\uff1f\u266a\u266b][)\]"'\u201d\u2019\u00bb]*\s*\Z""")
# Begins what another one says.
_SPEAKER = re.compile(r"[ \t]*+(?:[-\u2010-\u2015]{1,3}+(?![-\u2010-\u2015\d])|>{2,3}+)[ \t]*+")
_BLANK = re.compile(r"[ \t]*+\Z")
_PARTS = re.compile(r"[ \t]++|[^ \t](?:[^ \t]|[ \t]++(?=[^ \t]))*+")  # blanks at the ends, and the text between them
_UNTAGGED = re.compile(r"[^<>]++(>?)")  # in which lines may end, unless it is in a tag
PATH = r"(?P<path>(?<![\w\\])(?:[A-Za-z]:|\\)\\[^\s<>{}|*?\"]++)"
"""A path of Windows, in which no mark of subtitles is looked for. One without a drive or a host looks like marks."""

BORDER, SEGMENT = b"\x00", b"\x01"
MOST_CUES = 8  # of one text: subtitles without punctuation have no other end
LONGEST_PAUSE = 2.0  # seconds between two cues of a sentence
LINE_CHARACTERS = 42  # of a line, as is usual for subtitles


@dataclass(frozen=True, slots=True)
class Syntax:
    """How the text of a cue is written.

    tags: what is no text
    breaks: what ends a line; blank: a hard blank, or a path
    voice: a tag that begins what another one says
    pair: returns what a start tag and its end have in common, and whether a tag is a start, or None for other tags
    references: whether &amp; and the like stand for characters
    line_characters: of a line that is not divided
    """

    tags: re.Pattern[str]
    breaks: re.Pattern[str]
    pair: Callable[[str], tuple[str, bool] | None]
    voice: re.Pattern[str] = re.compile(r"(?!)")
    blank: re.Pattern[str] = re.compile(r"(?!)")
    references: bool = False
    line_characters: int = LINE_CHARACTERS

    def shown(self, text: str) -> str:
        """Return a text without tags and references."""
        return self.read(self.tags.sub("", text))

    def read(self, text: str) -> str:
        """Return a text without hard blanks and references."""
        text = self.blank.sub(lambda found: found["path"] or " ", text)
        return unescaped(text) if self.references else text


@dataclass(frozen=True, slots=True)
class Cue:
    """The text of a cue, without its last line break.

    begin, end: its position in the file; start, stop: seconds
    track: of cues whose sentences go on in each other, such as those of one style
    """

    text: str
    begin: int
    end: int
    start: float
    stop: float
    track: str = ""


@dataclass(slots=True)
class _CuePart:
    """A part of the text of a cue: text, a tag, the mark of a speaker, or a line break; partner: of a tag with one."""

    kind: str
    text: str
    partner: int = -1

    @property
    def loose(self) -> bool:
        """Whether it may be cut off at the ends of a text: blanks, and tags that stand alone."""
        return self.partner < 0 and (self.kind != "text" or bool(_BLANK.match(self.text)))


@dataclass(frozen=True, slots=True)
class _Peeled:
    """A part of a cue without what is around its text.

    begin, end: of the tokens that are left
    before, after: what was cut off
    formats: the start tags among that, and the end tags
    """

    begin: int
    end: int
    before: str = ""
    after: str = ""
    formats: tuple[str, str] = ("", "")


@dataclass(slots=True)
class _Speech:
    """What one voice says.

    lines: its lines; breaks: between them
    gap: what is between it and the segment after it
    """

    lines: list[_Peeled]
    breaks: list[str] = field(default_factory=list)
    gap: str = ""


class _Script:
    """The text of a cue, as segments; line_end: of a line that the cue does not have yet."""

    def __init__(self, cue: Cue, syntax: Syntax, line_end: str) -> None:
        self.cue, self._syntax, self._line_end = cue, syntax, line_end
        self._tokens = list(_tokens(cue.text, syntax))
        _mark_pairs(self._tokens, syntax)
        self._whole = _around_lines(self._tokens)
        self.segments = list(self._segments())

    def nodes(self, segment: _Speech) -> Iterator[Node[bytes]]:
        """Yield the text of a segment. Its line breaks are blanks."""
        for position, line in enumerate(segment.lines):
            if position:
                yield FormattedText(" ")
            for token in self._tokens[line.begin : line.end]:
                yield (
                    FormattedText(self._syntax.read(token.text)) if token.kind == "text" else Point(token.text.encode())
                )

    def plain(self, segment: _Speech) -> str:
        """Return the text of a segment without tags."""
        return " ".join(self._syntax.shown(self._source(line)) for line in segment.lines)

    @property
    def has_words(self) -> bool:
        """Whether it has text."""
        return any(self.plain(segment).strip() for segment in self.segments)

    @property
    def ends(self) -> bool:
        """Whether its last sentence ends."""
        return bool(_ENDS.search(self._syntax.shown(self.cue.text)))

    @property
    def begins_voice(self) -> bool:
        """Whether it begins with another voice."""
        return self._is_voice(0, len(self._tokens))

    def written(self, segments: Sequence[str]) -> str:
        """Return the text of the cue with translations of its segments."""
        parts = [self._whole.before]
        for segment, text in zip(self.segments, segments, strict=True):
            parts += [self._lines(segment, text), segment.gap]
        return "".join([*parts, self._whole.after])

    def _lines(self, segment: _Speech, text: str) -> str:
        """Return a segment in lines, as many as it had, or as few more as keep lines as short as they were."""
        lines, count, most = segment.lines, len(segment.lines), self._syntax.line_characters
        longest = max(len(self._syntax.shown(self._source(line))) for line in lines)
        if count == 1 and longest <= most < len(self._syntax.shown(text)):
            count = 2
        found = balanced(text, count, self._syntax.tags)
        around = [(line.before, line.after) for line in lines] + [lines[-1].formats] * max(len(found) - len(lines), 0)
        written = [f"{before}{line}{after}" for line, (before, after) in zip(found, around, strict=False)]
        written[-1] += "".join(line.before + line.after for line in lines[len(found) :] if line.formats == ("", ""))
        ends = segment.breaks + [(segment.breaks or [self._usual_end])[-1]] * len(found)
        return "".join(
            part for line, end in zip(written, [*ends[: len(found) - 1], ""], strict=True) for part in (line, end)
        )

    @property
    def _usual_end(self) -> str:
        return next((token.text for token in self._tokens if token.kind == "break" and token.text), self._line_end)

    def _source(self, line: _Peeled) -> str:
        return _source(self._tokens[line.begin : line.end])

    def _segments(self) -> Iterator[_Speech]:
        """Yield the segments."""
        segment: _Speech | None = None
        raw = list[tuple[int, int]]()  # the lines of the segment, with their formats
        at = self._whole.begin
        breaks = [at for at in range(at, self._whole.end) if self._tokens[at].kind == "break"]
        for end in [*breaks, *([self._whole.end] if at < self._whole.end else [])]:
            line = _peeled(self._tokens, at, end)
            gap = self._tokens[at - 1].text if segment is not None else ""
            if segment is not None and self._goes_on(segment, line, gap, at, end):
                segment.lines.append(line)
                segment.breaks.append(gap)
                raw.append((at, end))
            else:
                if segment is not None:
                    segment.gap = gap
                    yield self._with_formats(segment, raw)
                segment, raw = _Speech([line]), [(at, end)]
            at = end + 1
        if segment is not None:
            yield self._with_formats(segment, raw)

    def _goes_on(self, segment: _Speech, line: _Peeled, gap: str, begin: int, end: int) -> bool:
        """Return whether what a segment says goes on in a line; gap: the break before it; begin, end: of the line,
        whole.
        """
        last = self._syntax.shown(self._source(segment.lines[-1]))
        text = self._syntax.shown(self._source(line))
        if not gap or len(self._syntax.breaks.findall(gap)) > 1 or not last.strip() or not text.strip():
            return False
        if self._is_voice(begin, end):
            return False
        return line.formats == segment.lines[-1].formats or (not _ENDS.search(last) and text.strip()[0].islower())

    def _with_formats(self, segment: _Speech, raw: Sequence[tuple[int, int]]) -> _Speech:
        """Return a segment whose lines have their tags inside if these differ: they are of words, not of lines."""
        last = len(raw) - 1
        inner = [line.before for line in segment.lines[1:]], [line.after for line in segment.lines[:-1]]
        alike = len({line.formats for line in segment.lines}) == 1 and all(
            edge.strip() == format
            for edges, format in zip(inner, segment.lines[0].formats, strict=True)
            for edge in edges
        )
        if not alike and len({(line.before.strip(), line.after.strip()) for line in segment.lines}) > 1:
            segment.lines = [
                _peeled(self._tokens, *tokens, formats=False, left=not position, right=position == last)
                for position, tokens in enumerate(raw)
            ]
        return segment

    def _is_voice(self, begin: int, end: int) -> bool:
        """Return whether a line begins with the mark of a voice."""
        for token in self._tokens[begin:end]:
            if token.kind == "speaker" or self._syntax.voice.match(token.text):
                return True
            if token.kind == "text" and not _BLANK.match(token.text):
                return False
        return False


class CueGroup:
    """The cues of one text."""

    def __init__(self, scripts: Sequence[_Script], syntax: Syntax) -> None:
        self._scripts, self._syntax = scripts, syntax
        self._regions: list[list[tuple[int, _Speech]]] = []  # segments between which only borders of cues are
        nodes: list[Node[bytes]] = []
        for position, script in enumerate(scripts):
            nodes += [FormattedText(" "), Point(BORDER)] if position else []
            for number, segment in enumerate(script.segments):
                if number or not self._regions:
                    nodes += [Point(SEGMENT, splits=True)] if self._regions else []
                    self._regions.append([])
                self._regions[-1].append((position, segment))
                nodes += script.nodes(segment)
        self.inline = InlineText(paired(nodes, lambda point: syntax.pair(point.content.decode())))

    @property
    def cues(self) -> list[Cue]:
        """Its cues."""
        return [script.cue for script in self._scripts]

    def translated(self, translation: str) -> list[str]:
        """Return the text of each cue."""
        written = write(self.inline.translated(translation), self._written, bytes).decode()
        texts: list[list[str]] = [[] for _ in self._scripts]
        for region, text in zip(self._regions, self._parts(written), strict=True):
            for (position, _), part in zip(region, self._divided(region, text), strict=True):
                texts[position].append(part)
        return [script.written(parts) for script, parts in zip(self._scripts, texts, strict=True)]

    def _parts(self, written: str) -> list[str]:
        parts = written.split(SEGMENT.decode())
        return parts if self._regions else []

    def _divided(self, region: Sequence[tuple[int, _Speech]], text: str) -> list[str]:
        """Return a translation as parts for the segments of a region, none of them without words if that can be."""
        parts = [part.strip(" \t") for part in text.split(BORDER.decode())]
        plain = [self._scripts[position].plain(segment) for position, segment in region]
        if len(parts) == len(region) and all(
            self._has_words(part) or not self._has_words(each) for part, each in zip(parts, plain, strict=True)
        ):
            return parts
        joined = self._syntax.tags.sub("", text).replace(BORDER.decode(), " ")
        return divided(" ".join(joined.split()), [max(len(each), 1) for each in plain])

    def _has_words(self, text: str) -> bool:
        return any(map(str.isalnum, self._syntax.tags.sub("", text)))

    def _written(self, piece: FormattedText) -> bytes:
        return (html.escape(piece.text, quote=False) if self._syntax.references else piece.text).encode()


def groups_of(cues: Iterable[Cue], syntax: Syntax, line_end: str = "\n") -> list[CueGroup]:
    """Return cues in groups that whole sentences are in. Those without text to translate are left out."""
    found: list[list[_Script]] = []
    last: dict[str, list[_Script]] = {}  # the last group of each track
    for cue in cues:
        script = _Script(cue, syntax, line_end)
        group = last.get(cue.track)
        if group is not None and _goes_on(group, script):
            group.append(script)
        else:
            last[cue.track] = [script]
            found.append(last[cue.track])
    groups = [CueGroup(scripts, syntax) for scripts in found]
    return [group for group in groups if group.inline.text]


def _goes_on(group: Sequence[_Script], script: _Script) -> bool:
    last = group[-1]
    return (
        len(group) < MOST_CUES
        and last.has_words
        and bool(script.segments)
        and not last.ends
        and not script.begins_voice
        and 0 <= script.cue.start - last.cue.stop <= LONGEST_PAUSE
    )


def replaced(text: str, groups: Sequence[CueGroup], translations: Sequence[str]) -> str:
    """Return the text of a file with translations of groups of its cues."""
    edits = (
        Edit(cue.begin, cue.end, translated)
        for group, translation in zip(groups, translations, strict=True)
        for cue, translated in zip(group.cues, group.translated(translation), strict=True)
    )
    return edited(text, edits)  # in the order of the file: cues of other tracks may be between those of a group


def _tokens(text: str, syntax: Syntax) -> Iterator[_CuePart]:
    """Yield the tokens of the text of a cue."""
    at, begins = 0, True  # of a line
    breaks = f"(?P<breaks>(?<![ \\t])(?:[ \\t]*+(?:{syntax.breaks.pattern}))++)"
    marks = re.compile(f"{PATH}|{breaks}|{syntax.tags.pattern}")
    for found in [*(found for found in marks.finditer(text) if not found["path"]), None]:
        words = text[at : found.start() if found else len(text)]
        if begins and (speaker := _SPEAKER.match(words)):
            yield _CuePart("speaker", speaker[0])
            words = words[speaker.end() :]
        yield from (_CuePart("text", part) for part in _PARTS.findall(words))
        begins = begins and not words.strip()
        if found is None:
            return
        if found["breaks"]:
            yield _CuePart("break", found[0])
        else:
            if not begins and syntax.voice.match(found[0]):
                yield _CuePart("break", "")
            yield _CuePart("tag", found[0])
        begins = begins or bool(found["breaks"])
        at = found.end()


def _mark_pairs(tokens: Sequence[_CuePart], syntax: Syntax) -> None:
    """Let each tag that has a partner know it."""
    starts: list[tuple[str, int]] = []
    opened = Counter[str]()
    for position, token in enumerate(tokens):
        pair = syntax.pair(token.text) if token.kind == "tag" else None
        if pair is None:
            continue
        key, starts_there = pair
        if starts_there:
            starts.append((key, position))
            opened[key] += 1
        elif opened[key]:
            while True:
                name, start = starts.pop()
                opened[name] -= 1
                if name == key:
                    break
            tokens[start].partner, token.partner = position, start


def _peeled(
    tokens: Sequence[_CuePart], begin: int, end: int, *, formats: bool = True, left: bool = True, right: bool = True
) -> _Peeled:
    """Return a part of a cue without what is around its text.

    Blanks at its ends are cut off, and at the left and the right lone tags too; formats: whether those around all of it
    """
    first, last = begin, end
    starts, ends = list[str](), list[str]()
    while begin < end:
        if tokens[begin].loose and (left or tokens[begin].kind == "text"):
            begin += 1
            continue
        partner, rest = tokens[begin].partner, end
        while rest - 1 > partner > 0 and tokens[rest - 1].loose:
            rest -= 1
        if not formats or partner < begin or rest - 1 != partner:
            break
        starts.append(tokens[begin].text)
        ends.append(tokens[partner].text)
        begin, end = begin + 1, partner
    while end > begin and tokens[end - 1].loose and (right or tokens[end - 1].kind == "text"):
        end -= 1
    before, after = _source(tokens[first:begin]), _source(tokens[end:last])
    return _Peeled(begin, end, before, after, ("".join(starts), "".join(ends[::-1])))


def _around_lines(tokens: Sequence[_CuePart]) -> _Peeled:
    """Return the text of a cue without the formats around all of it. What else is at its ends belongs to its lines."""
    whole = _peeled(tokens, 0, len(tokens))
    starts = [position for position in range(whole.begin) if tokens[position].partner >= whole.end]
    begin, end = (starts[-1] + 1, tokens[starts[-1]].partner) if starts else (0, len(tokens))
    return _Peeled(begin, end, _source(tokens[:begin]), _source(tokens[end:]))


def _source(tokens: Iterable[_CuePart]) -> str:
    return "".join(token.text for token in tokens)


def divided(text: str, lengths: Sequence[int]) -> list[str]:
    """Return a translation in as many parts as there are lengths, between words, in proportion to these."""
    words = text.split(" ")
    ends = list(accumulate(len(word) + 1 for word in words))  # of each word, with the blank after it
    found, first = list[str](), 0
    for position, length in enumerate(lengths):
        left = len(lengths) - position - 1
        begin = ends[first - 1] if first else 0
        share = (ends[-1] - begin - 1) * length / sum(lengths[position:])
        count = len(words) - first
        if left:
            nearest = min(range(first, len(words)), key=lambda word: abs(ends[word] - begin - 1 - share), default=-1)
            count = max(min(nearest + 1 - first, count - left), 1)
        found.append(" ".join(words[first : first + count]))
        first = min(first + count, len(words))
    return found


def balanced(text: str, count: int, tags: re.Pattern[str]) -> list[str]:
    """Return a text in so many lines of similar lengths at most; tags have no length."""
    blanks, lengths = _blanks(text, tags)
    found, length = list[str](), len(tags.sub("", text))
    at, done, first = 0, 0, 0  # where the next line begins, the characters before it, and the first blank in it
    for left in range(count, 1, -1):
        if first == len(blanks):
            break
        wanted = done + (length - done) / left
        position = bisect_left(lengths, wanted, first)
        if position == len(blanks) or (
            position > first and wanted - lengths[position - 1] <= lengths[position] - wanted
        ):
            position -= 1
        found.append(text[at : blanks[position]])
        at, done, first = blanks[position] + 1, lengths[position] + 1, position + 1
    return [*found, text[at:]]


def _blanks(text: str, tags: re.Pattern[str]) -> tuple[list[int], list[int]]:
    """Return the positions of the blanks outside of tags, and the characters before each without tags.

    What a translation keeps is one word, with its blanks.
    """
    blanks, lengths = list[int](), list[int]()
    kept = {position for begin, end, _ in find_protected(text) for position in range(begin, end)}
    at, marked = 0, 0
    for tag in [*tags.finditer(text), None]:
        for part in _UNTAGGED.finditer(text, at, tag.start() if tag else len(text)):
            spaces = (part.start() + found.start() for found in re.finditer(" ", part[0])) if not part[1] else ()
            positions = [position for position in spaces if position not in kept]
            blanks += positions
            lengths += [position - marked for position in positions]
        if tag:
            at, marked = tag.end(), marked + len(tag[0])
    return blanks, lengths


# Subtitles (SubRip and WebVTT): numbers, times, settings, notes and all else but the texts of cues are copied.
# The text of a cue ends where the next cue begins, or a note, a style or a region of WebVTT: some programs leave
# blank lines inside of it.

_START = r"(?:\d{1,4}:)?\d\d:\d\d[,.]\d{1,3}[ \t]*+-->"
_TIME = r"(?:(\d{1,4}):)?(\d\d):(\d\d)[,.](\d{1,3})"
_HEAD = re.compile(rf"{_TIME}[ \t]*+-->[ \t]*+{_TIME}")
_BEGIN = re.compile(rf"[ \t]*+{_START}|[^\r\n]*?\d[ \t]*+-->[ \t]*+\d")  # of a line that is no text, in any form
_NUMBER = re.compile(r"[ \t]*+\d++[ \t]*+")
_LINE = re.compile(r"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?![^ \t])")  # begins what is no cue, in WebVTT
_TAGS = re.compile(r"</?[A-Za-z][^<>\x00\x01]*+>|<[\d:.]++>|\{\\[^{}\x00\x01]*+\}|[\u266a\u266b]++")
_OVERRIDE = re.compile(r"\{\\([ibus])([01])\}")  # of other kinds of subtitles, which programs leave in these


def override(tag: str) -> tuple[str, bool] | None:
    """Return what the start and the end of a format have in common, such as a letter, or None for another tag."""
    found = _OVERRIDE.fullmatch(tag)
    return (f"\\{found[1]}", found[2] == "1") if found else None


def _pair(tag: str) -> tuple[str, bool] | None:
    return named_tag(tag) or override(tag)


_BREAKS, _HARD_BLANK = re.compile(r"\r\n|\r|\n|\\N"), re.compile(rf"{PATH}|\\h")
_SUBRIP = Syntax(_TAGS, _BREAKS, _pair, blank=_HARD_BLANK)
_WEB = Syntax(_TAGS, _BREAKS, _pair, voice=re.compile(r"<v\b"), blank=_HARD_BLANK, references=True)


def read_subtitles(content: bytes) -> Document:
    """Return subtitles. Raises UnreadableDocument."""
    check_size(len(content), "the file has")
    text, encoding = read_encoded(content)
    check_marks(sum(map(text.count, "<{\r\n")))
    web = text.startswith("WEBVTT")
    cues = _cues(text, web=web)
    if not cues and not web and text.strip():
        raise UnreadableDocument("the file has no subtitles")
    groups = groups_of(cues, _WEB if web else _SUBRIP, "\r\n" if "\r\n" in text else "\n")
    notes = list[str]()

    def write(translations: Sequence[str]) -> bytes:
        written = replaced(text, groups, translations)
        if web and not encoding.is_utf_8:
            notes.append(f"the file is in {encoding.name}; its translation is in UTF-8, as WebVTT demands")
            return Encoding(UTF_8).written(written, notes)
        return encoding.written(written, notes)

    return Document([group.inline.text for group in groups], text_options(), write, notes)


def _cues(text: str, *, web: bool) -> list[Cue]:
    found: list[Cue] = []
    lines = [line for line in _LINE.finditer(text) if line[0]]
    last = 0  # line after the text of the cue before
    for number, line in enumerate(lines):
        head = _HEAD.search(line[1]) if number >= last and line[2] else None
        if head is None:
            continue
        last = number + 1
        while last < len(lines) and not _ends(lines, last, web=web):
            last += 1
        begin, end = line.end(), lines[last - 1].end()
        start, stop = _seconds(*head.groups()[:4]), _seconds(*head.groups()[4:])
        content = text[begin:end].rstrip()
        found.append(Cue(content, begin, begin + len(content), start, stop))
    return found


def _ends(lines: Sequence[re.Match[str]], number: int, *, web: bool) -> bool:
    """Return whether the text of a cue ends before a line: at the number, the name or the times of another one, or a
    note.
    """
    line = lines[number][1]
    if _BEGIN.match(line):
        return True
    after_blank = not lines[number - 1][1].strip()
    if web and after_blank and _BLOCK.match(line):
        return True
    named = bool(_NUMBER.fullmatch(line)) or (web and after_blank and bool(line.strip()))
    return named and number + 1 < len(lines) and bool(_BEGIN.match(lines[number + 1][1]))


def _seconds(hours: str, minutes: str, seconds: str, parts: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(parts.ljust(3, "0")) / 1000


# Subtitles of SubStation Alpha (.ass, .ssa): the texts of dialogues are translated, all else is copied.
# Sentences go on in the next dialogue of the same style and name. Lines of karaoke, whose syllables have times, and
# what programs have made of them stay as they are. pysubs2 1.8 is not used: it writes all styles and comments again.

_SCRIPT_LINE = re.compile(r"([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_SECTION = re.compile(r"\s*+\[([^\[\]]*+)\]\s*+")
_SCRIPT_TIME = re.compile(r"\s*+(\d{1,4}):(\d{1,2}):(\d{1,2}(?:\.\d{1,3})?)\s*+")
# A drawing is commands between braces that turn it on and off: no text, as comments in braces are none.
_DRAWS = r"\{(?=[^{}]*+\})[^{}\\]*+(?:\\(?!p[1-9])[^{}\\]*+)*+\\p[1-9]"
_DRAWN = r"\{[^{}\\]*+(?:\\(?!p0)[^{}\\]*+)*+\\p0"
_OVERRIDES = re.compile(
    rf"{_DRAWS}(?:(?!{_DRAWN})[^\x00\x01])*+(?:\{{[^{{}}]*+\}})?|\{{[^{{}}\x00\x01]*+\}}|[\u266a\u266b]++"
)
_SYLLABLE = re.compile(r"\\[kK][fot]?\d")
_SYNTAX = Syntax(
    _OVERRIDES, re.compile(r"\\[Nn]"), override, blank=re.compile(rf"{PATH}|\\h"), line_characters=sys.maxsize
)  # the program that shows a line wraps it
MADE = ("fx", "karaoke", "code", "template")  # effects of dialogues that programs make
MOST_FIELDS = 64  # of a dialogue


def read_substation(content: bytes) -> Document:
    """Return subtitles of SubStation Alpha. Raises UnreadableDocument."""
    check_size(len(content), "the file has")
    text, encoding = read_encoded(content)
    check_marks(text.count("{") + text.count("\\") + text.count("\n"))
    notes, cues = list[str](), list[Cue]()
    sung = 0
    for fields, cue in _dialogues(text):
        if fields.get("effect", "").strip().lower().startswith(MADE) or len(_SYLLABLE.findall(cue.text)) > 1:
            sung += 1
        else:
            cues.append(cue)
    if sung:
        notes.append(f"dialogues of karaoke stay as they are: {sung:,}")
    groups = groups_of(cues, _SYNTAX, "\\N")

    def write(translations: Sequence[str]) -> bytes:
        return encoding.written(replaced(text, groups, translations), notes)

    return Document([group.inline.text for group in groups], text_options(), write, notes)


def _dialogues(text: str) -> Iterator[tuple[Mapping[str, str], Cue]]:
    """Yield the fields of each dialogue, by their names in lower case, and its text. Raises UnreadableDocument."""
    section, names = "", list[str]()
    for number, line in enumerate(_SCRIPT_LINE.finditer(text), start=1):
        if found := _SECTION.fullmatch(line[1]):
            section = found[1].strip().lower()
            continue
        kind, _, value = line[1].partition(":")
        kind = kind.strip().lower()
        if section != "events" or kind not in ("format", "dialogue"):
            continue
        if kind == "format":
            names = [name.strip().lower() for name in value.split(",")]
            if names[-1] != "text" or len(names) > MOST_FIELDS:
                raise UnreadableDocument(
                    f"line {number} of the file must name Text last of at most {MOST_FIELDS} fields, got {value[:80]!a}"
                )
            continue
        values = value.split(",", len(names) - 1) if names else []
        if len(values) < len(names) or not names:
            raise UnreadableDocument(f"line {number} of the file is a dialogue of other fields than its format says")
        fields = dict(zip(names, values, strict=True))
        start, stop = (_script_seconds(fields.get(name, "")) for name in ("start", "end"))
        track = f"{fields.get('style', '')},{fields.get('name', fields.get('actor', ''))},{fields.get('layer', '')}"
        content = values[-1].rstrip()
        begin = line.end(1) - len(values[-1])
        yield fields, Cue(content, begin, begin + len(content), start, stop, track)
    if section == "" and not text.lstrip("\ufeff").lower().startswith("[script info]") and text.strip():
        raise UnreadableDocument("the file has no subtitles of SubStation Alpha")


def _script_seconds(time: str) -> float:
    found = _SCRIPT_TIME.fullmatch(time)
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else 0.0
