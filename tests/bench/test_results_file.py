"""Where the results of a benchmark are written, and the command line in them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from lingon.bench.results_file import command, machine, results_folder


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
