"""Batch invariance: a sentence gets the same translation alone as in a batch with others."""

from __future__ import annotations

from dataclasses import dataclass

from lingon.errors import ParityError
from lingon.export.gates.translations.decode import engine_search, engine_search_alone
from lingon.export.verification.text import Text
from lingon.scoring import score
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner

LEAST_IDENTICAL = 0.995  # share of the sentences, on a GPU, whose products add in an order that depends on the batch
MAX_BLEU_DIFFERENCE = 0.1  # points, on a GPU


@dataclass(frozen=True, slots=True)
class Invariance:
    """The number of sentences with the same translation alone and in a batch.

    alone_bleu, batch_bleu: None without references
    """

    sentences: int
    identical: int
    alone_bleu: float | None = None
    batch_bleu: float | None = None

    def __str__(self) -> str:
        scores = (
            "" if self.alone_bleu is None else f", BLEU {self.alone_bleu:.2f} alone, {self.batch_bleu:.2f} in batches"
        )
        return f"{self.identical} of {self.sentences} sentences identical{scores}"


def bound(provider: str) -> str:
    """Return the bound of a provider in words."""
    return "all, every bit" if provider == CPU else f"at least {LEAST_IDENTICAL:.1%}, BLEU within {MAX_BLEU_DIFFERENCE}"


def check_invariance(
    runner: OnnxRunner, provider: str, text: Text, beam_size: int, length_penalty: float
) -> Invariance:
    """Translate each sentence alone and all of them in batches, and compare.

    On the CPU tokens and scores must be equal to the last bit. On a GPU LEAST_IDENTICAL of the sentences must have
    the same tokens, and BLEU may differ by MAX_BLEU_DIFFERENCE.

    Raises ParityError if they differ more.
    """
    search = text.sources, beam_size, length_penalty
    alone = [best for best, *_ in engine_search_alone(runner, *search, text.forced)]
    together = [best for best, *_ in engine_search(runner, *search, forced=text.forced)]
    if provider == CPU:
        same = [one == other for one, other in zip(alone, together, strict=True)]
    else:
        same = [one.tokens == other.tokens for one, other in zip(alone, together, strict=True)]
    found = Invariance(len(same), sum(same), *_bleu(text, alone, together))
    _check(found, 1.0 if provider == CPU else LEAST_IDENTICAL, beam_size)
    return found


def _check(found: Invariance, least: float, beam_size: int) -> None:
    label = f"beam size {beam_size}"
    if found.identical < least * found.sentences:
        raise ParityError(
            f"{label}: {found.identical} of {found.sentences} sentences have the same translation alone and in a "
            f"batch, at least {least:.1%} must"
        )
    if found.alone_bleu is None or found.batch_bleu is None:
        return
    if abs(found.alone_bleu - found.batch_bleu) > MAX_BLEU_DIFFERENCE:
        raise ParityError(
            f"{label}: BLEU is {found.alone_bleu:.2f} alone and {found.batch_bleu:.2f} in batches; they may differ by "
            f"{MAX_BLEU_DIFFERENCE}"
        )


def _bleu(text: Text, *translations: list[Hypothesis]) -> list[float]:
    """Return the BLEU of each list of translations; nothing without references."""
    if text.references is None:
        return []
    decoded = ([text.tokenizer.decode(each.tokens) for each in found] for found in translations)
    return [score(found, text.references, text.language).bleu for found in decoded]
