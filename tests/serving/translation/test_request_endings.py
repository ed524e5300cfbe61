"""When requests end and streams go on, and that what a request leaves behind keeps nothing in memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import Cancelled, EngineFault, EngineLost, Expired, OutOfMemory, RequestError
from lingon.serving.decoding.job import Hypothesis, Job
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.translation.engine_client import LoopCallbacks
from lingon.serving.translation.options import WHOLE
from lingon.serving.translation.translator import MAX_CACHED_BYTES, Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import bundle, tokenizer
from tests.support.timing import eventually

EMPTY = (Hypothesis((), (-0.1,), -0.1, finished=True),)


LOOP = "The old man and the sea, where is the station"


def _repeating(text: str, times: int) -> tuple[Hypothesis, ...]:
    tokens = tuple(tokenizer().encode_target((text * times).strip()))
    log_probs = (-0.1,) * (len(tokens) + 1)
    return (Hypothesis(tokens, log_probs, sum(log_probs), finished=True),)


class ManualEngine:
    """An engine whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.cancelled: list[Job] = []
        self.refusal: RequestError | None = None  # of the jobs that are submitted

    def check_texts(self, caller: str, texts: int) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.jobs += jobs

    def cancel(self, jobs: Sequence[Job]) -> None:
        self.cancelled += jobs


def translator(folder: Path) -> tuple[Translator, Any]:
    engine: Any = ManualEngine()
    return Translator(bundle(folder), engine, EngineLimits()), engine


@pytest.mark.parametrize("method", ["translate", "score"])
async def test_an_error_of_the_last_job_ends_the_request_before_the_first_job_is_done(tmp_path: Path, method: str):
    """A worker that died has its jobs ended while the other workers of the engine finish theirs."""
    model, engine = translator(tmp_path)
    pairs = [pb.ScorePair(source=text, target="Tom") for text in ("Tom", "Tom lives")]
    texts = ["Tom", "Tom lives"]
    call = (
        model.translate(pb.TranslateRequest(texts=texts))
        if method == "translate"
        else model.score(pb.ScoreRequest(pairs=pairs))
    )
    request = asyncio.create_task(call)
    await eventually(lambda: len(engine.jobs) == 2)
    first, second = engine.jobs
    second.on_done(EngineLost("the worker died"))
    with pytest.raises(EngineLost):
        await asyncio.wait_for(request, 60)
    assert engine.cancelled == [first]


async def test_a_fault_of_one_text_leaves_the_others_alone(tmp_path: Path):
    model, engine = translator(tmp_path)
    request = asyncio.create_task(model.translate(pb.TranslateRequest(texts=["Tom", "Tom lives"], text=WHOLE)))
    await eventually(lambda: len(engine.jobs) == 2)
    engine.jobs[1].on_done(EngineFault("not a number"))
    engine.jobs[0].on_done(EMPTY)
    reply = await asyncio.wait_for(request, 60)
    assert [bool(result.status.code) for result in reply.results] == [False, True]


@pytest.mark.parametrize("error", [OutOfMemory("no memory"), EngineFault("not a number"), EngineLost("gone")])
async def test_a_text_keeps_its_translation_if_another_attempt_at_it_fails(tmp_path: Path, error: RequestError):
    model, engine = translator(tmp_path)
    options = pb.DecodingOptions(beam_size=1)
    request = asyncio.create_task(model.translate(pb.TranslateRequest(texts=[LOOP, "Tom"], options=options)))
    await eventually(lambda: len(engine.jobs) == 2)
    engine.jobs[0].on_done(_repeating("Tom lives ", 20))
    await eventually(lambda: len(engine.jobs) == 3)
    assert engine.jobs[2].follow_up
    engine.jobs[2].on_done(error)
    await asyncio.sleep(0.01)
    engine.jobs[1].on_done(_repeating("Tom", 1))
    reply = await asyncio.wait_for(request, 60)
    assert [result.hypotheses[0].text for result in reply.results] == [("Tom lives " * 20).strip(), "Tom"]
    assert pb.WARNING_CODE_REPETITION in [warning.code for warning in reply.results[0].warnings]


async def test_a_text_keeps_its_translation_if_the_engine_takes_no_other_attempt(tmp_path: Path):
    model, engine = translator(tmp_path)
    options = pb.DecodingOptions(beam_size=1)
    request = asyncio.create_task(model.translate(pb.TranslateRequest(texts=[LOOP], options=options)))
    await eventually(lambda: len(engine.jobs) == 1)
    engine.refusal = EngineLost("gone")
    engine.jobs[0].on_done(_repeating("Tom lives ", 20))
    (result,) = (await asyncio.wait_for(request, 60)).results
    assert result.hypotheses[0].text == ("Tom lives " * 20).strip()


TERM = pb.Term(source="station", target="Bahnhof")


async def _repairing(model: Translator, engine: Any) -> asyncio.Task[pb.TranslateResponse]:
    """Return a request whose first translation misses its term, so that its last job is of the repair."""
    request = asyncio.create_task(model.translate(pb.TranslateRequest(texts=["Where is the station"], terms=[TERM])))
    await eventually(lambda: len(engine.jobs) == 1)
    engine.jobs[0].on_done(_repeating("Tom lives", 1))
    await eventually(lambda: len(engine.jobs) == 2)
    assert engine.jobs[1].follow_up
    return request


