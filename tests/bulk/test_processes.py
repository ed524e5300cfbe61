"""A run in several processes writes what one process writes, and leaves no process behind, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lingon.bulk import Translate, missing, plan, runs
from lingon.bulk.planning import Plan, Shard
from lingon.bulk.runs import LocalEngine, ProcessEngine, run
from lingon.bulk.shards import Record
from lingon.errors import LingonError
from tests.support.bulk import BACKEND, LINES, MIXED, Silent, parts, translator, write_parquet
from tests.support.processes import ENVIRONMENT, command_line, descendants, lingon


class Rows(Silent):
    """Counts the rows of which it is told."""

    def __init__(self) -> None:
        self.count = 0

    def rows(self, count: int) -> None:
        self.count += count


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_parquet(tmp_path / "in.parquet", MIXED)
    return tmp_path / "in.parquet"


def _wait_until_gone(processes: Sequence[int]) -> None:
    end = time.monotonic() + 60
    while left := [each for each in processes if Path(f"/proc/{each}/exe").exists()]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)


def test_processes_write_the_bytes_of_one_process_and_tell_of_every_row(source: Path, translate: Translate) -> None:
    alone, together = source.parent / "alone", source.parent / "together"
    run(plan(str(source), str(alone), translate, shard_rows=25), LocalEngine(), translate, Silent())
    watch = Rows()
    with translator() as own:
        run(plan(str(source), str(together), own, shard_rows=25), ProcessEngine(3), own, watch)
    assert parts(together) == parts(alone)
    assert watch.count == len(MIXED)
    assert not [each for each in descendants(os.getpid()) if b"spawn_main" in command_line(each)]


def test_an_error_of_a_row_ends_the_run_and_is_told(source: Path) -> None:
    with translator() as own:
        work = plan(str(source), str(source.parent / "out"), own, shard_rows=25, fail_on_errors=True)
        with pytest.raises(LingonError, match=r"in\.parquet: row 40: the text is null"):
            run(work, ProcessEngine(2), own, Silent())
    assert 1 in [shard.number for shard in missing(work)]


def test_the_death_of_a_process_ends_the_run_and_the_next_one_goes_on(source: Path, translate: Translate) -> None:
    write_parquet(source, LINES[:90] * 3)
    folder = source.parent / "out"
    command = [sys.executable, "-m", "lingon", "bulk", str(source), str(folder), "--model", str(BACKEND.model)]
    command += ["--shard-rows", "25", "--workers", "2", "--beam-size", "1", "--into", "de"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        killed = _workers(ran.pid)
        os.kill(killed[0], signal.SIGKILL)
        _, said = ran.communicate(timeout=120)
        assert ran.returncode == 1
        assert "a process of this run was ended" in said
        assert "--workers N" in said
        assert "Traceback" not in said
    _wait_until_gone(killed)
    lingon(*command[3:])
    alone = source.parent / "alone"
    run(plan(str(source), str(alone), translate, shard_rows=25), LocalEngine(), translate, Silent())
    assert parts(folder) == parts(alone)


def test_no_process_outlives_a_run_that_is_killed(source: Path) -> None:
    write_parquet(source, LINES[:90] * 3)
    command = [sys.executable, "-m", "lingon", "bulk", str(source), str(source.parent / "out")]
    command += ["--model", str(BACKEND.model), "--shard-rows", "25", "--workers", "2", "--beam-size", "1"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        workers = _workers(ran.pid)
        ran.send_signal(signal.SIGKILL)
    _wait_until_gone(workers)


def _workers(process: int) -> list[int]:
    """Both workers of a run, when they are there."""
    end = time.monotonic() + 60
    while True:
        found = [each for each in descendants(process) if b"spawn_main" in command_line(each)]
        if len(found) == 2:
            return found
        assert time.monotonic() < end, "the workers were not started"
        time.sleep(0.02)


class Alone(LocalEngine):
    """Stands for the engine of one process, and does nothing."""

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: object) -> Iterator[Record]:
        raise LingonError("alone")


@pytest.mark.parametrize(
    ("free", "shard_rows"),
    [pytest.param(1 << 20, 25, id="no memory for a second model"), pytest.param(1 << 40, 1000, id="one shard")],
)
def test_one_process_is_enough_where_more_would_be_idle_or_too_large(
    source: Path, translate: Translate, monkeypatch: pytest.MonkeyPatch, free: int, shard_rows: int
) -> None:
    monkeypatch.setattr(runs, "free_bytes", lambda: free)
    monkeypatch.setattr(runs, "usable_cores", lambda: 8)
    monkeypatch.setattr(runs, "LocalEngine", Alone)
    work = plan(str(source), str(source.parent / "out"), translate, shard_rows=shard_rows)
    with pytest.raises(LingonError, match="alone"):
        run(work, ProcessEngine(), translate, Silent())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "1..2"], "--workers must be one number without --engine ray, got 1..2"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--address", "auto"], "--address needs --engine ray"),
    ],
)
def test_options_that_this_machine_does_not_take_are_refused(options: list[str], message: str) -> None:
    assert message in lingon("bulk", "in.txt", "out", *options, code=2)
