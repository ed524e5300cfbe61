"""`lingon bench decode` from its options to the results: tables for the terminal, the JSON file and a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lingon.bench.decode.measure import DecodeBenchmark, Rounds
from lingon.bench.decode.plan import (
    CTRANSLATE2,
    LINGON,
    STAGGERED,
    CellFilter,
    Row,
    best_settings,
    by_cell,
    engine_settings,
    without_staggered,
)
from lingon.bench.machine_roofline import best_peaks, measure_peaks
from lingon.bench.results_file import ResumeFile, commit, load_pyplot, machine, save
from lingon.bench.synthetic import Shape, base_workload
from lingon.bench.workloads import Workload, shipped_workloads
from lingon.errors import SettingsError
from lingon.machine import usable_cores

WIDTH = 104
"""Characters of the widest table."""

SEARCHES = ((False, 1, "greedy"), (False, 4, "beam 4"), (True, 1, "shortlist"))
"""Kinds of search: with a shortlist or not, beam size, name."""

_COLOURS = {
    (LINGON, "int8"): "#b3541e",
    (LINGON, "fp32"): "#e5a877",
    (CTRANSLATE2, "int8"): "#1f4e79",
    (CTRANSLATE2, "fp32"): "#7fa8cc",
    ("transformers", "fp32"): "#777777",
    ("optimum", "fp32"): "#b5b5b5",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A chart of speed relative to one engine.

    ratio: the column of the rows that has the ratio
    reference: the engine, for the label of the axis
    colours: by engine and precision, in the order of the bars
    """

    ratio: str
    reference: str
    colours: Mapping[tuple[str, str], str]


CHART = Chart(ratio="ratio_to_ctranslate2", reference=f"{CTRANSLATE2} at its best", colours=_COLOURS)


def tables(rows: Sequence[Row], full_runs: int) -> list[Group]:
    """For each workload a table of times and a table of the other measurements.

    full_runs: times of fewer runs are marked with a star
    """
    found = []
    for workload in dict.fromkeys(row["work"] for row in rows):
        own = without_staggered([row for row in rows if row["work"] == workload])
        found += [_times_table(workload, own, full_runs), _engines_table(workload, own)]
    return found


def staggered_lines(rows: Sequence[Row]) -> list[str]:
    """For each workload and precision, the worst slowdown of a cell if sentences arrive one by one."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for (workload, shortlist, beam_size, batch), own in by_cell(rows).items():
        for late in (row for row in own if row["engine"] == STAGGERED):
            together = next(row for row in own if row["engine"] == LINGON and _setting(row)[1:] == _setting(late)[1:])
            share = late["median_ms"] / together["median_ms"]
            cell = f"batch {batch}, beam {beam_size}{', shortlist' if shortlist else ''}, {late['settings']}"
            key = (workload, late["precision"])
            worst[key] = max(worst.get(key, (0.0, "")), (share, cell))
    return [
        f"{workload}, {precision}: sentences that arrive one by one take at most {share:.2f} times as long ({cell})"
        for (workload, precision), (share, cell) in worst.items()
    ]


def agreement_lines(rows: Sequence[Row]) -> list[str]:
    """For each workload, other engine in fp32 and kind of search: the lowest agreement of its cells, and all causes."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if row["causes"] is not None and not row["engine"].startswith(LINGON):
            found.setdefault((row["work"], row["engine"], row["beam_size"]), []).append(row)
    return [_agreement_line(key, own) for key, own in found.items()]


def _agreement_line(key: tuple[str, str, int], rows: Sequence[Row]) -> str:
    workload, engine, beam_size = key
    lowest = min(row["agreement"] for row in rows)
    causes: Counter[str] = sum((Counter(row["causes"]) for row in rows), Counter())
    counts = ", ".join(f"{count} {cause}" for cause, count in causes.most_common()) or "none"
    return (
        f"{workload}, {_search(beam_size)}: at least {lowest:.2%} of sentences are the same with {engine} fp32 "
        f"(differences in {len(rows)} cells and settings: {counts})"
    )


def _times_table(workload: str, rows: Sequence[Row], full_runs: int) -> Group:
    """Rows: engine and precision, each in its fastest setting of the cell; columns: beam size and batch size."""
    best = best_settings(rows)
    columns = sorted({(row["beam_size"], row["batch"]) for row in best})
    table = _table("batch size")
    for beam_size, batch in columns:
        table.add_column(str(batch) if beam_size == 1 else f"{batch} beam {beam_size}", justify="right")
    for shortlist in (False, True):
        own = [row for row in best if row["shortlist"] == shortlist]
        if shortlist and own:
            table.add_section()
            table.add_row("with shortlist:")
        for engine in dict.fromkeys(_engine(row) for row in own):
            line = {(row["beam_size"], row["batch"]): row for row in own if _engine(row) == engine}
            table.add_row(" ".join(engine), *(_time(line.get(column), full_runs) for column in columns))
    fewest = min(len(row["runs_ms"]) for row in best)
    star = f" (* of {fewest})" if fewest < full_runs else ""
    title = f"{workload}: ms, median of {full_runs} runs{star}; speed relative to the fastest setting of {CTRANSLATE2}"
    return Group(Text(title, "bold"), table)


