"""The parts of the reliability tests: cases, servers, clients and hostile callers."""

from __future__ import annotations

import asyncio
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lingon.bundle.store import open_bundle
from lingon.errors import LingonError
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.reliability import models
from tests.reliability.attackers import (
    PAIRS,
    SERVICE,
    HostileCaller,
    Silence,
    UnfinishedCalls,
    attacking_process,
    costly_requests,
    marked_texts,
    may_need,
    observed,
    target_text,
    tiny_sentences,
    translate,
    wait,
)
from tests.reliability.case import Case, run
from tests.reliability.checks import Checks, Skip
from tests.reliability.clients import Client, CrashingClient, closed_loop, open_loop
from tests.reliability.context import CaseContext, CpuPinning, Session
from tests.reliability.history import History, Outcome
from tests.reliability.server import Server, ends_with_parent, write_api_keys
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.repository import ROOT
from tests.support.timing import eventually


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path, quick=True)


def make(body) -> Case:
    return Case("a case", "a bound", body)


def test_a_case_that_misses_its_times_is_tried_three_times(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(context.scratch)
        checks.at_most("time", 5.0 - len(tries), 2.0, timing=True)

    row = run(make(body), session)
    assert (row.verdict, len(set(tries))) == ("pass", 3)
    assert row.found == "1 check passed (best of 3)"


def test_a_session_may_run_each_case_once(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(1)
        checks.at_most("time", 5.0, 2.0, timing=True)

    session.tries = 1
    assert (run(make(body), session).verdict, len(tries)) == ("fail", 1)


def test_a_case_with_a_wrong_value_is_not_tried_again(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(1)
        checks.equal("count", 24, 25)

    assert (run(make(body), session).verdict, len(tries)) == ("fail", 1)


def test_a_case_that_raises_an_error_fails_and_shows_where(session):
    async def body(context: CaseContext, checks: Checks) -> None:
        checks.equal("count", 25, 25)
        raise LingonError("server1 still ran after 5 s")

    row = run(make(body), session)
    assert row.verdict == "fail"
    assert row.found.startswith("ended by LingonError: server1 still ran after 5 s (test_harness.py:")


def test_a_case_that_cannot_run_here_is_skipped_with_its_reason(session):
    async def body(context: CaseContext, checks: Checks) -> None:
        raise Skip("nginx is not installed")

    row = run(make(body), session)
    assert (row.verdict, row.found) == ("skip", "not run: nginx is not installed")


MODEL = ROOT / "models" / "en-de"
PARENT = """
import subprocess, sys
from tests.reliability.server import ends_with_parent
child = subprocess.Popen(ends_with_parent(["sleep", "600"]), start_new_session=True)
sys.stdout.write(f"{child.pid}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def started(folder: Path, **settings: object) -> Server:
    return Server(folder=folder, model=MODEL, cores=CpuPinning.choose().server, settings=settings)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


async def test_a_server_starts_answers_and_ends(tmp_path):
    async with started(tmp_path, log_level="debug") as server:
        client = Client(server.address, History(), "some")
        outcome = await client.translate("Tom lives in Boston.")
        scrape = await server.scrape()
        assert [(call.request_id, call.method, call.code) for call in server.calls()] == [
            (outcome.id, "Translate", "OK")
        ]
        assert scrape.sum("lingon_requests_total") == 1
        assert (await server.get("/healthz"))[0] == 200
        assert (await client.health(), server.exit_code, server.family()) == ("SERVING", None, [])
        assert server.rss() > 10
        assert server.threads() > 1
        assert server.fds() > 3
        await client.close()
        signalled = server.signal(signal.SIGTERM)
        assert await server.exited(20) > signalled
        assert (server.exit_code, server.tracebacks()) == (0, [])


async def test_a_server_does_not_outlive_its_context(tmp_path):
    with pytest.raises(RuntimeError, match="inside the block"):
        async with started(tmp_path) as server:
            raise RuntimeError("inside the block")
    assert not alive(server.pid)


async def test_a_server_that_does_not_start_is_reported_in_one_line(tmp_path):
    with pytest.raises(LingonError, match=r"ended with exit code 2 before it was ready: .*step=explode is none of"):
        async with started(tmp_path, failpoints="step=explode"):
            pass


@pytest.mark.parametrize("running", [False, True], ids=["at once", "when it runs"])
def test_a_child_process_ends_with_its_parent(running):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        while running and not Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep"):
            pass
        watch = os.pidfd_open(child)
        parent.kill()
        parent.wait()
    assert select.select([watch], [], [], 10)[0]
    os.close(watch)


async def test_the_requests_of_a_crashing_client_are_recorded(tmp_path):
    async with started(tmp_path, failpoints="step=sleep:0.2") as server:
        crashing = CrashingClient(server.address, ["Tom lives in Boston."], 3, tmp_path, CpuPinning.choose().clients)
        outcomes = crashing.kill()
    assert [(outcome.method, outcome.code) for outcome in outcomes] == [("TranslateStream", "KILLED")] * 3
    assert len({outcome.id for outcome in outcomes}) == 3


def test_the_arguments_of_a_command_are_kept():
    answer = subprocess.run(ends_with_parent(["echo", "a b"]), capture_output=True, text=True, check=True)
    assert answer.stdout == "a b\n"


STATION = "Where is the station?"


@pytest.fixture
def history() -> History:
    return History()


def connect(server, history: History, **more) -> Client:
    return Client(f"127.0.0.1:{server.server.port}", history, **more)


async def test_an_answer_is_recorded_with_its_text_version_and_request_id(history):
    async with running() as server:
        client = connect(server, history)
        outcomes = [await client.translate(STATION, ""), await client.stream(STATION)]
        await client.close()
    assert list(history) == outcomes
    assert [[(each.code, each.text) for each in outcome.results] for outcome in outcomes] == [
        [("OK", STATION), ("OK", "")],
        [("OK", STATION)],
    ]
    assert [(outcome.code, outcome.version, outcome.request_id) for outcome in outcomes] == [
        ("OK", "1", outcome.id) for outcome in outcomes
    ]
    assert outcomes[1].first
    assert outcomes[1].ended
    assert outcomes[1].sent <= outcomes[1].first <= outcomes[1].ended


async def test_a_refusal_is_recorded_with_its_reason(history):
    async with running() as server:
        client = connect(server, history)
        outcome = await client.translate(*[STATION] * 300)
        await client.close()
    assert (outcome.code, outcome.reason, outcome.request_id, outcome.results) == (
        "INVALID_ARGUMENT",
        "INVALID_FIELD",
        outcome.id,
        [],
    )


async def test_deadlines_cancels_and_missing_servers_have_their_codes(history):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        client = connect(server, history)
        late = await client.translate(STATION, deadline=0.05)
        gone = await client.translate(STATION, cancel_after=0.05)
        half = await client.stream(STATION, cancel_after=0.2)
        await client.close()
    away = Client("127.0.0.1:1", history)
    nobody = await away.translate(STATION)
    await away.close()
    codes = [outcome.code for outcome in (late, gone, half, nobody)]
    assert codes == ["DEADLINE_EXCEEDED", "CANCELLED", "CANCELLED", "UNAVAILABLE"]
    assert all(outcome.ended and not outcome.results for outcome in history)


async def test_a_request_of_a_client_that_is_stopped_has_no_end(history):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        client = connect(server, history)
        asked = asyncio.create_task(client.translate(STATION))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await client.close()
    assert [(outcome.ended, outcome.code) for outcome in history] == [(None, "")]


async def test_a_client_sends_its_api_key(history, tmp_path):
    keys = write_api_keys(tmp_path / "keys.toml", "a")
    async with running(api_keys=tmp_path / "keys.toml") as server:
        clients = [connect(server, history, key=key) for key in (keys["a"], None)]
        codes = [(await client.translate(STATION)).code for client in clients]
        for client in clients:
            await client.close()
    assert codes == ["OK", "UNAUTHENTICATED"]


async def test_an_open_loop_sends_when_requests_are_due_whether_or_not_others_are_answered():
    sent, many = [], asyncio.Event()

    async def send(text: str, due: float) -> Outcome:
        sent.append(text)
        if len(sent) == 20:
            many.set()
        await many.wait()
        return Outcome(id="a", method="Translate", texts=(text,), due=due, sent=due)

    outcomes = await asyncio.wait_for(open_loop(send, ["a", "b"], rate=200.0, seconds=0.3), 10)
    assert len(outcomes) == len(sent) >= 20
    assert [outcome.due for outcome in outcomes] == sorted(outcome.due for outcome in outcomes)


async def test_a_closed_loop_stops_at_its_count_its_time_and_its_condition():
    async def send(text: str) -> Outcome:
        await asyncio.sleep(0.001)
        return Outcome(id="a", method="Translate", texts=(text,), due=0.0, sent=0.0, ended=1.0, code="OK")

    assert len(await closed_loop(send, ["a"], 3, requests=10)) == 10
    assert len(await closed_loop(send, ["a"], 3, until=lambda outcome: outcome.code == "OK")) == 3
    assert 3 <= len(await closed_loop(send, ["a"], 3, seconds=0.05)) <= 200


ATTACK = translate("one text", ["Where is the station?"], beam_size=1)
CORES = CpuPinning.choose()


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


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_bundle(ROOT / "models" / "en-de").tokenizer()


def test_a_target_text_has_as_many_tokens_as_fit(tokenizer):
    text = target_text(tokenizer, "ja", 255)
    assert len(tokenizer.encode_target(text)) <= 255 < len(tokenizer.encode_target(f"{text} ja"))


def test_each_costly_request_is_a_message_of_its_method():
    found = costly_requests(["Hello."] * PAIRS, ["A long text."] * PAIRS, "ja ja")
    kinds = {"Translate": pb.TranslateRequest, "Score": pb.ScoreRequest}
    for attack in found:
        message = kinds[attack.method].FromString(attack.body)
        assert message.SerializeToString() == attack.body
        assert attack.path == f"{SERVICE}/{attack.method}"
    assert len({attack.name for attack in found}) == len(found) == 7


def test_marked_texts_have_one_letter_and_many_marks():
    (text,) = pb.TranslateRequest.FromString(marked_texts(1).body).texts
    assert len(text) == 1001
    assert normalise(text)[1:].count("\u0323") + 1 >= 500  # one of them becomes part of the letter


def test_the_made_up_words_fill_the_vocabulary_and_each_is_one_token():
    words = models.words()
    assert len(set(words)) == len(words) == models.VOCAB - models.SPECIAL_PIECES
    made = Tokenizer(models.tokenizer())
    assert made.source_vocab == models.VOCAB
    text = models.text_of(models.MAX_TARGET - 1, first=31_900)
    ids = made.encode_target(text)
    assert len(set(ids)) == len(ids) == models.MAX_TARGET - 1
    assert made.decode(ids) == text


def test_what_a_server_may_need_is_read_from_its_log():
    assert may_need("...\nen-de/2 may need 1,024 MiB of memory\n") == pytest.approx(1073.741824)
    assert math.isnan(may_need("nothing of the kind"))
