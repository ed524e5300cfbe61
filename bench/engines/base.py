"""What every engine of the decode benchmark is asked, ours and its peers: one seam, so that all are timed alike.

A peer is a module of this package with three functions:

    why_not() -> str | None                                   why it cannot run here, such as "X is not installed"
    prepare(bundle: Bundle, folder: Path) -> None             write the peer's own model files into folder, once
    load(folder: Path, setting: Setting) -> Contestant        the engine, ready to translate

A library of a peer is imported inside these functions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lingon.errors import SettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """What is asked of an engine in one cell of the table. Always the best hypothesis, without a length penalty."""

    work: str  # the name of the work, beginning "base" or "shipped"
    batch: int  # sentences that are decoded together
    beam_size: int = 1
    shortlist: bool = False  # over the candidates of the work rather than the whole vocabulary
    exact_length: int | None = None  # target tokens of every sentence; the end token is never chosen
    max_length: int = 256  # target tokens at most, the end token counted, where no exact length is asked

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise SettingsError(f"batch must be at least 1, got {self.batch}")
        if self.beam_size < 1:
            raise SettingsError(f"beam_size must be at least 1, got {self.beam_size}")

    @property
    def longest(self) -> int:
        """The most target tokens of a sentence."""
        return self.exact_length or self.max_length


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """How an engine is set up: its arithmetic, and what it makes of the cores."""

    precision: Literal["fp32", "int8"] = "fp32"
    workers: int = 1  # batches decoded at a time; each has a share of the cell's sentences
    threads: int = 2  # of one worker


class Contestant(Protocol):
    """A loaded engine."""

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> list[list[int]]:
        """The best hypothesis of each source: token ids without begin and end token.

        sources: token ids, EOS last; any number of them, of which cell.batch are decoded at a time
        """
