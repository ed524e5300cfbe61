"""Calls that have arrived: a bounded number is read at once, the others wait in fair order or are refused unread."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from lingon.errors import NotBegun, QueueFull, RequestError, Unauthenticated, WontFinish
from lingon.serving.auth.callers import OWN_GATEWAY, PORTS, find_caller
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.scheduler import Forecast
from lingon.serving.models.inflight import AdmissionGate, Arrived, arrived
from lingon.serving.rpc.admission import MARGIN, READ_SLOTS, READING_SHARE, SLOTS_OF_CALLER
from lingon.serving.rpc.arrival import (
    LEAST,
    METHODS,
    MOST,
    READ_IN_ORDER,
    STARTS_AT_ONCE,
    Arrival,
    Arrivals,
    EarlyRefusal,
    LaterRefusals,
    LoadShedder,
    LoopShare,
)
from lingon.serving.rpc.calls import PATIENCE_SECONDS, SERVICE
from lingon.status import CLIENT_ADDRESS, DEFAULT_DEADLINE
from tests.support.engine_harness import ManualClock, calls, make_scheduler, next_step
from tests.support.timing import eventually

key: ContextVar[str] = ContextVar("key", default="")


@dataclass
class Refusals:
    """Refuses the calls whose path is in `refused`; the path, which is the context too, is the caller and a number."""

    refused: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def caller(self, path: str, context: Any) -> str | None:
        return None if path == "health" else path.partition("/")[0]

    def of_load(
        self, path: str, context: Any, caller: str, wait: float = 0.0, *, new: bool = True
    ) -> RequestError | None:
        self.waits.append(wait)
        return QueueFull("full") if context in self.refused else None

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        assert isinstance(error, QueueFull)
        return self._end(arrival.path)

    def count(self, arrival: Arrival, error: RequestError) -> None:
        raise NotImplementedError

    def forget(self, arrival: Arrival) -> None:
        raise NotImplementedError

    async def _end(self, path: str) -> None:
        self.ended.append(path)
        raise RuntimeError("as gRPC does")


class Port:
    """Arrivals whose handlers leave their places, and end, when the test says so."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self.arrivals = Arrivals(self.refusals, most=1000)
        self.started: list[str] = []
        self.read: dict[str, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def arrive(self, path: str) -> Awaitable[None] | None:
        return self.arrivals.arrive(path, path, self.start(path))  # type: ignore[arg-type]

    def start(self, path: str) -> Callable[[], asyncio.Task[None]]:
        async def handle() -> None:
            await self.read[path].wait()
            call = arrived.get()
            assert call is not None
            call.leave_slot()
            call.leave_slot()  # the second time does nothing
            await asyncio.sleep(3600)

        def start() -> asyncio.Task[None]:
            self.started.append(path)
            self.read[path] = asyncio.Event()
            self.tasks.append(asyncio.get_running_loop().create_task(handle()))
            return self.tasks[-1]

        return start

    async def finish(self, path: str) -> None:
        self.read[path].set()
        for _ in range(4):
            await asyncio.sleep(0)


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Port]:
    monkeypatch.setattr(LaterRefusals, "put_off", lambda *_: False)  # test_later_refusals.py
    made = Port()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_calls_beyond_the_places_wait_until_others_are_read(port: Port):
    for number in range(SLOTS_OF_CALLER + 2):
        assert port.arrive(f"a/{number}") is None
    assert port.started == [f"a/{number}" for number in range(SLOTS_OF_CALLER)]
    assert port.arrivals.count == 2
    await port.finish("a/3")
    assert port.started[SLOTS_OF_CALLER:] == [f"a/{SLOTS_OF_CALLER}"]
    assert port.arrivals.count == 1


async def test_a_call_that_ends_unread_leaves_its_place(port: Port):
    for number in range(SLOTS_OF_CALLER + 1):
        port.arrive(f"a/{number}")
    port.tasks[0].cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert port.started[SLOTS_OF_CALLER:] == [f"a/{SLOTS_OF_CALLER}"]


async def test_a_call_starts_without_what_the_call_before_it_has_set(port: Port):
    """The API key of a call is such a context variable."""
    seen: list[str] = []

    def note() -> asyncio.Task[None]:
        seen.append(key.get())
        key.set("of another caller")
        return port.start("b/0")()

    for _ in range(SLOTS_OF_CALLER + 1):
        port.arrivals.arrive("a/0", Any, note)  # type: ignore[arg-type]
    await port.finish("b/0")
    assert seen == [""] * (SLOTS_OF_CALLER + 1)


