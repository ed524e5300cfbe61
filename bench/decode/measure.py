"""Measuring: works, cells, rounds; the policy is in the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lingon.bench.decode.model_flops import shortlist_size, sizes_of
from lingon.bench.decode.plan import EngineSetting, Wanted, cells_of, sentences_of, split, title
from lingon.bench.decode.processes import Crew, Name
from lingon.bench.decode.results import Row, row_of, with_ratios
from lingon.bench.decode.resume import Scratch
from lingon.bench.decode.roofline import Peaks, Sizes, amount, floor_ms
from lingon.bench.decode.rounds import Rounds, Timed, Tokens, race
from lingon.bench.engines.base import Cell
from lingon.bench.engines.token_agreement import Alike
from lingon.bench.workloads.workload import Work
from lingon.bundle import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.scoring import score
from lingon.text import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What is measured and how; the same for every work.

    told: shows what goes on, and is replaced by the next; said: stays to be read
    """

    entrants: Sequence[EngineSetting]
    wanted: Wanted
    rounds: Rounds
    peaks: Peaks
    cache: Path
    scratch: Scratch
    told: Callable[[str], None]
    said: Callable[[str], None]

    def measure(self, works: Sequence[Work]) -> list[Row]:
        """All rows of all works; works of one bundle stand side by side and share its processes."""
        rows: list[Row] = []
        for folder in dict.fromkeys(work.bundle for work in works):
            bundle = open_bundle(folder)
            able, lines = split(self.entrants, bundle)
            for line in lines:
                self.said(line)
            if not able:
                raise SettingsError(f"--engine: nobody is left who could translate with {folder}")
            rows += self._measure_bundle(bundle, able, [work for work in works if work.bundle == folder])
        return rows

    def _measure_bundle(self, bundle: Bundle, able: Sequence[EngineSetting], works: Sequence[Work]) -> list[Row]:
        sizes, rows = sizes_of(bundle), []
        with Crew(bundle, able, self.cache, self.told) as crew:
            for work in works:
                cells = _Cells(self, crew, work, sizes)
                rows += [row for cell in cells.all() for row in cells.rows(cell)]
        return rows


class _Cells:
    """The cells of one work."""

    def __init__(self, bench: Bench, crew: Crew, work: Work, sizes: Sizes) -> None:
        self._bench, self._crew, self._work, self._sizes = bench, crew, work, sizes
        self._tokenizer = Tokenizer(*crew.bundle.tokenizer_files()) if work.references else None
        self._alike = Alike(crew.bundle)
        crew.give(work.sources)

    def all(self) -> list[Cell]:
        """Those that are wanted."""
        manifest = self._crew.bundle.manifest
        longest, shortlist = manifest.limits.max_target_tokens, manifest.shortlist is not None
        return cells_of(self._work, longest, self._bench.wanted, shortlist=shortlist)

    def rows(self, cell: Cell) -> list[Row]:
        """The rows of a cell, measured or found in the scratch file."""
        key = " ".join(str(value) for value in asdict(cell).values())
        rows: list[Row] | None = self._bench.scratch.get(key)
        if rows is None:
            rows = self._measure(cell)
            self._bench.scratch.add(key, rows)
        self._bench.said(_line(cell, rows))
        return rows

    def _measure(self, cell: Cell) -> list[Row]:
        sources = sentences_of(self._work, cell)
        measures = self._crew.measures(cell, len(sources))
        timed = race(measures, self._bench.rounds, lambda step: self._bench.told(f"{title(cell)}: {step}"))
        return with_ratios([self._row(name, cell, sources, timed) for name in timed])

    def _row(self, name: Name, cell: Cell, sources: Sequence[Sequence[int]], timed: dict[Name, Timed]) -> Row:
        (engine, entrant), found = name, timed[name]
        row, member = row_of(engine, entrant, cell, found), self._crew.members[entrant]
        pieces = shortlist_size(self._crew.bundle, sources) if cell.shortlist else self._sizes.vocab
        asked = amount(sources, found.outputs, cell, pieces)
        floor = floor_ms(self._sizes, self._bench.peaks, entrant.setting.precision, asked)
        return {
            **row,
            "floor_ms": round(floor, 3),
            "fraction_of_floor": round(floor / row["median_ms"], 3),
            **self._quality(found.outputs),
            **self._alike.facts(name, cell, sources, timed),
            "load_s": round(member.load_s, 3),
            "disk_mb": round(member.disk_mb, 1),
            "peak_mb": round(member.peak_mb, 1),
        }

    def _quality(self, outputs: Tokens) -> dict[str, Any]:
        """BLEU and chrF, where there is something to score against."""
        if self._tokenizer is None:
            return {"bleu": None, "chrf": None}
        texts = [self._tokenizer.decode(output) for output in outputs]
        scores = score(texts, self._work.references[: len(texts)])
        return {"bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2)}


def _line(cell: Cell, rows: Sequence[Row]) -> str:
    """A cell in a line, while the others are still to come."""
    times = (f"{row['engine']} {row['precision']} {row['settings']} {row['median_ms']:.0f}" for row in rows)
    return f"{title(cell)}, ms: {', '.join(times)}"
