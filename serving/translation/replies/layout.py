"""The translations of the parts of a text, put together: where each sentence is, and the markup around them. Pure."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span
from lingon.segments.markup.plain import WrittenText
from lingon.segments.placing.inlines import Kept
from lingon.segments.protection.requests import Restored
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.planning.input_processor import TextPlan
from lingon.serving.translation.replies.word_weights import WordWeights, sentence_weights


@dataclass(frozen=True, slots=True)
class PartHypothesis:
    """One hypothesis of one part.

    text: the text of its tokens
    scored: with attention, if the request wants an alignment
    restored: of a part that was translated in steps: the text with the places of what is kept
    weights: between its words and those of its source, if tags are placed by them
    kept: of a part that was translated in steps, if tags are placed in it: what it and its source have
    read_log_probs: of a part that was translated in steps, or again: those of the first text that the model wrote
    parts: of a part that was translated in steps: in how many the model read it, at most
    """

    hypothesis: Hypothesis
    text: str
    scored: Scored | None = None
    restored: Restored | None = None
    weights: WordWeights | None = None
    kept: tuple[Kept, ...] = ()
    read_log_probs: tuple[float, ...] = ()
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The translation of a text.

    text: with markup, if the text has markup
    sentences, parts: in the translation without markup, the span of each sentence and where each part begins
    """

    text: str
    sentences: tuple[Span, ...]
    parts: tuple[int, ...]
    written: WrittenText | None = None

    def span(self, begin: int, end: int) -> Span:
        """Return where a span of the translation without markup, within one sentence, is in the text."""
        return (begin, end) if self.written is None else self.written.span(begin, end)


def layout(plan: TextPlan, parts: Sequence[PartHypothesis]) -> Generator[None, None, Layout]:
    """Put a hypothesis together, by one of each part; yields now and then if there is markup."""
    own = plan.places()
    sentences = [join([parts[place].text for place in places]) for places in own]
    joined = plan.document.join([text for text, _ in sentences])
    begins = tuple(
        begin + offset for (begin, _), (_, offsets) in zip(joined.spans, sentences, strict=True) for offset in offsets
    )
    if plan.plain is None:
        return Layout(joined.text, joined.spans, begins)
    weights, kept = list[WordWeights | None](), list[Sequence[Kept]]()
    for segment, places in enumerate(own):
        weights.append(_weights(plan, parts, segment, places) if plan.tagged[segment] else None)
        kept.append(parts[places[0]].kept if len(places) == 1 else ())  # a part with kept strings is a whole sentence
        yield
    written = yield from plan.plain.write(plan.document, joined, weights, kept)
    return Layout(written.text, joined.spans, begins, written)


def join(texts: Sequence[str]) -> tuple[str, list[int]]:
    """Join the texts of the parts of a sentence by spaces, without empty ones; returns where each part begins too."""
    joined, begins = "", []
    for text in texts:
        space = " " if joined and text else ""
        begins.append(len(joined) + len(space))
        joined += space + text
    return joined, begins


def _weights(
    plan: TextPlan, parts: Sequence[PartHypothesis], segment: int, places: Sequence[int]
) -> WordWeights | None:
    found = [(plan.parts[place].text, parts[place].text, parts[place].weights) for place in places]
    return sentence_weights(plan.document.segment(segment), found)
