"""Corpora prepared by the workers of a Ray cluster, which are killed, as is the driver."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import ENVIRONMENT, command_line, descendants, lingon
from tests.support.repository import FULL, scaled

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.skipif(find_spec("ray") is None, reason="foreign: needs the extra ray, which make e2e installs"),
]

WORKER = b"ray::TaskActor"
PAIRS = 150_000  # three shards of one corpus, and two of the other
CONFIG = """
[data]
source_language = "en"
target_language = "de"
valid = { source = "v.en", target = "v.de" }
[[data.train]]
source = "a.en"
target = "a.de"
[[data.train]]
file = "b.tsv"
[tokenizer]
vocab_size = 300
sample_pairs = 2000
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, its config, and the corpus that processes of this machine have prepared."""
    folder, draw = tmp_path_factory.mktemp("ray"), random.Random(3)
    lines = [" ".join(str(draw.randrange(100)) for _ in range(draw.randint(2, 6))) for _ in range(PAIRS)]
    text, rest, valid = lines[:-70_000], lines[-70_000:-10], lines[-10:]
    for name, part in (("a", text), ("v", valid)):
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in part))
        (folder / f"{name}.de").write_text("".join(f"{line[::-1]}\n" for line in part))
    (folder / "b.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in rest))
    (folder / "config.toml").write_text(CONFIG)
    lingon("prepare", str(folder / "config.toml"), "--output", str(folder / "local"), "--workers", "1")
    return folder


def command(folder: Path, output: str) -> list[str]:
    config = str(folder / "config.toml")
    return ["prepare", config, "--output", str(folder / output), "--engine", "ray", "--workers", "1..2"]


def files_of(folder: Path) -> dict[str, bytes]:
    assert not list(folder.glob(".*"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_workers_write_the_bytes_of_processes_of_this_machine(folder: Path) -> None:
    lingon(*command(folder, "ray"))
    assert files_of(folder / "ray") == files_of(folder / "local")


def test_the_error_of_a_worker_is_one_line(folder: Path) -> None:
    (folder / "wrong").mkdir()
    for path in folder.glob("*.*"):
        (folder / "wrong" / path.name).write_bytes(path.read_bytes())
    (folder / "wrong" / "b.tsv").write_text("one column\n")
    said = lingon(*command(folder / "wrong", "corpus"), code=1)
    assert "lingon: error: " in said.splitlines()[-1]
    assert "b.tsv:1: must have 2 columns or more" in said.splitlines()[-1]


def _kill_a_worker(driver: int) -> None:
    """Kill a worker of the cluster that a driver has started, if it has one."""
    for process in descendants(driver):
        if WORKER in command_line(process):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                return


def _written(output: Path) -> int:
    return len([*output.glob("*.arrow"), *output.glob(".work/*.arrow")])


@pytest.mark.timeout(3600 if FULL else 300)
def test_after_kills_at_random_times_a_corpus_has_the_same_bytes(folder: Path) -> None:
    """A worker is replaced by Ray, and its task done again. The command that follows a killed driver goes on."""
    chance, output = random.Random(5), folder / "killed"
    for number in range(scaled(4, 20)):
        arguments = [sys.executable, "-m", "lingon", *command(folder, "killed")]
        with subprocess.Popen(
            arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as ran:
            done = _written(output)
            while ran.poll() is None and _written(output) == done:
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 0.5))
            if number % 2:
                ran.kill()
            else:
                _kill_a_worker(ran.pid)
            said, _ = ran.communicate(timeout=150)
        assert number % 2 or ran.returncode == 0, said
        if (output / "manifest.json").exists():
            assert files_of(output) == files_of(folder / "local")
            for path in output.iterdir():  # let later rounds have work to do
                path.unlink()
    lingon(*command(folder, "killed"))
    assert files_of(output) == files_of(folder / "local")
