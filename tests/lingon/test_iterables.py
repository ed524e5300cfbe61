"""`translate_iterable` of both clients over a real socket: order, bounds, errors, closing."""

from __future__ import annotations

import asyncio
import itertools
import re
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, closing
from typing import Any

import grpc
import pytest

from lingon import AsyncClient, Client, LingonError, Sampling, ServerError, TextResult
from lingon.client.calls import IN_FLIGHT, SLOW, TEXTS
from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import running
from tests.support.scripted_server import FakeService, queue_full
from tests.support.timing import eventually, eventually_blocking

MOST_READ = TEXTS * (IN_FLIGHT + 1)

Take = Callable[..., tuple[list[TextResult], Exception | None]]


class Service(FakeService):
    """A text "down" ends its call, one that is "slow" is never translated, and "waits" only when others are slow."""

    def __init__(self) -> None:
        super().__init__(max_texts=256)
        self.slow = self.cancelled = 0

    def Translate(self, request: pb.TranslateRequest, context: grpc.ServicerContext) -> pb.TranslateResponse:
        if "down" in request.texts:
            context.abort(grpc.StatusCode.INTERNAL, "planted")
        if "slow" in request.texts:
            ended = threading.Event()
            if not context.add_callback(ended.set):
                ended.set()  # the call was cancelled before it began here
            with self.lock:
                self.slow += 1
            ended.wait(20)  # the call would end after 30
            with self.lock:
                self.cancelled += ended.is_set()
        if "waits" in request.texts:
            eventually_blocking(lambda: self.slow == IN_FLIGHT - 1)
        return super().Translate(request, context)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture(params=["sync", "async", "async of async"])
def take(request: pytest.FixtureRequest, address: str) -> Take:
    """take(texts, most): the results of a new client of either kind, up to so many, and the error that ended them."""

    def sync(texts: Iterable[str], most: int, **options: Any) -> tuple[list[TextResult], Exception | None]:
        found: list[TextResult] = []
        with Client(address) as client, closing(client.translate_iterable(texts, **options)) as results:
            try:
                found.extend(itertools.islice(results, most))
            except Exception as error:
                return found, error
        return found, None

    async def asynchronous(texts: Any, most: int, **options: Any) -> tuple[list[TextResult], Exception | None]:
        found: list[TextResult] = []
        async with AsyncClient(address) as client, aclosing(client.translate_iterable(texts, **options)) as results:
            try:
                async for result in results:
                    found.append(result)
                    if len(found) == most:
                        break
            except Exception as error:
                return found, error
        return found, None

    def with_client(
        texts: Iterable[str], most: int = 10**6, **options: Any
    ) -> tuple[list[TextResult], Exception | None]:
        if request.param == "sync":
            return sync(texts, most, **options)
        return asyncio.run(asynchronous(_async(texts) if "of" in request.param else texts, most, **options))

    return with_client


