"""The way of a sentence whose translation has a begin that stays: what is kept of its rest is in the rest.

Pure: a generator yields what it needs translated, and receives the answers; see `lingon.segments.steps`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lingon.segments.kept_forms import ProtectedSpan
from lingon.segments.sentence import (
    Means,
    Restored,
    SentenceSteps,
    SplitSentence,
    TranslateStep,
    has_words,
    joined,
    translations,
)
from lingon.segments.stand_ins import attempts, counts_hold
from lingon.segments.steps import AFTER, ENDS, accepted, translate_part
from lingon.text import normalise


def lacks_kept(text: str, spans: Sequence[ProtectedSpan], begin: str, target: str) -> bool:
    """Return whether a translation lacks what is kept of a sentence, or has it too often, behind its begin."""
    left = (text[span.begin : span.end] for span in _behind(text, spans, begin))
    return not counts_hold(text, target, [*left])


def translate_begun(text: str, spans: Sequence[ProtectedSpan], words: Sequence[str], begin: str) -> SentenceSteps:
    """Translate a sentence. The translation begins with `begin`, and has behind it what is kept and not in it.

    The answer to a request without a prefix, of a text behind a string at which the sentence is split, has what is kept
    of that text.

    spans: what is kept, in order and without overlap; words: see `lingon.segments.steps.translate_kept`
    """
    return (yield from _begun(SplitSentence.of(text, _behind(text, spans, begin)), words, begin))


def _behind(text: str, spans: Sequence[ProtectedSpan], begin: str) -> list[ProtectedSpan]:
    """Return the spans whose strings are not in the begin of the translation. The first of equal ones are in it."""
    found, known = list[ProtectedSpan](), Counter[str]()
    for span in spans:
        string = text[span.begin : span.end]
        known[string] += 1
        if known[string] > begin.count(string):
            found.append(span)
    return found


def _begun(sentence: SplitSentence, words: Sequence[str], begin: str) -> SentenceSteps:
    if not sentence.kept:
        return (yield from _as_text(sentence, begin))
    place = sentence.divider()
    if place is None:
        for attempt in attempts(sentence, words):
            outputs = yield from translations(TranslateStep(attempt.source, begin))
            restored = accepted(attempt, attempt.best(outputs), begin)
            if restored is not None and restored.text.startswith(begin):
                return restored
        place = 0
    return (yield from _begun_and_split(sentence, place, words, begin))


def _begun_and_split(sentence: SplitSentence, place: int, words: Sequence[str], begin: str) -> SentenceSteps:
    """Translate what is before and after a kept string apart."""
    kept = sentence.kept[place]
    _, core, gap = sentence.before(place).stripped("", AFTER)
    before = yield from _begun(core, words, begin)
    text = before.text[: len(begin)] + before.text[len(begin) :].rstrip(ENDS)
    if not has_words(core.text) and not gap[:1].isspace():
        gap = f" {gap}"  # the begin translates later words of an earlier version of the sentence
    after = yield from translate_part(sentence.after(place), _as_text)
    string = Restored(kept.text, ((0, len(kept.text)),), Means.SPLIT)
    return joined(replace(before, text=text), gap, string, after)


def _as_text(sentence: SplitSentence, begin: str = "") -> SentenceSteps:
    request = TranslateStep(normalise(sentence.text), begin)
    outputs = (yield from translations(request)) if any(map(has_words, sentence.texts)) else ()
    return Restored(outputs[0], outputs=((request, outputs[0]),)) if outputs else Restored(begin or sentence.text)
