"""Translates a sentence so that what is protected in it comes out as it is: by words in its place, or by its parts.

Pure: a generator yields what it needs translated or aligned, and receives the answers. The strings are counted before
the result is returned, so that it holds each as often as the sentence, whatever the model answers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

from lingon.segments.protection.find import with_figures
from lingon.segments.protection.requests import (
    Align,
    Answer,
    Link,
    Output,
    Request,
    Restored,
    Rung,
    Steps,
    Translate,
    joined,
    links,
    translations,
)
from lingon.segments.protection.sentence import Sentence, has_words
from lingon.segments.protection.separators import Custom
from lingon.segments.protection.spans import ProtectedSpan, without
from lingon.segments.protection.stand_ins import MOST_WORDS, Attempt, attempts, counts_hold
from lingon.text import normalise

_ENDS = ".!?…。！？"
_BLANK = " \t\n\r\xa0"
_BEFORE, _AFTER = f"{_BLANK},;:.!?…)]}}–—-", f"{_BLANK},;:([{{–—-"  # of a part: what is copied around it


def ladder(text: str, spans: Sequence[ProtectedSpan], words: Sequence[str], custom: Custom | None = None) -> Steps:
    """Translate a sentence; each protected string is in the result as often as in the text.

    spans: what is protected, in order and without overlap; small numbers are looked for besides
    words: those that the model translates to themselves, the surest first; may be empty
    custom: how the model may write numbers, which are in the result as in the text all the same
    """
    every = with_figures(text, spans)
    before, sentence, after = Sentence.of(text, every, custom).peeled(_BLANK, _BLANK)
    restored = joined(before, (yield from _climb(sentence, words)), after)
    if not counts_hold(text, restored.text, [text[begin:end] for begin, end, _ in every]):
        return Restored(text, tuple((begin, end) for begin, end, _ in spans), Rung.SPLIT)
    return restored


def _climb(sentence: Sentence, words: Sequence[str]) -> Steps:
    """Translate a sentence or a part of one by the first rung that carries it."""
    if not any(map(has_words, sentence.texts)):
        is_kept = any(not each.is_figure for each in sentence.kept)
        return Restored(sentence.text, ((0, len(sentence.text)),) if is_kept else ())
    if not sentence.kept:
        request = Translate(normalise(sentence.text))
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


def _split(sentence: Sentence, place: int, words: Sequence[str]) -> Steps:
    """Translate what is before and after a kept string apart."""
    kept, sides = sentence.kept[place], (sentence.before(place), sentence.after(place))
    before = yield from _part(sides[0], words)
    after = yield from _part(sides[1], words)
    breaks = not kept.divides and all(has_words(side.text) for side in sides)
    places = () if kept.is_figure else ((0, len(kept.text)),)
    string = Restored(kept.text, places, Rung.SPLIT if breaks else Rung.NONE)
    return joined(before, string, after)


def _part(sentence: Sentence, words: Sequence[str]) -> Steps:
    """Translate a part of a sentence; the blanks and the punctuation around it stay, and it gets no end mark."""
    before, core, after = sentence.peeled(_BEFORE, _AFTER)
    restored = yield from _climb(core, words)
    last = max((end for _, end in restored.kept), default=0)
    if core.text[-1:] not in _ENDS:
        text = restored.text[:last] + restored.text[last:].rstrip(_ENDS)
        restored = replace(restored, text=text or core.text)
    return joined(before, restored, after)


def _by_words(sentence: Sentence, words: Sequence[str]) -> Generator[Request, Answer, tuple[Restored | None, int]]:
    """Return the translation by words in place of the kept strings, or None and the place at which to split."""
    best: tuple[Attempt, str] | None = None
    for attempt in attempts(sentence, words):
        outputs = yield from translations(Translate(attempt.source))
        output = attempt.best(outputs)
        if (restored := _accepted(attempt, output)) is not None:
            return restored, 0
        is_itself = attempt.words == tuple(each.text for each in sentence.kept)
        if output and not is_itself and (best is None or len(attempt.wrong(output)) < len(best[0].wrong(best[1]))):
            best = attempt, output
    if best is None:
        return None, len(sentence.kept) // 2
    restored = yield from _by_prefixes(*best)
    return restored, (best[0].wrong(best[1]) or [0])[0]


def _accepted(attempt: Attempt, output: str, prefix: str = "") -> Restored | None:
    """Return a translation with its strings; None unless each word is in it once, no string besides, and other words.

    prefix: that was forced
    """
    if attempt.wrong(output):
        return None
    used: Output = Translate(attempt.source, prefix), output
    restored = replace(attempt.restored(output), outputs=(used,))
    strings = [each.text for each in attempt.sentence.kept]
    if any(map(has_words, attempt.sentence.texts)) and not has_words(without(restored.text, restored.kept)):
        return None  # all else of the sentence is lost
    return restored if counts_hold(attempt.sentence.text, restored.text, strings) else None


def _by_prefixes(attempt: Attempt, output: str) -> Generator[Request, Answer, Restored | None]:
    """Force the words that are not once in a translation, by prefixes that end with them and grow."""
    prefix = ""
    while wrong := attempt.wrong(output):
        found: Sequence[Link] = ()
        if any(not attempt.spans(output, place) for place in wrong):
            found = yield from links(Align(attempt.source, normalise(output)))
        longer = min((_prefix(attempt, place, output, found, len(prefix)) for place in wrong), key=len)
        if len(longer) <= len(prefix):
            return None
        prefix = longer
        outputs = yield from translations(Translate(attempt.source, prefix))
        output = attempt.best(each for each in outputs if each.startswith(prefix))
        if not output:
            return None
    restored = _accepted(attempt, output, prefix)
    return restored and replace(restored, rung=Rung.PLACED)


def _prefix(attempt: Attempt, place: int, output: str, found: Sequence[Link], least: int) -> str:
    """Return the begin of a translation up to the word of a place: where it is first, or where it is aligned to.

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
