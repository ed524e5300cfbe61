"""The log of a training run, as the benchmarks read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.bench.trained_runs import read_log
from lingon.errors import SettingsError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed after step 20 and went on from step 10."""
    lines = [{"kind": "train", "step": step, "loss": 9 / step} for step in (10, 20)]
    lines += [{"kind": "train", "step": step, "loss": 8 / step} for step in (20, 30)]
    lines += [{"kind": "valid", "step": step, "perplexity": 50 / step, "bleu": step} for step in (10, 30)]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return tmp_path


def test_of_steps_done_twice_the_last_is_shown(run: Path) -> None:
    assert [line["loss"] for line in read_log(run, "train")] == [9 / 10, 8 / 20, 8 / 30]
    assert [line["bleu"] for line in read_log(run, "valid")] == [10, 30]


def test_a_last_line_torn_by_a_kill_is_passed_over(run: Path) -> None:
    whole = read_log(run, "train")
    with (run / "log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert read_log(run, "train") == whole


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"log\.jsonl: No such file"):
        read_log(tmp_path, "train")
