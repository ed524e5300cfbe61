"""From the output of the engine to reply messages: texts, tokens, alignments, usage, warnings. Pure.

The translations of the parts of a text are joined, and the guard judges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from lingon.alignment import piece_links
from lingon.errors import Degenerate, RequestError
from lingon.segments.boundaries import Span, is_blank, without_blanks_around
from lingon.segments.kept_forms import without
from lingon.segments.markup import WrittenText
from lingon.segments.placing_alignment import KeptCopy
from lingon.segments.sentence import Means, Restored, TermUse, leaves_words
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.guard import DEGENERATE, Flag, Guard, Judgement, Sentence
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.attention import (
    WordWeights,
    matrix_message,
    piece_messages,
    sentence_weights,
    word_weights,
)
from lingon.serving.translation.matches import match_messages, memory_warning
from lingon.serving.translation.options import Format, ResolvedOptions
from lingon.serving.translation.plans import Begin, PairPlan, Part, TextPlan, piece_spans
from lingon.serving.translation.terms import missed_warning, outcomes
from lingon.status import to_status
from lingon.text import EOS, UNK, Tokenizer, normalise, to_nfc
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """What the second translator did for a sentence. judgement: of its answer, if that is the translation."""

    outcome: pb.SecondOutcome
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class PartHypothesis:
    """One hypothesis of one part.

    text: the text of its tokens
    attention: (target tokens, source tokens), where the model looked, if the request wants an alignment
    restored: for a part that was translated in steps: the text with the positions of its kept strings
    weights: between its words and its source's words, if they place tags
    kept: for a part that was translated in steps, if tags are placed in it: the kept strings of it and its source
    read_log_probs: for a part that was translated in steps, or again: of the first text that the model wrote
    parts: for a part that was translated in steps: the largest number of parts in which the model read it
    terms: how its terms came into it, see `Restored`
    is_guided: whether an earlier translation guided it, see `Part.earlier`
    is_encoded: whether its tokens were made of its text, as of one that was translated in steps or has forced terms
    second: what the second translator did for it, if it was to be asked
    """

    hypothesis: Hypothesis
    text: str
    attention: np.ndarray | None = None
    restored: Restored | None = None
    weights: WordWeights | None = None
    kept: tuple[KeptCopy, ...] = ()
    read_log_probs: tuple[float, ...] = ()
    parts: int = 1
    terms: tuple[TermUse, ...] = ()
    is_encoded: bool = False
    is_guided: bool = False
    second: SecondOpinion | None = None

    @property
    def is_taken(self) -> bool:
        """Whether it is the answer of the second translator."""
        return self.second is not None and self.second.judgement is not None


@dataclass(frozen=True, slots=True)
class Layout:
    """The translation of a text.

    text: the translation, with markup if the text has markup
    sentences, parts: in the translation without markup, the span of each sentence and the begin of each part
    """

    text: str
    sentences: tuple[Span, ...]
    parts: tuple[int, ...]
    written: WrittenText | None = None

    def span(self, begin: int, end: int) -> Span:
        """Return the span in the text of a span of the translation without markup, within one sentence."""
        return (begin, end) if self.written is None else self.written.span(begin, end)


def layout(plan: TextPlan, parts: Sequence[PartHypothesis]) -> Generator[None, None, Layout]:
    """Join a hypothesis from one of each part. Yields from time to time if there is markup."""
    if plan.plain is None and len(parts) == len(plan.document.segments) == 1:  # most texts; nothing needs to be joined
        text, ((begin, end),) = parts[0].text, plan.document.segments
        whole = plan.document.text[:begin] + text + plan.document.text[end:]
        return Layout(whole, ((begin, begin + len(text)),), (begin,))
    own = plan.parts_of_sentences()
    sentences = [join([parts[index].text for index in indices]) for indices in own]
    joined = plan.document.join([text for text, _ in sentences])
    begins = tuple(
        begin + offset for (begin, _), (_, offsets) in zip(joined.spans, sentences, strict=True) for offset in offsets
    )
    if plan.plain is None:
        return Layout(joined.text, joined.spans, begins)
    weights, kept = list[WordWeights | None](), list[Sequence[KeptCopy]]()
    for segment, indices in enumerate(own):
        weights.append(_weights(plan, parts, segment, indices) if plan.tagged[segment] else None)
        kept.append(parts[indices[0]].kept if len(indices) == 1 else ())  # a part with kept strings is a whole sentence
        yield
    written = yield from plan.plain.write(plan.document, joined, weights, kept)
    return Layout(written.text, joined.spans, begins, written)


def join(texts: Sequence[str]) -> tuple[str, list[int]]:
    """Join the texts of the parts of a sentence by spaces, without empty ones. Returns the begin of each part too."""
    joined, begins = "", []
    for text in texts:
        space = " " if joined and text else ""
        begins.append(len(joined) + len(space))
        joined += space + text
    return joined, begins


def _weights(
    plan: TextPlan, parts: Sequence[PartHypothesis], segment: int, indices: Sequence[int]
) -> WordWeights | None:
    found = [(plan.parts[index].text, parts[index].text, parts[index].weights) for index in indices]
    return sentence_weights(plan.document.segment(segment), found)


MESSAGES = {
    Flag.EMPTY: "the translation has no text",
    Flag.REPETITION: "the translation repeats itself",
    Flag.WRONG_LANGUAGE: "the translation fits the source language better",
    Flag.LENGTH_RATIO: "the translation has an unusual length for its source",
    Flag.COPY: "the translation is a copy of its source",
    Flag.NUMBERS: "the translation has other numbers than its source",
    Flag.UNREADABLE: "the model does not know many characters of the source",
    Flag.LOW_CONFIDENCE: "the translation is less sure than those of 99 of 100 usual sentences",
}
RETRIED = "translated once more, because the first translation was worse"
REFUSED = DEGENERATE | {Flag.UNREADABLE}


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of the guard about the best translation of a text.

    parts: judgement of each part; empty if it was not judged
    retried: indices of the parts with a replaced translation
    """

    parts: Sequence[Judgement] = ()
    retried: frozenset[int] = frozenset()


