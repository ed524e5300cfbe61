"""Work "base": a Transformer base with drawn weights, sources of 25 tokens, exactly 30 target tokens."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import export
from lingon import bundle as names
from lingon.bench.workloads.output_statistics import outputs
from lingon.bench.workloads.random_weights import Shape, draw
from lingon.bench.workloads.workload import Work
from lingon.bundle import Alignment, Defaults, Limits, Manifest, Precision, is_bundle, open_bundle, write_bundle
from lingon.export.graph import WeightFiles
from lingon.export.precisions import KINDS, build, weight_files
from lingon.export.transformer import states
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.model import Transformer

SOURCE_TOKENS, TARGET_TOKENS = 25, 30
CANDIDATES = 1024
"""Target pieces on the shortlist; there is no text to learn one from, so they are drawn."""
PRECISIONS = ("fp32", "int8")
MEASURED = 32
"""Sentences that the facts are measured on, and as many others that 8-bit ranges are."""


def base_work(cache: Path, shape: Shape | None = None, sentences: int = 128) -> Work:
    """The work; its bundle is written below cache, once for a shape and for the code that writes it."""
    shape = shape or Shape()
    family = cache / f"base-{_digest([repr(shape).encode()])}"
    folder = family / _digest(path.read_bytes() for path in _writers()) / "base" / "1"
    if not is_bundle(folder):
        shutil.rmtree(family, ignore_errors=True)  # what older code wrote
        _write(folder, shape)
    found = open_bundle(folder)
    return Work(
        name="base",
        bundle=found.folder,
        sources=drawn_sources(shape, sentences),
        exact_length=TARGET_TOKENS,
        facts=found.manifest.precisions["fp32"].report,
    )


def drawn_sources(shape: Shape, count: int, seed: int = 1) -> tuple[tuple[int, ...], ...]:
    """Sources of SOURCE_TOKENS random pieces, the last EOS."""
    random = np.random.default_rng((shape.seed, seed))
    pieces = random.integers(UNK + 1, shape.vocab, (count, SOURCE_TOKENS - 1))
    return tuple((*row, EOS) for row in pieces.tolist())


def _write(folder: Path, shape: Shape) -> None:
    """Draw the model, measure what its outputs are like, and write its bundle."""
    model, weights = draw(shape), WeightFiles()
    facts = _facts(model, drawn_sources(shape, MEASURED))
    others = drawn_sources(shape, MEASURED, seed=2)
    targets = outputs(model, others, 1, TARGET_TOKENS).tokens.tolist()
    calibration = [(list(source), target) for source, target in zip(others, targets, strict=True)]
    files, precisions = {names.SHORTLIST: _shortlist(shape).to_bytes()}, {}
    for precision in PRECISIONS:
        built = build(model, precision, weights, calibration, shortlist=True)
        files |= built.graphs
        gate = "not run: the weights are drawn"
        precisions[precision] = Precision(KINDS[precision].provider, gate, built.reads, facts)
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
    """The same candidates for every sentence, the end token among them; of a small vocabulary, a quarter."""
    random = np.random.default_rng((shape.seed, 3))
    drawn = random.choice(np.arange(UNK + 1, shape.vocab), min(CANDIDATES, shape.vocab // 4) - 1, replace=False)
    nothing = np.zeros(shape.vocab + 1, np.int32)
    return Shortlist(np.union1d(drawn, [EOS]).astype(np.int32), nothing, nothing[:0])


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
        shortlist={"candidates": "drawn"},
    )


def _writers() -> list[Path]:
    """The code that the bytes of the bundle come from."""
    folders = [*export.__path__, str(Path(__file__).parent)]
    return [Path(names.__file__), *(path for folder in folders for path in sorted(Path(folder).glob("*.py")))]


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:12]
