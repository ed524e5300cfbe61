"""Workload "base": a Transformer base with random weights, sources of 25 tokens, exactly 30 target tokens."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import lingon.export
from lingon import bundle as names
from lingon.bench.workloads.output_statistics import outputs
from lingon.bench.workloads.random_weights import Shape, random_transformer
from lingon.bench.workloads.workload import Workload
from lingon.bundle import Alignment, Bundle, Defaults, Limits, Manifest, Precision, is_bundle, open_bundle, write_bundle
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import PRECISION_KINDS, build, weight_files
from lingon.export.graphs.transformer import states
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.models.transformer import Transformer

SOURCE_TOKENS, TARGET_TOKENS = 25, 30
CANDIDATES = 1024
"""Target pieces on the shortlist. They are random, because there is no text to learn a shortlist from."""
PRECISIONS = ("fp32", "int8")
MEASURED = 32
"""Sentences on which the facts are measured. The 8-bit ranges are calibrated on as many other sentences."""


def base_workload(cache: Path, shape: Shape | None = None, sentences: int = 128) -> Workload:
    """The workload. Its bundle is written below cache once for each shape and each state of the code that writes it."""
    shape = shape or Shape()
    family = cache / f"base-{_digest([repr(shape).encode()])}"
    folder = family / _digest(path.read_bytes() for path in _source_files()) / "base" / "1"
    if not is_bundle(folder):
        shutil.rmtree(family, ignore_errors=True)  # Bundles that older code has written are useless.
        _write(folder, shape)
    opened = open_bundle(folder)
    return Workload(
        name="base",
        bundle=opened.folder,
        sources=random_sources(shape, sentences),
        exact_length=TARGET_TOKENS,
        facts=opened.manifest.precisions["fp32"].report,
    )


def write_half_precision(folder: Path, shape: Shape, provider: str) -> Bundle:
    """Write and return a bundle with graphs for CUDA; provider: that runs them, which may be the CPU in a rehearsal."""
    model, weights = random_transformer(shape), WeightFiles()
    built = build(model, "fp16", weights, [], shortlist=False)
    precisions = {"fp16": Precision(provider, "not run: the weights are random", built.reads)}
    manifest = replace(_manifest(model, shape, precisions), shortlist=None)
    return write_bundle(folder, manifest, built.graphs | weight_files(weights))


def random_sources(shape: Shape, count: int, seed: int = 1) -> tuple[tuple[int, ...], ...]:
    """Sources of SOURCE_TOKENS tokens: random pieces and EOS."""
    random = np.random.default_rng((shape.seed, seed))
    pieces = random.integers(UNK + 1, shape.vocab, (count, SOURCE_TOKENS - 1))
    return tuple((*row, EOS) for row in pieces.tolist())


def _write(folder: Path, shape: Shape) -> None:
    """Create the model, measure properties of its outputs, and write its bundle."""
    model, weights = random_transformer(shape), WeightFiles()
    facts = _facts(model, random_sources(shape, MEASURED))
    others = random_sources(shape, MEASURED, seed=2)
    targets = outputs(model, others, 1, TARGET_TOKENS).tokens.tolist()
    calibration = [(list(source), target) for source, target in zip(others, targets, strict=True)]
    files, precisions = {names.SHORTLIST: _shortlist(shape).to_bytes()}, {}
    for precision in PRECISIONS:
        built = build(model, precision, weights, calibration, shortlist=True)
        files |= built.graphs
        gate = "not run: the weights are random"
        precisions[precision] = Precision(PRECISION_KINDS[precision].provider, gate, built.reads, facts)
    write_bundle(folder, _manifest(model, shape, precisions), files | weight_files(weights))


def _facts(model: Transformer, sources: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    greedy, beam = (outputs(model, sources, beam_size, TARGET_TOKENS) for beam_size in (1, 4))
    return {
        "sentences measured": len(sources),
        "distinct tokens, greedy, at least": greedy.distinct,
        "distinct tokens, beam 4, at least": beam.distinct,
        "share of steps with copied parents, beam 4": round(beam.copying, 3),
        "margin of the best token, greedy, 1st percentile": round(float(greedy.margins.quantile(0.01)), 4),
    }


def _shortlist(shape: Shape) -> Shortlist:
    """The same candidates for every sentence, among them the end token; a quarter of a small vocabulary."""
    random = np.random.default_rng((shape.seed, 3))
    chosen = random.choice(np.arange(UNK + 1, shape.vocab), min(CANDIDATES, shape.vocab // 4) - 1, replace=False)
    nothing = np.zeros(shape.vocab + 1, np.int32)
    return Shortlist(np.union1d(chosen, [EOS]).astype(np.int32), nothing, nothing[:0])


def _manifest(model: Transformer, shape: Shape, precisions: dict[str, Precision]) -> Manifest:
    return Manifest(
        name="base",
        version=1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_language="und",
        target_language="und",
        architecture="transformer",
        source_vocab=shape.vocab,
        target_vocab=shape.vocab,
        special_ids={"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        limits=Limits(shape.positions // 2, shape.positions, output_factor=2.0, output_extra=16, max_beam_size=8),
        defaults=Defaults(),
        candidates=16,
        states=states(model),
        precisions=precisions,
        alignment=Alignment(max(shape.layers - 2, 0), tuple(range(shape.heads))),
        shortlist={"candidates": "random"},
    )


def _source_files() -> list[Path]:
    """The source files that determine the bytes of the bundle."""
    folders = [*names.__path__, *lingon.export.__path__, str(Path(__file__).parent)]
    return [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:12]
