"""What the guard says of a text: the warnings and the confidence of its sentences and of the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from lingon.errors import Degenerate
from lingon.segments.boundaries import without_blanks_around
from lingon.segments.protection.sentence import leaves_words
from lingon.segments.protection.spans import without
from lingon.serving.guard.judge import DEGENERATE, Flag, Guard, Judgement, Sentence
from lingon.serving.translation.planning.input_processor import TextPlan
from lingon.serving.translation.replies.layout import PartHypothesis
from lingon.text import Tokenizer, normalise, to_nfc
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


@dataclass(frozen=True, slots=True)
class SecondTries:
    """The judgements of all parts of a text, and the places of those whose first translation was replaced."""

    judgements: Sequence[Judgement]
    replaced: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said about the best translation of a text.

    parts: of each part; empty if it was not judged
    retried: places of the parts whose first translation was replaced
    confidence: the lowest one; None without one
    """

    parts: Sequence[Judgement] = ()
    retried: frozenset[int] = frozenset()
    warnings: Sequence[pb.Warning] = ()
    confidence: float | None = None


def part_judgement(plan: TextPlan, place: int, part: PartHypothesis, guard: Guard, tokenizer: Tokenizer) -> Judgement:
    """Return what the guard finds about the translation of the part of a text with this index.

    What is kept is not judged; the confidence is that of what the model read in its place.
    """
    source = plan.parts[place]
    if source.steps is None or part.restored is None:
        chosen = part.read_log_probs or part.hypothesis.log_probs[len(plan.prefix) if place == 0 else 0 :]
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
    """Return what the guard finds about each part; yields between them, since there may be a thousand."""
    found = []
    for place, part in enumerate(parts):
        found.append(part_judgement(plan, place, part, guard, tokenizer))
        yield
    return found


def judged_text(found: Sequence[Judgement], retried: frozenset[int], *, refuses: bool) -> Judged:
    """Return what is said about a translation.

    found: of each part; retried: places of the parts whose first translation was replaced
    refuses: raise Degenerate if the guard suspects that it is no translation
    """
    flags = [flag for each in found for flag in each.flags]
    counts = Counter(flags)
    if refuses and (refused := sorted(REFUSED.intersection(counts))):
        raise Degenerate("; ".join(MESSAGES[flag] for flag in refused))
    said = [(flag.code, counts[flag], MESSAGES[flag]) for flag in sorted(counts)]
    said += [(pb.WARNING_CODE_RETRIED, len(retried), RETRIED)] if retried else []
    warnings = [pb.Warning(code=code, message=_share(count, len(found)) + text) for code, count, text in said]
    return Judged(found, retried, warnings, lowest_confidence(found))


def lowest_confidence(judgements: Sequence[Judgement]) -> float | None:
    """Return the lowest confidence; None if there is none."""
    return min((each.confidence for each in judgements if each.confidence is not None), default=None)


def warning_codes(judgements: Sequence[Judgement], *, retried: bool) -> list[pb.WarningCode.ValueType]:
    """Return the codes of the warnings about a sentence, by the judgements of its parts."""
    flags = sorted({flag for each in judgements for flag in each.flags})
    return [*(flag.code for flag in flags), *([pb.WARNING_CODE_RETRIED] if retried else ())]


def _share(count: int, total: int) -> str:
    return f"{count} of {total} parts: " if total > 1 else ""