def part_judgement(plan: TextPlan, index: int, part: PartHypothesis, guard: Guard, tokenizer: Tokenizer) -> Judgement:
    """Return the judgement of the guard about the translation of the part of a text with this index.

    Kept strings are not judged. The confidence is for the text that the model read instead.
    """
    source = plan.parts[index]
    if source.given is not None:
        return Judgement()  # what people have translated
    if part.second is not None and part.second.judgement is not None:
        return part.second.judgement
    if source.steps is None or part.restored is None:
        chosen = part.read_log_probs or part.hypothesis.log_probs[len(plan.prefix) if index == 0 else 0 :]
        ids, tokens = tokenizer.unframed(source.source_ids), part.hypothesis.tokens
        return guard.judge(Sentence(source.read_text, part.text, ids, tokens, chosen))
    read = source.steps.read
    unread = [Flag.UNREADABLE] if leaves_words(read.text, read.spans) else []
    rest = to_nfc(without_blanks_around(without(read.text, read.spans)))
    if not rest:
        return Judgement(tuple(unread))
    target = without(part.restored.text, part.restored.kept)
    ids = tokenizer.encode_target(normalise(target))
    found = guard.judge(Sentence(rest, target, tokenizer.unframed(source.source_ids), ids, part.read_log_probs))
    if not unread or Flag.UNREADABLE in found.flags:
        return found
    return found._replace(flags=tuple(flag for flag in Flag if flag in (*found.flags, *unread)))


def judge_parts(
    plan: TextPlan, parts: Sequence[PartHypothesis], guard: Guard, tokenizer: Tokenizer
) -> Generator[None, None, list[Judgement]]:
    """Return the judgement of each part. Yields between parts, because there may be a thousand."""
    found = []
    for index, part in enumerate(parts):
        if index:
            yield
        found.append(part_judgement(plan, index, part, guard, tokenizer))
    return found


def guard_warnings(judged: Judged, *, refuses: bool) -> list[pb.Warning]:
    """Return the warnings about a translation.

    refuses: whether to raise Degenerate if the guard suspects that it is no translation
    """
    flags = [flag for each in judged.parts for flag in each.flags]
    if not flags and not judged.retried:
        return []
    counts = Counter(flags)
    if refuses and (refused := sorted(REFUSED.intersection(counts))):
        raise Degenerate("; ".join(MESSAGES[flag] for flag in refused))
    said = [(flag.code, counts[flag], MESSAGES[flag]) for flag in sorted(counts)]
    said += [(pb.WARNING_CODE_RETRIED, len(judged.retried), RETRIED)] if judged.retried else []
    return [pb.Warning(code=code, message=_share(count, len(judged.parts)) + text) for code, count, text in said]


