"""Tiny models of every system, with random weights or trained to reverse digits."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lingon.text import EOS
from lingon.training.config import MODEL_KINDS, ModelSettings
from lingon.training.data.batches import EncodedPairs
from lingon.training.models.build import build_model
from lingon.training.models.interface import AnyModel
from lingon.training.models.loss import smoothed_loss
from lingon.training.search import SearchSettings, translate

Model = TypeVar("Model", bound=nn.Module)

SMALL_VOCAB = 20
SCORES = ("dot", "scaled-dot", "content", "additive", "general", "concat", "mlp")
ALIGNMENTS = ("global", "local-monotonic", "local-predictive")
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"preset": "tiny"},
    "rnnenc": {"dim": 12, "embedding_dim": 12, "layers": 2},
    "rnnsearch": {"dim": 12, "embedding_dim": 10, "encoder_dim": 6, "attention_dim": 8},
    "luong": {"dim": 12, "embedding_dim": 12, "layers": 2, "attention_dim": 8, "window": 3},
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer"},
    "transformer rotary": {"kind": "transformer", "positions": "rotary"},
    "transformer none": {"kind": "transformer", "positions": "none"},
    "transformer window": {"kind": "transformer", "encoder_window": 4},
    "transformer additive": {"kind": "transformer", "score": "additive"},
    "transformer linear": {"kind": "transformer", "encoder_attention": "linear"},
    "transformer rotary window": {"kind": "transformer", "norm": "pre", "positions": "rotary", "encoder_window": 3},
    "transformer rotary additive": {"kind": "transformer", "positions": "rotary", "score": "additive"},
    "transformer opus": {"kind": "transformer", "activation": "silu", "output_bias": True, "sinusoids": "halves"},
    "transformer nllb": {"kind": "transformer", "norm": "pre", "sinusoids": "inclusive-halves", "first_position": 2},
    "transformer mbart": {"kind": "transformer", "norm": "pre", "embedding_norm": True, "positions": "learned"},
    "transformer t5": {
        "kind": "transformer",
        "norm": "pre",
        "norm_kind": "rms",
        "gated": True,
        "activation": "gelu-tanh",
        "bias": False,
        "head_dim": 24,
        "scale_embedding": False,
    },
    "transformer relative": {
        "kind": "transformer",
        "norm": "pre",
        "positions": "relative",
        "relative_buckets": 8,
        "relative_distance": 6,
    },
    "transformer relative window": {"kind": "transformer", "positions": "relative", "norm": "pre", "encoder_window": 4},
    "transformer ssru": {"kind": "transformer", "decoder_cell": "ssru", "sinusoids": "inclusive-halves"},
    "transformer ssru pre": {"kind": "transformer", "decoder_cell": "ssru", "norm": "pre", "positions": "learned"},
    # Keys without a norm are as large as the embedding: where that is scaled, random weights turn rounding into more.
    "transformer query norm": {
        "kind": "transformer",
        "norm": "pre",
        "query_norm": True,
        "activation": "silu",
        "scale_embedding": False,
    },
    "transformer both norms": {
        "kind": "transformer",
        "norm": "both",
        "query_norm": True,
        "final_norm": True,
        "scale_embedding": False,
    },
    **{f"rnnenc {cell}": {"kind": "rnnenc", "cell": cell} for cell in ("gru", "lstm")},
    "rnnenc reversed": {"kind": "rnnenc", "reverse_source": True},
    "rnnsearch gru": {"kind": "rnnsearch", "cell": "gru"},
    "rnnsearch lstm": {"kind": "rnnsearch", "cell": "lstm"},
    **{f"rnnsearch {score}": {"kind": "rnnsearch", "score": score} for score in SCORES},
    **{f"luong {score}": {"kind": "luong", "score": score} for score in SCORES},
    **{f"luong {alignment}": {"kind": "luong", "alignment": alignment} for alignment in ALIGNMENTS},
    **{f"luong {each} fast": {"kind": "luong", "alignment": each, "input_feeding": False} for each in ALIGNMENTS},
    "luong gru": {"kind": "luong", "cell": "gru"},
}
"""Every system with every option that changes its formula; values are settings besides SIZES."""


def system_settings(kind: str, **settings: Any) -> ModelSettings:
    return MODEL_KINDS[kind].model_validate({"max_positions": 24, **SIZES[kind], "kind": kind, **settings})


def random_system(name: str, seed: int = 0, **settings: Any) -> AnyModel:
    """Return a model of SYSTEMS in evaluation mode, whose weights and biases are all large enough to matter."""
    torch.manual_seed(seed)
    return with_noise(build_model(system_settings(**SYSTEMS[name], **settings), SMALL_VOCAB, SMALL_VOCAB))


@torch.no_grad()
def with_noise(model: Model) -> Model:
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def ids(*shape: int, seed: int = 7) -> Tensor:
    """Return random token ids of this shape, none of them special."""
    return torch.randint(4, SMALL_VOCAB, shape, generator=torch.Generator().manual_seed(seed))


DIGITS = 14  # vocabulary of the digits: the special pieces and ten others


def learn_to_reverse(settings: ModelSettings, updates: int, batch: int = 64, rate: float = 1e-2) -> float:
    """Train a model to reverse 2 to 6 digits; return the share of new lines that it translates without a mistake."""
    torch.manual_seed(1)
    draw = random.Random(1)
    lines = [[4 + draw.randrange(10) for _ in range(draw.randint(2, 6))] for _ in range(updates * batch)]
    tests = [[4 + draw.randrange(10) for _ in range(6)] for _ in range(50)]  # one in a hundred is also a training line
    pairs = EncodedPairs(lines, [line[::-1] for line in lines])
    model = build_model(settings, DIGITS, DIGITS)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 20, 3 * (updates - step) / updates)
        rows = pairs.batch(range(step * batch, step * batch + batch))
        (smoothed_loss(model(*rows[:3]), rows.labels, 0.0) / rows.tokens).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    found = translate(model.eval(), [[*line, EOS] for line in tests], SearchSettings())
    right = [hypotheses[0].tokens == tuple(line[::-1]) for hypotheses, line in zip(found, tests, strict=True)]
    return sum(right) / len(right)