async def test_waiting_callers_take_turns(port: Port):
    for number in range(READ_SLOTS - SLOTS_OF_CALLER):
        port.arrive(f"c/{number}")
    for number in range(SLOTS_OF_CALLER + 5):
        port.arrive(f"a/{number}")
    port.arrive("b/0")
    await port.finish("a/0")
    await port.finish("a/1")
    assert set(port.started[READ_SLOTS:]) == {f"a/{SLOTS_OF_CALLER}", "b/0"}


async def test_a_caller_is_read_at_once_while_another_one_has_all_places_that_it_may_have(port: Port):
    for number in range(SLOTS_OF_CALLER + 2):
        port.arrive(f"a/{number}")
    rest = READ_SLOTS - SLOTS_OF_CALLER
    for number in range(rest + 1):
        port.arrive(f"b/{number}")
    assert port.started[SLOTS_OF_CALLER:] == [f"b/{number}" for number in range(rest)]
    await port.finish("b/0")
    assert port.started[READ_SLOTS:] == [f"b/{rest}"]
    await port.finish("b/1")
    assert len(port.started) == READ_SLOTS + 1  # the place stays free for another caller
    await port.finish("a/0")
    assert port.started[READ_SLOTS + 1 :] == [f"a/{SLOTS_OF_CALLER}"]


async def test_a_caller_that_waits_for_its_own_calls_keeps_no_other_caller_waiting(port: Port):
    for number in range(2 * READ_SLOTS):
        port.arrive(f"a/{number}")
    names = [f"b{number}/0" for number in range(READ_SLOTS)]
    for name in names:
        port.arrive(name)
    for number, name in enumerate(names[: READ_SLOTS - 6]):
        await port.finish(name)
        assert port.started[READ_SLOTS + number] == names[READ_SLOTS - SLOTS_OF_CALLER + number]
    assert sum(path.startswith("a/") for path in port.started) == SLOTS_OF_CALLER


async def test_a_call_without_work_for_an_engine_never_waits(port: Port):
    for number in range(SLOTS_OF_CALLER + 1):
        port.arrive(f"a/{number}")
    port.arrive("health")
    assert port.started[-1] == "health"
    assert port.arrivals.count == 1


async def test_a_waiting_call_is_refused_when_its_turn_comes_too_late(port: Port):
    for number in range(SLOTS_OF_CALLER + 3):
        port.arrive(f"a/{number}")
    port.refusals.refused = {f"a/{SLOTS_OF_CALLER}", f"a/{SLOTS_OF_CALLER + 1}"}
    await port.finish("a/0")
    assert port.started[SLOTS_OF_CALLER:] == [f"a/{SLOTS_OF_CALLER + 2}"]
    assert port.refusals.ended == [f"a/{SLOTS_OF_CALLER}", f"a/{SLOTS_OF_CALLER + 1}"]
    assert not port.arrivals.count


async def test_many_refused_calls_let_the_event_loop_run_in_between(port: Port):
    calls = SLOTS_OF_CALLER + 3 * STARTS_AT_ONCE
    for number in range(calls):
        port.arrive(f"a/{number}")
    port.refusals.refused = {f"a/{number}" for number in range(SLOTS_OF_CALLER, calls)}
    counts = []
    port.read["a/0"].set()
    while port.arrivals.count:
        await asyncio.sleep(0)
        counts.append(port.arrivals.count)
    assert len({*counts, calls - SLOTS_OF_CALLER}) == 4  # steps of STARTS_AT_ONCE


async def test_a_full_house_refuses_a_caller_with_as_much_and_drops_the_newest_of_one_with_more(port: Port):
    port.arrivals = Arrivals(port.refusals, most=3)
    for number in range(READ_SLOTS - SLOTS_OF_CALLER):
        port.arrive(f"c/{number}")
    for number in range(SLOTS_OF_CALLER + 3):
        port.arrive(f"a/{number}")
    refused = port.arrive("a/99")
    assert refused is not None
    with pytest.raises(RuntimeError):
        await refused
    assert port.arrive("b/0") is None
    await asyncio.sleep(0)
    assert port.refusals.ended == ["a/99", f"a/{SLOTS_OF_CALLER + 2}"]
    assert port.arrivals.count == 3


