"""How good translations are: sacreBLEU's BLEU and chrF, and the loss on held-out pairs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor
from torch.nn import functional

from lingon.errors import CorpusError
from lingon.text import PAD, Tokenizer
from training.batches import Batch, EncodedPairs, plan_batches
from training.model import Transformer
from training.search import SearchSettings, translate


@dataclass(frozen=True, slots=True)
class Scores:
    """Corpus scores with the signatures that make them comparable (Post, 2018)."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """BLEU and chrF of hypotheses against one reference each."""
    if len(hypotheses) != len(references):
        raise CorpusError(f"{len(hypotheses)} hypotheses do not fit {len(references)} references")
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return Scores(bleu_score.score, chrf_score.score, str(bleu.get_signature()), str(chrf.get_signature()))


def translate_texts(
    model: Transformer, tokenizer: Tokenizer, texts: Sequence[str], settings: SearchSettings
) -> list[str]:
    """The best translation of each normalised text, by the reference search."""
    found = translate(model, [tokenizer.encode_source(text) for text in texts], settings)
    return [tokenizer.decode(hypotheses[0].tokens) for hypotheses in found]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores, and how fast they were had."""

    scores: Scores
    sentences_per_second: float
    hypotheses: list[str]


def evaluate(translator: Callable[[list[str]], list[str]], sources: list[str], references: list[str]) -> Evaluation:
    """Translate sources and score them."""
    start = time.perf_counter()
    hypotheses = translator(sources)
    seconds = time.perf_counter() - start
    return Evaluation(score(hypotheses, references), len(sources) / seconds, hypotheses)


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The sum over tokens of the cross-entropy with label smoothing (section 5.4); PAD is not counted.

    logits: (batch, target_length, vocab), labels: (batch, target_length)
    """
    return functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )


@torch.inference_mode()
def perplexity(model: Transformer, pairs: EncodedPairs, batch_tokens: int, device: torch.device) -> float:
    """exp of the mean negative log-likelihood of a target token, without smoothing."""
    total, tokens = 0.0, 0
    for rows in plan_batches(pairs.lengths(), batch_tokens, seed=(0,)):
        batch: Batch = pairs.batch(rows.tolist()).to(device)
        total += smoothed_loss(model(*batch[:3]), batch.labels, 0.0).item()
        tokens += batch.tokens
    return math.exp(total / tokens)
