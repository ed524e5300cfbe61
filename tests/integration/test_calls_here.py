"""A blocking call of a model in this process runs on the thread of its caller, and answers as all others do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lingon.bundle.store import Bundle
from lingon.errors import Cancelled, EngineFault, RequestError
from lingon.serving import in_process
from lingon.serving.decoding.job import DecodeJob, Hypothesis
from lingon.serving.engine.engine import Engine
from lingon.serving.in_process import LocalTranslator
from lingon.serving.models.loading import LoadOptions
from lingon.serving.translation.one_sentence import PLAIN_FIELDS, OneSentence
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import bundle, tokenizer
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


ODD_TEXTS = [
    "",
    "   ",
    "Tom lives in Boston",
    "  Tom lives in Boston.  ",
    "TOM LIVES IN BOSTON.",
    "Tom has 3 cats.",
    "See https://example.org.",
    "Tom\tlives\nin Boston.",
    "Где вокзал?",
    "Grüße!",
    "e\u0301",
    "-- Tom",
    "Tom   lives   in Boston.",
    "Tom lives in Boston " * 20,
]
SEARCHES = [
    pb.DecodingOptions(),
    pb.DecodingOptions(beam_size=4, return_tokens=True),
    pb.DecodingOptions(beam_size=2, num_hypotheses=2),
    pb.DecodingOptions(max_output_tokens=2),
    pb.DecodingOptions(min_output_tokens=4),
    pb.DecodingOptions(beam_size=99),
    pb.DecodingOptions(alternatives=2, beam_size=1),
    pb.DecodingOptions(sampling=pb.SamplingOptions(seed=3)),
]


def answered(call: Callable[[], pb.TranslateResponse]) -> pb.TranslateResponse | tuple[type, str]:
    try:
        return call()
    except RequestError as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_one_sentence_has_the_answer_of_the_event_loop(local: Local, options: pb.DecodingOptions) -> None:
    for text in [*TEXTS, *ODD_TEXTS]:
        request = pb.TranslateRequest(texts=[text], options=options)
        expected = answered(lambda request=request: local.translator.begin("Translate", request).result())  # type: ignore[misc]
        assert answered(lambda request=request: local.translator.translate(request)) == expected  # type: ignore[misc]


def test_terms_that_are_not_in_the_sentence_change_neither_its_answer_nor_its_way(reading: Local) -> None:
    search = pb.DecodingOptions(beam_size=4)
    translator = reading.translator._translator
    free = reading.translator.translate(pb.TranslateRequest(texts=[PLAIN], options=search))
    for term, is_there in (("ship", False), ("man", True), ("The old", True), ("ol", False)):
        request = pb.TranslateRequest(texts=[PLAIN], options=search, terms=[pb.Term(source=term, target="Boot")])
        assert (translator.one_sentence(request) is None) == is_there
        found = reading.translator.translate(request)
        assert found == reading.translator.begin("Translate", request).result()
        assert (found == free) == (not is_there)


@pytest.mark.parametrize(
    "fields",
    [
        {"terms": [pb.Term(source="ship", target="a"), pb.Term(source="Ship", target="b")]},
        {"terms": [pb.Term(source=" ", target="a")]},
        {"terms": [pb.Term(source="ship", target="a")] * 201},
        {"terms": [pb.Term(source="ship", target="a")], "options": pb.DecodingOptions(forced_words=["x"])},
    ],
)
def test_terms_that_are_wrong_are_refused_as_on_the_event_loop(reading: Local, fields: dict[str, Any]) -> None:
    request = pb.TranslateRequest(texts=[PLAIN], **fields)
    expected = answered(lambda: reading.translator.begin("Translate", request).result())
    assert isinstance(expected, tuple)
    assert answered(lambda: reading.translator.translate(request)) == expected


PLAIN = "The old man and the sea."


@pytest.fixture
def reading(local: Local) -> Local:
    """A translator that knows that its model reads the characters of PLAIN, which it finds out on its event loop."""
    local.translator.begin("Translate", pb.TranslateRequest(texts=[PLAIN])).result()
    return local


def test_one_plain_sentence_takes_no_event_loop(reading: Local) -> None:
    loops = reading.translator._on_callers
    assert loops is not None
    search = pb.DecodingOptions(beam_size=2)  # a greedy translation that is suspicious is decoded again
    reading.translator.translate(pb.TranslateRequest(texts=[PLAIN], options=search))
    assert not loops._idle
    reading.translator.translate(pb.TranslateRequest(texts=[f"{PLAIN} {PLAIN}"], options=search))
    assert loops._idle


OTHERS = [each.name for each in pb.TranslateRequest.DESCRIPTOR.fields if each.name not in PLAIN_FIELDS]


@pytest.mark.parametrize("name", OTHERS)
def test_a_request_that_sets_any_other_field_takes_the_tasks_of_all_requests(reading: Local, name: str) -> None:
    request = pb.TranslateRequest(texts=[PLAIN])
    translator = reading.translator._translator
    assert translator.one_sentence(request) is not None
    field = getattr(request, name)
    if hasattr(field, "SetInParent"):
        field.SetInParent()
    elif hasattr(field, "add"):
        field.add()
    else:
        field.append("Tom")
    assert translator.one_sentence(request) is None


def test_a_plain_sentence_keeps_to_its_time_limit(reading: Local) -> None:
    request, soon = pb.TranslateRequest(texts=[PLAIN]), 1e-9
    expected = answered(lambda: reading.translator.begin("Translate", request, soon).result())
    assert isinstance(expected, tuple)
    assert answered(lambda: reading.translator.translate(request, soon)) == expected


def sentence_and_job(reading: Local) -> tuple[OneSentence, DecodeJob]:
    request = pb.TranslateRequest(texts=[PLAIN], options=pb.DecodingOptions(beam_size=1))
    found = reading.translator._translator.one_sentence(request)
    assert found is not None
    return found, found.job(None, lambda outcome: None)


def test_a_sentence_without_a_usable_translation_takes_more_than_one_job(reading: Local) -> None:
    sentence, job = sentence_and_job(reading)
    ids = tuple(tokenizer().encode_target("Der alte Mann und das Meer."))
    byte = tokenizer().target.piece_to_id("<0xE2>")
    for tokens, is_usable in ((ids, True), ((*ids, byte), False), (ids[:2] * 20, False)):
        found = Hypothesis(tokens, (-0.1,) * (len(tokens) + 1), -0.1, finished=True)
        assert (sentence.result(job, (found,)) is not None) == is_usable


def test_a_fault_of_the_engine_is_the_status_of_the_sentence(reading: Local) -> None:
    sentence, job = sentence_and_job(reading)
    result = sentence.result(job, EngineFault("decoding this text failed"))
    assert result is not None
    assert result.status.message == "decoding this text failed"
