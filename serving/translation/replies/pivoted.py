"""The result of a text that was translated twice, of the results of both translations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lingon.translation.v1 import translation_pb2 as pb


def pivoted(first: pb.TextResult, second: pb.TextResult, *, sentences: bool) -> pb.TextResult:
    """Return the second result with what the first one adds to it; both have their sentences.

    sentences: whether the result has them
    """
    codes = {warning.code for warning in second.warnings}
    second.warnings.extend(warning for warning in first.warnings if warning.code not in codes)
    second.usage.source_tokens += first.usage.source_tokens
    second.usage.target_tokens += first.usage.target_tokens
    if first.hypotheses[0].finish_reason == pb.FINISH_REASON_LENGTH:
        for hypothesis in second.hypotheses:
            hypothesis.finish_reason = pb.FINISH_REASON_LENGTH
    found = pivoted_sentences(first.sentences, second.sentences)
    confidences = [each.confidence for each in found if each.HasField("confidence")]
    second.ClearField("confidence")
    if confidences:
        second.confidence = min(confidences)
    second.ClearField("sentences")
    if sentences:
        second.sentences.extend(found)
    return second


def pivoted_sentences(first: Iterable[pb.Sentence], second: Iterable[pb.Sentence]) -> list[pb.Sentence]:
    """Return the sentences of a text; those that the second translation joins or divides differently are one.

    The targets of the first and the sources of the second ones are spans of the same text.
    """
    spans = [(each.target, 0, each) for each in first] + [(each.source, 1, each) for each in second]
    spans.sort(key=lambda found: (found[0].begin, found[1]))
    groups: list[tuple[list[pb.Sentence], list[pb.Sentence]]] = []
    reached = -1
    for span, side, sentence in spans:
        if span.begin >= reached or not groups:
            groups.append(([], []))
        groups[-1][side].append(sentence)
        reached = max(reached, span.end)
    found: list[pb.Sentence] = []
    for ones, others in groups:
        if ones:  # what the first translation has no sentence for is none
            found.append(_joined(ones, others, found[-1].target.end if found else 0))
    return found


def _joined(first: Sequence[pb.Sentence], second: Sequence[pb.Sentence], end: int) -> pb.Sentence:
    """Return a sentence of the text; end: of the translation before it, for one of which nothing was written."""
    judged = second or first
    whole = pb.Sentence(
        source=_span([each.source for each in first]),
        target=_span([each.target for each in second]) if second else pb.Span(begin=end, end=end),
        score=sum(each.score for each in judged),
        warnings=dict.fromkeys(code for side in (first, second) for each in side for code in each.warnings),
    )
    if all(each.HasField("confidence") for each in (*first, *second)):
        whole.confidence = min(each.confidence for each in first) * min((each.confidence for each in second), default=0)
    return whole


def _span(spans: Sequence[pb.Span]) -> pb.Span:
    return pb.Span(begin=min(each.begin for each in spans), end=max(each.end for each in spans))
