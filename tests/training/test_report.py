"""What a run prints: figures, the time that is left, and signatures once."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lingon.scoring import Scores
from lingon.training.evaluation import Validation
from lingon.training.report import Pace, Report

FIGURES = {
    "loss": 2.5,
    "tokens_per_second": 1234.0,
    "epoch": 0.25,
    "gradient_norm": 1.0,
    "learning_rate": 0.1,
    "target_tokens": 20_000.0,
    "seconds": 16.0,
}
SCORES = Scores(7.0, 20.0, "nrefs:1|case:mixed", "nrefs:1|nc:6")


def clock(*seconds: float) -> Iterator[float]:
    yield from seconds


def test_the_time_left_is_the_mean_of_the_steps_since_the_first_line() -> None:
    """The steps of an earlier run, and the setup before the first line, say nothing about the pace."""
    pace = Pace(1000, clock(0.0, 50.0, 60.0, 100.0, 100.0).__next__)
    assert pace.left(500) is None
    assert pace.left(510) == timedelta(seconds=490)
    assert pace.left(550) == timedelta(seconds=450)
    assert pace.elapsed() == timedelta(seconds=100)


def test_nothing_is_left_after_the_last_step() -> None:
    pace = Pace(10, clock(0.0, 0.0, 9.0).__next__)
    pace.left(5)
    assert pace.left(10) == timedelta(0)


def test_lines_without_a_terminal_have_the_tokens_and_the_time_that_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Report(tmp_path, 30, enabled=True) as report:
        report.log_training(10, FIGURES)
        report.log_training(20, FIGURES)
    first, second = capsys.readouterr().err.splitlines()
    known = "epoch 0.25  loss 2.5000  1,234 target tokens/s"
    assert first == f"step 10 of 30  {known}  20.0 k of 60.0 k tokens, 0:00:00 elapsed"
    assert second.startswith(f"step 20 of 30  {known}  20.0 k of 30.0 k tokens, ")
    assert second.endswith(" left")


def test_signatures_are_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Report(tmp_path, 30, enabled=True) as report:
        for step in (10, 20):
            report.log_validation(step, Validation(2.0, {("en", "de"): SCORES}))
    assert capsys.readouterr().err.splitlines() == [
        "step 10  valid  loss 2.00  perplexity 7.39  bleu 7.00  chrf 20.00",
        "BLEU is nrefs:1|case:mixed, chrF nrefs:1|nc:6",
        "step 20  valid  loss 2.00  perplexity 7.39  bleu 7.00  chrf 20.00",
    ]
    assert (tmp_path / "log.jsonl").read_text().count("nrefs:1|case:mixed") == 2


@pytest.mark.parametrize("size", [0, 400, 1500])  # of the log, whose lines have 190 bytes, or of the curves
def test_a_full_disk_is_an_error_that_names_a_file_and_ends_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    def log_twenty_lines() -> None:
        with Report(tmp_path, 100, enabled=True) as report:
            for step in range(20):
                report.log_training(step, FIGURES)

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            log_twenty_lines()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert Path(raised.value.filename).is_relative_to(tmp_path)
    assert "Traceback" not in capsys.readouterr().err


def test_tensorboard_reads_the_curves_of_a_run_and_of_its_resumption(tmp_path: Path) -> None:
    for step in (10, 20):
        with Report(tmp_path, 100, enabled=True) as report:
            report.log_training(step, {**FIGURES, "loss": float(step)})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == sorted(f"train/{name}" for name in FIGURES)
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(10, 10.0), (20, 20.0)]


def test_a_terminal_shows_no_loss_before_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the captured stream for a terminal
    monkeypatch.setenv("COLUMNS", "120")
    with Report(tmp_path, 30, enabled=True) as report:
        report.begin_updates()
    shown = capsys.readouterr().err
    assert "train" in shown
    assert "nan" not in shown
