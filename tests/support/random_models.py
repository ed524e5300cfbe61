"""Tiny models with random weights, and their graphs on ONNX Runtime."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lingon.bundle import SHORTLIST, Alignment, Bundle, Defaults, Limits, Manifest, Precision, write_bundle
from lingon.export.gates.reference import Reference, draw_grid
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, states_of, weight_files
from lingon.export.graphs.transformer.graphs import TransformerGraphs
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, UNK
from lingon.training.config import TransformerSettings
from lingon.training.models.interface import AnyModel
from lingon.training.models.transformer import Transformer

VOCAB = 40


@functools.cache
def random_model(seed: int = 0, **settings: Any) -> Transformer:
    """Return a tiny model whose weights are large enough for varied outputs that end."""
    torch.manual_seed(seed)
    model = Transformer(TransformerSettings.model_validate({"preset": "tiny", **settings}), VOCAB, VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        model.output.weight[EOS] *= 1.5
    return model


def limits_of(model: AnyModel) -> Limits:
    """Return small limits, which a test reaches quickly."""
    return Limits(model.settings.max_positions // 2, model.settings.max_positions, 1.5, 8, 8)


def manifest_of(model: AnyModel, precision: str = "fp32", reads: tuple[str, ...] = ()) -> Manifest:
    return Manifest(
        name="random",
        version=1,
        created="2026-01-01T00:00:00+00:00",
        source_language="en",
        target_language="de",
        architecture=model.settings.kind,
        source_vocab=VOCAB,
        target_vocab=VOCAB,
        special_ids={"pad": 0, "bos": 1, "eos": 2, "unk": 3},
        limits=limits_of(model),
        defaults=Defaults(),
        candidates=16,
        states=states_of(model),
        precisions={precision: Precision(CPU, "random", reads)},
        alignment=Alignment(0, tuple(range(min(model.settings.attention_sizes[1], 2)))),
    )


@functools.cache
def random_grid(seed: int = 0, **settings: Any) -> list[Reference]:
    """Return what random_model computes on the grid of the gates."""
    model = random_model(seed, **settings)
    return draw_grid(model, limits_of(model))


@functools.cache
def random_runner(seed: int = 0, precision: str = "fp32", threads: int = 1, **settings: Any) -> OnnxRunner:
    """Return the graphs of random_model."""
    return runner_of(random_model(seed, **settings), precision, threads)


def runner_of(
    model: AnyModel,
    precision: str = "fp32",
    threads: int = 1,
    shortlist: Shortlist | None = None,
    *,
    max_beam_size: int = 8,
) -> OnnxRunner:
    """Return the graphs of a model."""
    weights = WeightFiles()
    built = build(model, precision, weights, random_pairs(8), shortlist=shortlist is not None)
    files = {**built.graphs, **weight_files(weights)}
    if shortlist is not None:
        files[SHORTLIST] = shortlist.to_bytes()
    with tempfile.TemporaryDirectory() as folder:
        manifest = manifest_of(model, precision, built.reads)
        limits = replace(manifest.limits, max_beam_size=max_beam_size)
        manifest = replace(manifest, limits=limits, candidates=min(2 * max_beam_size, VOCAB))
        return load_runner(write_bundle(Path(folder) / "1", manifest, files), precision, threads)


def written_bundle(model: AnyModel, folder: Path) -> Bundle:
    """Publish the fp32 graphs of a model, without tokenizer and shortlist, as version 1 in folder."""
    weights = WeightFiles()
    built = build(model, "fp32", weights, (), shortlist=False)
    files = {**built.graphs, **weight_files(weights)}
    return write_bundle(folder / "1", manifest_of(model, "fp32", built.reads), files)


@functools.cache
def device_runner(seed: int = 0, **settings: Any) -> OnnxRunner:
    """Return graphs of random_model whose states are on a device, which is main memory here, in fp32."""
    model, weights = random_model(seed, **settings), WeightFiles()
    graphs = TransformerGraphs(model, np.float32, weights, device_states=True)
    files = {f"fp32/{name}": content for name, content in graphs.files().items()} | weight_files(weights)
    with tempfile.TemporaryDirectory() as folder:
        manifest = manifest_of(model, reads=tuple(sorted(graphs.reads)))
        return load_runner(write_bundle(Path(folder) / "1", manifest, files), "fp32", threads=1)


def random_pairs(count: int) -> list[tuple[list[int], list[int]]]:
    """Return random sources, which end with EOS, and targets without special tokens."""
    pairs = zip(random_sources(count), random_sources(count, seed=1), strict=True)
    return [(list(source), list(target[:-1])) for source, target in pairs]


def random_sources(count: int, longest: int = 24, seed: int = 0) -> list[tuple[int, ...]]:
    """Return random sources of 2 to `longest` tokens, the last one EOS."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest, count)
    return [(*random.integers(UNK + 1, VOCAB, length).tolist(), EOS) for length in lengths]
