"""What `lingon bench decode` does, from its options to the tables, the JSON file and the picture."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from lingon.bench.decode.machine_peaks import best, measured
from lingon.bench.decode.measure import Bench
from lingon.bench.decode.plan import Wanted, entrants
from lingon.bench.decode.plot import draw
from lingon.bench.decode.report import WIDTH, staggered, tables
from lingon.bench.decode.results import Row
from lingon.bench.decode.resume import Scratch
from lingon.bench.decode.rounds import Rounds
from lingon.bench.engines.token_agreement import lines
from lingon.bench.results_file import commit, machine, save
from lingon.bench.workloads.random_weights import Shape
from lingon.bench.workloads.shipped import shipped_works
from lingon.bench.workloads.synthetic import base_work
from lingon.bench.workloads.workload import Work
from lingon.errors import SettingsError
from lingon.serving.system.cpu import usable_cores

WORKS = ("base", "shipped")
TINY = Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The options; those that are empty ask for everything."""

    works: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()
    runs: int = 7
    slow: float = 10.0  # seconds
    sentences: int = 512
    model: Path = Path("models/en-de")
    data: Path | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        if unknown := [work for work in self.works if work not in WORKS]:
            raise SettingsError(f"--work must be of {', '.join(WORKS)}, got {unknown[0]}")

    def tried_out(self) -> Asked:
        """The same in small: what still shows that everything works."""
        return replace(self, batches=self.batches or (1, 8), runs=2, sentences=min(self.sentences, 16))


def run(asked: Asked, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show, write. The result files appear when all is measured."""
    console = Console()
    asked = asked.tried_out() if asked.quick else asked
    options = {name: str(value) for name, value in asdict(asked).items()}
    head = {"commit": commit(), "machine": machine(), "cores": usable_cores(), **options}
    scratch = Scratch(cache / "decode.part.jsonl", head, resume=resume)
    with console.status("making the works") as status:
        works = works_of(asked, cache)
        status.update("measuring the machine's peaks")
        peaks = scratch.get("peaks") or measured(rounds=1 if asked.quick else 10)
        scratch.add("peaks", peaks)
        bench = Bench(
            entrants=entrants(asked.engines, usable_cores()),
            wanted=Wanted(batches=asked.batches, beam_sizes=asked.beam_sizes),
            rounds=Rounds(runs=asked.runs, slow_s=asked.slow),
            peaks=best(peaks),
            cache=cache,
            scratch=scratch,
            told=status.update,
            said=partial(console.print, highlight=False, soft_wrap=True),
        )
        rows = bench.measure(works)
    facts = {work.name: {"sentences": len(work.sources), "left_out": work.left_out, **work.facts} for work in works}
    _show(console, rows, facts, asked.runs)
    path = save("decode", rows, results, peaks=peaks, works=facts)
    scratch.done()
    console.print(f"written: {path}")
    if any(row["ratio_to_ctranslate2"] for row in rows):  # the picture shows nothing else
        draw(rows, path.with_suffix(".svg"))
        console.print(f"written: {path.with_suffix('.svg')}")


def works_of(asked: Asked, cache: Path) -> list[Work]:
    """The works that are asked for."""
    works: list[Work] = []
    if "base" in (asked.works or WORKS):
        works.append(base_work(cache, TINY if asked.quick else Shape()))
    if "shipped" in (asked.works or WORKS):
        works += shipped_works(asked.model, asked.data, asked.sentences)
    return works


def _show(console: Console, rows: list[Row], facts: dict[str, dict[str, float]], runs: int) -> None:
    console.width = max(console.width, WIDTH)
    for table in tables(rows, runs):
        console.print()
        console.print(table)
    console.print()
    for line in (*staggered(rows), *lines(rows)):
        console.print(line, highlight=False, soft_wrap=True)
    for work, known in facts.items():
        told = ", ".join(f"{fact} {value:g}" for fact, value in known.items())
        console.print(f"{work}: {told}", highlight=False, soft_wrap=True)
