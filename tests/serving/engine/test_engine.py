"""An engine with threads: faults end the right jobs, dead engines restart, and threads end with the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from lingon.errors import Cancelled, Draining, EngineFault, EngineLost, Expired, OutOfMemory, QueueFull
from lingon.serving.decoding.job import Options, Sampling
from lingon.serving.decoding.rules import Progress, Rules, TokenLimits
from lingon.serving.engine.engine import Engine, any_worker_alive, worker_threads
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.models.registry import Loaded, ServedModel
from lingon.serving.models.supervisor import Supervisor
from lingon.text import EOS
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, details, failure, running, vocabulary
from tests.support.engine_harness import EngineHarness, Recorder, running_engine
from tests.support.timing import eventually, eventually_blocking


def test_a_full_queue_admits_all_jobs_of_a_request_or_none() -> None:
    runner = EchoRunner()
    with running_engine(runner, max_queue_texts=5, max_rows=1) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((5, EOS), 0)])
        time.sleep(0.05)  # it is admitted and waits at the gate of the runner
        harness.engine.submit([harness.job((5, EOS), index) for index in range(1, 5)])
        with pytest.raises(QueueFull):
            harness.engine.submit([harness.job((5, EOS), 98), harness.job((5, EOS), 99)])
        runner.gate.set()
        assert sorted(harness.collect(5)) == [0, 1, 2, 3, 4]
        assert harness.done.empty()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cancelled_job_is_removed_at_the_next_step_and_the_others_continue(workers: int) -> None:
    runner = EchoRunner(endless=True)
    with running_engine(runner, workers=workers) as harness:
        runner.gate.clear()
        jobs = [harness.job((5, 6, EOS), index, options=Options(max_output_tokens=40)) for index in range(3)]
        harness.engine.submit(jobs)
        time.sleep(0.05)
        harness.engine.cancel(jobs[1:2])
        runner.gate.set()
        first = harness.done.get(timeout=10)
        rest = harness.collect(2)
    assert first[0] == 1
    assert isinstance(first[1], Cancelled)
    assert all(len(row[0].tokens) == 40 and not row[0].finished for row in rest.values())


def test_queued_and_running_jobs_end_when_they_expire() -> None:
    runner, recorder = EchoRunner(endless=True), Recorder()
    with running_engine(runner, recorder, max_rows=1) as harness:
        runner.gate.clear()
        soon = time.monotonic() + 0.05
        harness.engine.submit([harness.job((5, EOS), index, deadline=soon) for index in range(3)])
        time.sleep(0.1)
        runner.gate.set()
        outcomes = harness.collect(3)
    assert all(isinstance(outcome, Expired) for outcome in outcomes.values())
    assert runner.encoded <= 2, "the warm-up and the running job; a job that expires in the queue is never encoded"
    assert recorder.endings == ["DEADLINE_EXCEEDED"] * 3


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_text_whose_scores_are_nan_fails_alone(beam_size: int) -> None:
    with running_engine(EchoRunner(faulty=9)) as harness:
        sources = [(5, 6, EOS), (5, 9, EOS), (7, EOS)]
        outcomes = harness.translate(sources, [Options(beam_size=beam_size)] * 3)
    assert isinstance(outcomes[1], EngineFault)
    assert [outcomes[0][0].tokens, outcomes[2][0].tokens] == [(5, 6), (7,)]


def test_the_smallest_temperature_of_the_api_gives_the_likeliest_tokens() -> None:
    sampling = Sampling(temperature=1e-45)
    with running_engine(EchoRunner()) as harness:
        (found,) = harness.translate([(5, 6, EOS)], [Options(sampling=sampling, max_output_tokens=40)])
    assert found[0].tokens == (5, 6)


class BrokenRules(Rules):
    """Rules whose work fails at the second token."""

    def limits(self, progress: Progress, tokens: Sequence[int], generated: int, remaining: int) -> TokenLimits:
        if generated:
            raise IndexError("planted: canary text in a message")
        return super().limits(progress, tokens, generated, remaining)


class RulesThatCannotBegin(Rules):
    """Rules whose work fails when a sentence begins."""

    def start(self, prefix: Sequence[int]) -> Progress:
        raise ValueError("planted: canary text in a message")


class RulesThatCannotRead(Rules):
    """Rules whose work fails when a token is chosen."""

    def read(self, progress: Progress, token: int) -> Progress:
        raise KeyError("planted: canary text in a message")


class RulesWithoutMemory(Rules):
    """Rules for whose work there is no memory."""

    def limits(self, progress: Progress, tokens: Sequence[int], generated: int, remaining: int) -> TokenLimits:
        raise MemoryError


def options_with(kind: type[Rules], **options: Any) -> Options:
    words = vocabulary().rules(min_tokens=2).of_part(0)
    return Options(rules=kind(spelling=words.spelling, vocab=words.vocab, min_tokens=2), **options)


def broken_on_tokens(token: int) -> None:
    raise RuntimeError("planted")


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("kind", [BrokenRules, RulesThatCannotBegin, RulesThatCannotRead])
def test_a_text_whose_own_work_fails_in_numpy_fails_alone_with_a_traceback_in_the_log(
    kind: type[Rules], beam_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with running_engine(EchoRunner()) as harness:
        others = options_with(Rules, beam_size=beam_size)
        options = [others, options_with(kind, beam_size=beam_size), Options(beam_size=beam_size)]
        outcomes = harness.translate([(20, 21, EOS), (22, 23, EOS), (24, EOS)], options)
        again = harness.translate([(20, 21, EOS)], [others])
        assert harness.engine.healthy
    assert isinstance(outcomes[1], EngineFault)
    assert "canary" not in str(outcomes[1])
    assert [outcomes[0][0].tokens, outcomes[2][0].tokens, again[0][0].tokens] == [(20, 21), (24,), (20, 21)]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["decoding a text failed"]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_text_for_whose_own_work_there_is_no_memory_ends_alone_and_may_be_sent_again(beam_size: int) -> None:
    with running_engine(EchoRunner()) as harness:
        options = [Options(beam_size=beam_size), options_with(RulesWithoutMemory, beam_size=beam_size)]
        outcomes = harness.translate([(20, EOS), (22, 23, EOS)], options)
    assert outcomes[0][0].tokens == (20,)
    assert isinstance(outcomes[1], OutOfMemory)


def test_a_text_whose_tokens_cannot_be_streamed_fails_alone() -> None:
    with running_engine(EchoRunner()) as harness:
        streamed = harness.job((20, 21, EOS), 0, on_tokens=broken_on_tokens)
        harness.engine.submit([streamed, harness.job((22, EOS), 1)])
        outcomes = harness.collect(2)
        assert harness.engine.healthy
    assert isinstance(outcomes[0], EngineFault)
    assert outcomes[1][0].tokens == (22,)


def test_a_dead_engine_fails_all_its_jobs_and_accepts_no_more(caplog: pytest.LogCaptureFixture) -> None:
    runner = EchoRunner()
    with running_engine(runner, max_rows=2) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((5, 6, 7, EOS), index) for index in range(5)])
        runner.dies_at = runner.steps + 2
        runner.gate.set()
        outcomes = harness.collect(5)
        assert all(isinstance(outcome, EngineLost) for outcome in outcomes.values())
        assert not any("canary" in str(outcome) for outcome in outcomes.values())
        eventually_blocking(lambda: not harness.engine.healthy)
        with pytest.raises(EngineLost):
            harness.engine.submit([harness.job((5, EOS))])
    assert "planted" in caplog.text


def test_texts_that_arrive_together_are_spread_evenly_over_the_workers() -> None:
    runner, recorder = EchoRunner(), Recorder()
    with running_engine(runner, recorder, workers=2) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((5, 6, EOS), index) for index in range(32)])
        runner.gate.set()
        harness.collect(32)
    assert recorder.live[:2] == [(16, 16), (16, 16)]


def test_a_text_starts_at_once_on_an_idle_worker() -> None:
    runner = EchoRunner()
    with running_engine(runner, workers=2, max_rows=2) as harness:
        runner.gate.clear()
        before = runner.encoded
        for index in range(2):
            harness.engine.submit([harness.job((5, EOS), index)])
            eventually_blocking(lambda count=index + 1: runner.encoded == before + count)
        runner.gate.set()
        harness.collect(2)


def test_a_worker_that_dies_fails_its_own_jobs_and_the_queued_ones_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = EchoRunner()
    with running_engine(runner, workers=2, max_rows=4) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((5, 6, 7, EOS), index) for index in range(6)])
        eventually_blocking(lambda: runner.encoded >= 4)
        runner.dies_at = runner.steps + 1
        runner.gate.set()
        outcomes = harness.collect(6)
        eventually_blocking(lambda: not harness.engine.healthy)
        with pytest.raises(EngineLost):
            harness.engine.submit([harness.job((5, EOS))])
    failed = [index for index, outcome in outcomes.items() if isinstance(outcome, EngineLost)]
    assert len(failed) == 4
    assert {4, 5} <= set(failed)
    assert "planted" in caplog.text


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopping_engine_finishes_its_jobs_and_refuses_new_ones(workers: int) -> None:
    runner = EchoRunner()
    with running_engine(runner, workers=workers) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((*range(5, 20), EOS), index) for index in range(4)])
        stopped = threading.Thread(target=lambda: harness.done.put((99, harness.engine.stop(timeout=10))))
        stopped.start()
        eventually_blocking(lambda: _refuses(harness))
        runner.gate.set()
        outcomes = harness.collect(5)
    assert outcomes.pop(99) is True
    assert all(outcome[0].tokens == tuple(range(5, 20)) for outcome in outcomes.values())


def _refuses(harness: EngineHarness) -> bool:
    try:
        harness.engine.submit([])
    except Draining:
        return True
    return False


def test_stopping_cancels_jobs_that_do_not_finish_in_time() -> None:
    runner = EchoRunner(endless=True)
    with running_engine(runner) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((5, EOS), 0, options=Options(max_output_tokens=200))])
        threading.Timer(0.2, runner.gate.set).start()
        assert harness.engine.stop(timeout=0.05) is False
        assert isinstance(harness.collect(1)[0], Cancelled)


async def test_jobs_of_another_worker_of_a_dead_engine_fail_too() -> None:
    runner = EchoRunner(endless=True, delay=0.05)
    with running_engine(runner, workers=2, max_rows=4) as harness:
        runner.gate.clear()
        before = runner.encoded
        harness.engine.submit(
            [harness.job((5, 6, 7, EOS), index, options=Options(max_output_tokens=400)) for index in (0, 1)]
        )
        eventually_blocking(lambda: runner.encoded == before + 2)
        runner.dies_at = runner.steps + 1
        runner.gate.set()
        assert isinstance(harness.done.get(timeout=10)[1], EngineLost)
        translator: Any = SimpleNamespace(engine=harness.engine, restart=lambda: None)
        metrics: Any = SimpleNamespace(restarted=lambda cause: None)
        bundle: Any = SimpleNamespace(label="en-de/1")
        model = ServedModel(bundle, pb.Model())
        model.become_loaded(Loaded(translator, metrics))
        entry: Any = SimpleNamespace(label="en-de/1", model=model)
        start = time.monotonic()
        assert await Supervisor(hang_seconds=0.3).recover(entry)
        _, outcome = await asyncio.to_thread(harness.done.get, timeout=10)
        assert isinstance(outcome, EngineLost)
        assert time.monotonic() - start < 8  # the rest of the decoding would take 20 s


class HangingRestart(Engine):
    """An engine whose restart never ends."""

    def restarted(self) -> Engine:
        threading.Event().wait()
        return super().restarted()


async def test_a_restart_that_hangs_ends_the_server_with_a_failure():
    async with running(EchoRunner(dies_at=3), engine=HangingRestart, hang_seconds=0.3) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        assert await asyncio.wait_for(server.task, 30) == 1


async def test_a_server_that_stops_does_not_wait_for_a_restart():
    async with running(EchoRunner(dies_at=3), engine=HangingRestart, hang_seconds=60) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        await eventually(
            lambda: server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="death") == 1
        )
        server.server.stop()
        assert await asyncio.wait_for(server.task, 30) == 0


class TwoWorkers(Engine):
    """An engine with two workers, of which one can die while the other runs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, workers=2)

    def restarted(self) -> Engine:
        return Engine(self._runner, self._limits, self._observer)


