"""From the output of the engine to reply messages: texts, tokens, alignments, usage, warnings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

import numpy as np

from lingon.alignment import piece_links
from lingon.errors import RequestError
from lingon.segments.boundaries import Span, is_blank
from lingon.segments.protection.requests import Rung
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.guard.judge import Guard
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.pieces import piece_spans
from lingon.serving.translation.planning.attention import matrix_message, piece_messages
from lingon.serving.translation.planning.input_processor import PairPlan, Part, TextPlan
from lingon.serving.translation.planning.options import ResolvedOptions
from lingon.serving.translation.planning.text_options import Format
from lingon.serving.translation.replies.guarding import (
    Judged,
    SecondTries,
    judge_parts,
    judged_text,
    lowest_confidence,
    warning_codes,
)
from lingon.serving.translation.replies.layout import Layout, PartHypothesis, layout
from lingon.serving.translation.replies.word_weights import WordWeights, word_weights
from lingon.serving.translation.target_prefix import Begin
from lingon.status import to_status
from lingon.text import EOS, UNK, Tokenizer
from lingon.translation.v1 import translation_pb2 as pb


def text_error(error: RequestError) -> pb.TextResult:
    """Return the result of a text that is not translated."""
    return pb.TextResult(status=to_status(error))


def pair_error(error: RequestError) -> pb.ScoreResult:
    """Return the result of a pair that is not scored."""
    return pb.ScoreResult(status=to_status(error))


def pair_without_source() -> pb.ScoreResult:
    """Return the result of a pair whose source is empty: the model has read nothing that a target could follow."""
    return pb.ScoreResult(warnings=[pb.Warning(code=pb.WARNING_CODE_EMPTY_SOURCE, message="the source is empty")])


def text_result(
    plan: TextPlan,
    found: Sequence[Sequence[PartHypothesis]],
    options: ResolvedOptions,
    tokenizer: Tokenizer,
    guard: Guard,
    second: SecondTries | None = None,
) -> Generator[None, None, pb.TextResult]:
    """Return the result of a text; yields between its parts, since a text may have a thousand of them.

    found: the hypotheses of each part; the k-th ones of all parts make the k-th of the text
    second: if the best ones were judged already

    Raises Degenerate if the request refuses what the guard suspects.
    """
    whole = [list(parts) for parts in zip(*found, strict=False)] or [[] for _ in range(options.num_hypotheses)]
    if not options.alternatives:  # which are in the order of their first tokens
        whole.sort(key=_order)
    hypotheses, layouts = list[pb.Hypothesis](), list[Layout]()
    for parts in whole:
        layouts.append((yield from layout(plan, parts)))
        hypotheses.append((yield from _hypothesis(plan, parts, layouts[-1], options, tokenizer)))
    judged, policy = Judged(), options.text.guard
    if policy != pb.GUARD_POLICY_OFF:
        if second is None:
            second = SecondTries((yield from judge_parts(plan, whole[0], guard, tokenizer)))
        judged = judged_text(second.judgements, second.replaced, refuses=policy == pb.GUARD_POLICY_REFUSE)
    return pb.TextResult(
        hypotheses=hypotheses,
        warnings=[*_warnings(plan, whole, hypotheses), *judged.warnings],
        confidence=judged.confidence,
        shortlist=options.job.shortlist and bool(plan.parts),
        normalised_text=plan.text if options.return_alignment else "",
        sentences=_sentences(plan, whole[0], layouts[0], judged) if options.text.return_sentences else (),
        usage=pb.Usage(
            source_tokens=plan.source_tokens,
            target_tokens=sum(_tokens(part.hypothesis) for parts in whole for part in parts),
        ),
    )


def pair_result(
    plan: PairPlan, found: Scored, tokenizer: Tokenizer, *, aligned: bool
) -> Generator[None, None, pb.ScoreResult]:
    """Return the result of a pair, with the attention that was found; yields between matrices, which may be large."""
    log_probs = found.log_probs.tolist()
    pieces = tokenizer.target_pieces([*plan.target_ids, EOS])
    result = pb.ScoreResult(
        warnings=_pair_warnings(plan, tokenizer),
        log_prob=sum(log_probs),
        tokens=[pb.Token(piece=piece, log_prob=value) for piece, value in zip(pieces, log_probs, strict=True)],
    )
    if aligned or found.matrices:
        if plan.in_pieces:
            sources, targets = piece_spans(plan.source), piece_spans(plan.target)
        else:
            sources, targets = source_spans(tokenizer, plan.source), target_spans(tokenizer, plan.target)
        result.normalised_source, result.normalised_target = plan.source, plan.target
        if aligned:
            result.alignment.extend(_links(found.attention, sources, targets))
        if found.matrices:
            named = tokenizer.source_pieces(tokenizer.without_languages(plan.source_ids))
            result.source_pieces.extend(piece_messages(named, sources, len(plan.source)))
            result.target_pieces.extend(piece_messages(pieces, targets, len(plan.target)))
    for matrix in found.matrices:
        result.attention.append(matrix_message(matrix))
        yield
    return result


def _pair_warnings(plan: PairPlan, tokenizer: Tokenizer) -> list[pb.Warning]:
    if not plan.target_ids:
        return [
            pb.Warning(code=pb.WARNING_CODE_EMPTY, message="the target is empty: its score is that of its end token")
        ]
    if UNK not in plan.target_ids:
        return []
    begin, end = target_spans(tokenizer, plan.target)[plan.target_ids.index(UNK)]
    message = (
        f"the target has {plan.target[begin:end]!r} at character {begin + 1}, which the model cannot write: its "
        "log-probability stands for the probability 0"
    )
    return [pb.Warning(code=pb.WARNING_CODE_UNREADABLE, message=message)]


def spans(surfaces: Sequence[str]) -> list[Span]:
    """Return the code points that each piece covers, without the white space before a word.

    surfaces: the text that sentencepiece assigns to each piece. It assigns a character that is spelled in bytes to the
    last byte; here each of the bytes has its span.
    """
    found: list[Span] = []
    begin, pending = 0, 0  # pending: pieces whose character has not been seen yet
    for surface in surfaces:
        pending += 1
        if surface:
            blank = len(surface) - len(surface.lstrip()) if surface.strip() else 0
            found += [(begin + blank, begin + len(surface))] * pending
            begin, pending = begin + len(surface), 0
    return found + [(begin, begin)] * pending


def source_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the spans of the tokens of a normalised source text, without the end token."""
    return spans([piece.surface for piece in tokenizer.source.encode(text, return_type="proto").pieces])


