"""What a run keeps: its results with the command line, the resume file, and percentiles."""

from __future__ import annotations

import json
import math
import os
import platform
from pathlib import Path

import pytest

from lingon.bench.options import results_folder
from lingon.bench.results_file import ResumeFile, command, machine, percentile
from lingon.errors import SettingsError


def test_a_trial_run_writes_nothing_beside_the_results_that_are_kept() -> None:
    assert results_folder(None, quick=True) == Path("build/bench")
    assert results_folder(None, quick=False) == Path("bench/results")
    assert results_folder(Path("mine"), quick=True) == Path("mine")


def test_a_result_contains_the_command_line():
    assert (
        command(["/home/lingon/bench/.venv/bin/lingon", "bench", "decode", "--data", "my texts"])
        == "lingon bench decode --data 'my texts'"
    )
    assert (
        command(["/somewhere/lingon/bench/tools/costs.py", "--rounds", "5"])
        == "python -m lingon.bench.tools.costs --rounds 5"
    )


def test_the_machine_has_its_family_and_model(tmp_path: Path):
    facts = tmp_path / "cpuinfo"
    facts.write_text("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512_vnni\n")
    assert machine(facts) == f"AMD EPYC (family 26, model 2), {os.cpu_count()} cores, avx2 avx512_vnni"
    facts.write_text("Features\t: asimddp\n")  # of an Arm processor
    assert machine(facts) == f"{platform.machine()}, {os.cpu_count()} cores, "
    assert machine(tmp_path / "none") == f"{platform.machine()}, {os.cpu_count()} cores"


def test_a_killed_run_resumes_with_the_complete_records(tmp_path):
    path = tmp_path / "decode.part.jsonl"
    resume_file = ResumeFile(path, {"runs": "7"}, resume=False)
    resume_file.record("one", lambda: [1])
    with path.open("a") as file:
        file.write('{"key": "two", "rec')
    again = ResumeFile(path, {"runs": "7"}, resume=True)
    assert "two" not in again
    assert (again.record("one", lambda: []), again.record("two", lambda: [2])) == ([1], [2])
    assert ResumeFile(path, {"runs": "7"}, resume=True).record("two", lambda: []) == [2]


def test_a_run_with_other_options_is_not_resumed(tmp_path):
    ResumeFile(tmp_path / "part", {"commit": "a", "runs": "7"}, resume=False)
    with pytest.raises(SettingsError, match="was begun with runs '7', this is '9'"):
        ResumeFile(tmp_path / "part", {"commit": "a", "runs": "9"}, resume=True)


def test_without_resume_the_records_of_the_last_run_are_dropped(tmp_path):
    ResumeFile(tmp_path / "part", {}, resume=False).record("one", lambda: 1)
    assert "one" not in ResumeFile(tmp_path / "part", {}, resume=False)
    assert len((tmp_path / "part").read_text().splitlines()) == 1
    assert json.loads((tmp_path / "part").read_text()) == {"head": {}}


def test_percentiles_are_observed_values():
    assert [percentile(range(1, 101), percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))
