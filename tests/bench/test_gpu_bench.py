"""`lingon bench gpu` rehearsed on the CPU with a tiny model: the floor, missing engines, a killed run, the results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.bench.engines.agreement import compare
from lingon.bench.engines.base import Cell, Setting, limit
from lingon.bench.engines.conversion import model_of
from lingon.bench.engines.worker import TORCH_GRAPH, Engines, EngineSetting
from lingon.bench.gpu import (
    GpuOptions,
    cells_of,
    engine_settings,
    lines_of,
    measured,
    missing_row,
    sources_of,
    table_of,
)
from lingon.bench.synthetic import Shape, forced_workloads
from lingon.bench.workloads import Workload
from lingon.bundle.store import open_bundle
from lingon.errors import SettingsError
from lingon.serving.runtime.device import CPU
from tests.support.random_models import random_runner, random_sources
from tests.support.repository import ROOT
from tests.support.timing import eventually_blocking

TINY = Shape(layers=1, dim=32, heads=2, ffn=64, vocab=200)
COLUMNS = {
    *("work", "engine", "precision", "settings", "batch", "beam_size", "device", "sentences", "steps", "runs_ms"),
    *("median_ms", "tokens_per_s", "ms_per_step", "ratio_to_transformers", "floor_ms", "fraction_of_floor"),
    *("floor_parts_ms", "agreement", "causes", "load_s", "disk_mb", "loaded_mb", "decoding_mb", "peak_mb", "reason"),
}


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> list[Workload]:
    return forced_workloads(tmp_path_factory.mktemp("cache"), "tiny", TINY, CPU, sentences=8)


def gpu_command(folder: Path, *arguments: str) -> list[str]:
    """The command on two cells, with two engines that need nothing else."""
    command = [sys.executable, "-m", "lingon", "bench", "gpu", "--device", "cpu", "--quick"]
    command += ["--results", folder, "--cache", folder / "cache", "--work", "fixed", "--batch", "8"]
    return [*map(str, command), "--engine", "lingon", "--engine", "torch-graph", *arguments]


def recorded(path: Path) -> dict[str, Any]:
    """The complete records of a resume file."""
    lines = path.read_text(encoding="utf-8").split("\n")[1:-1] if path.is_file() else []
    return {record["key"]: record["record"] for record in map(json.loads, lines)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of a run that was killed after its first cell, and the rows of that cell."""
    folder = tmp_path_factory.mktemp("gpu")
    part = folder / "cache" / "gpu.part.jsonl"
    with subprocess.Popen(gpu_command(folder), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        eventually_blocking(lambda: len(recorded(part)) >= 2, seconds=200)  # the peaks and a cell
        process.kill()
    return folder, list(recorded(part).values())[1]


@pytest.fixture(scope="module")
def resumed(killed: tuple[Path, list[dict[str, Any]]]) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    folder, _ = killed
    done = subprocess.run(gpu_command(folder, "--resume"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*-gpu.json")
    return done, json.loads(path.read_text(encoding="utf-8"))


def test_a_killed_run_keeps_its_cells_and_measures_the_others(killed, resumed):
    folder, first_rows = killed
    _, found = resumed
    for row, first in zip(found["rows"], first_rows, strict=False):
        assert {name: row[name] for name in first} == first
    assert [(row["beam_size"], row["engine"]) for row in found["rows"]] == [
        (1, "lingon"),
        (1, "torch-graph"),
        (4, "lingon"),
        (4, "torch-graph"),
    ]
    assert not (folder / "cache" / "gpu.part.jsonl").exists()


def test_a_row_has_all_columns_and_figures_that_fit_together(resumed):
    for row in resumed[1]["rows"]:
        assert set(row) >= COLUMNS
        assert row["ms_per_step"] == pytest.approx(row["median_ms"] / 30, abs=1e-4)
        assert row["tokens_per_s"] == pytest.approx(1000 * 8 * 30 / row["median_ms"], rel=1e-3)
        parts = row["floor_parts_ms"]
        assert row["floor_ms"] == pytest.approx(parts["encoder"] + max(parts["read"], parts["compute"]), abs=1e-3)
        assert row["ratio_to_transformers"] is None


def test_the_bare_loop_has_the_tokens_of_lingon_up_to_half_precision(resumed):
    for row in resumed[1]["rows"]:
        assert row["agreement"] >= 0.75
        better = {"ours is likelier"} if row["beam_size"] > 1 else set()  # rounding may lead a beam elsewhere
        assert set(row["causes"]) <= {"tie", *better}


def test_the_terminal_shows_a_table(resumed):
    done, _ = resumed
    assert "torch-graph fp32" in done.stdout


def test_an_engine_that_cannot_run_gives_rows_with_the_reason(workloads: list[Workload], tmp_path: Path):
    """The loop has no 8-bit arithmetic, as a peer may lack its library."""
    missing, usable = (
        EngineSetting(TORCH_GRAPH, Setting(precision=precision, threads=1)) for precision in ("int8", "fp32")
    )
    bundle, cell = open_bundle(workloads[0].bundle), cells_of(workloads[0], GpuOptions(batches=(1,)))[0]
    with Engines(bundle, [missing, usable], tmp_path, show=lambda line: None) as engines:
        measures, reasons = engines.measures(cell, sources_of(workloads[0], cell))
    assert list(measures) == [usable]
    row = missing_row(missing, cell, reasons[missing])
    assert row["reason"].endswith("torch-graph is measured in fp32 and fp16, got int8")
    assert table_of("tiny", [row]).row_count == 1
    assert lines_of([row]) == [f"torch-graph is missing in 1 cells: {row['reason']}"]
    assert measured([row]) == []


def test_an_engine_that_fails_in_one_cell_decodes_the_next(workloads: list[Workload], tmp_path: Path):
    usable = EngineSetting(TORCH_GRAPH, Setting(threads=1))
    cell, other = cells_of(workloads[0], GpuOptions(batches=(1,)))
    unforced = Cell(workload="tiny", batch=1)
    with Engines(open_bundle(workloads[0].bundle), [usable], tmp_path, show=lambda line: None) as engines:
        failed, reasons = engines.measures(unforced, sources_of(workloads[0], cell))
        assert (failed, "lengths are given" in reasons[usable]) == ({}, True)
        measures, reasons = engines.measures(other, sources_of(workloads[0], other))
        assert (list(measures), reasons) == ([usable], {})


def test_every_engine_has_the_same_weights(workloads: list[Workload]):
    """Half precision loses nothing of the weights of fp32."""
    bundle = open_bundle(workloads[0].bundle)
    assert set(bundle.manifest.precisions) == {"fp16", "fp32"}
    model = model_of(bundle)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        for values in (*layer.qkv, *layer.inner, *layer.outer, *layer.feed_forward_norm):
            np.testing.assert_array_equal(values, values.astype(np.float16).astype(np.float32))


def test_mixed_sources_have_targets_in_proportion(workloads: list[Workload]):
    mix, limits = workloads[1], open_bundle(workloads[1].bundle).manifest.limits
    cell = cells_of(mix, GpuOptions())[0]
    assert len({len(source) for source in mix.sources}) > 5
    assert limit(25, cell, limits) == 30
    assert all(limit(len(source), cell, limits) >= len(source) for source in mix.sources)
    assert len(sources_of(mix, cell)) == 8


def test_on_cuda_all_engines_compute_in_half_precision():
    settings = engine_settings(GpuOptions(), cores=4)
    found = {(each.setting.precision, each.setting.device) for each in settings}
    assert found == {("fp16", "cuda"), ("fp16-native", "cuda")}
    assert [each.engine for each in settings if each.setting.static_cache] == ["transformers-static"]
    assert [each.engine for each in settings if each.setting.cuda_graphs] == ["lingon-native", "lingon-cuda-graphs"]
    rehearsed = engine_settings(GpuOptions(device="cpu"), cores=4)
    assert [each.engine for each in rehearsed if each.setting.precision == "fp16"] == ["lingon", "lingon-cuda-graphs"]


@pytest.mark.parametrize(
    ("option", "values", "message"),
    [
        ("models", ("huge",), "--model must be one of base, big, got 'huge'"),
        ("workloads", ("news",), "--work must be one of fixed, mix, got 'news'"),
        ("batches", (3,), "--batch must be one of 1, 8, 64, 256, got 3"),
        ("device", "tpu", "--device must be one of cuda, cpu, got 'tpu'"),
    ],
)
def test_unknown_options_are_refused_in_one_line(option: str, values: Any, message: str):
    with pytest.raises(SettingsError, match=message):
        GpuOptions(**{option: values})


def test_differences_up_to_the_tie_are_rounding_errors():
    sources = random_sources(4)
    cell = Cell(workload="base", batch=4, exact_length=3)
    ours, theirs = [[5, 6, 7]] * 4, [[5, 8, 7]] * 4
    wide, narrow = (compare(random_runner(), sources, ours, theirs, cell, tie=tie).differences for tie in (1e9, 0.0))
    assert {difference.cause for difference in wide} == {"tie"}
    assert "tie" not in {difference.cause for difference in narrow}
