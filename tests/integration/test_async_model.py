"""A model in this process for asyncio answers as a model does, never blocks the event loop, and frees what is left."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lingon import AsyncModel, LingonError, Model, ServerError
from lingon.errors import SettingsError
from tests.support.shipped_model import MODEL
from tests.support.timing import eventually

TEXTS = ["Tom lives in Boston.", " ", "How are you? It is raining."]
LONG = [f"I have seen {number} houses and {number + 1} gardens." for number in range(256)]


@pytest.fixture(scope="module")
def model() -> AsyncModel:
    """It may be loaded by one event loop, and used by others."""
    opened = AsyncModel(MODEL, device="cpu", threads=1)
    asyncio.run(opened.load())
    yield opened
    asyncio.run(opened.close())


async def listed(results: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in results]


CALLS: dict[str, Callable[[Any], Any]] = {
    "greedy": lambda it: it.translate(TEXTS, beam_size=1, return_tokens=True, return_alignment=True),
    "beam": lambda it: it.translate(TEXTS, beam_size=4, num_hypotheses=2, target="de"),
    "stream": lambda it: it.translate_stream(TEXTS[2:], beam_size=4),
    "iterable": lambda it: it.translate_iterable(iter(TEXTS * 50)),
    "score": lambda it: it.score([("Tom lives in Boston.", "Tom wohnt in Boston."), ("", "Haus")]),
    "languages": lambda it: it.detect_languages([TEXTS[0], "Das ist ein Haus."]),
    "models": lambda it: it.list_models(),
}


async def test_an_asynchronous_model_answers_as_a_model(model: AsyncModel) -> None:
    with Model(MODEL, device="cpu", threads=1) as other:
        for name, call in CALLS.items():
            expected, answer = call(other), call(model)
            found = await (listed(answer) if name in ("stream", "iterable") else answer)
            assert [repr(each) for each in found] == [repr(each) for each in expected], name


async def test_errors_are_those_of_a_model(model: AsyncModel) -> None:
    for wrong, told in (({"beam_size": 99}, "beam_size must be 1 to 8"), ({"target": "fi"}, "no model translates")):
        for answer in (model.translate("Tom", **wrong), listed(model.translate_stream("Tom", **wrong))):
            with pytest.raises(ServerError, match=told):
                await answer
    with pytest.raises(ServerError, match="deadline"):
        await model.translate(LONG, beam_size=8, timeout=0.001)


@pytest.mark.parametrize("call", ["translate", "translate_stream", "translate_iterable"])
async def test_cancelling_a_task_ends_its_work_in_the_engine(model: AsyncModel, call: str) -> None:
    scheduler = model._local._translator.engine.scheduler
    answer = getattr(model, call)([" ".join(LONG[:60])] * 256, beam_size=8)  # the work of half a minute
    task = asyncio.ensure_future(answer if isinstance(answer, Awaitable) else listed(answer))
    await eventually(lambda: scheduler.load().running > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: scheduler.load().running == 0)


async def test_the_event_loop_runs_while_a_model_is_loaded_and_closed() -> None:
    turns = itertools.count()

    async def count() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with AsyncModel(MODEL, device="cpu", threads=1) as model:
        loaded = next(turns)
        await model.translate("Tom.")
    counting.cancel()
    assert loaded > 10


async def test_a_model_is_loaded_once_however_often_it_is_asked_for() -> None:
    model = AsyncModel(MODEL, device="cpu", threads=1)
    await asyncio.gather(model.load(), model.load())
    local = model._local
    async with model:
        assert model._local is local


async def test_calls_in_progress_end_when_the_model_is_closed() -> None:
    model = AsyncModel(MODEL, device="cpu", engines=1, threads=1)
    await model.load()
    calls = [
        model.translate(LONG, beam_size=8),
        listed(model.translate_stream(LONG, beam_size=8)),
        listed(model.translate_iterable(LONG, beam_size=8)),
    ]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await eventually(lambda: model._local._translator.engine.scheduler.load().running > 0)
    await model.close()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(ended, LingonError)
        assert "closed" in str(ended)
    await model.close()
    for call in (model.translate("Tom"), model.load()):
        with pytest.raises(LingonError, match=r"^this model is closed; load it again$"):
            await call


async def test_a_model_whose_load_is_cancelled_is_freed() -> None:
    def threads() -> list[str]:
        return sorted(
            each.name for each in threading.enumerate() if each.name.startswith(("local", "engine", "lingon"))
        )

    before = threads()
    opening = asyncio.create_task(AsyncModel(MODEL, device="cpu", threads=1).__aenter__())
    await eventually(lambda: any(name.startswith("lingon model") for name in threads()))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await eventually(lambda: threads() == before)


async def test_a_model_that_is_not_loaded_says_so() -> None:
    model = AsyncModel(MODEL)
    with pytest.raises(LingonError, match=r"not loaded; .*`async with`.* load\(\)"):
        await model.translate("Tom")
    await model.close()
    with pytest.raises(SettingsError, match="threads must be at least 1, got 0"):
        AsyncModel(MODEL, threads=0)
    with pytest.raises(LingonError, match="nowhere"):
        async with AsyncModel(Path("nowhere")):
            pass


def test_a_model_that_was_loaded_before_a_fork_says_so(model: AsyncModel) -> None:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            for call in (model.translate("Yes."), model.load()):
                try:
                    asyncio.run(call)
                except LingonError as error:
                    os.write(writing, f"{error}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == "this model was loaded before a fork; load one in this process\n" * 2
    os.waitpid(child, 0)
