"""What can go wrong on purpose, when, and where it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lingon.errors import EngineFault, EngineLost, SettingsError
from lingon.serving.decoding.job import Options
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner, InjectedFault
from lingon.serving.runtime.runner import BatchShape
from lingon.serving.settings import load
from lingon.text import EOS
from tests.support.echo_engine import EchoRunner
from tests.support.engine_harness import running_engine
from tests.support.eventually import eventually_blocking


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("step", "'step' is not PLACE=ACTION"),
        ("step=explode", "step=explode is none of .*step=raise"),
        ("nowhere=raise", "nowhere=raise is none of"),
        ("step=raise@x", "is not PLACE=ACTION"),
    ],
)
def test_what_cannot_be_read_is_refused(rule: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        Failpoints.parse(f"encode=raise; {rule}")


def test_a_server_that_is_relied_on_takes_no_failpoints() -> None:
    with pytest.raises(SettingsError, match="failpoints are for tests alone"):
        load({}, {"LINGON_FAILPOINTS": "step=raise"}, None)
    assert load({}, {"LINGON_FAILPOINTS": "step=raise", "LINGON_TESTING": "1"}, None).settings.testing


def test_a_fault_happens_at_its_time_and_while_its_file_is_there(tmp_path: Path) -> None:
    switch = tmp_path / "on"
    faults = Failpoints.parse(f"step=raise@2?{switch}")
    for _ in range(5):
        faults.trigger("step")
    switch.touch()
    faults.trigger("step")
    faults.trigger("encode")
    with pytest.raises(InjectedFault):
        faults.trigger("step")
    faults.trigger("step")


def test_a_step_that_fails_ends_the_engine_and_its_jobs_alone_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    with running_engine(
        FaultyRunner(EchoRunner(), Failpoints.parse("step=raise@4"))
    ) as harness:  # two steps warm it up
        outcome = harness.translate([(5, 6, 7, EOS)], [Options()])[0]
        assert isinstance(outcome, EngineLost)
        eventually_blocking(lambda: not harness.engine.healthy)
    assert "the engine died" in caplog.text


def test_a_row_without_numbers_fails_its_text_alone() -> None:
    with running_engine(FaultyRunner(EchoRunner(), Failpoints.parse("step=nan@4"))) as harness:
        outcomes = harness.translate([(5, 6, 7, EOS), (8, 9, 10, EOS)], [Options()] * 2)
    assert isinstance(outcomes[0], EngineFault)
    assert outcomes[1][0].tokens == (8, 9, 10)


def test_an_engine_that_hangs_can_be_told_by_how_long_its_turn_lasts(tmp_path: Path) -> None:
    switch = tmp_path / "hang"
    with running_engine(FaultyRunner(EchoRunner(), Failpoints.parse(f"step=hang?{switch}"))) as harness:
        assert harness.engine.turn_seconds == 0
        switch.touch()
        harness.engine.submit([harness.job((5, EOS))])
        eventually_blocking(lambda: harness.engine.turn_seconds > 0.1)
        assert harness.engine.healthy
        switch.unlink()
        assert harness.collect(1)[0][0].tokens == (5,)
        eventually_blocking(lambda: harness.engine.turn_seconds == 0)


def test_who_is_abandoned_is_answered_while_the_engine_hangs(tmp_path: Path) -> None:
    switch = tmp_path / "hang"
    with running_engine(FaultyRunner(EchoRunner(), Failpoints.parse(f"step=hang?{switch}")), max_rows=1) as harness:
        switch.touch()
        harness.engine.submit([harness.job((5, EOS), index) for index in range(3)])
        eventually_blocking(lambda: harness.engine.turn_seconds > 0.01)
        harness.engine.abandon()
        assert all(isinstance(outcome, EngineLost) for outcome in harness.collect(3).values())
        with pytest.raises(EngineLost):
            harness.engine.submit([harness.job((5, EOS))])
        switch.unlink()
        eventually_blocking(lambda: harness.engine.turn_seconds == 0)
        assert harness.done.empty(), "nobody is answered twice"


def test_poison_asks_for_buffers_that_can_be_poisoned() -> None:
    buffers = FaultyRunner(EchoRunner(), Failpoints.parse("slot=poison")).open(BatchShape(1, 1, 32, 10))
    with pytest.raises(Exception, match="cannot be poisoned"):
        buffers.place(0, {"source": np.array([[5, EOS]])}, 0)