def part_spans(tokenizer: Tokenizer, part: Part) -> list[Span]:
    """Return the spans of the tokens of a part in its text, without the end token; the model may read another one."""
    found = source_spans(tokenizer, part.read_text)
    return found if part.reading is None else [part.reading.sent(*span) for span in found]


def target_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the spans of the tokens of a normalised target text, without the end token."""
    return spans([piece.surface for piece in tokenizer.target.encode(text, return_type="proto").pieces])


def generated_spans(tokenizer: Tokenizer, tokens: Sequence[int], begin: Begin | None = None) -> list[Span]:
    """Return the spans of generated tokens in their text, which the tokenizer may split into other tokens.

    begin: of the text, if the first tokens spell another one
    """
    shown = [token for token in tokens if token > UNK]
    proto = tokenizer.target.decode(shown, return_type="proto")
    skipped = len(proto.text) - len(proto.text.lstrip())
    end = len(proto.text.strip())
    pieces = iter(spans([piece.surface for piece in proto.pieces]))
    found: list[Span] = []
    for token in tokens:
        last = found[-1][1] if found else 0
        span = next(pieces) if token > UNK else (last + skipped, last + skipped)
        found.append((min(max(span[0] - skipped, 0), end), min(max(span[1] - skipped, 0), end)))
    if begin is None:
        return found
    shift = len(begin.whole(tokens, proto.text, tokenizer)) - end
    return [*target_spans(tokenizer, begin.text), *_shifted(found[len(begin.tokens) :], shift)]


def linked_tokens(attention: np.ndarray, sources: Sequence[Span], targets: Sequence[Span]) -> list[tuple[int, int]]:
    """Return the source and the target token of each link; see `lingon.alignment.piece_links`.

    attention: (target_length, source_length), the row of the end token last, and its column if the model reads one
    """
    return piece_links(attention[: len(targets)].argmax(axis=1).tolist(), len(sources))


def weights_of(part: Part, found: PartHypothesis, attention: np.ndarray, tokenizer: Tokenizer) -> WordWeights:
    """Return the weights between the words of a part and of its translation; attention: between their tokens."""
    sources, targets = part_spans(tokenizer, part), generated_spans(tokenizer, found.hypothesis.tokens)
    return word_weights(attention, sources, targets, part.text, found.text)


def _order(parts: Sequence[PartHypothesis]) -> tuple[int, float]:
    """Return the key by which the hypotheses of a text are sorted: forced words come before the score."""
    return sum(part.hypothesis.missing for part in parts), -sum(part.hypothesis.score for part in parts)


def _hypothesis(
    plan: TextPlan, parts: Sequence[PartHypothesis], placed: Layout, options: ResolvedOptions, tokenizer: Tokenizer
) -> Generator[None, None, pb.Hypothesis]:
    finished = all(part.hypothesis.finished for part in parts)
    message = pb.Hypothesis(
        text=placed.text,
        score=sum(part.hypothesis.score for part in parts),
        finish_reason=pb.FINISH_REASON_END if finished else pb.FINISH_REASON_LENGTH,
        missing_words=options.rules.missing(placed.text) if options.rules else (),
    )
    for place, (source, target_begin, part) in enumerate(zip(plan.parts, placed.parts, parts, strict=True)):
        tokens = part.hypothesis.tokens
        if options.return_tokens:
            # The log-probabilities also have the end token.
            named = zip(tokenizer.target_pieces(tokens), part.hypothesis.log_probs, strict=False)
            message.tokens.extend(pb.Token(piece=piece, log_prob=value) for piece, value in named)
        if part.scored is not None:
            if options.text.format is Format.PIECES:
                sources, own = piece_spans(source.text), piece_spans(part.text)
            else:
                sources = _shifted(part_spans(tokenizer, source), source.begin)
                if part.restored is not None:
                    own = target_spans(tokenizer, part.text)
                else:
                    own = generated_spans(tokenizer, tokens, None if place else plan.begin)
            targets = [placed.span(*span) for span in _shifted(own, target_begin)]
            message.alignment.extend(_links(part.scored.attention, sources, targets))
        yield
    return message


def _sentences(plan: TextPlan, parts: Sequence[PartHypothesis], placed: Layout, judged: Judged) -> list[pb.Sentence]:
    """Return the sentences of a text and of its translation, which consists of these parts."""
    found = []
    for segment, target, places in zip(plan.document.segments, placed.sentences, plan.places(), strict=True):
        judgements = [judged.parts[place] for place in places] if judged.parts else []
        found.append(
            pb.Sentence(
                source=_span_message(plan.plain.raw_span(*segment) if plan.plain else segment),
                target=_span_message(placed.span(*target)),
                score=sum(parts[place].hypothesis.score for place in places),
                confidence=lowest_confidence(judgements),
                warnings=warning_codes(judgements, retried=not judged.retried.isdisjoint(places)),
            )
        )
    return found


def _span_message(span: Span) -> pb.Span:
    return pb.Span(begin=span[0], end=span[1])


def _links(attention: np.ndarray, sources: Sequence[Span], targets: Sequence[Span]) -> list[pb.AlignmentLink]:
    """Return the links between tokens; attention: see `linked_tokens`."""
    return [
        pb.AlignmentLink(
            source=_span_message(sources[source]),
            target=_span_message(targets[target]),
            weight=attention[target, source],
        )
        for source, target in linked_tokens(attention, sources, targets)
    ]


def _shifted(found: Sequence[Span], by: int) -> list[Span]:
    return [(begin + by, end + by) for begin, end in found]


def _warnings(
    plan: TextPlan, whole: Sequence[Sequence[PartHypothesis]], hypotheses: Sequence[pb.Hypothesis]
) -> list[pb.Warning]:
    found = []
    if is_blank(plan.document.text):
        found.append(pb.Warning(code=pb.WARNING_CODE_EMPTY_SOURCE, message="the text has nothing to translate"))
    parts: Counter[int] = Counter()
    for part, read in zip(plan.parts, whole[0], strict=True):
        parts[part.sentence] += read.parts
    if split := [count for count in parts.values() if count > 1]:
        sentences = "" if len(parts) == 1 else f"{len(split)} of {len(parts)} sentences are "
        message = f"{sentences}longer than the model reads: translated in {sum(split)} parts"
        found.append(pb.Warning(code=pb.WARNING_CODE_SPLIT, message=message))
    apart = sum(part.restored is not None and part.restored.rung is Rung.SPLIT for part in whole[0])
    if apart:
        sentences = "the sentence was" if len(parts) == 1 else f"{apart} of {len(parts)} sentences were"
        message = f"{sentences} cut at a string that is kept, and translated in parts"
        found.append(pb.Warning(code=pb.WARNING_CODE_MARKUP_SPLIT, message=message))
    cut = sum(not all(part.hypothesis.finished for part in parts) for parts in whole)
    if cut:
        message = f"{cut} of {len(whole)} translations hit the bound on their length and are not complete"
        found.append(pb.Warning(code=pb.WARNING_CODE_LENGTH, message=message))
    lacking = sum(bool(hypothesis.missing_words) for hypothesis in hypotheses)
    if lacking:
        message = f"{lacking} of {len(whole)} translations do not have all forced_words; see missing_words"
        found.append(pb.Warning(code=pb.WARNING_CODE_FORCED_WORDS, message=message))
    return found


def _tokens(hypothesis: Hypothesis) -> int:
    return len(hypothesis.tokens) + hypothesis.finished
