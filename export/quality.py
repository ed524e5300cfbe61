"""The gate of a lossy precision: BLEU and chrF within a stated distance of the checkpoint's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from export.parity import engine_search, reference_settings
from lingon.errors import ParityError
from lingon.scoring import score
from serving.runner import Runner
from training.checkpoint import Checkpoint
from training.corpus import Pair
from training.search import translate

MAX_BLEU_LOSS, MAX_CHRF_LOSS = 0.2, 0.3
BEAM_SIZE = 4


def check_quality(
    checkpoint: Checkpoint, runner: Runner, pairs: Sequence[Pair], length_penalty: float
) -> dict[str, Any]:
    """Translate pairs with graphs and checkpoint; raises ParityError where their scores are too far apart."""
    tokenizer, references = checkpoint.tokenizer, [pair.target for pair in pairs]
    sources = [tuple(tokenizer.encode_source(pair.source)) for pair in pairs]
    found = engine_search(runner, sources, BEAM_SIZE, length_penalty)
    expected = translate(checkpoint.model, sources, reference_settings(runner.limits, BEAM_SIZE, length_penalty))
    here = score([tokenizer.decode(hypotheses[0].tokens) for hypotheses in found], references)
    exact = score([tokenizer.decode(hypotheses[0].tokens) for hypotheses in expected], references)
    if abs(exact.bleu - here.bleu) > MAX_BLEU_LOSS or abs(exact.chrf - here.chrf) > MAX_CHRF_LOSS:
        raise ParityError(
            f"BLEU {here.bleu:.2f} and chrF {here.chrf:.2f} are not within {MAX_BLEU_LOSS} and {MAX_CHRF_LOSS} of "
            f"fp32's {exact.bleu:.2f} and {exact.chrf:.2f}"
        )
    return {
        "sentences": len(pairs),
        "bleu": here.bleu,
        "chrf": here.chrf,
        "fp32_bleu": exact.bleu,
        "fp32_chrf": exact.chrf,
        "signature": here.bleu_signature,
    }