async def test_the_wait_that_is_expected_grows_with_the_calls_before(port: Port):
    for number in range(SLOTS_OF_CALLER + 20):
        port.arrive(f"a/{number}")
    for number in range(8):
        await asyncio.sleep(0.002)
        await port.finish(f"a/{number}")
    port.refusals.waits.clear()
    port.arrive("a/next")
    port.arrive("a/later")
    port.arrive("b/0")  # it is second, between the calls of the other caller
    first, second, other = port.refusals.waits
    assert 0 < other < first < second


async def test_one_port_of_an_address_does_not_start_all_its_calls_while_the_other_one_has_all_its_places(port: Port):
    names = [f"{each}/192.0.2.7" for each in PORTS]
    port.refusals.caller = lambda path, context: path.rpartition("/")[0]  # type: ignore[method-assign]
    for number in range(SLOTS_OF_CALLER + 1):
        port.arrive(f"{names[0]}/{number}")
    for number in range(50):
        port.arrive(f"{names[1]}/{number}")
        await asyncio.sleep(0)
        if f"{names[1]}/{number}" in port.started:
            await port.finish(f"{names[1]}/{number}")
    assert sum(each.startswith(names[1]) for each in port.started) < 25
    port.arrive("http/192.0.2.8/0")  # another address is read at once
    assert port.started[-1] == "http/192.0.2.8/0"
    await eventually(lambda: f"{names[1]}/49" in port.started or port.read.get(f"{names[1]}/1"))


async def test_a_call_is_expected_to_wait_as_long_as_the_oldest_one_of_its_caller_has_waited(port: Port):
    """The caller a keeps its places, while many calls of others are read."""
    for number in range(SLOTS_OF_CALLER + 1):
        port.arrive(f"a/{number}")
    for number in range(50):
        port.arrive(f"b/{number}")
        await port.finish(f"b/{number}")
    await asyncio.sleep(0.1)
    port.refusals.waits.clear()
    port.arrive("a/next")
    port.arrive("b/next")
    own, other = port.refusals.waits
    assert own >= 0.1
    assert other < own


class StuckEngine:
    """An engine that is expected to take so many seconds, the last `run` of them for the call itself."""

    def __init__(self, seconds: float, run: float) -> None:
        self.seconds, self.run = seconds, run
        self.asked = 0

    def forecast(self, caller: str) -> Forecast:
        self.asked += 1
        return Forecast(self.seconds, self.seconds - self.run)


def shedder(*seconds: float, run: float = 0.0) -> LoadShedder:
    gate = AdmissionGate()
    gate.open()
    engines: Any = [StuckEngine(each, run) for each in seconds]
    return LoadShedder(gate, lambda: engines)


@pytest.mark.parametrize(
    ("seconds", "left", "wait", "error"),
    [
        ([0.0], 1.0, 0.0, None),
        ([0.0], 0.0, 0.0, NotBegun),
        ([1.0], MARGIN + 0.01, 0.0, None),
        ([1.0], MARGIN - 0.01, 0.0, WontFinish),
        ([1.0], None, 9.0, None),
        ([0.0], 1.0, READING_SHARE + 0.01, QueueFull),
        ([math.inf], None, 0.0, QueueFull),
        ([math.inf, 0.5], 1.0, 0.0, None),  # the call may be for the second model
        ([], 1.0, 0.0, None),
    ],
)
def test_a_call_is_refused_if_no_engine_can_do_it_in_time(
    seconds: list[float], left: float | None, wait: float, error: type[RequestError] | None
):
    check = shedder(*seconds)
    if error is None:
        check.check("a", left, wait)
        return
    with pytest.raises(error) as caught:
        check.check("a", left, wait)
    assert type(caught.value) is error


@pytest.mark.parametrize("run", [0.0, 100.0])
@pytest.mark.parametrize(("left", "metadata"), [(None, ()), (120.0, ((DEFAULT_DEADLINE, "1"),))])
def test_a_call_whose_client_sets_no_deadline_waits_for_a_bounded_time_however_long_its_own_work_is(
    run: float, left: float | None, metadata: tuple[tuple[str, str], ...]
):
    """The second one is a call of the gateway, whose deadline is a limit of the gateway."""
    context: Any = SimpleNamespace(time_remaining=lambda: left, invocation_metadata=lambda: metadata)
    counts: Any = None
    waits = PATIENCE_SECONDS
    for wait, refused in ((waits - 0.1, False), (waits + 0.1, True)):
        refusal = EarlyRefusal(shedder(wait + run, run=run), counts, None)
        for path in METHODS:
            error = refusal.of_load(path, context, "a")
            late = left is not None and MARGIN * (wait + run) > left
            assert type(error) is (WontFinish if late else QueueFull if refused else type(None))