async def test_a_translation_that_has_its_terms_takes_no_further_job(tmp_path: Path):
    model, engine = translator(tmp_path)
    term = pb.Term(source="station", target="lives")
    request = asyncio.create_task(model.translate(pb.TranslateRequest(texts=["Where is the station"], terms=[term])))
    await eventually(lambda: len(engine.jobs) == 1)
    engine.jobs[0].on_done(_repeating("Tom lives", 1))
    (result,) = (await asyncio.wait_for(request, 60)).results
    assert [each.means for each in result.terms] == [pb.TERM_MEANS_FREE]
    assert len(engine.jobs) == 1


async def test_a_text_keeps_its_translation_if_its_terms_cannot_be_put_into_it(tmp_path: Path):
    model, engine = translator(tmp_path)
    request = await _repairing(model, engine)
    engine.jobs[1].on_done(EngineFault("not a number"))
    (result,) = (await asyncio.wait_for(request, 60)).results
    assert result.hypotheses[0].text == "Tom lives"
    assert [each.means for each in result.terms] == [pb.TERM_MEANS_MISSED]


async def test_a_deadline_that_passes_during_a_repair_ends_the_request(tmp_path: Path):
    model, engine = translator(tmp_path)
    request = await _repairing(model, engine)
    engine.jobs[1].on_done(Expired("late"))
    with pytest.raises(Expired):
        await asyncio.wait_for(request, 60)


async def test_a_request_that_is_cancelled_during_a_repair_cancels_its_jobs(tmp_path: Path):
    model, engine = translator(tmp_path)
    request = await _repairing(model, engine)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert engine.cancelled == [engine.jobs[1]]


@pytest.mark.parametrize("closed_before", [False, True])
def test_values_posted_to_a_loop_that_closes_are_not_kept(closed_before: bool):
    """They hold the engine of their request, and with it a model."""

    class Engine:
        """Stands for what a callback refers to."""

    def leave_behind() -> list[weakref.ref[Any]]:
        loop, engine = asyncio.new_event_loop(), Engine()
        callbacks, outcome = LoopCallbacks.of(loop), loop.create_future()
        if closed_before:
            loop.close()
        callbacks.post(partial(print, engine, outcome), None)
        loop.close()
        return [weakref.ref(loop), weakref.ref(engine)]

    left = leave_behind()
    gc.collect()
    assert [each() for each in left] == [None, None]


def test_options_with_large_unknown_fields_are_not_kept(tmp_path: Path):
    """A field that the server does not know is part of the message, and a client chooses its size."""
    model, _ = translator(tmp_path)
    for number in range(3):
        content = bytes([number]) * 1000
        unknown = b"\xa2\x06" + b"\xe8\x07" + content  # field 100, 1,000 bytes
        options = pb.DecodingOptions.FromString(pb.DecodingOptions(beam_size=1).SerializeToString() + unknown)
        assert model.resolve(options).job.beam_size == 1
    assert sum(len(part) for key in model._resolved for part in key) <= MAX_CACHED_BYTES


async def test_the_text_of_a_part_is_sent_when_the_parts_before_it_are_done(tmp_path: Path):
    """Later parts may wait in the queue for long; text that was decoded does not wait for their tokens."""
    model, engine = translator(tmp_path)
    options = pb.DecodingOptions(beam_size=1, long_text=pb.LONG_TEXT_POLICY_SPLIT)
    request = pb.TranslateStreamRequest(texts=["Tom lives in Boston. " * 12])
    stream = model.stream(request, model.resolve(options))
    event = asyncio.create_task(anext(stream))
    await eventually(lambda: engine.jobs)
    first, second, *others = engine.jobs
    assert others
    (token, *_) = tokenizer().encode_target("Tom")
    second.on_tokens(token)
    await asyncio.sleep(0.01)
    assert not event.done()
    first.on_done(EMPTY)
    assert await asyncio.wait_for(event, 60) == (0, " " + tokenizer().decode([token]))  # the first one has no text
    await stream.aclose()
    assert engine.cancelled == [second, *others]


@pytest.mark.parametrize("method", ["translate", "translate and align", "score", "stream"])
async def test_a_cancelled_request_cancels_all_of_its_jobs(tmp_path: Path, method: str):
    model, engine = translator(tmp_path)
    texts = ["Tom", "Tom lives", "Boston"]

    async def read_stream() -> None:
        request = pb.TranslateStreamRequest(texts=texts)
        async with aclosing(model.stream(request, model.resolve(request.options))) as events:
            async for _ in events:
                pass

    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "translate": lambda: model.translate(pb.TranslateRequest(texts=texts)),
        "translate and align": lambda: model.translate(
            pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(return_alignment=True))
        ),
        "score": lambda: model.score(
            pb.ScoreRequest(pairs=[pb.ScorePair(source=text, target="Tom") for text in texts])
        ),
        "stream": read_stream,
    }
    request = asyncio.create_task(calls[method]())
    await eventually(lambda: len(engine.jobs) == 3)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert engine.cancelled == engine.jobs


async def test_a_cancelled_request_leaves_no_error_unread(tmp_path: Path):
    """The engine ends the jobs of a cancelled request while some of its sentences with kept strings still wait."""
    model, engine = translator(tmp_path)
    unread: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    texts = ["Tom lives in {city}.", "Tom lives in {city}. " * 6]
    request = asyncio.create_task(model.translate(pb.TranslateRequest(texts=texts)))
    await eventually(lambda: len(engine.jobs) == 7)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    for job in engine.cancelled:
        job.on_done(Cancelled())
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert unread == []
