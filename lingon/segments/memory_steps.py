"""The translation of a sentence that begins like one of a translation memory, as a generator around another one. Pure.

What the two sentences have in common at their begin is translated as the memory has it: the words of its translation
that the attention of the model aligns with that begin are a prefix, after which the model goes on. The result is taken
if the model finds it about as likely as its own translation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

from lingon.segments.protection import find_protected
from lingon.segments.sentence import (
    Align,
    Restored,
    Score,
    SentenceAnswer,
    SentenceRequest,
    SentenceSteps,
    SpanLink,
    TranslateStep,
    links,
    scores,
    translations,
)
from lingon.segments.stand_ins import figures_of
from lingon.text import normalise

LEAST_WORDS = 2  # in common: with less, the memory says nothing about the sentence
MOST_DROP = 0.05  # of the score. A search finds what is likelier: of 64 sentences none got a better score, 7 one within
# this, which differ by a word that is as good, and those that lost more often had errors
_WORD = re.compile(r"\S+")


class EarlierPair(NamedTuple):
    """A sentence of a memory and its translation, both normalised."""

    source: str
    target: str


def with_earlier(steps: Callable[[], SentenceSteps], earlier: EarlierPair) -> SentenceSteps:
    """Translate a sentence by other steps, and what the model reads first once more as an earlier pair begins.

    steps: starts them. They are taken with the second translation if they need no more than it, which is so if all
        kept strings are in it, else with the first one
    earlier: a similar sentence with the numbers and placeholders of this one
    """
    free = steps()
    try:
        request = next(free)
    except StopIteration as done:  # there is nothing to translate
        nothing: Restored = done.value
        return nothing
    outputs = [each for each in (yield request) if isinstance(each, str)]
    if isinstance(request, TranslateStep) and outputs and not request.prefix:
        guided = yield from _guided(request.text, outputs[0], earlier)
        restored = None if guided is None else _restored(steps(), guided)
        if restored is not None:
            return restored
    return (yield from _rest(free, outputs))


def _restored(steps: SentenceSteps, guided: tuple[TranslateStep, str]) -> Restored | None:
    """Return the translation that some steps make of a guided output alone, or None if they need another one."""
    next(steps)
    try:
        steps.send([guided[1]])
    except StopIteration as done:
        made: Restored = done.value
        return replace(made, outputs=(guided,), is_guided=True) if made.outputs else None
    steps.close()
    return None


def _rest(steps: SentenceSteps, answer: SentenceAnswer) -> SentenceSteps:
    """Take the rest of some steps; answer: to their last request."""
    try:
        request = steps.send(answer)
    except StopIteration as done:
        restored: Restored = done.value
        return restored
    return (yield from _rest(steps, (yield request)))


def _guided(
    text: str, output: str, earlier: EarlierPair
) -> Generator[SentenceRequest, SentenceAnswer, tuple[TranslateStep, str] | None]:
    """Return the translation that begins as the earlier one, or None if there is none or it is clearly less likely."""
    shared = shared_begin(text, earlier.source)
    if not shared:
        return None
    found = yield from links(Align(earlier.source, earlier.target))
    prefix = begin_of(earlier, shared, found)
    if not prefix or output.startswith(prefix):
        return None
    step = TranslateStep(text, prefix)
    outputs = yield from translations(step)
    guided = next((each for each in outputs if each.startswith(prefix)), None)
    if guided is None:
        return None
    judged = yield from scores(Score(text, (normalise(output), normalise(guided))))
    return (step, guided) if len(judged) == 2 and judged[1].score >= judged[0].score - MOST_DROP else None


def shared_begin(text: str, other: str) -> int:
    """Return how many characters whole words take with which both texts begin, 0 if there are too few words."""
    end = words = 0
    for first, second in zip(_WORD.finditer(text), _WORD.finditer(other), strict=False):
        if first[0] != second[0]:
            break
        end, words = second.end(), words + 1
    return end if words >= LEAST_WORDS else 0


def begin_of(earlier: EarlierPair, shared: int, found: Sequence[SpanLink]) -> str:
    """Return the begin of an earlier translation that is of the begin of its source.

    shared: characters of that begin
    found: links between the two

    No word of it is linked to another part of the source or comes after such a word, and its last word is linked. It
    has no number that the begin of the source lacks, and no URL, placeholder or other string that is kept.
    """
    linked = list[tuple[int, bool]]()  # of each linked word: its end, and whether it is of the begin alone
    for word in _WORD.finditer(earlier.target):
        own = [source for source, target in found if target[0] < word.end() and word.start() < target[1]]
        if own and any(source[1] > shared for source in own):
            break
        linked.append((word.end(), bool(own)))
    end = max((end for end, is_linked in linked if is_linked), default=0)
    prefix, begin = earlier.target[:end], earlier.source[:shared]
    if not _strings(prefix) <= _strings(begin) or not figures_of(prefix) <= figures_of(begin):
        return ""
    return prefix


def _strings(text: str) -> Counter[str]:
    """Return the strings of a text that are kept, and how often each is there."""
    return Counter(text[begin:end] for begin, end, _ in find_protected(text))