def _engines_table(workload: str, rows: Sequence[Row]) -> Group:
    """Rows: engine, precision and setting; columns: resources, share of the floor, agreement and quality."""
    table = _table("")
    searches = [search for search in SEARCHES if _scored(rows, search)]
    heads = ["load s", "disk MB", "peak MB", "% of floor", "% same output"]
    for head in (*heads, *(f"BLEU chrF {name}" for *_, name in searches)):
        table.add_column(head, justify="right", max_width=11)
    for setting in dict.fromkeys(_setting(row) for row in rows):
        own = [row for row in rows if _setting(row) == setting]
        table.add_row(" ".join(setting), *_columns(own), *(_quality(own, search) for search in searches))
    title = f"{workload}: workers x threads; floor: lower bound of time; same output: as lingon fp32"
    return Group(Text(title, "bold"), table)


def _columns(rows: Sequence[Row]) -> list[str]:
    floors = [100 * row["fraction_of_floor"] for row in rows]
    same = [100 * row["agreement"] for row in rows if row["agreement"] is not None and not row["shortlist"]]
    return [
        f"{rows[0]['load_s']:.2f}",
        f"{rows[0]['disk_mb']:.0f}",
        f"{max(row['peak_mb'] for row in rows):.0f}",
        f"{min(floors):.0f}-{max(floors):.0f}",
        f"{min(same):.1f}-{max(same):.1f}" if same else "",
    ]


def _scored(rows: Sequence[Row], search: tuple[bool, int, str]) -> list[Row]:
    """The rows of a kind of search that have BLEU, the largest batch last."""
    found = [row for row in rows if (row["shortlist"], row["beam_size"]) == search[:2] and row["bleu"] is not None]
    return sorted(found, key=lambda row: int(row["batch"]))


def _quality(rows: Sequence[Row], search: tuple[bool, int, str]) -> str:
    scored = _scored(rows, search)
    return f"{scored[-1]['bleu']:.1f} {scored[-1]['chrf']:.1f}" if scored else ""


def _time(row: Row | None, full_runs: int) -> str:
    if row is None:
        return ""
    star = "*" if len(row["runs_ms"]) < full_runs else ""
    ratio = "" if row["ratio_to_ctranslate2"] is None else f" {row['ratio_to_ctranslate2']:.2f}x"
    return f"{row['median_ms']:.{0 if row['median_ms'] >= 10 else 1}f}{star}{ratio}"


