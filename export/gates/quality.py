"""The quality gate: BLEU and chrF of lossy arithmetic, or of a shortlist, are close to those of fp32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lingon.errors import ParityError
from lingon.scoring import score

MAX_BLEU_LOSS, MAX_CHRF_LOSS = 0.2, 0.3  # points


def check_quality(what: str, found: Sequence[str], exact: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Compare translations with those of the fp32 graphs without a shortlist; return the scores of both.

    what: the precision, for the message of the ParityError if the scores differ too much
    """
    lossy, fp32 = score(found, references), score(exact, references)
    if abs(fp32.bleu - lossy.bleu) > MAX_BLEU_LOSS or abs(fp32.chrf - lossy.chrf) > MAX_CHRF_LOSS:
        raise ParityError(
            f"{what}: BLEU {lossy.bleu:.2f} and chrF {lossy.chrf:.2f} are not within {MAX_BLEU_LOSS} and "
            f"{MAX_CHRF_LOSS} of fp32's {fp32.bleu:.2f} and {fp32.chrf:.2f}"
        )
    return {
        "sentences": len(references),
        "identical": sum(one == other for one, other in zip(found, exact, strict=True)),
        "bleu": lossy.bleu,
        "chrf": lossy.chrf,
        "fp32_bleu": fp32.bleu,
        "fp32_chrf": fp32.chrf,
        "signature": lossy.bleu_signature,
    }
