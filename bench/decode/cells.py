"""Which cells the table has, and which of a work's sentences each of them translates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lingon.bench.engines.base import Cell
from lingon.bench.workloads.workload import Work
from lingon.errors import SettingsError

BATCHES = {1: (1, 8, 32, 128), 4: (1, 8, 32)}
"""The batches that are measured, by beam size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a user narrows the table down to; nothing said is all."""

    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        known = {"--beam-size": (self.beam_sizes, set(BATCHES)), "--batch": (self.batches, set(BATCHES[1]))}
        for option, (asked, offered) in known.items():
            if unknown := sorted(set(asked) - offered):
                raise SettingsError(f"{option} must be of {', '.join(map(str, sorted(offered)))}, got {unknown[0]}")


def cells_of(work: Work, max_length: int, wanted: Wanted, *, shortlist: bool) -> list[Cell]:
    """The cells of a work: greedy, beam search, and greedy over a shortlist where the work has one.

    max_length: target tokens at most, where the work asks for no exact length
    """
    found = []
    for short in (False, True) if shortlist else (False,):
        for beam_size, batches in BATCHES.items():
            if (short and beam_size > 1) or (wanted.beam_sizes and beam_size not in wanted.beam_sizes):
                continue
            for batch in batches:
                if not wanted.batches or batch in wanted.batches:
                    found.append(_cell(work, batch, beam_size, short, max_length))
    return found


def sentences_of(work: Work, cell: Cell) -> Sequence[Sequence[int]]:
    """The sources of one run: a single batch where every output has one length, otherwise the work's real mix."""
    return work.sources if work.exact_length is None else work.sources[: cell.batch]


def title(cell: Cell) -> str:
    """What a cell is called where it stands alone."""
    return f"{cell.work}, batch {cell.batch}, beam {cell.beam_size}{', shortlist' if cell.shortlist else ''}"


def _cell(work: Work, batch: int, beam_size: int, shortlist: bool, max_length: int) -> Cell:
    return Cell(
        work=work.name,
        batch=batch,
        beam_size=beam_size,
        shortlist=shortlist,
        exact_length=work.exact_length,
        max_length=max_length,
    )
