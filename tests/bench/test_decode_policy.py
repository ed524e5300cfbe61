"""What `lingon bench decode` decides: cells, rounds, who is fastest, ratios, the floor, going on after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.bench.decode.plan import EngineSetting, Wanted, cells_of, entrants, sentences_of
from lingon.bench.decode.report import staggered, tables
from lingon.bench.decode.results import best_settings, fastest, ratio, row_of, with_ratios
from lingon.bench.decode.resume import Scratch
from lingon.bench.decode.roofline import Amount, Peaks, Sizes, amount, floor_ms
from lingon.bench.decode.rounds import Rounds, Timed, race
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.engines.token_agreement import lines
from lingon.bench.results_file import command
from lingon.bench.workloads.workload import Work
from lingon.errors import SettingsError

BASE = Work(name="base", bundle=Path("base"), sources=((5, 2),) * 128, exact_length=30)
SHIPPED = Work(name="shipped tatoeba", bundle=Path("en-de/1"), sources=((5, 2), (6, 7, 2)))


def grid(*arguments, **options) -> list[tuple[bool, int, int]]:
    return [(cell.shortlist, cell.beam_size, cell.batch) for cell in cells_of(*arguments, **options)]


def test_the_cells_are_greedy_and_beam_4_and_greedy_over_a_shortlist():
    greedy, beam = [(1, 1), (1, 8), (1, 32), (1, 128)], [(4, 1), (4, 8), (4, 32)]
    full = [(False, *cell) for cell in greedy + beam]
    assert grid(BASE, 256, Wanted(), shortlist=False) == full
    assert grid(BASE, 256, Wanted(), shortlist=True) == full + [(True, *cell) for cell in greedy]


def test_the_cells_are_narrowed_down_by_batch_and_beam_size():
    wanted = Wanted(batches=(8, 128), beam_sizes=(4,))
    assert grid(BASE, 256, wanted, shortlist=True) == [(False, 4, 8)]


@pytest.mark.parametrize("wrong", [{"batches": (7,)}, {"beam_sizes": (2,)}])
def test_a_cell_that_is_not_offered_is_refused_by_its_value(wrong):
    with pytest.raises(SettingsError, match=rf"must be of .*, got {next(iter(wrong.values()))[0]}"):
        Wanted(**wrong)


def test_a_run_is_one_batch_where_lengths_are_exact_and_the_whole_mix_where_they_are_real():
    assert len(sentences_of(BASE, cells_of(BASE, 256, Wanted(batches=(8,)), shortlist=False)[0])) == 8
    assert sentences_of(SHIPPED, Cell(work=SHIPPED.name, batch=1)) == SHIPPED.sources


def test_the_rival_runs_in_both_precisions_as_one_worker_on_all_cores_and_as_many_workers():
    labels = [entrant.label for entrant in entrants(["ctranslate2"], cores=2)]
    assert labels == [f"ctranslate2 {kind} {shape}" for kind in ("fp32", "int8") for shape in ("1x2", "2x1")]
    assert len(entrants(["ctranslate2"], cores=1)) == 2


def test_an_unknown_engine_is_refused():
    with pytest.raises(SettingsError, match=r"--engine must be of lingon, .*, got marian"):
        entrants(["lingon", "marian"], cores=2)


class Scripted:
    """Contestants that take turns in a record."""

    def __init__(self, **milliseconds: float) -> None:
        self.calls: list[tuple[str, int]] = []
        self.measures = {name: lambda repeats, name=name: self.call(name, repeats) for name in milliseconds}
        self._milliseconds = milliseconds

    def call(self, name: str, repeats: int) -> tuple[float, list[list[int]]]:
        self.calls.append((name, repeats))
        return self._milliseconds[name], [[len(self.calls)]]

    def race(self, **settings) -> dict[str, Timed]:
        return race(self.measures, Rounds(**settings), lambda line: None)


def test_contestants_take_turns_and_each_round_begins_with_another():
    scripted = Scripted(one=500.0, two=500.0)
    timed = scripted.race(runs=3)
    assert [name for name, _ in scripted.calls] == ["one", "two", *("one", "two"), *("two", "one"), *("one", "two")]
    assert [len(found.runs_ms) for found in timed.values()] == [3, 3]


def test_the_outputs_are_those_of_the_last_round():
    assert Scripted(one=500.0).race(runs=3)["one"].outputs == [[4]]


def test_short_work_is_warmed_up_twice_and_repeated_within_a_run():
    scripted = Scripted(short=40.0)
    scripted.race(runs=1, least_ms=150)
    assert scripted.calls == [("short", 1), ("short", 1), ("short", 4)]


def test_who_is_slow_runs_less_often():
    timed = Scripted(slow=11_000.0, quick=9_000.0).race(runs=7, slow_s=10)
    assert {name: len(found.runs_ms) for name, found in timed.items()} == {"slow": 3, "quick": 7}


def test_the_fastest_has_the_lowest_median_of_those_that_ran():
    assert fastest({"a": [1, 9, 9], "b": [5, 5, 5], "c": [1]}, ["a", "b"]) == "b"
    assert fastest({}, ["a"]) is None


def test_a_ratio_pairs_each_round_with_the_same_round():
    assert ratio([10, 40, 30], [5, 10, 30, 1000]) == 2  # of the medians it would be 1.5


def row(engine: str, precision: str, runs_ms: list[float], shape: tuple[int, int] = (1, 2)) -> dict:
    setting = Setting(precision=precision, workers=shape[0], threads=shape[1])
    cell = Cell(work="base", batch=8, exact_length=2)
    found = row_of(engine, EngineSetting(engine, setting), cell, Timed(runs_ms, [[5, 6]] * 8))
    more = {"fraction_of_floor": 0.5, "bleu": None, "chrf": None, "agreement": 1.0}
    return {**found, **more, "load_s": 1.0, "disk_mb": 1.0, "peak_mb": 1.0}


def test_ratios_are_to_the_rivals_fastest_setting_and_for_fp32_to_its_fastest_fp32():
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


def test_without_the_rival_there_are_times_and_no_ratios():
    (found,) = with_ratios([row("lingon", "int8", [10.0])])
    assert (found["median_ms"], found["ratio_to_ctranslate2"]) == (10, None)


def test_tokens_a_second_count_what_came_out():
    assert row("lingon", "fp32", [1000.0])["tokens_per_s"] == 16


def test_a_table_shows_each_engines_fastest_setting():
    rows = with_ratios([row("ctranslate2", "int8", [20.0]), row("ctranslate2", "int8", [10.0], (2, 1))])
    assert [each["settings"] for each in best_settings(rows)] == ["2x1"]
    assert len(tables(rows, full_runs=1)) == 2


def test_staggered_arrivals_are_told_by_their_worst_share():
    times = {"int8": (10.0, 10.8), "fp32": (20.0, 20.4)}
    rows = [row("lingon", kind, [prompt]) for kind, (prompt, _) in times.items()]
    rows += [row("lingon staggered", kind, [late]) for kind, (_, late) in times.items()]
    rows += [{**each, "batch": 32, "runs_ms": [10.0], "median_ms": 10.0} for each in rows]
    found = staggered(rows)
    assert ["at most 1.08 times as long (batch 8" in found[0], "at most 1.02" in found[1]] == [True, True]
    assert staggered(rows[:2]) == []


# 2 multiply-adds a source token, 3 a row, 5 for each of 7 pieces; a past position costs 11, a source position 13
SIZES = Sizes(encoder=2, decoder=3, dim=5, vocab=7, own=11, cross=13)
NO_ATTENTION = Sizes(encoder=2, decoder=3, dim=5, vocab=7, own=0, cross=0)


def test_the_amount_of_a_batch_counts_rows_steps_and_what_they_look_at():
    cell = Cell(work="base", batch=2, beam_size=4, exact_length=3)
    assert amount([[5, 2], [5, 6, 2]], [[7, 7, 7], [8, 8, 8]], cell, 7) == Amount(
        source_tokens=5, encoder_runs=1, rows=24, steps=3, own=4 * (6 + 6), cross=4 * (2 * 3 + 3 * 3), pieces=7
    )


def test_the_amount_of_a_real_mix_counts_end_tokens_and_the_fewest_steps():
    found = amount([[5, 2]] * 3, [[7], [8, 8], [9]], Cell(work="shipped", batch=2), 7)
    assert (found.encoder_runs, found.rows, found.steps) == (2, 7, 4)
    assert amount([[5, 2]] * 3, [[7], [8] * 9, [9]], Cell(work="shipped", batch=2), 7).steps == 10


def test_the_floor_of_computing_is_operations_over_the_peak_rate():
    asked = Amount(source_tokens=10, encoder_runs=1, rows=20, steps=4, own=6, cross=8, pieces=7)
    peaks = Peaks(gemm={"fp32": 100, "int8": 400}, read=1, cache=10**6)
    products = 2 * 2 * 10 + 2 * (3 + 5 * 7) * 20
    attention = 2 * (6 * 11 + 8 * 13)
    assert floor_ms(SIZES, peaks, "fp32", asked) == pytest.approx(1000 * (products + attention) / 100)
    assert floor_ms(SIZES, peaks, "int8", asked) == pytest.approx(1000 * (products / 400 + attention / 100))


def test_the_floor_of_reading_counts_weights_that_the_cache_does_not_hold():
    asked = Amount(source_tokens=10, encoder_runs=2, rows=20, steps=4, own=0, cross=0, pieces=7)
    slow_memory = Peaks(gemm={"fp32": 1e12, "int8": 1e12}, read=1, cache=8)
    only_steps = 4 * 4 * (3 + 5 * 7)  # the encoder's 8 bytes stay in the cache
    assert floor_ms(NO_ATTENTION, slow_memory, "fp32", asked) == pytest.approx(1000 * only_steps)
    no_cache = Peaks(gemm=slow_memory.gemm, read=1, cache=0)
    assert floor_ms(NO_ATTENTION, no_cache, "int8", asked) == pytest.approx(1000 * (2 * 2 + 4 * (3 + 5 * 7)))


def test_a_shortlist_lowers_the_floor():
    peaks = Peaks(gemm={"fp32": 100}, read=1, cache=10**6)
    amounts = [amount([[5, 2]], [[7, 7]], Cell(work="base", batch=1, exact_length=2), pieces) for pieces in (7, 2)]
    full, short = (floor_ms(NO_ATTENTION, peaks, "fp32", each) for each in amounts)
    assert full - short == pytest.approx(1000 * 2 * 5 * 5 * 2 / 100)


def test_a_killed_run_goes_on_with_what_was_whole(tmp_path):
    path = tmp_path / "decode.part.jsonl"
    scratch = Scratch(path, {"runs": "7"}, resume=False)
    scratch.add("one", [1])
    with path.open("a") as file:
        file.write('{"key": "two", "rec')
    again = Scratch(path, {"runs": "7"}, resume=True)
    assert (again.get("one"), again.get("two")) == ([1], None)
    again.add("two", [2])
    assert Scratch(path, {"runs": "7"}, resume=True).get("two") == [2]


def test_a_run_does_not_go_on_where_another_was_asked_for(tmp_path):
    Scratch(tmp_path / "part", {"commit": "a", "runs": "7"}, resume=False)
    with pytest.raises(SettingsError, match="was begun with runs '7', this is '9'"):
        Scratch(tmp_path / "part", {"commit": "a", "runs": "9"}, resume=True)


def test_without_resume_nothing_is_left_of_the_last_run(tmp_path):
    Scratch(tmp_path / "part", {}, resume=False).add("one", 1)
    assert Scratch(tmp_path / "part", {}, resume=False).get("one") is None
    assert len((tmp_path / "part").read_text().splitlines()) == 1
    assert json.loads((tmp_path / "part").read_text()) == {"head": {}}


def test_a_result_names_the_command_as_it_is_typed():
    assert (
        command(["/usr/bin/lingon", "bench", "decode", "--data", "my texts"]) == "lingon bench decode --data 'my texts'"
    )
    assert (
        command(["/somewhere/bench/tools/concurrency.py", "--rounds", "5"])
        == "python -m lingon.bench.tools.concurrency --rounds 5"
    )


def test_agreement_is_told_of_every_peer_in_fp32_by_its_worst_cell_and_all_causes():
    rows = [
        {"work": "base", "engine": "ctranslate2", "beam_size": 4, "agreement": 0.995, "causes": {"tie": 1, "bound": 1}},
        {"work": "base", "engine": "ctranslate2", "beam_size": 4, "agreement": 1.0, "causes": {"tie": 1}},
        {"work": "base", "engine": "ctranslate2", "beam_size": 4, "agreement": 0.5, "causes": None},
        {"work": "base", "engine": "lingon staggered", "beam_size": 4, "agreement": 1.0, "causes": {}},
    ]
    (line,) = lines(rows)
    assert "base, beam 4: at least 99.50% of sentences are the same with ctranslate2 fp32" in line
    assert line.endswith("2 cells and settings: 2 tie, 1 bound)")
