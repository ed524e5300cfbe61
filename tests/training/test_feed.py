"""Batches that worker processes make ahead."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import time
from itertools import islice
from pathlib import Path

import pytest
import torch

from lingon.errors import CorpusError, LingonError
from lingon.training.checkpoint import TrainingProgress
from tests.support.repository import ROOT
from tests.support.training_runs import one_thread, same, train, train_command, weights_of, write_config

FEW = {"max_steps": 12, "warmup_steps": 5, "cooldown_steps": 0, "batch_tokens": 300, "valid_every": 6, "log_every": 1}


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_workers_make_the_batches_that_the_run_makes_alone(corpus: Path, alpha: float) -> None:
    found = []
    for workers in (0, 2):
        config = write_config(corpus, tokenizer={"sampling_alpha": alpha}, training={**FEW, "workers": workers})
        trainer = train(config, corpus / f"run-{workers}")
        made = islice(trainer.feed().updates(TrainingProgress()), 30)
        found.append([tensor for _, batches in made for batch in batches for tensor in batch[:4]])
        weights = weights_of(trainer)
    assert len(found[0]) == len(found[1])
    assert all(map(torch.equal, *found))
    assert same(
        weights,
        weights_of(
            train(
                write_config(corpus, **{"tokenizer": {"sampling_alpha": alpha}, "training": {**FEW, "workers": 0}}),
                corpus / "alone",
            )
        ),
    )


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_of_a_run_saves_it_and_leaves_no_worker(
    corpus: Path, number: signal.Signals, exit_code: int
) -> None:
    write_config(corpus, training={**FEW, "max_steps": 100_000, "valid_every": 100_000, "workers": 2})
    command = train_command(corpus / "config.toml", "--output", corpus / "run")
    run = subprocess.Popen(
        command, cwd=ROOT, env=one_thread(), start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    log = corpus / "run" / "log.jsonl"
    while run.poll() is None and (not log.exists() or log.read_text().count("\n") < 20):
        time.sleep(0.02)
    os.killpg(run.pid, number)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == exit_code, errors
    assert errors.splitlines()[-1].startswith("lingon: stopped by a signal after step ")
    assert "Traceback" not in errors
    while _is_alive(run.pid):  # what starts the workers ends when it reads that the run has gone
        time.sleep(0.05)


def test_a_shard_that_a_worker_cannot_read_ends_a_run_in_one_line_that_names_it(corpus: Path) -> None:
    trainer = train(write_config(corpus, training={**FEW, "workers": 1}), corpus / "run")
    (shard,) = (corpus / "run" / "corpus").glob("*.arrow")
    shard.unlink()  # this process has mapped it
    shard.write_bytes(b"no Arrow")
    with pytest.raises(CorpusError, match=rf"^{re.escape(str(shard))}: no shard of a prepared corpus: [^\n]*$"):
        list(islice(trainer.feed().updates(TrainingProgress()), 3))


def test_a_killed_worker_ends_a_run_in_one_line(corpus: Path) -> None:
    trainer = train(write_config(corpus, training={**FEW, "workers": 1}), corpus / "run")
    updates = trainer.feed().updates(TrainingProgress())
    next(updates)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(LingonError, match=r"^a process that makes batches has ended: [^\n]*$"):
        list(islice(updates, 100))


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
