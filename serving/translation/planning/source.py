"""A text of a request as what is translated: its sentences without markup, and what is kept of each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingon.errors import InvalidRequest, MarkupError, TextTooLong
from lingon.segments.boundaries import Span
from lingon.segments.document import cut
from lingon.segments.markup.plain import PlainText, TooManyKept
from lingon.segments.markup.reading import read_html, read_xml
from lingon.segments.protection.find import TooManySpans, find_protected, uncut
from lingon.segments.protection.spans import Kind, ProtectedSpan, merge
from lingon.serving.translation.planning.request_size import MOST_KEPT, MOST_TAGS, RequestSize
from lingon.serving.translation.planning.text_options import Format, TextChoice

MOST_INLINE_TAGS = 5_000  # elements inside one block, which are placed in one go
SHORT = 1_000  # characters; sentences of longer texts may be cut
LONG = 20_000  # characters; shorter texts are read within some milliseconds


_FRACTIONS = "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u218b\u2460-\u24ff"  # figures, for str.isdecimal none
_WORD = rf"[^\W\d_{_FRACTIONS}]"
# One line of words: no mark of a list, no mark inside, no figure, no sign, no line of signs.
_SIMPLE = re.compile(rf" *+(?={_WORD})(?:[A-Za-z ,'’]++|{_WORD}|-(?!-))*+[.!?]?+ *+")
_COLUMNS = "   "  # blanks between columns


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that is translated.

    text: without markup
    kept: what is kept of it, in order and without overlap
    plain: of a text with markup
    is_simple: whether it is certainly one sentence
    """

    text: str
    kept: Sequence[ProtectedSpan] = ()
    plain: PlainText | None = None
    is_simple: bool = False

    def sentences(self, options: TextChoice, language: str) -> Iterator[tuple[Span, tuple[ProtectedSpan, ...]]]:
        """Yield the sentences, each with what is kept of it, counted from its begin; a step takes milliseconds.

        An empty span is none: the text has a part without letters there, which stays as it is.
        """
        if self.is_simple:
            begin = len(self.text) - len(self.text.lstrip(" "))
            return iter((((begin, len(self.text.rstrip(" "))), ()),))
        return uncut(self._cut(options, language), self.kept)

    def _cut(self, options: TextChoice, language: str) -> Iterator[Span]:
        collapses = options.format is Format.HTML
        for first, last in _blocks(self.text, self.plain):
            for begin, end in cut(self.text[first:last], options.sentences, language, collapses=collapses):
                yield first + begin, first + end


async def read_source(text: str, field: str, options: TextChoice, size: RequestSize) -> ReadText:
    """Read a text; raises InvalidRequest and TextTooLong, which name the field, and RequestTooLarge.

    A long text is read on a thread, since it may take most of a second. It is bounded before it is read, because a
    thread goes on when the caller has left.
    """
    marked_up = options.format.is_markup
    if marked_up and text.count("<") > MOST_TAGS:
        raise TextTooLong(field, f"{field} has more than {MOST_TAGS} tags or signs <; send it in several texts")
    size.add_written(text, marked_up=marked_up)
    if not marked_up and not options.keep and is_simple(text):
        return ReadText(text, is_simple=True)
    if len(text) <= LONG:
        return _read(text, field, options, size)
    return await asyncio.to_thread(_read, text, field, options, size)


def is_simple(text: str) -> bool:
    """Whether a text is one sentence in which nothing is kept, as far as a glance shows; most short texts are."""
    if len(text) > SHORT or _SIMPLE.fullmatch(text) is None:
        return False
    inside = text.strip(" ")
    return inside[0].isalpha() and _COLUMNS not in inside


def _read(text: str, field: str, options: TextChoice, size: RequestSize) -> ReadText:
    plain = _plain(text, field, options)
    if plain is not None:
        _check_size(plain, field, size.most_sentences)
        size.add_inlines(sum(len(block.inlines) for block in plain.markup.blocks))
    seen = text if plain is None else plain.text
    size.add_signs(seen)
    stand_ins = () if plain is None else plain.kept()
    found, most = [ProtectedSpan(place, place + 1, Kind.TAG) for place in stand_ins], MOST_KEPT
    try:
        if len(found) > most:
            raise TooManySpans
        for first, last in _blocks(seen, plain) if options.protect or options.keep else ():
            own = find_protected(seen[first:last], options.keep, patterns=options.protect, most=most - len(found))
            found += (ProtectedSpan(first + begin, first + end, kind) for begin, end, kind in own)
    except TooManySpans:
        message = f"{field} has more than {MOST_KEPT} strings to keep; send it in several texts"
        message += "" if stand_ins else " or set text.protect to false"
        raise TextTooLong(field, message) from None
    size.add_kept(len(found))
    return ReadText(seen, merge(found) if stand_ins else found, plain)


def _check_size(plain: PlainText, field: str, most_sentences: int) -> None:
    """Raise TextTooLong for a text with markup that would hold up other requests."""
    blocks = plain.markup.blocks
    if len(blocks) > most_sentences:
        message = f"{field} has {len(blocks)} parts between tags that split it; a request may have "
        raise TextTooLong(field, f"{message}{most_sentences} sentences at most; send it in several")
    tags = max((len(block.inlines) for block in blocks), default=0)
    if tags > MOST_INLINE_TAGS:
        message = f"{field} has {tags} elements that do not split it in one part, {MOST_INLINE_TAGS} are allowed"
        raise TextTooLong(field, message)


def _plain(text: str, field: str, options: TextChoice) -> PlainText | None:
    """Return a text without its markup; None for one that has none."""
    if not options.format.is_markup:
        return None
    try:
        return PlainText.of((read_html if options.format is Format.HTML else read_xml)(text, options.rules))
    except MarkupError as error:
        raise InvalidRequest(field, f"{field} is not well-formed XML: {error}") from None
    except TooManyKept:
        raise TextTooLong(field, f"{field} has too many elements that are left as they are") from None


def _blocks(text: str, plain: PlainText | None) -> Iterator[Span]:
    """Yield the parts of a text that no sentence crosses the border of."""
    if plain is None:
        yield 0, len(text)
    else:
        yield from map(plain.block, range(len(plain.begins)))