class TwoWorkersHangingRestart(TwoWorkers, HangingRestart):
    """An engine with two workers whose restart never ends."""

    restarted = HangingRestart.restarted


@pytest.mark.parametrize("kind", [TwoWorkers, TwoWorkersHangingRestart])
async def test_jobs_of_a_live_worker_of_a_dead_engine_are_answered_when_the_server_stops(kind: type[TwoWorkers]):
    runner = EchoRunner(endless=True, delay=0.2)
    async with running(runner, engine=kind, hang_seconds=60, drain_seconds=0.2) as server:
        runner.gate.clear()
        calls = [asyncio.create_task(failure(server.call("Tom", "the sea"))) for _ in range(10)]
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 10)
        runner.dies_at = runner.steps + 5
        runner.gate.set()
        await eventually(
            lambda: server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="death") == 1
        )
        await eventually(lambda: kind is TwoWorkersHangingRestart or server.metric("lingon_ready") == 1)
        server.server.stop()
        for status, _ in await asyncio.gather(*calls):
            assert details(status)["ErrorInfo"].reason == "ENGINE_RESTARTING"
        assert await asyncio.wait_for(server.task, 10) == 0


class Cold(Engine):
    """An engine that starts at once, with threads that end at once."""

    def __init__(self) -> None:
        super().__init__(EchoRunner(), EngineLimits())
        self._threads = [threading.Thread() for _ in range(20)]

    def warm(self, *, scorer: bool = True) -> None: ...