def lowest_confidence(judgements: Sequence[Judgement]) -> float | None:
    """Return the lowest confidence, or None without any."""
    return min((each.confidence for each in judgements if each.confidence is not None), default=None)


def warning_codes(judgements: Sequence[Judgement], *, retried: bool) -> list[pb.WarningCode.ValueType]:
    """Return the codes of the warnings about a sentence, from the judgements of its parts."""
    flags = sorted({flag for each in judgements for flag in each.flags})
    return [*(flag.code for flag in flags), *([pb.WARNING_CODE_RETRIED] if retried else ())]


def _share(count: int, total: int) -> str:
    return f"{count} of {total} parts: " if total > 1 else ""


def text_error(error: RequestError) -> pb.TextResult:
    """Return the result of a text that is not translated."""
    return pb.TextResult(status=to_status(error))


def pair_error(error: RequestError) -> pb.ScoreResult:
    """Return the result of a pair that is not scored."""
    return pb.ScoreResult(status=to_status(error))


def pair_without_source() -> pb.ScoreResult:
    """Return the result of a pair with an empty source, because the model has read nothing before the target."""
    return pb.ScoreResult(warnings=[pb.Warning(code=pb.WARNING_CODE_EMPTY_SOURCE, message="the source is empty")])


def text_result(
    plan: TextPlan,
    found: Sequence[Sequence[PartHypothesis]],
    options: ResolvedOptions,
    tokenizer: Tokenizer,
    guard: Guard,
    judged: Judged | None = None,
) -> Generator[None, None, pb.TextResult]:
    """Return the result of a text. Yields between its parts, because a text may have a thousand.

    found: the hypotheses of each part; the k-th ones of all parts make the k-th of the text
    judged: the judgement of the best ones, if they were already judged

    Raises Degenerate if the request refuses translations that the guard suspects.
    """
    whole = [list(parts) for parts in zip(*found, strict=False)] or [[] for _ in range(options.num_hypotheses)]
    if len(whole) > 1 and not options.alternatives:  # alternatives keep the order of their first tokens
        whole.sort(key=_order)
    hypotheses, layouts = list[pb.Hypothesis](), list[Layout]()
    for parts in whole:
        layouts.append((yield from layout(plan, parts)))
        hypotheses.append((yield from _hypothesis(plan, parts, layouts[-1], options, tokenizer)))
    policy = options.text.guard
    if policy == pb.GUARD_POLICY_OFF:
        judged = Judged()
    elif judged is None:
        judged = Judged((yield from judge_parts(plan, whole[0], guard, tokenizer)))
    warnings = guard_warnings(judged, refuses=policy == pb.GUARD_POLICY_REFUSE) if judged.parts else []
    terms = _term_outcomes(plan, whole[0], layouts[0]) if plan.terms else []
    if (missed := missed_warning(terms)) is not None:
        warnings.append(missed)
    if (from_memory := memory_warning(plan)) is not None:
        warnings.append(from_memory)
    if (from_second := _second_warning(plan, whole[0])) is not None:
        warnings.append(from_second)
    return pb.TextResult(
        hypotheses=hypotheses,
        terms=terms,
        matches=match_messages(plan, [each for each, part in enumerate(whole[0]) if part.is_guided]),
        warnings=[*_warnings(plan, whole, hypotheses), *warnings],
        confidence=lowest_confidence(judged.parts) if judged.parts else None,
        shortlist=options.job.shortlist and any(part.given is None for part in plan.parts),
        normalised_text=plan.text if options.return_alignment else "",
        sentences=_sentences(plan, whole[0], layouts[0], judged) if options.text.return_sentences else (),
        usage=pb.Usage(
            source_tokens=plan.source_tokens,
            target_tokens=sum(
                len(part.hypothesis.tokens) + part.hypothesis.finished
                for parts in whole
                for source, part in zip(plan.parts, parts, strict=True)
                if source.given is None
            ),
        ),
    )


