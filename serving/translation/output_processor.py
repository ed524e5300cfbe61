"""From the output of the engine to reply messages: texts, tokens, alignments, usage, warnings. Pure."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from lingon.alignment import Span, piece_links
from lingon.errors import RequestError
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.guard.judge import Guard, Judgement, Sentence
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.attention import matrix_message, piece_messages
from lingon.serving.translation.detokenizer import join
from lingon.serving.translation.guarding import Judged, judged_text
from lingon.serving.translation.input_processor import PairPlan, TextPlan
from lingon.serving.translation.options import ResolvedOptions
from lingon.status import to_status
from lingon.text import EOS, UNK, Tokenizer
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class PartHypothesis:
    """One hypothesis of one part.

    text: the text of its tokens
    scored: with attention, if the request wants an alignment
    judgement: of the guard, if it was judged before the result of the text is made
    retried: whether it replaced a first translation that the guard suspected
    """

    hypothesis: Hypothesis
    text: str
    scored: Scored | None = None
    judgement: Judgement | None = None
    retried: bool = False


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return the text of generated tokens."""
    return tokenizer.decode(tokens).strip()


def part_judgement(plan: TextPlan, place: int, part: PartHypothesis, guard: Guard) -> Judgement:
    """Return what the guard finds about the translation of the part of a text with this index."""
    if part.judgement is not None:
        return part.judgement
    source, found = plan.parts[place], part.hypothesis
    chosen = found.log_probs[len(plan.prefix) if place == 0 else 0 :]
    return guard.judge(Sentence(source.text, part.text, source.source_ids[:-1], found.tokens, chosen))


def text_error(error: RequestError) -> pb.TextResult:
    """Return the result of a text that is not translated."""
    return pb.TextResult(status=to_status(error))


def pair_error(error: RequestError) -> pb.ScoreResult:
    """Return the result of a pair that is not scored."""
    return pb.ScoreResult(status=to_status(error))


def text_result(
    plan: TextPlan,
    found: Sequence[Sequence[PartHypothesis]],
    options: ResolvedOptions,
    tokenizer: Tokenizer,
    guard: Guard,
) -> Generator[None, None, pb.TextResult]:
    """Return the result of a text; yields between its parts, since a text may have a thousand of them.

    found: the hypotheses of each part; the k-th ones of all parts make the k-th of the text

    Raises Degenerate if the request refuses what the guard suspects.
    """
    whole = [list(parts) for parts in zip(*found, strict=False)]
    whole.sort(key=_order)
    hypotheses = []
    for parts in whole:
        hypotheses.append((yield from _hypothesis(plan, parts, options, tokenizer)))
    judged = Judged()
    if options.guard != pb.GUARD_POLICY_OFF:
        judgements = (part_judgement(plan, place, part, guard) for place, part in enumerate(whole[0]))
        judged = yield from judged_text(judgements, options.guard, retried=sum(part.retried for part in whole[0]))
    return pb.TextResult(
        hypotheses=hypotheses,
        warnings=[*_warnings(plan, whole, hypotheses), *judged.warnings],
        confidence=judged.confidence,
        shortlist=options.job.shortlist,
        normalised_text=plan.text if options.return_alignment else "",
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
        log_prob=sum(log_probs),
        tokens=[pb.Token(piece=piece, log_prob=value) for piece, value in zip(pieces, log_probs, strict=True)],
    )
    if aligned or found.matrices:
        sources, targets = source_spans(tokenizer, plan.source), target_spans(tokenizer, plan.target)
        result.normalised_source, result.normalised_target = plan.source, plan.target
        if aligned:
            result.alignment.extend(_links(found.attention, sources, targets))
        if found.matrices:
            named = tokenizer.source_pieces(plan.source_ids)
            result.source_pieces.extend(piece_messages(named, sources, len(plan.source)))
            result.target_pieces.extend(piece_messages(pieces, targets, len(plan.target)))
    for matrix in found.matrices:
        result.attention.append(matrix_message(matrix))
        yield
    return result


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


def target_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the spans of the tokens of a normalised target text, without the end token."""
    return spans([piece.surface for piece in tokenizer.target.encode(text, return_type="proto").pieces])


def generated_spans(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[Span]:
    """Return the spans of generated tokens in their text, which the tokenizer may split into other tokens."""
    shown = [token for token in tokens if token > UNK]
    proto = tokenizer.target.decode(shown, return_type="proto")
    skipped = len(proto.text) - len(proto.text.lstrip())
    end = len(proto.text.strip())
    pieces = iter(spans([piece.surface for piece in proto.pieces]))
    found: list[Span] = []
    for token in tokens:
        begin = found[-1][1] if found else 0
        span = next(pieces) if token > UNK else (begin + skipped, begin + skipped)
        found.append((min(max(span[0] - skipped, 0), end), min(max(span[1] - skipped, 0), end)))
    return found


def _order(parts: Sequence[PartHypothesis]) -> tuple[int, float]:
    """Return the key by which the hypotheses of a text are sorted: forced words come before the score."""
    return sum(part.hypothesis.missing for part in parts), -sum(part.hypothesis.score for part in parts)


def _hypothesis(
    plan: TextPlan, parts: Sequence[PartHypothesis], options: ResolvedOptions, tokenizer: Tokenizer
) -> Generator[None, None, pb.Hypothesis]:
    text, begins = join([part.text for part in parts])
    finished = all(part.hypothesis.finished for part in parts)
    message = pb.Hypothesis(
        text=text,
        score=sum(part.hypothesis.score for part in parts),
        finish_reason=pb.FINISH_REASON_END if finished else pb.FINISH_REASON_LENGTH,
        missing_words=options.rules.missing(text) if options.rules else (),
    )
    for source, target_begin, part in zip(plan.parts, begins, parts, strict=True):
        tokens = part.hypothesis.tokens
        if options.return_tokens:
            # The log-probabilities also have the end token.
            named = zip(tokenizer.target_pieces(tokens), part.hypothesis.log_probs, strict=False)
            message.tokens.extend(pb.Token(piece=piece, log_prob=value) for piece, value in named)
        if part.scored is not None:
            sources = _shifted(source_spans(tokenizer, source.text), source.begin)
            targets = _shifted(generated_spans(tokenizer, tokens), target_begin)
            message.alignment.extend(_links(part.scored.attention, sources, targets))
        yield
    return message


def _links(attention: np.ndarray, sources: Sequence[Span], targets: Sequence[Span]) -> list[pb.AlignmentLink]:
    """Return the links between tokens; see `lingon.alignment.piece_links`.

    attention: (target_length, source_length), the row and the column of the end tokens last
    """
    attended = attention[: len(targets)].argmax(axis=1).tolist()
    return [
        pb.AlignmentLink(
            source=pb.Span(begin=sources[source][0], end=sources[source][1]),
            target=pb.Span(begin=targets[target][0], end=targets[target][1]),
            weight=attention[target, source],
        )
        for source, target in piece_links(attended, len(sources))
    ]


def _shifted(found: Sequence[Span], by: int) -> list[Span]:
    return [(begin + by, end + by) for begin, end in found]


def _warnings(
    plan: TextPlan, whole: Sequence[Sequence[PartHypothesis]], hypotheses: Sequence[pb.Hypothesis]
) -> list[pb.Warning]:
    found = []
    if len(plan.parts) > 1:
        message = f"longer than the model reads: translated in {len(plan.parts)} parts"
        found.append(pb.Warning(code=pb.WARNING_CODE_SPLIT, message=message))
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
