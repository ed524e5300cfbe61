"""Transformers with random weights; sources of 25 tokens with exactly 30 target tokens, and of mixed lengths."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
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
from lingon.export.graphs.transformer.graphs import states
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.averaging import round_to_half
from lingon.training.models.transformer import Transformer

SOURCE_TOKENS, TARGET_TOKENS = 25, 30
TARGET_RATIO = 1.2
"""Target tokens for each source token in the workloads with mixed lengths, the same as 30 for 25."""
MEDIAN, SPREAD, LENGTHS = 22, 0.55, (4, 100)
"""Of the lengths of mixed sources, in tokens with the end token: see `mixed_sources`."""
CANDIDATES = 1024
"""Target pieces on the shortlist. They are random, because there is no text to learn a shortlist from."""
PRECISIONS = ("fp32", "int8", "int8-native", "fp32-native")
MEASURED = 32
"""Sentences on which the facts are measured. The 8-bit ranges are calibrated on as many other sentences."""


def base_workload(cache: Path, shape: Shape | None = None, sentences: int = 128) -> Workload:
    """The workload. Its bundle is written below cache once for each shape and each state of the code that writes it."""
    shape = shape or Shape()
    opened = _cached(cache, f"base-{_digest([repr(shape).encode()])}", lambda folder: _write(folder, shape))
    return Workload(
        name="base",
        bundle=opened.folder,
        sources=random_sources(shape, sentences),
        exact_length=TARGET_TOKENS,
        facts=opened.manifest.precisions["fp32"].report,
    )


def forced_workloads(cache: Path, name: str, shape: Shape, provider: str, sentences: int) -> list[Workload]:
    """Two workloads of a model: NAME with TARGET_TOKENS for every output, "NAME mix" with mixed lengths.

    provider: that runs the graphs for CUDA
    sentences: of the first workload; the second has twice as many
    """
    key = _digest([repr(shape).encode(), provider.encode()])
    bundle = _cached(cache, f"{name}-{key}", lambda folder: write_half_precision(folder, shape, provider, "fp32"))
    mixed = mixed_sources(shape, 2 * sentences)
    mean = sum(map(len, mixed)) / len(mixed)
    return [
        Workload(
            name=name,
            bundle=bundle.folder,
            sources=random_sources(shape, sentences),
            exact_length=TARGET_TOKENS,
            facts={"source tokens": SOURCE_TOKENS, "target tokens": TARGET_TOKENS},
        ),
        Workload(
            name=f"{name} mix",
            bundle=bundle.folder,
            sources=mixed,
            target_ratio=TARGET_RATIO,
            facts={"source tokens, mean": round(mean, 1), "source tokens, most": max(map(len, mixed))},
        ),
    ]


def write_half_precision(folder: Path, shape: Shape, provider: str, *more: str) -> Bundle:
    """Write and return a bundle with graphs for CUDA, of weights that fp16 holds exactly.

    provider: that runs them, which may be the CPU in a rehearsal
    more: further precisions of the bundle, for the CPU
    """
    model, weights = random_transformer(shape), WeightFiles()
    graphs: dict[str, bytes] = {}
    precisions: dict[str, Precision] = {}
    round_to_half(model)  # so that every engine computes with the same weights
    for precision in ("fp16", *more):
        built = build(model, precision, weights, [], shortlist=False)
        graphs |= built.graphs
        runs_on = provider if precision == "fp16" else PRECISION_KINDS[precision].provider
        precisions[precision] = Precision(runs_on, "not run: the weights are random", built.reads)
    manifest = replace(_manifest(model, shape, precisions), shortlist=None)
    return write_bundle(folder, manifest, graphs | weight_files(weights))


def mixed_sources(shape: Shape, count: int, seed: int = 4) -> tuple[tuple[int, ...], ...]:
    """Sources whose lengths are drawn from a log-normal distribution: random pieces and EOS.

    The median is MEDIAN tokens and the standard deviation of the logarithm SPREAD, about that of sentences of news in
    subwords; lengths are cut to LENGTHS. A batch of such sentences has few long ones, for which the others wait.
    """
    random = np.random.default_rng((shape.seed, seed))
    lengths = np.clip(np.round(random.lognormal(np.log(MEDIAN), SPREAD, count)), *LENGTHS).astype(int)
    pieces = (random.integers(UNK + 1, shape.vocab, length - 1).tolist() for length in lengths)
    return tuple((*row, EOS) for row in pieces)


def random_sources(shape: Shape, count: int, seed: int = 1) -> tuple[tuple[int, ...], ...]:
    """Sources of SOURCE_TOKENS tokens: random pieces and EOS."""
    random = np.random.default_rng((shape.seed, seed))
    pieces = random.integers(UNK + 1, shape.vocab, (count, SOURCE_TOKENS - 1))
    return tuple((*row, EOS) for row in pieces.tolist())


def _cached(cache: Path, family: str, write: Callable[[Path], object]) -> Bundle:
    """The bundle below cache/family; `write` writes it unless the code that is there now has written it before."""
    folder = cache / family / _digest(path.read_bytes() for path in _source_files()) / "base" / "1"
    if not is_bundle(folder):
        shutil.rmtree(cache / family, ignore_errors=True)  # Bundles that older code has written are useless.
        write(folder)
    return open_bundle(folder)


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
        alignment=Alignment(max((shape.decoder_layers or shape.layers) - 2, 0), tuple(range(shape.heads))),
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