async def _async(texts: Iterable[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text
        await asyncio.sleep(0)


def upper(results: list[TextResult]) -> list[str]:
    return [result.text for result in results]


def test_the_results_are_those_of_a_list(take: Take, address: str) -> None:
    texts = [f"text {number}" if number % 7 else "bad" for number in range(3 * TEXTS + 5)]
    results, error = take(iter(texts), beam_size=2, return_tokens=True)
    with Client(address) as client:
        assert [repr(each) for each in results] == [
            repr(each) for each in client.translate(texts, beam_size=2, return_tokens=True)
        ]
    assert error is None
    assert results[0].error is not None


def test_no_text_no_result(take: Take, service: Service) -> None:
    assert take([]) == ([], None)
    assert service.requests == []


def test_no_two_sampled_texts_draw_the_same_numbers(take: Take) -> None:
    results, _ = take(itertools.repeat("a", 2 * TEXTS + 9), sampling=Sampling(seed=5))
    drawn = [sum(map(int, text.removeprefix("A ").split("+"))) for text in upper(results)]  # seed and index
    assert drawn == [5 + number for number in range(2 * TEXTS + 9)]


def test_an_endless_iterable_is_read_as_far_as_its_results_are_taken(take: Take) -> None:
    read = itertools.count()
    results, _ = take((f"text {number}" for number in read), 100)
    assert upper(results) == [f"TEXT {number}" for number in range(100)]
    assert next(read) <= 100 + MOST_READ


def test_texts_that_come_slowly_do_not_wait_for_a_full_part(take: Take) -> None:
    read = itertools.count()

    def slowly() -> Iterator[str]:
        for number in read:
            time.sleep(1.5 * SLOW)
            yield f"text {number}"

    take(slowly(), 1)
    assert next(read) < TEXTS


async def test_a_text_does_not_wait_for_the_next_one_of_an_asynchronous_iterable(address: str) -> None:
    answered = asyncio.Event()

    async def texts() -> AsyncIterator[str]:
        yield "first"
        await answered.wait()
        yield "second"

    found = []
    async with AsyncClient(address) as client:
        async for result in client.translate_iterable(texts()):
            found.append(result.text)
            answered.set()
    assert found == ["FIRST", "SECOND"]


def test_an_exception_of_the_iterable_comes_after_the_results_before_it(take: Take) -> None:
    def texts() -> Iterator[str]:
        yield from ["a"] * (TEXTS + 6)
        raise ValueError("the file is damaged")

    results, error = take(texts())
    assert upper(results) == ["A"] * (TEXTS + 6)
    assert isinstance(error, ValueError)
    results, error = take(["a", "b", 5])  # type: ignore[list-item]
    assert upper(results) == ["A", "B"]
    assert isinstance(error, SettingsError)
    assert str(error) == "texts[2] must be a str, got int"


def test_a_call_that_fails_raises_after_the_results_before_it(take: Take) -> None:
    results, error = take(["a"] * TEXTS + ["down"] + ["a"] * TEXTS)
    assert upper(results) == ["A"] * TEXTS
    assert isinstance(error, ServerError)
    assert error.status == "INTERNAL"


def test_requests_wait_while_the_server_is_full(take: Take, service: Service) -> None:
    service.faults = [queue_full(0.01) for _ in range(IN_FLIGHT)]
    results, error = take(["a"] * (3 * TEXTS))
    assert (len(results), error) == (3 * TEXTS, None)


async def test_a_queue_that_is_smaller_than_what_is_in_flight_holds_all() -> None:
    texts = [f"Tom lives in Boston {number}" for number in range(2 * TEXTS)]
    async with running(max_queue_texts=4) as server, AsyncClient(f"127.0.0.1:{server.server.port}") as client:
        results = [result.text async for result in client.translate_iterable(texts)]
    assert results == texts


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("texts", "options", "told"),
    [
        ("text", {}, "texts must be an iterable of str.*, got str"),
        (5, {}, "texts must be an iterable of str.*, got int"),
        (["text"], {"target_prefix": 5}, "target_prefix must be a str, or an iterable with one for each text, got int"),
        (["text"], {"timeout": 0}, "timeout must be above 0 seconds"),
    ],
)
def test_wrong_arguments_are_told_by_the_call(kind: Any, texts: Any, options: Any, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        kind("127.0.0.1:1").translate_iterable(texts, **options)
    with pytest.raises(TypeError, match="unknown option 'beams'"):
        kind("127.0.0.1:1").translate_iterable(["text"], beams=4)


def test_a_prefix_is_that_of_every_text(take: Take) -> None:
    results, _ = take(["a"] * (TEXTS + 1), target_prefix="Ja ")
    assert upper(results) == ["Ja A"] * (TEXTS + 1)


@pytest.mark.parametrize("kind", [list, iter])
def test_each_text_may_have_a_prefix_of_its_own(take: Take, kind: Any) -> None:
    count = 2 * TEXTS + 1
    results, error = take((f"a{place}" for place in range(count)), target_prefix=kind([f"{n} " for n in range(count)]))
    assert error is None
    assert upper(results) == [f"{place} A{place}" for place in range(count)]


@pytest.mark.parametrize(
    ("prefixes", "told", "done"),
    [
        (["x "] * TEXTS, rf"target_prefix must have a str for texts\[{TEXTS}\], there is no more", TEXTS),
        (["x "] * TEXTS + [5], rf"target_prefix must have a str for texts\[{TEXTS}\], got int", TEXTS),
        (["x "] * (TEXTS + 2), f"target_prefix has more than {TEXTS + 1} prefixes", TEXTS + 1),
    ],
)
def test_prefixes_that_are_not_as_many_as_the_texts_are_told_after_the_results(
    take: Take, prefixes: list[Any], told: str, done: int
) -> None:
    results, error = take(iter(["a"] * (TEXTS + 1)), target_prefix=prefixes)
    assert isinstance(error, SettingsError)
    assert re.match(told, str(error))
    assert upper(results) == ["x A"] * done


def texts_of_which_some_are_slow() -> Iterator[str]:
    yield from ["waits"] * TEXTS
    yield from itertools.repeat("slow")


def test_what_is_left_early_is_cancelled_and_leaves_no_thread(address: str, service: Service) -> None:
    with Client(address) as client:
        with closing(client.translate_iterable(texts_of_which_some_are_slow())) as results:
            assert next(results).text == "WAITS"
        eventually_blocking(lambda: service.cancelled == IN_FLIGHT - 1)
    assert [each.name for each in threading.enumerate() if "iterable" in each.name] == []


async def test_what_is_left_early_by_a_task_is_cancelled_and_leaves_no_task(address: str, service: Service) -> None:
    async with AsyncClient(address) as client:
        async with aclosing(client.translate_iterable(texts_of_which_some_are_slow())) as results:
            assert (await anext(results)).text == "WAITS"
            await eventually(lambda: service.slow == IN_FLIGHT)
        await eventually(lambda: service.cancelled == IN_FLIGHT)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_a_task_cancels_its_iterable(address: str, service: Service) -> None:
    async with AsyncClient(address) as client:

        async def consume() -> None:
            async for _ in client.translate_iterable(itertools.repeat("slow")):
                pass

        task = asyncio.create_task(consume())
        await eventually(lambda: service.slow > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: service.cancelled == service.slow)


@pytest.mark.parametrize("retrying", [False, True])
def test_closing_the_client_ends_the_iteration(address: str, service: Service, retrying: bool) -> None:
    client, ended = Client(address), list[LingonError]()
    if retrying:
        service.faults = [queue_full(20.0) for _ in range(IN_FLIGHT)]

    def consume() -> None:
        try:
            list(client.translate_iterable(itertools.repeat("a" if retrying else "slow")))
        except LingonError as error:
            ended.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    eventually_blocking(lambda: len(service.requests) + service.slow >= IN_FLIGHT)
    client.close()
    thread.join(10)
    assert "closed" in str(ended[0])


def test_the_iterable_is_read_by_the_thread_of_the_caller(address: str) -> None:
    """A cursor of SQLite refuses other threads."""
    with sqlite3.connect(":memory:") as database, Client(address) as client:
        database.execute("create table texts (text)")
        database.executemany("insert into texts values (?)", [(f"text {number}",) for number in range(2 * TEXTS)])
        rows = database.execute("select text from texts")
        assert len(list(client.translate_iterable(text for (text,) in rows))) == 2 * TEXTS