def pair_result(
    plan: PairPlan, found: Scored, tokenizer: Tokenizer, *, aligned: bool
) -> Generator[None, None, pb.ScoreResult]:
    """Return the result of a pair, with its attention. Yields between matrices, which may be large."""
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
    """Return the span of each piece in code points, without the white space before a word.

    surfaces: the text that sentencepiece assigns to each piece. It assigns a character that is spelled in bytes to the
    last byte. Here each of the bytes has its span.
    """
    found: list[Span] = []
    begin, pending = 0, 0  # pending: pieces before the end of their character
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
    """Return the spans of the tokens of a part in its text, without the end token. The model may read another text."""
    found = source_spans(tokenizer, part.read_text)
    return found if part.reading is None else [part.reading.sent(*span) for span in found]


def target_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the spans of the tokens of a normalised target text, without the end token."""
    return spans([piece.surface for piece in tokenizer.target.encode(text, return_type="proto").pieces])


def encoded_target(tokenizer: Tokenizer, text: str) -> tuple[tuple[int, ...], list[Span]]:
    """Return the tokens of a normalised target text, and their spans; see `target_spans`."""
    if tokenizer.moses is not None:
        return tuple(tokenizer.encode_target(text)), target_spans(tokenizer, text)
    pieces = tokenizer.target.encode(text, return_type="proto").pieces
    return tuple(piece.id for piece in pieces), spans([piece.surface for piece in pieces])


def generated_spans(tokenizer: Tokenizer, tokens: Sequence[int], begin: Begin | None = None) -> list[Span]:
    """Return the spans of generated tokens in their text, which the tokenizer may split into other tokens.

    begin: begin of the text, if the first tokens spell another text
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


def spans_in(text: str, pieces: Sequence[str]) -> list[Span] | None:
    """Return the spans of pieces of a text, or None if the text is not these pieces, one after the other.

    pieces: with the blanks before words, of which those at the begin are not in the text
    This takes a quarter of the time of sentencepiece, which has to encode or decode once more.
    """
    at = len(text) - sum(map(len, pieces))
    if not (pieces and all(pieces)) or -at >= len(pieces[0]) or "".join(pieces)[-at:] != text or at > 0:
        return None
    found = list[Span]()
    for piece in pieces:
        end = at + len(piece)
        blanks = len(piece) - len(piece.lstrip()) if piece.strip() else 0
        found.append((max(at + blanks, 0), end))
        at = end
    return found


def linked_tokens(attention: np.ndarray, sources: Sequence[Span], targets: Sequence[Span]) -> list[tuple[int, int]]:
    """Return the source and the target token of each link; see `lingon.alignment.piece_links`.

    attention: (target_length, source_length), the row of the end token last, and its column if the model reads one
    """
    return piece_links(attention[: len(targets)].argmax(axis=1).tolist(), len(sources))


def weights_of(part: Part, found: PartHypothesis, attention: np.ndarray, tokenizer: Tokenizer) -> WordWeights:
    """Return the weights between the words of a part and of its translation; attention: between their tokens."""
    sources = part_spans(tokenizer, part)
    if found.is_encoded:
        targets = target_spans(tokenizer, found.text)
    else:
        targets = generated_spans(tokenizer, found.hypothesis.tokens)
    return word_weights(attention, sources, targets, part.text, found.text)


def _order(parts: Sequence[PartHypothesis]) -> tuple[int, float]:
    """Return the sort key of the hypotheses of a text: forced words come before the score."""
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
    for index, (source, target_begin, part) in enumerate(zip(plan.parts, placed.parts, parts, strict=True)):
        if index:
            yield
        tokens = part.hypothesis.tokens
        if options.return_tokens and not part.is_taken:
            # The log-probabilities include the end token.
            named = zip(tokenizer.target_pieces(tokens), part.hypothesis.log_probs, strict=False)
            message.tokens.extend(pb.Token(piece=piece, log_prob=value) for piece, value in named)
        if part.attention is not None:
            if options.text.format is Format.PIECES:
                sources, own = piece_spans(source.text), piece_spans(part.text)
            else:
                sources = _shifted(part_spans(tokenizer, source), source.begin)
                if part.is_encoded:
                    own = target_spans(tokenizer, part.text)
                else:
                    own = generated_spans(tokenizer, tokens, None if index else plan.begin)
            targets = [placed.span(*span) for span in _shifted(own, target_begin)]
            message.alignment.extend(_links(part.attention, sources, targets))
    return message


