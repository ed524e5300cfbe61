"""A lack of memory fails the texts concerned and no others, and the engine decodes less together afterwards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import EngineLost, OutOfMemory
from lingon.serving.decoding.job import ScoreJob
from lingon.serving.engine import limits, worker
from lingon.serving.engine.limits import RECOVERY_SECONDS, EngineLimits, MemoryLimits
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.runner import Runner
from tests.support.engine_harness import Recorder, options_for, running_engine
from tests.support.random_models import device_runner, random_runner, random_sources
from tests.support.timing import eventually_blocking


class Rows(Recorder):
    """Keeps the limits of rows that the engine reports."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    def rows_limited(self, rows: int) -> None:
        self.limits.append(rows)


def with_failpoint(text: str, runner: Runner | None = None) -> FaultyRunner:
    return FaultyRunner(runner or random_runner(), Failpoints.parse(text))


def translated(runner: Runner, sources: list[tuple[int, ...]], beam_size: int = 1, **settings: Any) -> list[Any]:
    options = [options_for(runner, source, beam_size=beam_size) for source in sources]
    with running_engine(runner, **settings) as harness:
        return harness.translate(sources, options)


def test_a_step_without_memory_fails_its_texts_and_later_ones_are_translated(tmp_path: Path) -> None:
    sources, rows, full = random_sources(6), Rows(), tmp_path / "full"
    expected = translated(random_runner(), sources)
    with running_engine(with_failpoint(f"step=memory@2?{full}"), rows, max_rows=8) as harness:
        full.touch()
        outcomes = harness.translate(sources, [options_for(random_runner(), source) for source in sources])
        assert all(isinstance(outcome, OutOfMemory) for outcome in outcomes)
        assert harness.translate(sources, [options_for(random_runner(), source) for source in sources]) == expected
        assert harness.engine.healthy
    assert rows.limits == [4]
    assert rows.endings.count("OUT_OF_MEMORY") == 6
    assert rows.state_bytes == 0


def test_a_batch_without_memory_leaves_other_batches_alone(tmp_path: Path) -> None:
    """Two lanes of one worker step in turns: beams of four and greedy search; the second step of all fails."""
    sources, full, runner = random_sources(4), tmp_path / "full", random_runner()
    options = [options_for(runner, source, beam_size=4 if index < 2 else 1) for index, source in enumerate(sources)]
    with running_engine(runner) as harness:
        expected = harness.translate(sources, options)
    with running_engine(with_failpoint(f"step=memory@2?{full}"), max_rows=32) as harness:
        full.touch()
        found = harness.translate(sources, options)
    failed = [index for index, outcome in enumerate(found) if isinstance(outcome, OutOfMemory)]
    assert failed in ([0, 1], [2, 3])
    assert all(found[index] == expected[index] for index in range(4) if index not in failed)


def test_an_encoder_run_without_memory_is_repeated_in_halves() -> None:
    sources, rows = random_sources(8), Rows()
    with running_engine(with_failpoint("encode=memory@2"), rows) as harness:  # the first run is the warm-up
        found = harness.translate(sources, [options_for(random_runner(), source) for source in sources])
    assert found == translated(random_runner(), sources)
    assert rows.limits == []


@pytest.mark.parametrize("place", ["encode", "open"])
def test_texts_fail_while_there_is_no_memory_at_all(place: str, tmp_path: Path) -> None:
    sources, full = random_sources(5), tmp_path / "full"
    with running_engine(with_failpoint(f"{place}=memory?{full}"), max_rows=4) as harness:
        options = [options_for(random_runner(), source) for source in sources]
        full.touch()
        outcomes = harness.translate(sources, options)
        assert all(isinstance(outcome, OutOfMemory) for outcome in outcomes)
        full.unlink()
        assert harness.translate(sources, options) == translated(random_runner(), sources)


def test_a_run_of_the_scorer_without_memory_is_repeated_in_halves() -> None:
    sources, scores = random_sources(4), []
    for runner in (random_runner(), with_failpoint("score=memory@2")):  # the first run is the warm-up
        with running_engine(runner) as harness:
            found: dict[int, Any] = {}
            jobs = [
                ScoreJob(
                    source_ids=source,
                    target_ids=source[:-1],
                    on_done=lambda outcome, index=index, found=found: found.__setitem__(index, outcome),
                )
                for index, source in enumerate(sources)
            ]
            harness.engine.submit(jobs)
            eventually_blocking(lambda found=found: len(found) == len(sources))
            scores.append([found[index].log_probs.tolist() for index in range(len(sources))])
    assert scores[0] == scores[1]


