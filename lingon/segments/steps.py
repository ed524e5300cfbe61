"""The way of one sentence through protection and capitals, as a generator of what it needs translated or aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lingon.segments.capitals import is_in_capitals, lowered, raised
from lingon.segments.marked import translate_marked
from lingon.segments.protection import ProtectedSpan, Restored, Rung
from lingon.segments.protection.requests import Lowered, Steps
from lingon.segments.protection.stand_ins import counts_hold


def translate_sentence(
    text: str, spans: Sequence[ProtectedSpan], words: Sequence[str], names: Mapping[str, str]
) -> Steps:
    """Translate a sentence; each protected string is in the result as often as in the text.

    spans: what is protected in the sentence, in order and without overlap
    words: those that the model translates to themselves, the surest first
    names: words that are not written in small letters, by their form in lower case; see `capitals.names_of`
    """
    if not is_in_capitals(text, spans):
        return (yield from translate_marked(text, spans, words))
    source, kept_spans = lowered(text, spans, names)
    restored = yield from translate_marked(source, kept_spans, words)
    high, kept = raised(restored.text, restored.kept)
    if not counts_hold(text, high, [text[begin:end] for begin, end, _ in spans]):
        return Restored(text, tuple((begin, end) for begin, end, _ in spans), Rung.SPLIT)
    return Restored(high, tuple(kept), restored.rung, Lowered(source, kept_spans, restored), restored.outputs)
