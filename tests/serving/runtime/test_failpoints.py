"""Failpoints: their rules, when they fire, how the engine reacts, and that only a server for testing takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lingon.errors import EngineFault, EngineLost, SettingsError
from lingon.serving.decoding.job import Options
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner, InjectedFault
from lingon.serving.runtime.runner import BatchShape, BeamBuffers, GreedyBuffers
from lingon.serving.settings import load
from lingon.text import EOS
from tests.support.echo_engine import EchoRunner
from tests.support.engine_harness import running_engine
from tests.support.timing import eventually_blocking


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("step", "'step' is not PLACE=ACTION"),
        ("step=explode", "step=explode is none of .*step=raise"),
        ("nowhere=raise", "nowhere=raise is none of"),
        ("step=raise@x", "is not PLACE=ACTION"),
    ],
)
def test_an_invalid_rule_is_refused(rule: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Failpoints.parse(f"encode=raise; {rule}")


def test_only_a_server_for_testing_takes_failpoints() -> None:
    with pytest.raises(SettingsError, match="failpoints are for tests alone"):
        load({}, {"LINGON_FAILPOINTS": "step=raise"}, None)
    assert load({}, {"LINGON_FAILPOINTS": "step=raise", "LINGON_TESTING": "1"}, None).settings.testing


def test_a_failpoint_fires_at_its_nth_pass_while_its_file_exists(tmp_path: Path) -> None:
    switch = tmp_path / "on"
    failpoints = Failpoints.parse(f"step=raise@2?{switch}")
    for _ in range(5):
        failpoints.trigger("step")
    switch.touch()
    failpoints.trigger("step")
    failpoints.trigger("encode")
    with pytest.raises(InjectedFault):
        failpoints.trigger("step")
    failpoints.trigger("step")


def test_a_step_that_raises_ends_the_engine_and_its_jobs(caplog: pytest.LogCaptureFixture) -> None:
    runner = FaultyRunner(EchoRunner(), Failpoints.parse("step=raise@4"))  # Steps 1 and 2 warm the engine up.
    with running_engine(runner) as harness:
        outcome = harness.translate([(5, 6, 7, EOS)], [Options()])[0]
        assert isinstance(outcome, EngineLost)
        eventually_blocking(lambda: not harness.engine.healthy)
    assert "the engine died" in caplog.text


def test_a_row_of_nan_fails_only_its_own_text() -> None:
    with running_engine(FaultyRunner(EchoRunner(), Failpoints.parse("step=nan@4"))) as harness:
        outcomes = harness.translate([(5, 6, 7, EOS), (8, 9, 10, EOS)], [Options()] * 2)
    assert isinstance(outcomes[0], EngineFault)
    assert outcomes[1][0].tokens == (8, 9, 10)


def test_step_seconds_shows_that_an_engine_hangs(tmp_path: Path) -> None:
    switch = tmp_path / "hang"
    with running_engine(FaultyRunner(EchoRunner(), Failpoints.parse(f"step=hang?{switch}"))) as harness:
        assert harness.engine.step_seconds == 0
        switch.touch()
        harness.engine.submit([harness.job((5, EOS))])
        eventually_blocking(lambda: harness.engine.step_seconds > 0.1)
        assert harness.engine.healthy
        switch.unlink()
        assert harness.collect(1)[0][0].tokens == (5,)
        eventually_blocking(lambda: harness.engine.step_seconds == 0)


def test_fail_all_ends_every_job_while_the_engine_hangs(tmp_path: Path) -> None:
    switch = tmp_path / "hang"
    with running_engine(FaultyRunner(EchoRunner(), Failpoints.parse(f"step=hang?{switch}")), max_rows=1) as harness:
        switch.touch()
        harness.engine.submit([harness.job((5, EOS), index) for index in range(3)])
        eventually_blocking(lambda: harness.engine.step_seconds > 0.01)
        harness.engine.fail_all()
        assert all(isinstance(outcome, EngineLost) for outcome in harness.collect(3).values())
        with pytest.raises(EngineLost):
            harness.engine.submit([harness.job((5, EOS))])
        switch.unlink()
        eventually_blocking(lambda: harness.engine.step_seconds == 0)
        assert harness.done.empty(), "no job ends twice"


def test_poison_needs_buffers_that_can_be_poisoned() -> None:
    buffers = FaultyRunner(EchoRunner(), Failpoints.parse("slot=poison")).open(BatchShape(1, 1, 32, 10))
    with pytest.raises(Exception, match="cannot be poisoned"):
        buffers.place(0, {"source": np.array([[5, EOS]])}, 0)


def test_buffers_of_other_runners_with_failpoints_can_do_no_more_than_these() -> None:
    buffers = FaultyRunner(EchoRunner(), Failpoints.parse("step=nan@3")).open(BatchShape(1, 1, 32, 10))
    assert not isinstance(buffers, GreedyBuffers)
    assert not isinstance(buffers, BeamBuffers)
