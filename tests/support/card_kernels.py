"""The kernels of kernels/card in Triton's interpreter, and what each of them computes, in NumPy.

The interpreter changes how Triton is imported. So it runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

GUARD = 4096
"""Bytes before and after every array. They are NaN or -1, so that reading them shows too."""

Argument = np.ndarray | int | float | None
"""An array, a scalar, or None for an array that is not given, which the kernel may not touch."""


def triton_missing() -> str | None:
    """Why tests marked `triton` cannot run here. On a card they need no Triton, see tests.support.card_launcher."""
    if os.environ.get("LINGON_TEST_KERNELS") == "card" or importlib.util.find_spec("triton"):
        return None
    return "Triton is not installed"


class Interpreter:
    """Runs kernels of the archive in another process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, name: str, grid: tuple[int, ...], *arguments: Argument) -> list[np.ndarray]:
        """Return the arrays among the arguments after a launch. An array that is given twice is one."""
        assert all(grid), "a driver refuses an empty grid"
        return self._pool.submit(_launch, name, grid, arguments).result()


@contextmanager
def interpreter() -> Iterator[Interpreter]:
    """Yield an interpreter, whose process ends with the context."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=use_interpreter) as pool:
        yield Interpreter(pool)


def use_interpreter() -> None:
    """Let this process interpret kernels. The bits of a product do not depend on the place of its row."""
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    from triton.runtime import interpreter as triton_interpreter

    def create_dot(_: object, a: Any, b: Any, sums: Any, *_options: object) -> Any:
        return triton_interpreter.TensorHandle(_product(a.data, b.data, sums.data), sums.dtype.scalar)

    triton_interpreter.InterpreterBuilder.create_dot = create_dot


def _product(a: np.ndarray, b: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return a @ b + sums in the order of the instructions of a card: 16 products at once, then the next 16.

    Triton's interpreter uses BLAS, where the bits of a row depend on its place in the tile.
    """
    inner = a.shape[1]
    left, right = (each.astype(np.float32).reshape(len(each), inner // 16, 16) for each in (a, b.T))
    for part in np.moveaxis((left[:, None] * right).sum(axis=-1), -1, 0):
        sums = sums + part
    return sums


def _launch(name: str, grid: tuple[int, ...], arguments: Sequence[Argument]) -> list[np.ndarray]:
    import torch

    from kernels.card.table import kernels

    kernel = kernels()[name]
    types = {"h": torch.float16, "f": torch.float32, "i": torch.int32, "l": torch.int64}
    assert len(arguments) == len(kernel.signature), f"{name} has {len(kernel.signature)} parameters"
    held: dict[int, tuple[str, torch.Tensor, torch.Tensor]] = {}
    given = []
    for (parameter, kind), argument in zip(kernel.signature.items(), arguments, strict=True):
        if not isinstance(argument, np.ndarray):
            assert (argument is None) == kind.islower(), f"{parameter} is {argument}"
            given.append(torch.empty(0, dtype=types[kind]) if argument is None else argument)
            continue
        assert torch.from_numpy(argument).dtype == types[kind], f"{parameter} is {argument.dtype}"
        if id(argument) not in held:
            memory = torch.full((2 * GUARD + argument.nbytes,), 0xFF, dtype=torch.uint8)
            view = memory[GUARD : GUARD + argument.nbytes].view(types[kind]).view(argument.shape)
            view.copy_(torch.from_numpy(argument))
            held[id(argument)] = parameter, memory, view
        given.append(held[id(argument)][2])
    with np.errstate(all="ignore"):
        kernel.function[grid](*given, **kernel.constants)
    for parameter, memory, _ in held.values():
        guards = torch.cat([memory[:GUARD], memory[-GUARD:]])
        assert bool((guards == 0xFF).all()), f"{name} writes beyond {parameter}"
    return [held[id(each)][2].numpy() for each in arguments if isinstance(each, np.ndarray)]


def halves(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return normally distributed float16."""
    return (np.random.default_rng((seed, *shape)).normal(size=shape) * scale).astype(np.float16)


def grid_of(rows: int, columns: int, tile: int, block: int) -> tuple[int, int]:
    """Return the grid of a product."""
    return -(-columns // block), -(-rows // tile)


def normalised(x: np.ndarray, norm: str, gain: np.ndarray, shift: np.ndarray, epsilon: float) -> np.ndarray:
    """Return rows after a norm, `none`, `layer` or `rms`, in float64."""
    x = x.astype(np.float64)
    if norm == "layer":
        apart = x - x.mean(axis=1, keepdims=True)
        return apart / np.sqrt((apart**2).mean(axis=1, keepdims=True) + epsilon) * gain + shift
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * gain if norm == "rms" else x


def attention(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """Return the attention of queries (n, size) to keys and values (length, size), in float64."""
    scores = query.astype(np.float64) @ keys.astype(np.float64).T * scale
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: np.ndarray = weights / weights.sum(axis=1, keepdims=True) @ values.astype(np.float64)
    return found
