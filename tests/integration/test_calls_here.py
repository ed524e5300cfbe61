"""A blocking call of a model in this process runs on the thread of its caller, and answers as all others do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lingon.bundle.store import Bundle
from lingon.errors import Cancelled
from lingon.serving import in_process
from lingon.serving.engine.engine import Engine
from lingon.serving.in_process import LocalTranslator
from lingon.serving.models.loading import LoadOptions
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import bundle
from tests.support.engine_harness import ThreadNotingRunner
from tests.support.timing import eventually_blocking

TEXTS = ["Tom lives in Boston.", "Where is the station? It is raining.", "Nobody knows."]


class Local:
    """A translator in this process with a fake runner. provider: of its engine"""

    provider = "CPUExecutionProvider"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runner = ThreadNotingRunner()
        monkeypatch.setattr(in_process, "load_translator", self._load)
        self.translator = LocalTranslator(bundle(folder).folder)
        self.runner.steps_of.clear()

    def _load(self, found: Bundle, options: LoadOptions) -> Translator:
        engine = Engine(self.runner, options.limits, options.observer, workers=2)
        engine.start()
        return Translator(found, engine, options.limits, precision="fp32", provider=self.provider, cache=options.cache)

    def translate(self, *texts: str) -> pb.TranslateResponse:
        return self.translator.translate(pb.TranslateRequest(texts=texts))

    @property
    def threads(self) -> set[int]:
        return {thread for thread, _ in self.runner.steps_of}


class OnCard(Local):
    provider = "CUDAExecutionProvider"


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    found = Local(tmp_path, monkeypatch)
    yield found
    if not found.translator._closed:
        found.translator.close()


def test_a_call_alone_is_decoded_on_the_thread_of_its_caller(local: Local) -> None:
    for text in TEXTS:
        assert local.translate(text).results[0].hypotheses[0].text == text
    local.translator.score(pb.ScoreRequest(pairs=[pb.ScorePair(source=TEXTS[0], target=TEXTS[1])]))
    assert local.threads == {threading.get_ident()}


def test_calls_on_a_card_stay_on_the_threads_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = OnCard(tmp_path, monkeypatch)
    assert local.translate(TEXTS[0]).results[0].hypotheses[0].text == TEXTS[0]
    assert threading.get_ident() not in local.threads
    local.translator.close()


def test_a_call_within_a_running_event_loop_is_answered_too(local: Local) -> None:
    expected = local.translate(*TEXTS)

    async def call() -> pb.TranslateResponse:
        return local.translate(*TEXTS)

    assert asyncio.run(call()) == expected


def test_a_translator_can_be_closed_within_a_running_event_loop(local: Local) -> None:
    local.translate(TEXTS[0])

    async def close() -> None:
        local.translator.close()

    asyncio.run(close())
    with pytest.raises(Cancelled, match="the model was closed"):
        local.translate(TEXTS[0])


def test_calls_of_many_threads_have_the_replies_of_calls_alone(local: Local) -> None:
    expected = {text: local.translate(text) for text in TEXTS}
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(local.translate, TEXTS * 30))
    assert replies == [expected[text] for text in TEXTS * 30]
    eventually_blocking(lambda: local.translator._translator.engine.idle)


def test_the_event_loop_of_the_caller_stays_its_own(local: Local) -> None:
    local.translate(TEXTS[0])
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    assert asyncio.run(asyncio.sleep(0, "other")) == "other"


def test_an_interrupted_call_raises_and_the_next_call_is_answered(local: Local) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    local.runner.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        local.translate(TEXTS[0])
    local.runner.during = lambda: None
    assert local.translate(TEXTS[0]).results[0].hypotheses[0].text == TEXTS[0]
    assert local.translator._translator.engine.healthy


def test_closing_cancels_a_call_on_the_thread_of_its_caller(local: Local) -> None:
    closing = threading.Thread(target=local.translator.close)

    def close_once() -> None:
        if not closing.ident:
            closing.start()
            eventually_blocking(lambda: local.translator._on_callers._closed)  # type: ignore[union-attr]

    local.runner.during = close_once
    with pytest.raises(Cancelled, match="the model was closed during this call"):
        local.translate(TEXTS[0])
    closing.join(10)
    assert not closing.is_alive()
    with pytest.raises(Cancelled, match="the model was closed"):
        local.translate(TEXTS[0])
