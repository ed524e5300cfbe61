"""What a request does about translations that the guard suspects: warnings, another attempt, or a refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace

from lingon.bundle import Bundle, Limits
from lingon.errors import Degenerate, InvalidRequest
from lingon.serving.constraints.words import Vocabulary
from lingon.serving.decoding.job import Options
from lingon.serving.guard.judge import DEGENERATE, Flag, Guard, Judgement
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

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

RETRY_BEAM = 4
RETRY_NGRAM = 4  # tokens; no run of so many occurs twice in another attempt
RETRY_FACTOR = 1.5  # target tokens of another attempt for each source token, besides `Limits.output_extra`

Policy = pb.GuardPolicy.ValueType


@dataclass(frozen=True, slots=True)
class Guarding:
    """The guard of a model, and how it makes another attempt at a sentence."""

    guard: Guard
    attempt: Options

    @classmethod
    def of(cls, bundle: Bundle, tokenizer: Tokenizer, vocabulary: Vocabulary) -> Guarding:
        """The guard of a bundle."""
        rules = vocabulary.rules(
            forbidden=(), forced=(), min_tokens=0, no_repeat_ngram=RETRY_NGRAM, repetition_penalty=1.0
        )
        beam_size = min(RETRY_BEAM, bundle.manifest.limits.max_beam_size)
        return cls(Guard.of(bundle, tokenizer), Options(beam_size=beam_size, rules=rules.of_part(0)))

    def options(self, first: Options, source_tokens: int, limits: Limits) -> Options:
        """Return the options of another attempt at a part.

        first: of the first attempt; source_tokens: with the end token
        """
        most = min(first.max_output_tokens, int(RETRY_FACTOR * source_tokens) + limits.output_extra)
        return replace(self.attempt, length_penalty=first.length_penalty, max_output_tokens=max(most, 1))


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said about the best translation of a text; confidence: None without text data."""

    warnings: tuple[pb.Warning, ...] = ()
    confidence: float | None = None


def choose_policy(asked: Policy, conflict: str, *, greedy: bool) -> Policy:
    """Return the policy of a request.

    conflict: the option with which another attempt is not possible; empty if it is
    greedy: whether the request searches greedily

    Raises InvalidRequest for an unknown value, and for RETRY with a conflict.
    """
    if asked not in pb.GuardPolicy.values():
        raise InvalidRequest("text.guard", f"text.guard has no value {asked}")
    if asked == pb.GUARD_POLICY_UNSPECIFIED:
        return pb.GUARD_POLICY_RETRY if greedy and not conflict else pb.GUARD_POLICY_WARN
    if asked == pb.GUARD_POLICY_RETRY and conflict:
        raise InvalidRequest("text.guard", f"text.guard must not be GUARD_POLICY_RETRY with {conflict}")
    return asked


def better(first: Judgement | None, second: Judgement | None) -> bool:
    """Whether another attempt has fewer of the flags for which it was made, or as many and fewer in all."""
    assert first is not None
    assert second is not None
    return _badness(second) < _badness(first)


def judged_text(judgements: Iterable[Judgement], policy: Policy, *, retried: int) -> Generator[None, None, Judged]:
    """Return a warning for each flag of a text; yields between its parts, since there may be a thousand.

    judgements: of each part; retried: parts whose first translation was replaced

    Raises Degenerate if the policy refuses such a text.
    """
    counts, confidences = Counter[Flag](), []
    total = 0
    for judgement in judgements:
        counts.update(judgement.flags)
        if judgement.confidence is not None:
            confidences.append(judgement.confidence)
        total += 1
        yield
    if policy == pb.GUARD_POLICY_REFUSE and (refused := sorted(REFUSED.intersection(counts))):
        raise Degenerate("; ".join(MESSAGES[flag] for flag in refused))
    warnings = [
        pb.Warning(code=flag.code, message=_share(counts[flag], total) + MESSAGES[flag]) for flag in sorted(counts)
    ]
    if retried:
        warnings.append(pb.Warning(code=pb.WARNING_CODE_RETRIED, message=_share(retried, total) + RETRIED))
    return Judged(tuple(warnings), min(confidences, default=None))


def _share(count: int, total: int) -> str:
    return f"{count} of {total} parts: " if total > 1 else ""


def _badness(judgement: Judgement) -> tuple[int, int]:
    return len(DEGENERATE.intersection(judgement.flags)), len(judgement.flags)
