"""`lingon bench decode`: cells, rounds and ratios, and whole runs on a small model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lingon.bench.decode import (
    CellFilter,
    Rounds,
    TimedRuns,
    agreement_lines,
    best_settings,
    cells_of,
    fastest,
    measure_rounds,
    quality_of,
    reference_of,
    row_of,
    sources_of,
    speedup,
    staggered_lines,
    tables,
    with_ratios,
)
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.engines.conversion import unconvertible
from lingon.bench.engines.worker import EngineSetting, engine_settings, unavailable_reason
from lingon.bench.worker_process import Worker
from lingon.bench.workloads import Workload
from lingon.errors import LingonError, SettingsError
from lingon.scoring import score
from tests.support.random_models import random_model, random_system, written_bundle
from tests.support.repository import ROOT

ENGINE_PRECISIONS = (("ctranslate2", "fp32"), ("lingon", "int8"), ("lingon", "fp32"))
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
    with pytest.raises(SettingsError, match=rf"must be one of .*, got {next(iter(wrong.values()))[0]}"):
        CellFilter(**wrong)


def test_a_run_is_one_batch_if_lengths_are_exact_and_all_sources_otherwise():
    assert len(sources_of(BASE, cells_of(BASE, 256, CellFilter(batches=(8,)), shortlist=False)[0])) == 8
    assert sources_of(SHIPPED, Cell(workload=SHIPPED.name, batch=1)) == SHIPPED.sources


def test_ctranslate2_runs_in_both_precisions_as_one_worker_on_all_cores_and_as_one_worker_a_core():
    labels = [each.label for each in engine_settings(["ctranslate2"], cores=2)]
    assert labels == [f"ctranslate2 {kind} {shape}" for kind in ("fp32", "int8") for shape in ("1x2", "2x1", "1x1")]
    assert len(engine_settings(["ctranslate2"], cores=1)) == 2


def test_an_unknown_engine_is_rejected():
    with pytest.raises(SettingsError, match=r"--engine must be one of lingon, .*, got 'marian'"):
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
        return measure_rounds(self.measures, Rounds(**settings), lambda line: None)


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
    more = {"fraction_of_floor": 0.5, "bleu": None, "chrf": None, "agreement": 1.0, "of_twin": False}
    return {**found, **more, **dict.fromkeys(("load_s", "disk_mb", "loaded_mb", "decoding_mb", "peak_mb"), 1.0)}


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


def test_ratios_to_fxtranslate_are_to_its_fastest_setting():
    rows = [
        row("lingon", "int8", [10, 10, 10]),
        row("fxtranslate", "int8", [40, 30, 30], (1, 1)),
        row("fxtranslate", "int8", [20, 20, 30], (2, 1)),
    ]
    assert [each["ratio_to_fxtranslate"] for each in with_ratios(rows)] == [2, 0.667, 1]


def test_a_table_says_which_engines_compute_the_twin_and_to_what_its_ratios_are():
    rows = [
        row("lingon", "int8", [10.0]),
        {**row("ctranslate2", "int8", [20.0]), "of_twin": True},
        row("fxtranslate", "int8", [30.0], (1, 1)),
    ]
    console = Console(width=200, record=True)
    console.print(*tables(with_ratios(rows), full_runs=1))
    shown = console.export_text()
    assert "relative to the fastest setting of ctranslate2, then of fxtranslate" in shown
    assert re.search(r"lingon int8 +10 2.00x 3.00x", shown)
    assert "ctranslate2 int8 twin" in shown
    assert "lingon int8 twin" not in shown


def test_outputs_are_compared_with_those_of_lingon_in_fp32_or_else_in_the_precision_that_is_measured():
    modes = [(name, EngineSetting(name, Setting(precision=kind))) for name, kind in ENGINE_PRECISIONS]
    timed = {mode: TimedRuns([1.0], [[number]]) for number, mode in enumerate(modes)}
    assert reference_of(timed) == [[2]]
    del timed[modes[2]]
    assert reference_of(timed) == [[1]]
    assert reference_of({modes[0]: timed[modes[0]]}) is None


def test_settings_are_those_of_the_precisions_that_are_asked_for():
    settings = engine_settings(["lingon", "ctranslate2", "transformers", "fxtranslate"], 2, ["int8"])
    assert {each.setting.precision for each in settings} == {"int8"}
    assert {each.engine for each in settings} == {"lingon", "ctranslate2", "fxtranslate"}
    with pytest.raises(SettingsError, match="--precision must be one of fp32, int8, got 'int4'"):
        engine_settings(["lingon"], 2, ["int4"])


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


COLUMNS = {
    *("work", "engine", "precision", "shortlist", "batch", "beam_size", "runs_ms", "median_ms", "min_ms"),
    *("tokens_per_s", "ratio_to_ctranslate2", "fraction_of_floor", "bleu", "chrf"),
    *("settings", "load_s", "disk_mb", "loaded_mb", "decoding_mb", "peak_mb", "agreement"),
}


def decode(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its results and its models in folder."""
    command = [sys.executable, "-m", "lingon", "bench", "decode", "--quick", *arguments]
    command += ["--results", str(folder / "results"), "--cache", str(folder / "cache")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("decode")


@pytest.fixture(scope="module")
def answer(folder) -> subprocess.CompletedProcess[str]:
    """A run of one cell of the workload base; with CTranslate2 if it is installed."""
    cell = ("--work", "base", "--batch", "8", "--beam-size", "4")
    return decode(folder, *cell, "--engine", "lingon", "--engine", "ctranslate2")


@pytest.fixture(scope="module")
def result(answer, folder) -> dict:
    assert answer.returncode == 0, answer.stderr
    (path,) = (folder / "results").glob("*-decode.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_result_contains_date_machine_commit_and_command(result):
    assert {"date", "machine", "commit", "command", "peaks", "works", "rows"} == set(result)
    assert result["command"].startswith("lingon bench decode --quick --work base")
    assert result["peaks"]["gemm_gops"]["fp32"]["1"] > 1


def test_every_row_has_all_columns(result):
    assert all(set(row) >= COLUMNS for row in result["rows"])
    assert {row["work"][:4] for row in result["rows"]} == {"base"}
    assert {(row["batch"], row["beam_size"]) for row in result["rows"]} == {(8, 4)}
    assert all(len(row["runs_ms"]) == 2 and row["median_ms"] >= row["min_ms"] > 0 for row in result["rows"])


def test_memory_after_loading_and_while_decoding_is_at_most_the_peak(result):
    memory = [(row["loaded_mb"], row["decoding_mb"], row["peak_mb"]) for row in result["rows"]]
    assert all(0 < loaded <= peak and 0 < decoding <= peak for loaded, decoding, peak in memory)


def test_lingon_is_measured_with_sentences_together_and_staggered(result):
    assert {row["engine"] for row in result["rows"]} >= {"lingon", "lingon staggered"}


def test_staggered_arrival_does_not_change_the_tokens(result):
    ours = [row for row in result["rows"] if row["engine"].startswith("lingon") and row["precision"] == "fp32"]
    assert {row["agreement"] for row in ours} == {1.0}


def test_the_floor_of_a_cell_depends_only_on_the_precision(result):
    floors = {(row["precision"], row["floor_ms"]) for row in result["rows"]}
    assert sorted(precision for precision, _ in floors) == ["fp32", "int8"]
    assert all(milliseconds > 0 for _, milliseconds in floors)


def test_the_terminal_shows_the_table_and_the_path_of_the_file(answer, folder):
    assert answer.returncode == 0, answer.stderr
    (path,) = (folder / "results").glob("*-decode.json")
    assert path.name in answer.stdout.replace("\n", "")
    assert "lingon fp32" in answer.stdout


def test_a_complete_run_deletes_the_resume_file(answer, folder):
    assert answer.returncode == 0, answer.stderr
    assert not (folder / "cache" / "decode.part.jsonl").exists()


def test_an_unknown_workload_is_one_line(tmp_path):
    answer = decode(tmp_path, "--work", "novels")
    assert (answer.returncode, answer.stderr) == (
        2,
        "lingon: error: --work must be one of base, shipped, tiny, base-memory, student-base, smallest, opus, m2m, "
        "nllb, got 'novels'\n",
    )


def test_a_crashed_process_is_one_line_with_the_last_line_of_its_errors():
    with (
        Worker("lingon.bench.engines.worker", "marian", label="marian fp32 1x2") as process,
        pytest.raises(LingonError) as caught,
    ):
        process.ask(do="load", folder="", setting={})
    assert str(caught.value) == "marian fp32 1x2: its process ended: KeyError: 'marian'"


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        ("transformer", None),
        ("transformer rotary", "has rotary positions"),
        ("transformer none", "has no positions"),
        ("transformer window", "has a window"),
        ("transformer additive", "has additive or capped scores"),
        ("transformer linear", "has linear attention"),
        ("transformer opus", None),
        ("transformer mbart", "has a norm of the embedding"),
        ("transformer ssru", "has a recurrent decoder"),
        ("transformer t5", "has root mean square norms"),
        ("rnnsearch gru", "is of kind rnnsearch"),
        ("luong global", "is of kind luong"),
    ],
)
def test_an_engine_that_cannot_read_a_system_is_left_out_with_the_reason(system, reason, tmp_path):
    bundle = written_bundle(random_system(system), tmp_path)
    found = unavailable_reason(EngineSetting("torch-graph", Setting()), bundle)
    assert (found is None) == (reason is None)
    assert reason is None or reason in found
    assert unavailable_reason(EngineSetting("lingon", Setting()), bundle) is None


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"gated": True}, "gated feed-forward layers"),
        ({"head_dim": 24}, "heads of another width than dim / heads"),
        ({"activation": "quick-gelu"}, "the activation quick-gelu"),
        ({"activation": "gelu-tanh"}, "an approximate gelu"),
        ({"activation": "gelu", "output_bias": True, "norm_epsilon": 1e-6, "sinusoids": "inclusive-halves"}, None),
        ({"scale_embedding": False}, "embeddings that are not scaled"),
        ({"norm": "pre", "query_norm": True}, "a norm of the queries alone"),
        ({"norm": "both"}, "norms on both sides of each layer"),
        ({"norm": "sandwich"}, "norms on both sides of each layer"),
        ({"attention_softcap": 3.0}, "additive or capped scores"),
        ({"output_softcap": 3.0}, "a soft cap of logits"),
        ({"norm": "pre", "final_norm": False}, "no final norm"),
        ({"norm": "post", "final_norm": True}, "a final norm"),
        ({"norm": "pre"}, None),
    ],
    ids=str,
)
def test_a_variant_that_is_not_in_the_paper_is_named(option, reason, tmp_path):
    found = unconvertible(written_bundle(random_model(**option), tmp_path))
    assert found == (reason and f"random/1 has {reason}; only the Transformer of the paper is converted")
