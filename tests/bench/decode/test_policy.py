"""The policy of `lingon bench decode`: cells, rounds and ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bench.decode.measure import Rounds, measure_in_turns, quality_of
from lingon.bench.decode.plan import CellFilter, EngineSetting, cells_of, engine_settings, sources_of
from lingon.bench.decode.report import agreement_lines, staggered_lines, tables
from lingon.bench.decode.results import TimedRuns, best_settings, fastest, row_of, speedup, with_ratios
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.workloads.workload import Workload
from lingon.errors import SettingsError
from lingon.scoring import score

BASE = Workload(name="base", bundle=Path("base"), sources=((5, 2),) * 128, exact_length=30)
SHIPPED = Workload(name="shipped tatoeba", bundle=Path("en-de/1"), sources=((5, 2), (6, 7, 2)))


def test_the_quality_is_that_of_the_language_of_the_workload() -> None:
    texts, references = ["请给我两杯水。", "谢谢。"], ("请给我一杯水。", "谢谢。", "再见。")
    chinese = replace(SHIPPED, references=references, language="zh")
    assert quality_of(texts, chinese)["bleu"] == round(score(texts, references[:2], "zh").bleu, 2) > 20
    assert quality_of(texts, replace(chinese, language=""))["bleu"] < 20


def grid(*arguments, **options) -> list[tuple[bool, int, int]]:
    return [(cell.shortlist, cell.beam_size, cell.batch) for cell in cells_of(*arguments, **options)]


def test_the_cells_are_greedy_and_beam_4_and_greedy_over_a_shortlist():
    greedy, beam = [(1, 1), (1, 8), (1, 32), (1, 128)], [(4, 1), (4, 8), (4, 32)]
    full = [(False, *cell) for cell in greedy + beam]
    assert grid(BASE, 256, CellFilter(), shortlist=False) == full
    assert grid(BASE, 256, CellFilter(), shortlist=True) == full + [(True, *cell) for cell in greedy]


def test_cells_are_filtered_by_batch_and_beam_size():
    cell_filter = CellFilter(batches=(8, 128), beam_sizes=(4,))
    assert grid(BASE, 256, cell_filter, shortlist=True) == [(False, 4, 8)]


@pytest.mark.parametrize("wrong", [{"batches": (7,)}, {"beam_sizes": (2,)}])
def test_an_unknown_batch_or_beam_size_is_rejected(wrong):
    with pytest.raises(SettingsError, match=rf"must be of .*, got {next(iter(wrong.values()))[0]}"):
        CellFilter(**wrong)


def test_a_run_is_one_batch_if_lengths_are_exact_and_all_sources_otherwise():
    assert len(sources_of(BASE, cells_of(BASE, 256, CellFilter(batches=(8,)), shortlist=False)[0])) == 8
    assert sources_of(SHIPPED, Cell(workload=SHIPPED.name, batch=1)) == SHIPPED.sources


def test_ctranslate2_runs_in_both_precisions_as_one_worker_on_all_cores_and_as_one_worker_a_core():
    labels = [each.label for each in engine_settings(["ctranslate2"], cores=2)]
    assert labels == [f"ctranslate2 {kind} {shape}" for kind in ("fp32", "int8") for shape in ("1x2", "2x1", "1x1")]
    assert len(engine_settings(["ctranslate2"], cores=1)) == 2


def test_an_unknown_engine_is_rejected():
    with pytest.raises(SettingsError, match=r"--engine must be of lingon, .*, got marian"):
        engine_settings(["lingon", "marian"], cores=2)


class Scripted:
    """Engines with fixed times that record their calls."""

    def __init__(self, **milliseconds: float) -> None:
        self.calls: list[tuple[str, int]] = []
        self.measures = {name: lambda repeats, name=name: self.call(name, repeats) for name in milliseconds}
        self._milliseconds = milliseconds

    def call(self, name: str, repeats: int) -> tuple[float, list[list[int]]]:
        self.calls.append((name, repeats))
        return self._milliseconds[name], [[len(self.calls)]]

    def measure(self, **settings) -> dict[str, TimedRuns]:
        return measure_in_turns(self.measures, Rounds(**settings), lambda line: None)


def test_engines_take_turns_and_each_round_begins_with_another():
    scripted = Scripted(one=500.0, two=500.0)
    timed = scripted.measure(runs=3)
    assert [name for name, _ in scripted.calls] == ["one", "two", *("one", "two"), *("two", "one"), *("one", "two")]
    assert [len(found.runs_ms) for found in timed.values()] == [3, 3]


def test_the_outputs_are_those_of_the_last_round():
    assert Scripted(one=500.0).measure(runs=3)["one"].outputs == [[4]]


def test_short_work_is_warmed_up_twice_and_repeated_within_a_run():
    scripted = Scripted(short=40.0)
    scripted.measure(runs=1, min_run_ms=150)
    assert scripted.calls == [("short", 1), ("short", 1), ("short", 4)]


def test_a_slow_engine_runs_less_often():
    timed = Scripted(slow=11_000.0, quick=9_000.0).measure(runs=7, slow_s=10)
    assert {name: len(found.runs_ms) for name, found in timed.items()} == {"slow": 3, "quick": 7}


def test_the_fastest_has_the_lowest_median_of_the_measured_ones():
    assert fastest({"a": [1, 9, 9], "b": [5, 5, 5], "c": [1]}, ["a", "b"]) == "b"
    assert fastest({}, ["a"]) is None


def test_a_ratio_pairs_each_round_with_the_same_round():
    assert speedup([10, 40, 30], [5, 10, 30, 1000]) == 2  # The ratio of the medians is 1.5.


def row(engine: str, precision: str, runs_ms: list[float], shape: tuple[int, int] = (1, 2)) -> dict:
    setting = Setting(precision=precision, workers=shape[0], threads=shape[1])
    cell = Cell(workload="base", batch=8, exact_length=2)
    found = row_of(engine, EngineSetting(engine, setting), cell, TimedRuns(runs_ms, [[5, 6]] * 8))
    more = {"fraction_of_floor": 0.5, "bleu": None, "chrf": None, "agreement": 1.0}
    return {**found, **more, "load_s": 1.0, "disk_mb": 1.0, "peak_mb": 1.0}


def test_ratios_are_to_the_fastest_setting_of_ctranslate2_and_for_fp32_also_to_its_fastest_in_fp32():
    rows = [
        row("lingon", "int8", [10, 10, 10]),
        row("lingon", "fp32", [20, 20, 20]),
        row("ctranslate2", "fp32", [40, 40, 40]),
        row("ctranslate2", "int8", [25, 15, 15]),
        row("ctranslate2", "int8", [30, 30, 30], (2, 1)),
    ]
    found = with_ratios(rows)
    assert [each["ratio_to_ctranslate2"] for each in found] == [1.5, 0.75, 0.375, 1, 0.5]
    assert [each["ratio_to_ctranslate2_fp32"] for each in found] == [None, 2, 1, None, None]


def test_without_ctranslate2_there_are_times_and_no_ratios():
    (found,) = with_ratios([row("lingon", "int8", [10.0])])
    assert (found["median_ms"], found["ratio_to_ctranslate2"]) == (10, None)


def test_tokens_per_second_count_output_tokens():
    assert row("lingon", "fp32", [1000.0])["tokens_per_s"] == 16


def test_a_table_shows_each_engines_fastest_setting():
    rows = with_ratios([row("ctranslate2", "int8", [20.0]), row("ctranslate2", "int8", [10.0], (2, 1))])
    assert [each["settings"] for each in best_settings(rows)] == ["2x1"]
    assert len(tables(rows, full_runs=1)) == 2


def test_staggered_arrivals_are_reported_by_their_worst_cell():
    times = {"int8": (10.0, 10.8), "fp32": (20.0, 20.4)}
    rows = [row("lingon", kind, [prompt]) for kind, (prompt, _) in times.items()]
    rows += [row("lingon staggered", kind, [late]) for kind, (_, late) in times.items()]
    rows += [{**each, "batch": 32, "runs_ms": [10.0], "median_ms": 10.0} for each in rows]
    found = staggered_lines(rows)
    assert ["at most 1.08 times as long (batch 8" in found[0], "at most 1.02" in found[1]] == [True, True]
    assert staggered_lines(rows[:2]) == []


def test_agreement_is_reported_for_each_other_engine_in_fp32_by_its_worst_cell_and_all_causes():
    rows = [
        {"work": "base", "engine": "ctranslate2", "beam_size": 4, "agreement": 0.995, "causes": {"tie": 1, "bound": 1}},
        {"work": "base", "engine": "ctranslate2", "beam_size": 4, "agreement": 1.0, "causes": {"tie": 1}},
        {"work": "base", "engine": "ctranslate2", "beam_size": 4, "agreement": 0.5, "causes": None},
        {"work": "base", "engine": "lingon staggered", "beam_size": 4, "agreement": 1.0, "causes": {}},
    ]
    (line,) = agreement_lines(rows)
    assert "base, beam 4: at least 99.50% of sentences are the same with ctranslate2 fp32" in line
    assert line.endswith("2 cells and settings: 2 tie, 1 bound)")