def test_workers_can_be_looked_for_while_another_thread_starts_engines():
    """A server that stops does so while a restart or a load may still start an engine."""
    engines = [Cold() for _ in range(100)]

    def start_all() -> None:
        for engine in engines:
            engine.start()

    starting = threading.Thread(target=start_all)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        starting.start()
        while starting.is_alive():
            any_worker_alive()
    finally:
        sys.setswitchinterval(interval)
        starting.join()
    assert not any(thread.is_alive() for engine in engines for thread in engine._threads)


def test_the_threads_of_workers_are_known_while_they_run():
    engine = Engine(EchoRunner(), EngineLimits(), workers=2)
    before = set(worker_threads())
    engine.start()
    started = set(worker_threads()) - before
    assert started == {thread.native_id for thread in engine._threads}
    assert len(started) == 2
    engine.stop(10)
    assert not started & set(worker_threads())


UNFINISHED = """
import atexit
import sys

atexit.register(lambda: print(any_worker_alive()))  # called after what Lingon registers later
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.engine import Engine, any_worker_alive
from lingon.serving.engine.limits import EngineLimits
from tests.support.echo_engine import EchoRunner

engine = Engine(EchoRunner(delay=0.05, endless=True), EngineLimits(), workers=2)
engine.start()
options = Options(max_output_tokens=40)
engine.submit([DecodeJob(source_ids=(5, 2), options=options, on_done=lambda _: print("ended")) for _ in range(3)])
sys.exit(7)
"""


def test_a_process_with_translations_under_way_ends_them_and_its_workers_first():
    """A worker that is in a graph when Python ends would end the process with SIGABRT."""
    done = subprocess.run([sys.executable, "-c", UNFINISHED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert done.stdout.split() == ["ended"] * 3 + ["False"]
