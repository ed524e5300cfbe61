"""The attention gate: every attention matrix of the scorer is that of the checkpoint, over a grid of shapes.

Alignments are made of these matrices. Translations are not: a decoder step computes its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lingon import bundle as names
from lingon.attention_kinds import AttentionKind
from lingon.errors import ParityError
from lingon.export.differences import Tolerance, finite
from lingon.export.gates.reference import Expected, Reference
from lingon.serving.runtime.attention import ATTENTION
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.text import BOS, EOS
from lingon.training.data.batches import pad

ALIGNMENT = "alignment"  # the mean over the heads of the manifest, as a server computes it
TOLERANCE = {  # largest: of a weight; mean: of the part of its weight that a query gives to other keys, in any head
    "fp32": Tolerance(largest=1e-4),
    "fp32-cuda": Tolerance(largest=1e-4),
    "fp16": Tolerance(largest=2e-2),
    "int8": Tolerance(mean=0.1),
    "int8-native": Tolerance(mean=0.1),
    "fp32-native": Tolerance(largest=1e-4),
}


@dataclass(frozen=True, slots=True)
class AttentionReport:
    """The number of shapes and of heads, the largest difference of a weight, and the mean difference of the worst head.

    mean: part of its weight that a query gives to other keys, half the sum of the absolute differences
    """

    shapes: int
    heads: int
    largest: float
    mean: float


@dataclass(slots=True)
class _HeadDifferences:
    """The differences of the weights of one kind of attention, by layer and head."""

    layers: int
    heads: int
    queries: int = 0
    largest: np.ndarray = field(init=False)  # (layers, heads)
    moved: np.ndarray = field(init=False)  # (layers, heads): part of its weight given to other keys, over all queries

    def __post_init__(self) -> None:
        self.largest, self.moved = np.zeros((self.layers, self.heads)), np.zeros((self.layers, self.heads))

    @property
    def mean(self) -> np.ndarray:
        """The part of its weight that a query gives to other keys (layers, heads)."""
        mean: np.ndarray = self.moved / self.queries
        return mean

    def add(self, found: np.ndarray, expected: np.ndarray) -> None:
        """Add the weights (layers, heads, queries, keys) of a row."""
        differences = np.abs(found.astype(np.float64) - expected)
        self.queries += expected.shape[2]
        self.largest = np.maximum(self.largest, differences.max(axis=(2, 3)))
        self.moved += differences.sum(axis=(2, 3)) / 2

    def check(self, what: str, tolerance: Tolerance) -> None:
        """Raise ParityError, which names the worst layer and head, if they differ too much."""
        for values, bound, average in (
            (self.largest, tolerance.largest, ""),
            (self.mean, tolerance.mean, " on average"),
        ):
            if bound is not None and values.max() > bound:
                layer, head = np.unravel_index(values.argmax(), values.shape)
                raise ParityError(
                    f"{what} attention of layer {layer}, head {head} differs by {values.max():.2e}{average}, "
                    f"more than {bound:.0e}"
                )


def check_attention(runner: OnnxRunner, precision: str, grid: Sequence[Reference]) -> AttentionReport:
    """Compare the weights softmax(Q K^T / sqrt(head_dim)) of every layer and head, and the alignments made of them.

    Raises ParityError if a head differs too much or gives any weight to padding or to later target tokens.

    grid: of a model with attention
    """
    differences = {kind: _HeadDifferences(*each.shape[:2]) for kind, each in grid[0].rows[0].attention.items()}
    kinds: list[AttentionKind] = [kind for kind in ATTENTION if kind in differences]
    differences[ALIGNMENT] = _HeadDifferences(1, 1)
    for reference in grid:
        found = _scored(runner, reference, kinds)
        for row, expected in enumerate(reference.rows):
            for kind, weights in expected.attention.items():
                what, causal = f"{precision}: {kind}", kind == "decoder"
                differences[kind].add(_visible(found[kind][row], weights, what, causal=causal), weights)
            differences[ALIGNMENT].add(found[ALIGNMENT][row][None, None], _alignment(runner, expected))
    for kind, each in differences.items():
        each.check(f"{precision}: {kind}", TOLERANCE[precision])
    return AttentionReport(
        len(grid),
        sum(each.largest.size for kind, each in differences.items() if kind != ALIGNMENT),
        max(float(each.largest.max()) for each in differences.values()),
        max(float(each.mean.max()) for each in differences.values()),
    )


def _scored(
    runner: OnnxRunner, reference: Reference, kinds: Sequence[AttentionKind]
) -> dict[str, Sequence[np.ndarray]]:
    """Return the weights of each row (layers, heads, queries, keys, both padded), and the alignments of each.

    kinds: of the attention of the model
    """
    case = reference.case
    sources, targets = pad(case.sources).numpy(), pad([target or [EOS] for target in case.targets]).numpy()
    begun = np.concatenate([np.full((len(targets), 1), BOS), targets], axis=1)
    feed = {
        names.SOURCE_IDS: sources,
        names.SOURCE_LENGTHS: case.source_lengths,
        names.TARGET_IDS: begun,
        names.LABELS: begun,  # any; the attention does not depend on them
    }
    found = dict(zip(kinds, runner.scorer.run([ATTENTION[kind] for kind in kinds], feed), strict=True))
    scored = runner.score(sources, case.source_lengths, targets, case.target_lengths)
    return {**found, ALIGNMENT: [each.attention for each in scored]}


def _alignment(runner: OnnxRunner, expected: Expected) -> np.ndarray:
    """Return the alignment of a row by the heads of the manifest (1, 1, target_length + 1, source_length)."""
    chosen = runner.manifest.alignment
    mean: np.ndarray = expected.attention["cross"][chosen.layer, list(chosen.heads)].mean(axis=0)
    return mean[None, None]


def _visible(found: np.ndarray, expected: np.ndarray, what: str, *, causal: bool) -> np.ndarray:
    """Return the weights of a row without padding; raise ParityError if what must be hidden has any weight.

    found: (layers, heads, queries, keys), both padded
    expected: (layers, heads, queries, keys)
    """
    layers, heads, queries, keys = expected.shape
    if found.shape[:2] != (layers, heads):
        raise ParityError(f"{what} attention has {found.shape[:2]} layers and heads, the checkpoint {(layers, heads)}")
    found = finite(found[:, :, :queries], f"{what} attention weights")
    if found[..., keys:].any():
        raise ParityError(f"{what} attention gives weight to padding")
    visible = found[..., :keys]
    if causal and np.triu(visible, 1).any():
        raise ParityError(f"{what} attention gives weight to later target tokens")
    return visible
