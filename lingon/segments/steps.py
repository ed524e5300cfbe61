"""The way of one sentence through protection and capitals, as a generator of what it needs translated or aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lingon.segments.boundaries import Span
from lingon.segments.capitals import is_in_capitals, lowered, raised
from lingon.segments.marked import translate_marked
from lingon.segments.protection.requests import Lowered, Restored, Rung, Steps
from lingon.segments.protection.sentence import Sentence
from lingon.segments.protection.separators import Custom
from lingon.segments.protection.spans import ProtectedSpan
from lingon.segments.protection.stand_ins import counts_hold


def translate_sentence(
    text: str,
    spans: Sequence[ProtectedSpan],
    words: Sequence[str],
    names: Mapping[str, str],
    custom: Custom | None = None,
) -> Steps:
    """Translate a sentence; each protected string is in the result as often as in the text.

    spans: what is protected in the sentence, in order and without overlap
    words: those that the model translates to themselves, the surest first
    names: words that are not written in small letters, by their form in lower case; see `capitals.names_of`
    custom: how numbers are written in the translation; None as they are in the text
    """
    if not is_in_capitals(text, spans):
        return _by_custom((yield from translate_marked(text, spans, words, custom)), text, spans, custom)
    source, kept_spans = lowered(text, spans, names)
    restored = yield from translate_marked(source, kept_spans, words, custom)
    high, _ = raised(restored.text, restored.kept)
    if not counts_hold(text, high, [text[begin:end] for begin, end, _ in spans]):
        unchanged = Restored(text, tuple((begin, end) for begin, end, _ in spans), Rung.SPLIT)
        return _by_custom(unchanged, text, spans, custom)
    restored = _by_custom(restored, text, spans, custom)
    high, kept = raised(restored.text, restored.kept)
    return Restored(high, tuple(kept), restored.rung, Lowered(source, kept_spans, restored), restored.outputs)


def _by_custom(restored: Restored, text: str, spans: Sequence[ProtectedSpan], custom: Custom | None) -> Restored:
    """Return a translation with its kept numbers as the target language writes them."""
    numbers = {each.text for each in Sentence.of(text, spans).kept if each.is_number} if custom else set[str]()
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
