"""Scores translations of a whole test set: BLEU and chrF of sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lingon.errors import CorpusError

POOR_BLEU = 5.0
"""BLEU; a model below it translates hardly any sentence, so that it was most likely trained for too short a time."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Corpus scores with the signatures that make them comparable (Post, 2018)."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def poor_quality(bleu: float | None) -> str | None:
    """A warning about a model with a low BLEU; None if it is high enough or unknown."""
    if bleu is None or bleu >= POOR_BLEU:
        return None
    return f"BLEU is {bleu:.2f}, below {POOR_BLEU:g}: this model hardly translates; train it for longer or on more text"


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """BLEU and chrF of hypotheses against one reference each."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(hypotheses) != len(references):
        raise CorpusError(f"{len(hypotheses)} hypotheses do not fit {len(references)} references")
    if not references:
        raise CorpusError("nothing to score: there are no references")
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return Scores(bleu_score.score, chrf_score.score, str(bleu.get_signature()), str(chrf.get_signature()))