def _table(first: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    return table


def _engine(row: Row) -> tuple[Any, ...]:
    return row["engine"], row["precision"]


def _setting(row: Row) -> tuple[Any, ...]:
    return row["engine"], row["precision"], row["settings"]


def _search(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def draw(rows: Sequence[Row], output: Path, chart: Chart = CHART) -> None:
    """Write a chart; the suffix of output selects SVG, PNG or PDF."""
    pyplot = load_pyplot()
    workloads = list(dict.fromkeys(row["work"] for row in rows))
    size = (10, 3.4 * len(workloads) + 0.6)
    figure, panels = pyplot.subplots(len(workloads), figsize=size, layout="constrained", squeeze=False)
    for panel, workload in zip(panels[:, 0], workloads, strict=True):
        own = [row for row in rows if row["work"] == workload]
        _draw_workload(panel, workload, best_settings(without_staggered(own)), chart)
    known = [panel.get_legend_handles_labels() for panel in panels[:, 0]]
    legend = {label: handle for handles, labels in known for handle, label in zip(handles, labels, strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(output)
    pyplot.close(figure)


def _draw_workload(panel: Any, workload: str, rows: Sequence[Row], chart: Chart) -> None:
    """Grouped bars, one group a cell; a line above each bar of Lingon shows the floor of its precision."""
    groups = sorted(by_cell(rows).items())
    series = [key for key in chart.colours if any(_engine(row) == key for row in rows)]
    width = 0.8 / max(len(series), 1)
    for number, key in enumerate(series):
        for place, (_, own) in enumerate(groups):
            for row in (row for row in own if _engine(row) == key):
                centre = place - 0.4 + width * (number + 0.5)
                _draw_bar(panel, centre, width, row, chart)
    panel.axhline(1, color="black", linewidth=0.8, linestyle=":", zorder=0)
    panel.set_xticks(range(len(groups)), [_tick(cell) for cell, _ in groups], fontsize=8)
    panel.set_xlim(-0.6, len(groups) - 0.4)
    # Floors far above every bar, such as those of single sentences, are left out: they would flatten the bars.
    panel.set_ylim(0, 1.8 * max(row[chart.ratio] or 0 for row in rows))
    panel.set_title(workload, loc="left", fontsize=10)
    panel.set_ylabel(f"speed relative to\n{chart.reference}", fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_bar(panel: Any, place: float, width: float, row: Row, chart: Chart) -> None:
    ratio = row[chart.ratio]
    if ratio is None:
        return
    panel.bar(place, ratio, 0.92 * width, color=chart.colours[_engine(row)], label=" ".join(_engine(row)))
    if row["engine"] == LINGON:
        panel.annotate(f"{ratio:.1f}", (place, ratio), (0, 2), textcoords="offset points", ha="center", fontsize=7)
        floor = ratio / row["fraction_of_floor"]
        panel.hlines(
            floor, place - width / 2, place + width / 2, color="black", linewidth=1.2, label="floor (if in range)"
        )


def _tick(cell: tuple[Any, ...]) -> str:
    _, shortlist, beam_size, batch = cell
    return f"{_search(beam_size)}\nbatch {batch}{chr(10) + 'shortlist' if shortlist else ''}"


WORKLOADS = ("base", "shipped")
TINY = Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeOptions:
    """The options of the command; an empty tuple selects everything."""

    workloads: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()
    runs: int = 7
    slow: float = 10.0  # seconds
    sentences: int = 512
    models: tuple[Path, ...] = (Path("models/en-de"),)
    data: Path | None = None
    test_sets: tuple[str, ...] = ()
    quick: bool = False

    def __post_init__(self) -> None:
        if unknown := [workload for workload in self.workloads if workload not in WORKLOADS]:
            raise SettingsError(f"--work must be of {', '.join(WORKLOADS)}, got {unknown[0]}")

    def reduced(self) -> DecodeOptions:
        """The options of a quick run: fewer batch sizes, runs and sentences."""
        return replace(self, batches=self.batches or (1, 8), runs=2, sentences=min(self.sentences, 16))


def run(options: DecodeOptions, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show the tables and write the result files, which appear only when everything is measured."""
    console = Console()
    options = options.reduced() if options.quick else options
    values = {name: str(value) for name, value in asdict(options).items()}
    head = {"commit": commit(), "machine": machine(), "cores": usable_cores(), **values}
    resume_file = ResumeFile(cache / "decode.part.jsonl", head, resume=resume)
    with console.status("preparing the workloads") as status:
        workloads = workloads_of(options, cache)
        status.update("measuring the machine's peaks")
        peaks = resume_file.get("peaks") or measure_peaks(rounds=1 if options.quick else 10)
        resume_file.add("peaks", peaks)
        benchmark = DecodeBenchmark(
            settings=engine_settings(options.engines, usable_cores()),
            cell_filter=CellFilter(batches=options.batches, beam_sizes=options.beam_sizes),
            rounds=Rounds(runs=options.runs, slow_s=options.slow),
            peaks=best_peaks(peaks),
            cache=cache,
            resume_file=resume_file,
            show=status.update,
            write=partial(console.print, highlight=False, soft_wrap=True),
        )
        rows = benchmark.measure(workloads)
    facts = {each.name: {"sentences": len(each.sources), "left_out": each.left_out, **each.facts} for each in workloads}
    _show(console, rows, facts, options.runs)
    path = save("decode", rows, results, peaks=peaks, works=facts)
    resume_file.delete()
    console.print(f"written: {path}")
    if any(row["ratio_to_ctranslate2"] for row in rows):  # The chart shows nothing else.
        draw(rows, path.with_suffix(".svg"))
        console.print(f"written: {path.with_suffix('.svg')}")


def workloads_of(options: DecodeOptions, cache: Path) -> list[Workload]:
    """The selected workloads."""
    workloads: list[Workload] = []
    if "base" in (options.workloads or WORKLOADS):
        workloads.append(base_workload(cache, TINY if options.quick else Shape()))
    if "shipped" in (options.workloads or WORKLOADS):
        workloads += shipped_workloads(options.models, options.data, options.sentences, options.test_sets)
    return workloads


def _show(console: Console, rows: list[Row], facts: dict[str, dict[str, float]], runs: int) -> None:
    console.width = max(console.width, WIDTH)
    for table in tables(rows, runs):
        console.print()
        console.print(table)
    console.print()
    for line in (*staggered_lines(rows), *agreement_lines(rows)):
        console.print(line, highlight=False, soft_wrap=True)
    for workload, known in facts.items():
        values = ", ".join(f"{fact} {value:g}" for fact, value in known.items())
        console.print(f"{workload}: {values}", highlight=False, soft_wrap=True)
