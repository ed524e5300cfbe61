"""Tiny recurrent models and variants of the Transformer with random weights, and their graphs on ONNX Runtime."""

from __future__ import annotations

import functools
from typing import Any

import torch

from lingon.export.gates.reference import Reference, draw_grid
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.text import EOS
from lingon.training.models.build import build_model
from lingon.training.models.interface import AnyModel
from tests.support.random_models import VOCAB, limits_of, random_pairs, runner_of
from tests.support.systems import SYSTEMS, system_settings, with_noise

TESTED_AS_KINDS = "rnnsearch additive", "luong global"
RECURRENT = [name for name in SYSTEMS if not name.startswith("transformer") and name not in TESTED_AS_KINDS]
"""Every recurrent system once: the last two are `rnnsearch gru` and `luong general`."""

VARIANTS = [name for name in SYSTEMS if name.startswith("transformer ")]
"""The variants of the Transformer, and combinations of them."""

KINDS = ["rnnenc lstm", "rnnsearch gru", "luong local-predictive"]
"""One system of each kind; together they have both cells and every kind of state."""


SEEDS = {"transformer query norm": 1}  # with 0, what it attends to turns over by the rounding of int8


@functools.cache
def recurrent_model(name: str, seed: int | None = None, **settings: Any) -> AnyModel:
    """Return a model of SYSTEMS whose weights are large enough for varied outputs that end."""
    torch.manual_seed(SEEDS.get(name, 0) if seed is None else seed)
    sizes = system_settings(**SYSTEMS[name], **{"max_positions": 24, **settings})
    model = with_noise(build_model(sizes, VOCAB, VOCAB))
    with torch.no_grad():
        model.output.weight[EOS] *= 1.5
    return model


@functools.cache
def recurrent_grid(name: str, **settings: Any) -> list[Reference]:
    """Return what recurrent_model computes on the grid of the gates."""
    model = recurrent_model(name, **settings)
    return draw_grid(model, limits_of(model))


@functools.cache
def recurrent_runner(name: str, precision: str = "fp32", threads: int = 1, **settings: Any) -> OnnxRunner:
    """Return the graphs of recurrent_model."""
    return runner_of(recurrent_model(name, **settings), precision, threads)


@functools.cache
def emulated_grid(name: str, precision: str) -> list[Reference]:
    """Return what the model computes that emulates the 8-bit graphs of recurrent_model, in a precision."""
    model = recurrent_model(name)
    emulated = build(model, precision, WeightFiles(), random_pairs(8), shortlist=False).emulated
    assert emulated is not None
    return draw_grid(emulated, limits_of(model))
