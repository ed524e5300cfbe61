"""`lingon bench decode` end to end with a tiny model: processes, result files and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lingon.bench.decode.plan import EngineSetting, unavailable_reason
from lingon.bench.engines.base import Setting
from lingon.bench.engines.conversion import unconvertible
from lingon.bench.worker_process import Worker
from lingon.errors import LingonError
from tests.support.random_models import random_model, written_bundle
from tests.support.repository import ROOT
from tests.support.systems import random_system

COLUMNS = {
    *("work", "engine", "precision", "shortlist", "batch", "beam_size", "runs_ms", "median_ms", "min_ms"),
    *("tokens_per_s", "ratio_to_ctranslate2", "fraction_of_floor", "bleu", "chrf"),
    *("settings", "load_s", "disk_mb", "peak_mb", "agreement"),
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
    assert (answer.returncode, answer.stderr) == (2, "lingon: error: --work must be of base, shipped, got novels\n")


def test_a_crashed_process_is_one_line_with_the_last_line_of_its_errors():
    with (
        Worker("lingon.bench.decode.worker", "marian", label="marian fp32 1x2") as process,
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
        ("transformer additive", "has additive scores"),
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
        ({"norm": "pre", "final_norm": False}, "no final norm"),
        ({"norm": "post", "final_norm": True}, "a final norm"),
        ({"norm": "pre"}, None),
    ],
    ids=str,
)
def test_a_variant_that_is_not_in_the_paper_is_named(option, reason, tmp_path):
    found = unconvertible(written_bundle(random_model(**option), tmp_path))
    assert found == (reason and f"random/1 has {reason}; only the Transformer of the paper is converted")