def test_a_call_with_a_deadline_of_its_client_waits_as_long_as_the_deadline_allows():
    context: Any = SimpleNamespace(time_remaining=lambda: 60.0, invocation_metadata=lambda: ())
    counts: Any = None
    refusal = EarlyRefusal(shedder(4 * PATIENCE_SECONDS), counts, None)
    assert all(refusal.of_load(path, context, "a") is None for path in METHODS)


@pytest.mark.parametrize("seconds", [1.0, math.inf])
def test_detecting_languages_waits_for_a_place_to_be_read_and_for_no_engine(seconds: float):
    context: Any = SimpleNamespace(time_remaining=lambda: 0.5, invocation_metadata=lambda: ())
    counts: Any = None
    refusal = EarlyRefusal(shedder(seconds), counts, None)
    (detecting,) = READ_IN_ORDER - METHODS
    assert detecting.endswith("/DetectLanguages")
    assert refusal.of_load(detecting, context, "a") is None
    assert isinstance(refusal.of_load(detecting, context, "a", wait=0.4), QueueFull)
    for path in METHODS:
        assert isinstance(refusal.of_load(path, context, "a"), RequestError)


def test_a_call_without_a_valid_key_is_left_to_its_handler():
    def check_key(metadata: Any) -> None:
        raise Unauthenticated("an API key is needed")

    call: Any = SimpleNamespace(invocation_metadata=lambda: (), peer=lambda: "ipv4:127.0.0.1:5000", auth_context=dict)
    shed: Any = None
    for path in READ_IN_ORDER:
        assert EarlyRefusal(shed, shed, check_key).caller(path, call) is None
        assert EarlyRefusal(shed, shed, None).caller(path, call) == "address/127.0.0.1"
    assert EarlyRefusal(shed, shed, None).caller("/grpc.health.v1.Health/Check", call) is None


@dataclass
class Call:
    """The context of a call with so many seconds left."""

    left: float | None = None
    sender: str = "ipv4:127.0.0.1:5000"

    def time_remaining(self) -> float | None:
        return self.left

    def peer(self) -> str:
        return self.sender


@dataclass
class Endings:
    ended: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def caller(self, path: str, context: Any) -> str | None:
        raise NotImplementedError

    def of_load(self, path: str, context: Any, caller: str, wait: float = 0.0) -> RequestError | None:
        raise NotImplementedError

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        async def end() -> None:
            raise RuntimeError("as gRPC does")

        self.ended.append(arrival.path)
        return end()

    def count(self, arrival: Arrival, error: RequestError) -> None:
        raise NotImplementedError

    def forget(self, arrival: Arrival) -> None:
        self.forgotten.append(arrival.path)


class Loop:
    """Refusals of an event loop whose load the test sets."""

    def __init__(self, share: float, most: int = 1000) -> None:
        self.share, self.refusals = share, Endings()
        self.later = LaterRefusals(self.refusals, most, lambda: self.share)

    def put_off(self, path: str, left: float | None = None, **more: str) -> bool:
        context: Any = Call(left, **more)
        start: Any = None
        return self.later.put_off(Arrival(path, context, "a", start, 0.0, Arrived()), QueueFull("full"))


async def test_an_idle_event_loop_puts_nothing_off():
    assert not Loop(share=0.1).put_off("1")


async def test_a_busy_event_loop_sends_a_few_refusals_in_each_round_the_latest_first():
    loop = Loop(share=1.0)
    assert all(loop.put_off(str(number)) for number in range(2 * LEAST))
    assert not loop.refusals.ended
    await eventually(lambda: loop.refusals.ended)
    assert loop.refusals.ended == [str(number) for number in reversed(range(LEAST, 2 * LEAST))]
    await eventually(lambda: len(loop.refusals.ended) == 2 * LEAST)


async def test_more_are_sent_when_the_event_loop_has_time():
    loop = Loop(share=1.0)
    for number in range(MOST):
        loop.put_off(str(number))
    loop.share = 0.0
    await eventually(lambda: loop.refusals.ended)
    assert len(loop.refusals.ended) == MOST


async def test_calls_whose_deadline_has_passed_are_only_counted():
    loop = Loop(share=1.0)
    loop.put_off("late", left=0.0)
    for number in range(3 * LEAST):
        loop.put_off(str(number), left=9.0)
    await eventually(lambda: loop.refusals.ended)
    assert (loop.refusals.forgotten, len(loop.refusals.ended)) == (["late"], LEAST)


