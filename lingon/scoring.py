"""Scores translations of a whole test set: BLEU and chrF of sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lingon.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Scores:
    """Corpus scores with the signatures that make them comparable (Post, 2018)."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


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


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """chrF of one translation, 0 to 100; 0 for one without text."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().sentence_score(hypothesis, [reference]).score) if hypothesis.strip() else 0.0