@pytest.mark.parametrize("seed", range(4))
def test_every_text_is_right_or_lacks_memory_wherever_memory_is_missing(seed: int) -> None:
    """Memory is missing in some runs of every kind; sentences of three kinds of batches join and leave."""
    draw, plain = random.Random(seed), (random_runner, device_runner)[seed % 2]()
    sources = random_sources(60, seed=seed)
    options = [options_for(plain, source, beam_size=draw.choice((1, 1, 4))) for source in sources]
    with running_engine(plain, max_rows=16) as harness:
        expected = harness.translate(sources, options)
    places = {"encode": 12, "open": 4, "step": 40}
    rules = [f"{place}=memory@{draw.randrange(3, 3 + last)}" for place, last in places.items() for _ in range(2)]
    with running_engine(with_failpoint(";".join(rules), plain), max_rows=16) as harness:
        found = harness.translate(sources, options)
        assert harness.engine.healthy
        eventually_blocking(lambda: harness.engine.idle)  # a text is answered before it is forgotten
    failed = [index for index, outcome in enumerate(found) if isinstance(outcome, OutOfMemory)]
    assert failed
    assert all(found[index] == expected[index] for index in range(len(sources)) if index not in failed)


def test_a_worker_returns_to_its_limits_when_it_is_idle_a_while_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECOVERY_SECONDS", 0.0)
    rows, full = Rows(), tmp_path / "full"
    with running_engine(with_failpoint(f"step=memory@1?{full}"), rows, max_rows=8) as harness:
        full.touch()
        harness.translate([(5, 2)], [options_for(random_runner(), (5, 2))])
        harness.translate([(5, 2)], [options_for(random_runner(), (5, 2))])
        assert harness.engine.scheduler.most_rows == 8
    assert rows.limits == [4, 8]


def test_an_idle_worker_returns_to_its_limits_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECOVERY_SECONDS", 0.3)
    monkeypatch.setattr(worker, "IDLE_SECONDS", 0.1)
    rows, full = Rows(), tmp_path / "full"
    with running_engine(with_failpoint(f"step=memory@1?{full}"), rows, max_rows=8) as harness:
        full.touch()
        harness.translate([(5, 2)], [options_for(random_runner(), (5, 2))])
        assert harness.engine.scheduler.most_rows == 4
        eventually_blocking(lambda: harness.engine.scheduler.most_rows == 8)
    assert rows.limits == [4, 8]


def test_an_engine_that_is_restarted_has_all_rows_and_reports_them(tmp_path: Path) -> None:
    """Workers of the dead engine that still end their jobs report nothing of the new one."""
    rows, full, dead = Rows(), tmp_path / "full", tmp_path / "dead"
    runner = with_failpoint(f"step=memory?{full};step=raise?{dead}")
    with running_engine(runner, rows, max_rows=8) as harness:
        options = [options_for(random_runner(), (5, 2))]
        full.touch()
        harness.translate([(5, 2)], options)
        full.unlink()
        dead.touch()
        assert isinstance(harness.translate([(5, 2)], options)[0], EngineLost)
        dead.unlink()
        restarted = harness.engine.restarted()
        harness.engine.scheduler.limit_rows(0, 2)
        restarted.stop(timeout=0)
    assert rows.limits == [4, 8]


def test_limits_are_halved_and_restored() -> None:
    found = MemoryLimits(EngineLimits(max_rows=6, max_batch_tokens=100))
    assert not found.may_rise(now=1e9)
    found.halve_rows(now=10.0)
    found.halve_tokens(now=20.0)
    assert (found.rows, found.batch_tokens) == (3, 50)
    for _ in range(9):
        found.halve_rows(now=20.0)
        found.halve_tokens(now=20.0)
    assert (found.rows, found.batch_tokens) == (1, 1)
    assert not found.may_rise(now=20.0 + RECOVERY_SECONDS)
    assert found.may_rise(now=20.1 + RECOVERY_SECONDS)
    found.restore()
    assert (found.rows, found.batch_tokens) == (6, 100)
    assert not found.may_rise(now=1e9)