async def test_a_late_call_among_the_latest_is_only_counted():
    loop = Loop(share=1.0)
    loop.put_off("in time", left=9.0)
    loop.put_off("late", left=0.0)
    await eventually(lambda: loop.refusals.ended)
    assert (loop.refusals.forgotten, loop.refusals.ended) == (["late"], ["in time"])


async def test_beyond_the_most_refusals_are_sent_at_once():
    loop = Loop(share=1.0, most=2)
    assert [loop.put_off(str(number)) for number in range(3)] == [True, True, False]


async def test_the_share_of_a_loop_is_what_its_thread_computes(monkeypatch: pytest.MonkeyPatch):
    wall, cpu = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: wall[0])
    monkeypatch.setattr(time, "thread_time", lambda: cpu[0])
    share = LoopShare()
    wall[0], cpu[0] = 1.0, 0.25
    assert share() == 0.25
    wall[0], cpu[0] = 1.001, 0.251
    assert share() == 0.25  # too soon to measure again
    wall[0], cpu[0] = 2.0, 1.25
    assert share() == pytest.approx(1.0, abs=0.01)
    await asyncio.sleep(0)


async def test_the_refusal_of_a_call_of_http_is_never_put_off():
    assert not Loop(share=1.0).put_off("http", sender=OWN_GATEWAY)


CAPACITY = 100  # sentences a second
SECONDS = 30
HTTP_LIMIT = 120.0  # seconds of a call for a client of HTTP that does not say how long it waits


def context(port: str, deadline: float | None) -> Any:
    """A call of one address; deadline: seconds that its client waits."""
    metadata = ((CLIENT_ADDRESS, "127.0.0.1"),)
    if deadline is None:
        metadata += ((DEFAULT_DEADLINE, "1"),)
    return SimpleNamespace(
        peer=lambda: OWN_GATEWAY if port == "http" else "ipv4:127.0.0.1:5000",
        invocation_metadata=lambda: metadata,
        auth_context=dict,
        time_remaining=lambda: deadline or HTTP_LIMIT,
    )


def answered(deadlines: dict[str, float | None], seed: int) -> tuple[Counter[str], float]:
    """Return the calls of each port that end in time at twice the capacity, and the longest wait of one, in seconds."""
    clock, draw = ManualClock(), random.Random(seed)
    scheduler = make_scheduler(1, clock, max_rows=1, max_queue_texts=100_000, max_queue_tokens=1_000_000)
    gate, counts = AdmissionGate(), None
    gate.open()
    refusal = EarlyRefusal(LoadShedder(gate, lambda: [scheduler], clock), counts, None)  # type: ignore[arg-type,list-item]
    found, longest, arrived = Counter[str](), 0.0, clock.now
    submitted: dict[int, tuple[str, float]] = {}
    for _ in range(SECONDS * CAPACITY):
        while arrived <= clock.now:
            arrived += draw.expovariate(2 * CAPACITY)
            port = draw.choice(list(deadlines))
            call = context(port, deadlines[port])
            if refusal.of_load(SERVICE + "Translate", call, caller := find_caller(call)) is not None:
                continue
            job = DecodeJob(
                source_ids=(5, 2),
                options=Options(),
                on_done=print,
                deadline=clock.now + call.time_remaining(),
                call=next(calls),
                caller=caller,
            )
            try:
                scheduler.submit([job])
            except RequestError:
                continue
            submitted[job.number] = port, clock.now
        if not len(scheduler._queue):
            clock.now = arrived
            continue
        admitted, removed = next_step(scheduler, 0)
        clock.now += 1 / CAPACITY if admitted else 0
        for job, *_ in removed:
            scheduler.close(job)
        for job in admitted:
            port, since = submitted[job.number]
            found[port] += 1
            longest = max(longest, clock.now - since)
            scheduler.close(job)
    return found, longest


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("http_deadline", [3.0, None])
def test_at_twice_the_capacity_both_ports_get_equal_shares_of_all_of_it(http_deadline: float | None, seed: int):
    found, longest = answered({"http": http_deadline, "grpc": 3.0}, seed)
    assert found.total() >= 0.9 * SECONDS * CAPACITY
    assert found["grpc"] == pytest.approx(found["http"], rel=0.2)
    assert longest < (11 if http_deadline is None else 3.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_queue_holds_what_begins_within_the_bound_on_waiting(seed: int):
    _, longest = answered({"http": None}, seed)
    assert 5 < longest < 11
