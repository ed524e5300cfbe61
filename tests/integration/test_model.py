"""A model in this process gives what a client gets from a server with the same bundle."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from google.rpc import code_pb2

import lingon.client.model
from lingon import Client, LingonError, Model, ServerError, StreamStart, TextDone
from lingon.errors import Cancelled, SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.processes import serving
from tests.support.shipped_model import MODEL
from tests.support.timing import eventually_blocking

TEXTS = ["Tom lives in Boston.", " ", "How are you? It is raining.", "I have never seen such a beautiful house."]
LONG = [f"I have seen {number} houses and {number + 1} gardens, and none was as beautiful." for number in range(256)]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(MODEL, device="cpu", threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(MODEL, "--threads", 1) as server, Client(server.address) as opened:
        yield opened


def shown(results: Any) -> list[str]:
    """Results as text: an error is equal to another one only if it is the same object."""
    return [repr(each) for each in results]


CALLS: dict[str, Callable[[Any], Any]] = {
    "greedy": lambda it: it.translate(TEXTS, beam_size=1, return_tokens=True, return_alignment=True),
    "beam": lambda it: it.translate(TEXTS, beam_size=4, num_hypotheses=2, target="de"),
    "stream": lambda it: it.translate_stream(TEXTS[2:], beam_size=4),
    "iterable": lambda it: list(it.translate_iterable(iter(TEXTS * 20), beam_size=2)),
    "score": lambda it: it.score([("Tom lives in Boston.", "Tom wohnt in Boston."), ("", "Haus")]),
    "languages": lambda it: [it.detect_languages(TEXTS[0]), it.detect_languages("Das ist ein Haus.")],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_model_answers_as_a_client_of_a_server(call: str, model: Model, client: Client) -> None:
    assert shown(CALLS[call](model)) == shown(CALLS[call](client))


def test_one_text_has_one_result_and_its_error_is_raised(model: Model) -> None:
    assert model.translate(TEXTS[0]).text == "Tom wohnt in Boston."
    with pytest.raises(ServerError, match="the model reads") as caught:
        model.translate(TEXTS[0] * 99, split_sentences="off", long_text="refuse")
    assert (caught.value.status, caught.value.reason) == ("INVALID_ARGUMENT", "TEXT_TOO_LONG")
    with pytest.raises(ServerError, match=r"options\.beam_size must be 1 to 8, got 99"):
        model.translate(TEXTS[0], beam_size=99)


def test_a_greedy_stream_yields_the_text_as_it_grows(model: Model) -> None:
    start, *grows, done = model.translate_stream(TEXTS[3], beam_size=1)
    assert isinstance(start, StreamStart)
    assert isinstance(done, TextDone)
    assert "".join(each.text for each in grows) == done.result.text


def test_errors_of_a_stream_are_those_of_a_client(model: Model) -> None:
    with pytest.raises(ServerError, match="no model translates"):
        list(model.translate_stream(TEXTS, target="fi"))
    with pytest.raises(ServerError, match="deadline") as caught:
        list(model.translate_stream(LONG, timeout=0.001))
    assert caught.value.code == code_pb2.DEADLINE_EXCEEDED


def test_a_stream_that_is_left_frees_its_place_in_the_engine(model: Model) -> None:
    scheduler = model._local._translator.engine.scheduler
    stream = model.translate_stream([" ".join(LONG[:60])] * 256, beam_size=8)  # the work of half a minute
    next(stream)
    eventually_blocking(lambda: scheduler.load().running > 0)
    stream.close()
    eventually_blocking(lambda: scheduler.load().running == 0)


def test_an_iterable_that_is_left_frees_its_place_in_the_engine(model: Model) -> None:
    scheduler, long = model._local._translator.engine.scheduler, " ".join(LONG[:6])
    results = model.translate_iterable(itertools.chain(["Tom."] * 64, itertools.repeat(long)), beam_size=8)
    next(results)
    results.close()
    eventually_blocking(lambda: scheduler.load().running == 0)
    assert [each.name for each in threading.enumerate() if "iterable" in each.name] == []


def test_a_stream_that_is_cancelled_ends_before_its_texts(model: Model) -> None:
    stream = model._local.translate_stream(pb.TranslateStreamRequest(texts=LONG))
    next(stream)
    stream.cancel()
    with pytest.raises(Cancelled):
        list(stream)


def test_calls_in_progress_end_when_the_model_is_closed() -> None:
    model, began, ends = Model(MODEL, threads=1), threading.Barrier(3), []

    def ask(call: Callable[[], Any]) -> None:
        began.wait()
        try:
            call()
        except LingonError as error:
            ends.append(error)

    calls = (lambda: model.translate(LONG, beam_size=8), lambda: list(model.translate_stream(LONG, beam_size=8)))
    threads = [threading.Thread(target=ask, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    began.wait()
    model.close()
    for thread in threads:
        thread.join(30)
    assert [str(error) for error in ends] != []
    assert all("closed" in str(error) for error in ends)
    assert len(ends) == 2
    model.close()
    with pytest.raises(LingonError, match=r"^this model is closed; load it again$"):
        model.translate("Tom")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = EntryPoint("local", "a_library_not_installed:Local [serve]", "lingon.translators")
    monkeypatch.setattr(lingon.client.model, "find_entry_points", lambda group: {"local": absent})
    with pytest.raises(LingonError, match=r"^a model in this process needs what the extra 'serve' installs"):
        Model(MODEL)


def test_options_may_be_iterators(model: Model) -> None:
    assert "wohnt" not in model.translate([TEXTS[0]] * 3, forbidden_words=iter(["wohnt"]))[2].text
    assert model.translate("Tom found it.", keep=filter(None, ["found"])).text.count("found") == 1
    events = list(model.translate_stream(TEXTS[:1] * 2, target_prefix=iter(["Er", "Sie"])))
    done = {each.index: each.result.text for each in events if isinstance(each, TextDone)}
    assert (done[0].split()[0], done[1].split()[0]) == ("Er", "Sie")


def test_numbers_of_engines_and_threads_below_1_are_refused() -> None:
    for name in ("engines", "threads"):
        for value in (0, -1):
            with pytest.raises(SettingsError, match=f"{name} must be at least 1, got {value}"):
                Model(MODEL, **{name: value})


def test_a_forked_process_is_told_to_load_a_model_of_its_own(model: Model) -> None:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            try:
                model.translate("Yes.")
            except LingonError as error:
                os.write(writing, str(error).encode())
            model.close()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == "this model was loaded before a fork; load one in this process"
    os.waitpid(child, 0)
    assert model.translate(TEXTS[0]).text == "Tom wohnt in Boston."


def test_another_process_is_told_to_make_a_model_or_a_client_of_its_own(model: Model) -> None:
    with Client("127.0.0.1:1") as client:
        for each in (model, client):
            for send in (pickle.dumps, copy.deepcopy):
                with pytest.raises(TypeError, match=rf"^a {type(each).__name__} cannot .* make one in each process$"):
                    send(each)


def test_closing_a_model_cancels_calls_in_progress() -> None:
    opened, ended = Model(MODEL, device="cpu", engines=1, threads=1), list[str]()

    def call() -> None:
        try:
            opened.translate(LONG)
        except ServerError as error:
            ended.append(error.status)

    thread = threading.Thread(target=call)
    thread.start()
    eventually_blocking(lambda: not opened._local._translator.engine.idle)
    opened.close()
    thread.join(timeout=20)
    assert ended == ["CANCELLED"]


@pytest.mark.parametrize("end", [" Tom is late.", " {name} is late."])
def test_a_sentence_that_is_cut_has_a_warning_whatever_is_kept_in_it(model: Model, end: str) -> None:
    text = " ".join(["the man who lives in the house that"] * 20) + end
    for each in (text, text.upper()):
        result = model.translate(each, long_text="split")
        assert "split" in [warning.code for warning in result.warnings]
