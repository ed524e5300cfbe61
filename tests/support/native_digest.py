"""The results of all operators on drawn inputs, to compare processes that use different instruction sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from tests.support.native_operators import run


def print_outputs() -> None:
    """Print a digest of each result; every NaN counts as the same."""
    for place, value in enumerate(outputs()):
        held = np.where(np.isnan(value), value.dtype.type(np.nan), value) if value.dtype.kind == "f" else value
        print(place, hashlib.sha256(held.tobytes()).hexdigest())  # noqa: T201


def outputs() -> Iterator[np.ndarray]:
    """The results of all operators, of several shapes and magnitudes."""
    for seed, scale in enumerate((1.0, 1e-38, 1e30, 30.0)):
        draw = np.random.default_rng(seed)

        def floats(*shape: int, draw: np.random.Generator = draw, scale: float = scale, seed: int = seed) -> np.ndarray:
            found = (draw.normal(size=shape) * scale).astype(np.float32)
            found.reshape(-1)[:: 53 + seed] = [np.nan, np.inf, 0, -0.0][seed]
            return found

        yield from products(draw, floats(7, 77))
        yield from products(draw, floats(37, 128))
        lengths, positions = np.array([5, 11, 1]), np.array([0, 12, 7])
        caches = halves(floats(3, 2, 13, 24), floats(3, 2, 13, 24))
        yield from run("StepAttention", floats(3, 144), *caches, positions, heads=2, scale=0.2)
        wide = floats(3, 2, 13, 24), floats(3, 2, 13, 24)
        yield from run("StepAttention32", floats(3, 144), *wide, positions, heads=2, scale=0.2)
        memory = halves(floats(3, 2, 24, 11), floats(3, 2, 11, 24))
        yield from run("CrossAttention", floats(6, 48), *memory, lengths, heads=2, scale=0.2)
        wide = floats(3, 2, 24, 11), floats(3, 2, 11, 24)
        yield from run("CrossAttention", floats(6, 48), *wide, lengths, heads=2, scale=0.2)
        for causal, narrow in ((0, 1), (1, 1), (1, 0)):
            given = floats(17, 144), lengths
            yield from run("SelfAttention", *given, heads=2, scale=0.2, causal=causal, narrow=narrow)
        yield from run("Memory32", floats(17, 96), np.zeros((3, 11), np.int64), lengths, heads=2, layers=2, layer=1)
        yield from run("Memory", floats(17, 96), np.zeros((3, 11), np.int64), lengths, heads=2, layers=2, layer=1)
        yield from run("Candidates", floats(3, 1000), np.array([9]))
        allowed = draw.random((3, 1000)) < 0.3
        yield from run("Candidates", floats(6, 1000), np.array([9]), np.arange(1000), allowed)


def halves(*values: np.ndarray) -> list[np.ndarray]:
    """Values as float16; those beyond its range are infinite."""
    with np.errstate(over="ignore"):
        return [each.astype(np.float16) for each in values]


def products(draw: np.random.Generator, rows: np.ndarray) -> Iterator[np.ndarray]:
    """The results of Linear and FloatLinear, with every norm, and of PackedLinear."""
    inputs, outputs = rows.shape[1], 93
    columns = draw.integers(-63, 64, (inputs, outputs)).astype(np.int8)
    weights = columns, draw.random(outputs, np.float32), draw.random(outputs, np.float32)
    norm = draw.random(inputs, np.float32), draw.random(inputs, np.float32)
    for kind in range(3):
        added = draw.random((len(rows), outputs), np.float32)
        gains = norm if kind == 1 else (norm[0], None)
        yield from run("Linear", rows, *weights, *gains, added, norm=kind, epsilon=1e-6, relu=kind % 2)
        for dtype in (np.float32, np.float16):
            given = rows, draw.normal(size=(outputs, inputs)).astype(dtype), weights[2], *gains, added
            yield from run("FloatLinear", *given, norm=kind, epsilon=1e-6, relu=kind % 2)
    chosen = run("GatherColumns", draw.integers(0, outputs, 21), *weights)
    yield from run("PackedLinear", rows, *chosen, *norm, norm=1, epsilon=1e-6)
