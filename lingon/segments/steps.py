"""The way of one sentence through protection and capitals, as a generator of what it needs translated or aligned.

Pure: a generator yields what it needs translated or aligned, and receives the answers. The strings are counted before
the result is returned, so that it holds each as often as the sentence, whatever the model answers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from lingon.segments.boundaries import Span
from lingon.segments.capitals import is_in_capitals, lowered, raised
from lingon.segments.kept_forms import DIVIDING, Kind, ProtectedSpan, replaced, without
from lingon.segments.placing import place
from lingon.segments.placing_alignment import Aligned, Inline, KeptCopy
from lingon.segments.protection import with_figures
from lingon.segments.sentence import (
    Align,
    Custom,
    Lowered,
    Means,
    Restored,
    SentenceAnswer,
    SentenceOutput,
    SentenceRequest,
    SentenceSteps,
    SpanLink,
    SplitSentence,
    TranslateStep,
    has_words,
    joined,
    links,
    translations,
)
from lingon.segments.stand_ins import MOST_WORDS, Attempt, attempts, counts_hold
from lingon.text import normalise

ENDS = ".!?…。！？"
_BLANK = " \t\n\r\xa0"
_BEFORE, AFTER = f"{_BLANK},;:.!?…)]}}–—-", f"{_BLANK},;:([{{–—-"  # of a part: what is copied around it


def translate_kept(
    text: str, spans: Sequence[ProtectedSpan], words: Sequence[str], custom: Custom | None = None
) -> SentenceSteps:
    """Translate a sentence. Each protected string is in the result as often as in the text.

    spans: what is protected, in order and without overlap. Small numbers are looked for besides
    words: those that the model translates to themselves, the surest first. May be empty
    custom: how the model may write numbers, which are in the result as in the text all the same
    """
    every = with_figures(text, spans)
    before, sentence, after = SplitSentence.of(text, every, custom).stripped(_BLANK, _BLANK)
    restored = joined(before, (yield from _translated(sentence, words)), after)
    if not counts_hold(text, restored.text, [text[begin:end] for begin, end, _ in every]):
        return Restored(text, tuple((begin, end) for begin, end, _ in spans), Means.SPLIT)
    return restored


def _translated(sentence: SplitSentence, words: Sequence[str]) -> SentenceSteps:
    """Translate a sentence or a part of one by the first means that keeps its strings."""
    if not any(map(has_words, sentence.texts)):
        is_kept = any(not each.is_figure for each in sentence.kept)
        return Restored(sentence.text, ((0, len(sentence.text)),) if is_kept else ())
    if not sentence.kept:
        request = TranslateStep(normalise(sentence.text))
        outputs = yield from translations(request)
        if not outputs:
            return Restored(sentence.text)
        return Restored(outputs[0].strip() or sentence.text, outputs=((request, outputs[0]),))
    place = sentence.divider()
    if place is None:
        place = sentence.edge()
    if place is None and sum(not each.is_itself for each in sentence.kept) > MOST_WORDS:
        place = len(sentence.kept) // 2
    if place is None:
        restored, place = yield from _by_words(sentence, words)
        if restored is not None:
            return restored
    return (yield from _split(sentence, place, words))


def _split(sentence: SplitSentence, place: int, words: Sequence[str]) -> SentenceSteps:
    """Translate what is before and after a kept string apart."""
    kept, sides = sentence.kept[place], (sentence.before(place), sentence.after(place))
    before = yield from translate_part(sides[0], partial(_translated, words=words))
    after = yield from translate_part(sides[1], partial(_translated, words=words))
    breaks = not kept.divides and all(has_words(side.text) for side in sides)
    positions = () if kept.is_figure else ((0, len(kept.text)),)
    string = Restored(kept.text, positions, Means.SPLIT if breaks else Means.NONE)
    return joined(before, string, after)


def translate_part(sentence: SplitSentence, translate: Callable[[SplitSentence], SentenceSteps]) -> SentenceSteps:
    """Translate a part of a sentence. The blanks and the punctuation around it stay, and it gets no end mark."""
    before, core, after = sentence.stripped(_BEFORE, AFTER)
    restored = yield from translate(core)
    last = max((end for _, end in restored.kept), default=0)
    if core.text[-1:] not in ENDS:
        text = restored.text[:last] + restored.text[last:].rstrip(ENDS)
        restored = replace(restored, text=text or core.text)
    return joined(before, restored, after)


def _by_words(
    sentence: SplitSentence, words: Sequence[str]
) -> Generator[SentenceRequest, SentenceAnswer, tuple[Restored | None, int]]:
    """Return the translation by words in place of the kept strings, or None and the position at which to split."""
    best: tuple[Attempt, str] | None = None
    for attempt in attempts(sentence, words):
        outputs = yield from translations(TranslateStep(attempt.source))
        output = attempt.best(outputs)
        if (restored := accepted(attempt, output)) is not None:
            return restored, 0
        is_itself = attempt.words == tuple(each.text for each in sentence.kept)
        if output and not is_itself and (best is None or len(attempt.wrong(output)) < len(best[0].wrong(best[1]))):
            best = attempt, output
    if best is None:
        return None, len(sentence.kept) // 2
    restored = yield from _by_prefixes(*best)
    return restored, (best[0].wrong(best[1]) or [0])[0]


def accepted(attempt: Attempt, output: str, prefix: str = "") -> Restored | None:
    """Return a translation with its strings, or None unless each word is in it once, no string besides, and other
    words.

    prefix: that was forced
    """
    if attempt.wrong(output):
        return None
    used: SentenceOutput = TranslateStep(attempt.source, prefix), output
    restored = replace(attempt.restored(output), outputs=(used,))
    strings = [each.text for each in attempt.sentence.kept]
    if any(map(has_words, attempt.sentence.texts)) and not has_words(without(restored.text, restored.kept)):
        return None  # all else of the sentence is lost
    return restored if counts_hold(attempt.sentence.text, restored.text, strings) else None


def _by_prefixes(attempt: Attempt, output: str) -> Generator[SentenceRequest, SentenceAnswer, Restored | None]:
    """Force the words that are not once in a translation, by prefixes that end with them and grow."""
    prefix = ""
    while wrong := attempt.wrong(output):
        found: Sequence[SpanLink] = ()
        if any(not attempt.spans(output, place) for place in wrong):
            found = yield from links(Align(attempt.source, normalise(output)))
        longer = min((_prefix(attempt, place, output, found, len(prefix)) for place in wrong), key=len)
        if len(longer) <= len(prefix):
            return None
        prefix = longer
        outputs = yield from translations(TranslateStep(attempt.source, prefix))
        output = attempt.best(each for each in outputs if each.startswith(prefix))
        if not output:
            return None
    restored = accepted(attempt, output, prefix)
    return restored and replace(restored, means=Means.PLACED)


def _prefix(attempt: Attempt, place: int, output: str, found: Sequence[SpanLink], least: int) -> str:
    """Return the begin of a translation up to the word of a position: where it is first, or where it is aligned to.

    least: characters at the begin that stay, because they were forced before
    """
    word = attempt.words[place]
    if spans := attempt.spans(output, place):
        return output[: spans[0][1]]
    begin, end = attempt.place_in_source(place)
    here = [target[0] for source, target in found if source[0] < end and begin < source[1]]
    if here:
        at = output.rfind(" ", 0, min(here) + 1) + 1
    else:
        before = max(((source[1], target[1]) for source, target in found if source[1] <= begin), default=(0, 0))[1]
        at = output.find(" ", before) if before else 0
    at = max(len(output) if at < 0 else at, least)
    return f"{output[:at].rstrip()} {word}".lstrip()


# Translates a sentence with pairs of marks, as of emphasis: without them, and puts each back where it belongs.
# The words that a pair is around are found again in the translation by the attention of the model, as for the tags of
# HTML. Written quotation marks are read as plain ones, which the model translates. If a pair would be empty, if there
# is no attention, or in a message with arms, what is before, between and after the marks is translated apart.

Placing: TypeAlias = Generator[SentenceRequest, SentenceAnswer, Restored | None]
_QUOTES = {'\\"', "&quot;", "&#34;"}
_QUOTE = re.compile('«[ \u00a0\u202f]?|[ \u00a0\u202f]?»|["„“”‟]')
MOST_WEIGHTS = 200_000  # words of the sentence times words of its translation; placing by them takes most of a second


class _Bare(NamedTuple):
    """A sentence without its pairs of marks.

    spans: what else is kept of it
    inlines: the pairs, each after the one that it is in
    marks: of each the two strings
    """

    text: str
    spans: list[ProtectedSpan]
    inlines: list[Inline]
    marks: list[tuple[str, str]]


def translate_marked(
    text: str, spans: Sequence[ProtectedSpan], words: Sequence[str], custom: Custom | None = None
) -> SentenceSteps:
    """Translate a sentence. See `translate_kept`."""
    pairs = _pairs(spans)
    if not pairs:
        return (yield from translate_kept(text, spans, words, custom))
    strings = [text[begin:end] for begin, end, _ in spans]
    if not any(span.kind in DIVIDING for span in spans):
        for translate in (_quoted, _placed):
            restored = yield from translate(text, spans, pairs, words, custom)
            if restored is not None and counts_hold(text, restored.text, strings):
                return restored
    paired = {number for pair in pairs for number in pair}
    apart = [span._replace(kind=Kind.BORDER) if number in paired else span for number, span in enumerate(spans)]
    restored = yield from translate_kept(text, apart, words, custom)
    return replace(restored, means=Means.SPLIT)


def _quoted(
    text: str,
    spans: Sequence[ProtectedSpan],
    pairs: Sequence[tuple[int, int]],
    words: Sequence[str],
    custom: Custom | None,
) -> Placing:
    """Return the translation with written quotation marks in place of those that the model writes.

    None if there are other pairs, other quotation marks, or not as many in the translation.
    """
    marks = [spans[number] for pair in pairs for number in pair]
    written = {text[begin:end] for begin, end, _ in marks}
    if len(written) != 1 or not written <= _QUOTES or _QUOTE.search(without(text, sorted(marks))):
        return None
    (mark,) = written
    bare = _bare(text, spans, pairs, by='"')
    restored = yield from translate_kept(bare.text, bare.spans, words, custom)
    found = [each.span() for each in _QUOTE.finditer(restored.text)]
    kept = sorted([*restored.kept, (len(restored.text), len(restored.text))])
    if len(found) != len(marks) or any(begin < last and first < end for begin, end in found for first, last in kept):
        return None
    positions = [(begin, end, mark) for begin, end in found]
    return _inserted(restored, positions)


def _inserted(restored: Restored, positions: Sequence[tuple[int, int, str]]) -> Restored:
    """Return a translation with other strings in place of parts of it, which are in order and in no kept string."""
    text, at, kept, ends, moved = "", 0, list[Span](), list[int](), list[int]()
    for begin, end, string in positions:
        text += restored.text[at:begin] + string
        kept.append((len(text) - len(string), len(text)))
        at = end
        ends.append(end)
        moved.append(len(text) - end)
    for begin, end in restored.kept:
        number = bisect_right(ends, begin)
        by = moved[number - 1] if number else 0
        kept.append((begin + by, end + by))
    return replace(restored, text=text + restored.text[at:], kept=tuple(sorted(kept)))


def _pairs(spans: Sequence[ProtectedSpan]) -> list[tuple[int, int]]:
    """Return the numbers of the marks of each pair, in the order of the first ones. A mark may have no other."""
    open_, found = list[int](), list[tuple[int, int]]()
    for number, span in enumerate(spans):
        if span.kind is Kind.OPENING:
            open_.append(number)
        elif span.kind is Kind.CLOSING and open_:
            found.append((open_.pop(), number))
    return sorted(found)


def _bare(text: str, spans: Sequence[ProtectedSpan], pairs: Sequence[tuple[int, int]], by: str = "") -> _Bare:
    """Return a sentence with something else in place of its marks."""
    paired = {number for pair in pairs for number in pair}
    cuts = [span for number, span in enumerate(spans) if number in paired]
    moved, shift = list[int](), 0  # moved: where each span begins then
    for number, span in enumerate(spans):
        moved.append(span.begin + shift)
        shift += len(by) - (span.end - span.begin) if number in paired else 0
    rest = [
        ProtectedSpan(moved[number], moved[number] + span.end - span.begin, span.kind)
        for number, span in enumerate(spans)
        if number not in paired
    ]
    inlines, open_ = list[Inline](), list[tuple[int, int]]()  # open_: the last number of a pair, and its position
    for first, last in pairs:
        while open_ and open_[-1][0] < first:
            open_.pop()
        inlines.append(Inline(moved[first], moved[last], open_[-1][1] if open_ else -1))
        open_.append((last, len(inlines) - 1))
    marks = [(text[slice(*spans[first][:2])], text[slice(*spans[last][:2])]) for first, last in pairs]
    return _Bare(replaced(text, cuts, lambda _: by), rest, inlines, marks)


def _placed(
    text: str,
    spans: Sequence[ProtectedSpan],
    pairs: Sequence[tuple[int, int]],
    words: Sequence[str],
    custom: Custom | None,
) -> Placing:
    """Return the translation with the marks around the words that are aligned to theirs, or None if one has no
    place.
    """
    bare = _bare(text, spans, pairs)
    restored = yield from translate_kept(bare.text, bare.spans, words, custom)
    source = _Masked(bare.text, [span[:2] for span in bare.spans], words)
    target = _Masked(restored.text, restored.kept, words)
    weights = yield from _weights(source.text, target.text)
    whole = (0, len(bare.text.rstrip()))
    if weights is None and any((begin, end) != whole for begin, end, _ in bare.inlines):
        return None
    inlines = [Inline(source.place(begin), source.place(end), parent) for begin, end, parent in bare.inlines]
    segment = Aligned((0, len(source.text)), (0, len(target.text)), weights, source.same(target))
    begun, positions = dict[int, int](), list[tuple[int, int, str]]()
    for insertion in place(source.text, target.text, [segment], inlines):
        to = target.own(insertion.place)
        if insertion.closing and begun[insertion.inline] == to:
            return None
        begun[insertion.inline] = to
        positions.append((to, to, bare.marks[insertion.inline][insertion.closing]))
    return _inserted(restored, positions)


class _Masked:
    """A text with a word that the model knows in place of each kept string that has no blank."""

    def __init__(self, text: str, spans: Sequence[Span], words: Sequence[str]) -> None:
        self._begins, self._masks, length, at = [0], [0], 0, 0
        self._kept = list[tuple[str, Span]]()  # each string, and where it is now
        parts = list[str]()
        for begin, end in spans:
            string = text[begin:end]
            mask = words[0] if words and not any(map(str.isspace, string)) else string
            parts += [text[at:begin], mask]
            length += begin - at
            self._kept.append((string, (length, length + len(mask))))
            length, at = length + len(mask), end
            self._begins += [begin, end]
            self._masks += [length - len(mask), length]
        self.text = "".join([*parts, text[at:]])

    def place(self, at: int) -> int:
        """Return where a position of the text, which is in no kept string, is now."""
        number = bisect_right(self._begins, at) - 1
        return self._masks[number] + at - self._begins[number]

    def own(self, at: int) -> int:
        """Return where a position is in the text as it was. One within a mask is before the string."""
        number = bisect_right(self._masks, at) - 1
        if number % 2 and at > self._masks[number]:
            at = self._masks[number]
        return self._begins[number] + at - self._masks[number]

    def same(self, other: _Masked) -> list[KeptCopy]:
        """Return the strings that another text has as well, equal ones in the order of both. No mark comes into one."""
        waiting: dict[str, list[Span]] = {}
        for string, span in reversed(other._kept):
            waiting.setdefault(string, []).append(span)
        return [KeptCopy(span, waiting[string].pop(), (span,)) for string, span in self._kept if waiting.get(string)]


def _weights(source: str, target: str) -> Generator[SentenceRequest, SentenceAnswer, list[list[float]] | None]:
    """Return (target words, source words): how much of a source word is in a target word, or None if it is not
    known.
    """
    read = normalise(source), normalise(target)
    sources, targets = (_words(text) for text in read)
    count = len(source.split()), len(target.split())
    if (len(sources), len(targets)) != count or not 0 < count[0] * count[1] <= MOST_WEIGHTS:
        return None
    found: Sequence[SpanLink] = yield from links(Align(*read))
    if not found:
        return None
    sums = [[0.0] * len(sources) for _ in targets]
    totals = [0.0] * len(sources)
    for (_, source_end), (_, target_end) in found:
        column = min(bisect_right(sources, source_end - 1), len(sources) - 1)
        sums[min(bisect_right(targets, target_end - 1), len(targets) - 1)][column] += 1
        totals[column] += 1
    return [[value / total if total else 0.0 for value, total in zip(row, totals, strict=True)] for row in sums]


def _words(text: str) -> list[int]:
    """Return the ends of the words of a normalised text."""
    ends, at = list[int](), 0
    for word in text.split():
        at = text.index(word, at) + len(word)
        ends.append(at)
    return ends


def translate_sentence(
    text: str,
    spans: Sequence[ProtectedSpan],
    words: Sequence[str],
    names: Mapping[str, str],
    custom: Custom | None = None,
) -> SentenceSteps:
    """Translate a sentence. Each protected string is in the result as often as in the text.

    spans: what is protected in the sentence, in order and without overlap
    words: those that the model translates to themselves, the surest first
    names: words that are not written in small letters, by their form in lower case. See `capitals.names_of`
    custom: how numbers are written in the translation; None as they are in the text
    """
    if not is_in_capitals(text, spans):
        return _by_custom((yield from translate_marked(text, spans, words, custom)), text, spans, custom)
    source, kept_spans = lowered(text, spans, names)
    restored = yield from translate_marked(source, kept_spans, words, custom)
    high, _ = raised(restored.text, restored.kept)
    if not counts_hold(text, high, [text[begin:end] for begin, end, _ in spans]):
        unchanged = Restored(text, tuple((begin, end) for begin, end, _ in spans), Means.SPLIT)
        return _by_custom(unchanged, text, spans, custom)
    restored = _by_custom(restored, text, spans, custom)
    high, kept = raised(restored.text, restored.kept)
    return Restored(high, tuple(kept), restored.means, Lowered(source, kept_spans, restored), restored.outputs)


def _by_custom(restored: Restored, text: str, spans: Sequence[ProtectedSpan], custom: Custom | None) -> Restored:
    """Return a translation with its kept numbers as the target language writes them."""
    numbers = {each.text for each in SplitSentence.of(text, spans).kept if each.is_number} if custom else set[str]()
    if custom is None or not numbers:
        return restored
    written, kept, at = "", list[Span](), 0
    for begin, end in restored.kept:
        string = restored.text[begin:end]
        written += restored.text[at:begin]
        kept.append((len(written), len(written)))
        written += custom.written(string) if string in numbers else string
        kept[-1] = kept[-1][0], len(written)
        at = end
    return replace(restored, text=written + restored.text[at:], kept=tuple(kept))
