"""Hostile callers keep their requests under way, count how they end, and leave nothing behind; probes see silence."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import Any

import pytest

from chaos.callers.clients import Client
from chaos.cpu_pinning import CpuPinning
from chaos.hostile.attacks import tiny_sentences, translate
from chaos.hostile.callers import HostileCaller
from chaos.hostile.probes import Silence, observed
from chaos.hostile.process import attacking_process
from chaos.hostile.unfinished import UnfinishedCalls, wait
from chaos.server import Server
from chaos.verdict.history import History
from lingon.errors import LingonError
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.eventually import eventually
from tests.support.repository import ROOT

ATTACK = translate("one text", ["Where is the station?"], beam_size=1)
CORES = CpuPinning.choose()
MODEL = ROOT / "models" / "en-de"


def address(server: RunningServer) -> str:
    return f"127.0.0.1:{server.server.port}"


async def test_a_caller_gets_the_answer_as_bytes_or_the_code_and_the_reason():
    async with running() as server:
        caller = HostileCaller(address(server))
        good = await caller.send(ATTACK)
        bad = await caller.send(translate("too many", ["a"] * 257))
        await caller.close()
    assert (good.code, pb.TranslateResponse.FromString(good.body).results[0].hypotheses[0].text) == (
        "OK",
        "Where is the station?",
    )
    assert (bad.code, bad.reason, bad.body) == ("INVALID_ARGUMENT", "INVALID_FIELD", b"")


async def test_attacks_are_kept_under_way_and_are_cancelled_at_the_end():
    runner = EchoRunner()
    async with running(runner) as server:
        caller = HostileCaller(address(server))
        async with caller.attacking([ATTACK], under_way=3) as tally:
            await eventually(lambda: tally.ended["OK"] >= 9)
            runner.gate.clear()
            await eventually(lambda: server.metric("lingon_requests_in_flight") == 3)
            assert tally.sent == tally.ended.total() + 3
        runner.gate.set()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        await caller.close()
    assert set(tally.ended) == {"OK"}


async def test_an_attack_from_another_process_ends_with_its_block_and_is_counted():
    async with running() as server:
        async with attacking_process(address(server), None, [ATTACK, tiny_sentences(64)], CORES.clients, 2) as tally:
            await eventually(lambda: server.metric("lingon_requests_total", method="Translate", code="OK") >= 10)
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        assert tally.ended["OK"] >= 10 - 2  # the answers of two may be on their way
        assert 0 <= tally.sent - tally.ended.total() <= 2
        after = server.metric("lingon_requests_total", method="Translate", code="OK")
        await asyncio.sleep(0.2)
        assert server.metric("lingon_requests_total", method="Translate", code="OK") == after


async def test_a_hostile_process_that_cannot_begin_is_an_error():
    number: Any = "many"
    with pytest.raises(LingonError, match="ended before it had begun"):
        async with attacking_process("127.0.0.1:1", None, [ATTACK], CORES.clients, number):
            pass


def test_only_good_answers_end_a_silence(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    silence = Silence("200")
    silence.begin()
    for now, answer in ((101.0, "200"), (103.0, "503"), (104.0, "200")):  # noqa: B007
        silence.heard(answer)
    assert (silence.longest, silence.answers) == (3.0, Counter({"200": 2, "503": 1}))
    now = 109.0
    silence.end()
    assert silence.longest == 5.0


async def test_a_stopped_server_is_silent_and_the_cost_of_a_request_is_seen(tmp_path):
    settings = {"log_level": "debug"}
    async with Server(folder=tmp_path, model=MODEL, cores=CORES.server, settings=settings) as server:
        client = Client(server.address, History())
        async with observed(server, client) as found:
            server.signal(signal.SIGSTOP)
            await asyncio.sleep(0.5)
            server.signal(signal.SIGCONT)
            await client.translate("Tom lives in Boston.")
        # Less than it was stopped for: an answer that was on its way arrives after the stop.
        assert min(found.health.longest, found.http.longest) >= 0.4
        assert found.health.answers["SERVING"] >= 1
        assert found.http.answers["200"] >= 1
        assert 0 < found.cpu < 60
        assert found.peak >= found.kept - 0.1
        before = server.cpu_seconds()
        assert server.peak_rss() >= server.rss() - 1.0
        assert before > 0
        await client.close()


async def test_an_unfinished_call_stays_open_until_its_caller_or_the_server_leaves():
    async with running() as server:
        with UnfinishedCalls(server.server.port, ATTACK.path, calls=3, size=40_000) as calls:
            await asyncio.to_thread(wait, calls, 10.0)
            assert calls.settled
            assert (calls.sent, calls.ended, calls.closed) == (3 * 40_005, 0, False)
            assert (await server.translate("a")).results[0].status.code == 0
            server.server.stop()
            await server.task
            await eventually(lambda: calls.closed or calls.ended == 3)


async def test_unfinished_calls_that_the_server_refuses_are_counted_as_ended():
    async with running() as server:
        with UnfinishedCalls(server.server.port, "/none.Service/Method", calls=2, size=1000) as calls:
            await eventually(lambda: calls.ended == 2)
            assert calls.settled
