"""Where the results of a benchmark are written, and the command line in them."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.results_file import command, results_folder


def test_a_trial_run_writes_nothing_beside_the_results_that_are_kept() -> None:
    assert results_folder(None, quick=True) == Path("build/bench")
    assert results_folder(None, quick=False) == Path("bench/results")
    assert results_folder(Path("mine"), quick=True) == Path("mine")


def test_a_result_contains_the_command_line():
    assert (
        command(["/usr/bin/lingon", "bench", "decode", "--data", "my texts"]) == "lingon bench decode --data 'my texts'"
    )
    assert (
        command(["/somewhere/bench/tools/servers/concurrency.py", "--rounds", "5"])
        == "python -m lingon.bench.tools.servers.concurrency --rounds 5"
    )
