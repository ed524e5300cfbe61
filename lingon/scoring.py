"""Scores translations of a whole test set: BLEU and chrF of sacreBLEU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.errors import CorpusError

WITHOUT_BLANKS = {
    **dict.fromkeys(("zh", "zho", "cmn", "yue"), "zh"),
    **dict.fromkeys(
        ("ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo"), "char"
    ),
}
"""The tokenizer of sacreBLEU for languages that write no blanks between words, by the first part of their code.

`zh` splits Chinese characters from each other, and other words as 13a does; `char` splits all characters. By words, a
sentence would be one word, and BLEU about 0.
"""


@dataclass(frozen=True, slots=True)
class Scores:
    """Corpus scores with the signatures that make them comparable (Post, 2018)."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def bleu_tokenizer(language: str) -> str:
    """Return the tokenizer of sacreBLEU for a language; 13a, by words, for languages with blanks and for unknown
    ones.
    """
    return WITHOUT_BLANKS.get(re.split("[-_]", language.lower())[0], "13a")


def score(hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> Scores:
    """BLEU and chrF of hypotheses against one reference each.

    language: code of the language that they are in, such as de, zh-Hans or zho_Hans, for the tokens of BLEU
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(hypotheses) != len(references):
        raise CorpusError(f"{len(hypotheses)} hypotheses do not fit {len(references)} references")
    if not references:
        raise CorpusError("nothing to score: there are no references")
    bleu, chrf = BLEU(tokenize=bleu_tokenizer(language)), CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return Scores(bleu_score.score, chrf_score.score, str(bleu.get_signature()), str(chrf.get_signature()))


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """chrF of one translation, 0 to 100, or 0 for one without text."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().sentence_score(hypothesis, [reference]).score) if hypothesis.strip() else 0.0
