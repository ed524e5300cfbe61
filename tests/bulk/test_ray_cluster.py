"""Bulk translation by the workers of a Ray cluster, which are killed, as is the driver."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from lingon.bulk import Translate, plan
from lingon.bulk.runs import LocalEngine, run
from lingon.bulk.shards import RECORDS
from tests.support.bulk import BACKEND, LINES, MIXED, Silent, parts, translator, write_parquet
from tests.support.processes import ENVIRONMENT, command_line, descendants, lingon
from tests.support.repository import FULL, scaled

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.skipif(find_spec("ray") is None, reason="foreign: needs the extra ray, which make e2e installs"),
]

VICTIMS = {"worker": b"ray::ShardActor", "raylet": b"ray/raylet/raylet", "driver": b""}
"""The processes of a run that are killed, and what their command lines have."""
TEXTS = [*MIXED, *LINES[110:300]]


@pytest.fixture(scope="module")
def translate() -> Iterator[Translate]:
    with translator() as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, translate: Translate) -> Path:
    """A folder with input, and the output of a run in this process."""
    folder = tmp_path_factory.mktemp("ray")
    write_parquet(folder / "in" / "a.parquet", TEXTS, row_group_size=50)
    write_parquet(folder / "in" / "b.parquet", TEXTS[:40])
    work = plan(str(folder / "in"), str(folder / "local"), translate, shard_rows=15)
    run(work, LocalEngine(), translate, Silent())
    return folder


def command(folder: Path, output: str, *more: str) -> list[str]:
    options = ["--into", "de", "--beam-size", "1", "--shard-rows", "15", "--model", str(BACKEND.model)]
    return ["bulk", str(folder / "in"), str(folder / output), *options, "--engine", "ray", "--workers", "1..2", *more]


def test_workers_write_the_bytes_of_a_run_in_one_process(folder: Path) -> None:
    assert "with an error, in 23 files" in lingon(*command(folder, "ray"))
    assert parts(folder / "ray") == parts(folder / "local")


def test_the_error_of_a_worker_is_one_line(folder: Path) -> None:
    said = lingon(*command(folder, "failing", "--errors", "fail"), code=1)
    assert "lingon: error: " in said.splitlines()[-1]
    assert "a.parquet: row 40: the text is null" in said.splitlines()[-1]


def _kill(victim: str, driver: subprocess.Popen[str]) -> None:
    """End the driver, or one of its processes, at once."""
    if victim == "driver":
        driver.kill()
        return
    found = [each for each in descendants(driver.pid) if VICTIMS[victim] in command_line(each)]
    assert found or driver.poll() is not None, f"a run has no {victim}"
    for process in found[:1]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.timeout(3600 if FULL else 300)
def test_after_kills_at_random_times_a_run_ends_with_the_same_bytes(folder: Path) -> None:
    """A worker or a raylet is replaced by Ray, or ends the run; a driver ends it. The next run goes on."""
    chance, output = random.Random(5), folder / "killed"
    for number in range(scaled(3, 20)):
        arguments = [sys.executable, "-m", "lingon", *command(folder, "killed")]
        done = len(list((output / RECORDS).glob("*"))) if output.exists() else 0
        with subprocess.Popen(
            arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as ran:
            while ran.poll() is None and len(list((output / RECORDS).glob("*"))) <= done:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 0.3))
            _kill(list(VICTIMS)[number % 3], ran)
            ran.communicate(timeout=150)
        if number % 3 == 2:  # let later rounds have work to do
            for path in list((output / RECORDS).glob("*"))[::2]:
                path.unlink()
    lingon(*command(folder, "killed"))
    assert parts(output) == parts(folder / "local")
    assert not list(output.rglob(".*"))


def test_ray_data_maps_it_over_batches(translate: Translate) -> None:
    script = f"""
import logging, ray, pyarrow as pa, lingon.ray
from lingon.cli.backend import BackendOptions
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
table = pa.table({{"id": [1, 2, 3], "text": {[*LINES[:2], None]!r}}})
arguments = dict(into="de", beam_size=1, backend=BackendOptions(model={BACKEND.model!r}, engines=1, threads=1))
found = ray.data.from_arrow(table).map_batches(lingon.ray.Translate, fn_constructor_kwargs=arguments,
    batch_format="pyarrow", compute=ray.data.ActorPoolStrategy(size=1)).take_all()
print(sorted((row["id"], row["de"], row["de_error"]) for row in found))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    cells, _ = translate.cells([*LINES[:2], None])
    expected = [(number, cell.text, cell.error) for number, cell in enumerate(cells, start=1)]
    assert said.stdout.splitlines()[-1] == str(expected), said.stderr[-2000:]
