"""The gate of whatever is lossy: BLEU and chrF within a stated distance of what exact arithmetic translates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lingon.errors import ParityError
from lingon.scoring import score

MAX_BLEU_LOSS, MAX_CHRF_LOSS = 0.2, 0.3


def check_quality(what: str, found: Sequence[str], exact: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Compare translations with those of the fp32 graphs and the whole vocabulary; returns the scores of both.

    what: named where it fails. Raises ParityError where the scores are too far apart.
    """
    here, there = score(found, references), score(exact, references)
    if abs(there.bleu - here.bleu) > MAX_BLEU_LOSS or abs(there.chrf - here.chrf) > MAX_CHRF_LOSS:
        raise ParityError(
            f"{what}: BLEU {here.bleu:.2f} and chrF {here.chrf:.2f} are not within {MAX_BLEU_LOSS} and "
            f"{MAX_CHRF_LOSS} of fp32's {there.bleu:.2f} and {there.chrf:.2f}"
        )
    return {
        "sentences": len(references),
        "identical": sum(one == other for one, other in zip(found, exact, strict=True)),
        "bleu": here.bleu,
        "chrf": here.chrf,
        "fp32_bleu": there.bleu,
        "fp32_chrf": there.chrf,
        "signature": here.bleu_signature,
    }
