"""The interface of an engine in the benchmarks, the same for Lingon and all others, so that all are timed alike.

An engine is a module of this package with three functions:

    unavailable_reason() -> str | None                        why it cannot run here, such as "X is not installed"
    prepare(bundle: Bundle, folder: Path) -> None             write the engine's model files into folder, once
    load(folder: Path, setting: Setting) -> BenchEngine       the loaded engine, ready to translate

The library of another engine is imported only inside these functions.

Some engines decode whole batches, each with one length limit. Lingon gives every sentence the limit for its own length.
A batch of sentences of similar length, with the limit of the longest, is closest to that, and a careful user would
write the same. Without a limit, one sentence on which a small model repeats itself keeps its batch running up to the
limit of the model. Tokens beyond a sentence's own limit are cut off afterwards. In greedy search the result is the same
as with the sentence's own limit.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from lingon.bundle.manifest import Limits
from lingon.bundle.store import Bundle
from lingon.errors import SettingsError

Tokens = list[list[int]]
"""Outputs: token ids of each sentence, without begin and end token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of the result table: the work of an engine.

    The output is always the best hypothesis, searched without a length penalty.
    """

    workload: str  # the name of the workload
    batch: int  # sentences that are decoded together
    beam_size: int = 1
    shortlist: bool = False  # choose from the workload's shortlist instead of the whole vocabulary
    exact_length: int | None = None  # target tokens of every sentence; the end token is never chosen
    target_ratio: float | None = None  # target tokens for each source token of a sentence, likewise
    max_length: int = 256  # target tokens at most, with the end token, if there is no exact length

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise SettingsError(f"batch must be at least 1, got {self.batch}")
        if self.beam_size < 1:
            raise SettingsError(f"beam_size must be at least 1, got {self.beam_size}")

    @property
    def key(self) -> str:
        """The name of the cell in a resume file."""
        return " ".join(str(value) for value in asdict(self).values())

    @property
    def is_forced(self) -> bool:
        """Whether the length of every output is given, so that the end token is never chosen."""
        return self.exact_length is not None or self.target_ratio is not None

    @property
    def longest(self) -> int:
        """The maximum number of target tokens of a sentence."""
        return self.exact_length or self.max_length


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The arithmetic of an engine, its device and its use of the cores."""

    precision: Literal["fp32", "int8", "fp16", "fp16-native"] = "fp32"
    workers: int = 1  # batches decoded at the same time; the sentences of a cell are split between them
    threads: int = 2  # of one worker
    device: Literal["cpu", "cuda"] = "cpu"  # of Lingon, the provider that the bundle names decides
    cuda_graphs: bool = False  # of Lingon on CUDA: decoder steps are recorded and replayed
    static_cache: bool = False  # of transformers: keys and values of fixed size, on CUDA in a compiled model
    operators: str = ""  # of Lingon on the CPU: the module that emulates the operators for CUDA of fp16-native


class BenchEngine(Protocol):
    """A loaded engine."""

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Return the best hypothesis of each source: token ids without begin and end token.

        sources: token ids, EOS last; any number of sources, of which cell.batch are decoded at a time
        """


def missing_package(*names: str) -> str | None:
    """Return a reason if one of these packages is not installed."""
    missing = next((name for name in names if importlib.util.find_spec(name) is None), None)
    return None if missing is None else f"{missing} is not installed"


LIMITS = "limits.json"


@dataclass(frozen=True, slots=True)
class Batch:
    """Sources decoded together, by index. longest: maximum number of target tokens of each, with the end token."""

    indices: tuple[int, ...]
    longest: int


def batches(sources: Sequence[Sequence[int]], cell: Cell, limits: Limits, size: int) -> list[Batch]:
    """Return all sources in batches of `size`, longest sources first."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    cut = (tuple(order[first : first + size]) for first in range(0, len(order), size))
    return [Batch(indices, limit(len(sources[indices[0]]), cell, limits)) for indices in cut]


def limit(source_tokens: int, cell: Cell, limits: Limits) -> int:
    """Return the maximum number of target tokens for a source of source_tokens, both with end token."""
    if cell.target_ratio is not None:
        return min(math.ceil(cell.target_ratio * source_tokens), limits.max_target_tokens)
    return cell.exact_length or min(cell.max_length, limits.max_output(source_tokens))


def write_limits(bundle: Bundle, folder: Path) -> None:
    """Write the limits of a bundle next to an engine's model files."""
    (folder / LIMITS).write_text(json.dumps(asdict(bundle.manifest.limits)), encoding="utf-8")


def read_limits(folder: Path) -> Limits:
    """Read the limits that `write_limits` wrote."""
    return Limits(**json.loads((folder / LIMITS).read_text(encoding="utf-8")))