def _sentences(plan: TextPlan, parts: Sequence[PartHypothesis], placed: Layout, judged: Judged) -> list[pb.Sentence]:
    """Return the sentences of a text and of its translation, which consists of these parts."""
    found = []
    for segment, target, indices in zip(
        plan.document.segments, placed.sentences, plan.parts_of_sentences(), strict=True
    ):
        judgements = [judged.parts[index] for index in indices] if judged.parts else []
        found.append(
            pb.Sentence(
                source=_span_message(plan.plain.raw_span(*segment) if plan.plain else segment),
                target=_span_message(placed.span(*target)),
                score=sum(parts[index].hypothesis.score for index in indices),
                confidence=lowest_confidence(judgements),
                warnings=[
                    *warning_codes(judgements, retried=not judged.retried.isdisjoint(indices)),
                    *([pb.WARNING_CODE_FROM_MEMORY] if plan.parts[indices[0]].given is not None else ()),
                    *([pb.WARNING_CODE_SECOND] if parts[indices[0]].is_taken else ()),
                ],
                second=second.outcome if (second := parts[indices[0]].second) is not None else None,
            )
        )
    return found


def _second_warning(plan: TextPlan, parts: Sequence[PartHypothesis]) -> pb.Warning | None:
    """Return the warning about sentences that the second translator translated, or None without any."""
    taken = [part.second.outcome.model for part in parts if part.second is not None and part.is_taken]
    if not taken:
        return None
    sentences = len(plan.document.segments)
    subject = "the translation is" if sentences == 1 else f"{len(taken)} of {sentences} sentences are"
    return pb.Warning(code=pb.WARNING_CODE_SECOND, message=f"{subject} from the second translator, {taken[0]}")


def _term_outcomes(plan: TextPlan, parts: Sequence[PartHypothesis], placed: Layout) -> list[pb.TermOutcome]:
    """Return what became of the terms of a text in the translation that consists of these parts."""
    found, of_sentences = list[pb.TermOutcome](), plan.parts_of_sentences()
    for number, own_terms in groupby(plan.terms, key=lambda each: each.sentence):
        planned, indices = [*own_terms], of_sentences[number]
        target, _ = join([parts[index].text for index in indices])
        used = [use for index in indices for use in parts[index].terms]
        terms, begin = plan.parts[indices[0]].terms, placed.sentences[number][0]
        for each in outcomes(plan.document.text, planned, terms, target, used):
            own = each.planned
            source = plan.plain.raw_span(own.begin, own.end) if plan.plain else (own.begin, own.end)
            message = pb.TermOutcome(
                source=own.term.source, target=own.term.target, glossary=own.glossary, means=each.means
            )
            message.source_span.CopyFrom(_span_message(source))
            if each.target is not None:
                span = placed.span(begin + each.target[0], begin + each.target[1])
                message.target_span.CopyFrom(_span_message(span))
            found.append(message)
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
    if not plan.parts and is_blank(plan.document.text):
        found.append(pb.Warning(code=pb.WARNING_CODE_EMPTY_SOURCE, message="the text has nothing to translate"))
    parts = [0] * len(plan.document.segments)  # of each sentence
    for part, read in zip(plan.parts, whole[0], strict=True):
        parts[part.sentence] += read.parts
    if split := [count for count in parts if count > 1]:
        sentences = "" if len(parts) == 1 else f"{len(split)} of {len(parts)} sentences are "
        message = f"{sentences}longer than the model reads: translated in {sum(split)} parts"
        found.append(pb.Warning(code=pb.WARNING_CODE_SPLIT, message=message))
    if apart := sum([part.restored is not None and part.restored.means is Means.SPLIT for part in whole[0]]):
        sentences = "the sentence was" if len(parts) == 1 else f"{apart} of {len(parts)} sentences were"
        message = f"{sentences} cut at a string that is kept, and translated in parts"
        found.append(pb.Warning(code=pb.WARNING_CODE_MARKUP_SPLIT, message=message))
    if cut := sum([not all(part.hypothesis.finished for part in parts) for parts in whole]):
        message = f"{cut} of {len(whole)} translations hit the bound on their length and are not complete"
        found.append(pb.Warning(code=pb.WARNING_CODE_LENGTH, message=message))
    if lacking := sum([bool(hypothesis.missing_words) for hypothesis in hypotheses]):
        message = f"{lacking} of {len(whole)} translations do not have all forced_words; see missing_words"
        found.append(pb.Warning(code=pb.WARNING_CODE_FORCED_WORDS, message=message))
    return found
