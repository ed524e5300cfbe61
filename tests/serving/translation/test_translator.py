"""Planning shares the event loop with other tasks, and ends when a request is too large."""

from __future__ import annotations

import asyncio
import gc
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import InvalidRequest, QueueFull, RequestTooLarge, TextTooLong
from lingon.serving import event_loop
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.event_loop import TimeSlice
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.options import WHOLE
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import LIMITS, EchoRunner, bundle
from tests.support.timing import counted_iterations, eventually


async def test_the_event_loop_runs_other_tasks_while_long_texts_are_planned(tmp_path: Path):
    limits = EngineLimits(max_queue_texts=8192, max_queue_tokens=1_000_000)
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), limits), limits)
    options = translator.resolve(pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT))
    marks = " ".join(["a" + "\u0301\u0323" * 350] * 60)  # the time of NFC is quadratic in the length of a run
    request = pb.TranslateRequest(texts=[marks, "Tom lives. " * 3000])
    plans = asyncio.create_task(translator.plan(request, options, TimeSlice()))
    passes = 0
    while not plans.done():
        await asyncio.sleep(0)
        passes += 1
    assert passes > 5
    assert max(len(part.source_ids) for part in plans.result()[0].parts) <= LIMITS.max_source_tokens
    assert len(plans.result()[1].parts) == 3000
    assert unicodedata.is_normalized("NFC", plans.result()[1].parts[0].text)


@pytest.mark.parametrize(("texts", "gives_way"), [(1, False), (2, True)])
async def test_a_request_of_one_sentence_gives_way_to_no_other_one(
    texts: int, gives_way: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_loop, "MAX_SLICE", 1e-9)  # every slice is over
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), EngineLimits()), EngineLimits())
    request, options = (
        pb.TranslateRequest(texts=["Tom lives in Boston."] * texts),
        translator.resolve(pb.DecodingOptions()),
    )
    async with counted_iterations() as passes:
        await translator.plan(request, options, TimeSlice())
    assert bool(passes) == gives_way


SPLIT = pb.LONG_TEXT_POLICY_SPLIT


@pytest.mark.parametrize(
    ("texts", "options", "limits", "found"),
    [
        (["Oh! " * 100_000], {}, {}, "1025 sentences or more; a request may have 1024 at most"),
        (["Oh! " * 600] * 100, {}, {}, "1025 sentences or more; a request may have 1024 at most"),
        (
            ["Tom. " * 100] * 9,
            {"sampling": pb.SamplingOptions(), "num_hypotheses": 4},
            {"max_queue_texts": 1000},
            "1004 sentences or more; a request may have 1000 at most",
        ),
        (["Tom lives in Boston. " * 90], {}, {"max_queue_tokens": 200}, "tokens or more; a request may have 200 at"),
        (
            [".!" * 140_000],
            {},
            {},
            "280000 signs beside letters, figures and blanks or more; a request may have 262144",
        ),
        (["1\n" * 40_000] * 2, {}, {}, "50001 parts without letters or more; a request may have 50000 at most"),
        (["%s " * 6000] * 2, {}, {}, "12000 strings to keep or more; a request may have 10000 at most"),
        (["\ufb01i" * 270_000], {}, {}, "270000 characters that the model reads as others or more; a request may"),
        ([" " * 9000] * 10, {}, {"max_queue_tokens": 4000}, "72000 characters or more; a request may have 64256 at"),
    ],
)
async def test_planning_ends_at_the_first_sentence_that_the_queue_could_not_take(
    tmp_path: Path, texts: list[str], options: dict[str, Any], limits: dict[str, int], found: str
):
    bounds = EngineLimits(**limits)
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), bounds), bounds)
    resolved = translator.resolve(pb.DecodingOptions(long_text=SPLIT, **options))
    with pytest.raises(InvalidRequest, match=found):
        await translator.plan(pb.TranslateRequest(texts=texts), resolved, TimeSlice())


async def test_a_sentence_of_too_many_strings_that_the_model_cannot_read_is_refused(tmp_path: Path):
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), EngineLimits()), EngineLimits())
    whole = pb.TextOptions(split_sentences=pb.SENTENCE_SPLITTING_OFF)
    options = translator.resolve(pb.DecodingOptions(long_text=SPLIT), whole)
    (plan,) = await translator.plan(pb.TranslateRequest(texts=["Tom • " * 10_001]), options, TimeSlice())
    assert isinstance(plan, TextTooLong)
    assert "texts[0] has a sentence with more than 10000 strings that the model cannot read" in str(plan)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<b></b>" * 12_001 + "a", "72006 tags and signs < or more; a request may have 50000 at most"),
        ("<b>a</b>" * 4_000, "12000 elements that do not split them or more; a request may have 10000 at most"),
        ("&amp" * 40_000, "120000 signs & or more; a request may have 100000 at most"),
        ("<!" + "a" * 600_000 + ">b", "1800012 characters with markup or more; a request may have 1573248 at most"),
    ],
)
async def test_the_markup_of_all_texts_is_counted_before_it_is_read(tmp_path: Path, text: str, found: str):
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), EngineLimits()), EngineLimits())
    resolved = translator.resolve(pb.DecodingOptions(), pb.TextOptions(format=pb.TEXT_FORMAT_HTML))
    with pytest.raises(RequestTooLarge, match=found):
        await translator.plan(pb.TranslateRequest(texts=[text] * 3), resolved, TimeSlice())


async def test_planning_ends_when_the_queue_has_no_place_for_what_is_planned(tmp_path: Path):
    bounds = EngineLimits(max_queue_texts=100)
    engine = Engine(EchoRunner(), bounds)  # which is not started, so that its queue keeps what it holds
    translator = Translator(bundle(tmp_path), engine, bounds)
    options = translator.resolve(pb.DecodingOptions(long_text=SPLIT))
    first = asyncio.create_task(translator.translate(pb.TranslateRequest(texts=["Tom. " * 60]), caller="many"))
    await eventually(lambda: engine.scheduler.load().queued == 60)
    too_many = pb.TranslateRequest(texts=["Tom. " * 30, "Tom. " * 30, "x" * 200_000], options={"long_text": SPLIT})
    with pytest.raises(QueueFull, match="60 texts are queued, 41 more would exceed the limit of 100"):
        await translator.plan(too_many, options, TimeSlice("many"))
    fitting = pb.TranslateRequest(texts=["Tom. " * 60])
    assert len(await translator.plan(fitting, options, TimeSlice("other"))) == 1
    first.cancel()


async def test_the_tokens_of_pairs_are_counted_while_they_are_planned(tmp_path: Path):
    bounds = EngineLimits(max_queue_tokens=100)
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), bounds), bounds)
    pairs = [pb.ScorePair(source="Tom", target="Tom lives in Boston. " * 2)] * 50
    with pytest.raises(InvalidRequest, match=r"pairs come to 1\d\d tokens or more; a request may have 100 at most"):
        await translator.score(pb.ScoreRequest(pairs=pairs))


async def test_the_alignment_of_a_translation_at_the_limit_is_scored_within_the_positions_of_the_scorer(tmp_path: Path):
    lengths: list[int] = []

    class Noting(EchoRunner):
        def score(self, *arguments: np.ndarray) -> list[Scored]:
            lengths.extend(arguments[3].tolist())
            return super().score(*arguments)

    bounds = EngineLimits()
    translator = Translator(bundle(tmp_path), Engine(Noting(endless=True), bounds), bounds)
    translator.engine.start()
    lengths.clear()  # of the warm-up
    options = pb.DecodingOptions(beam_size=1, return_alignment=True, return_tokens=True)
    try:
        reply = await translator.translate(pb.TranslateRequest(texts=["Tom " * 15], options=options, text=WHOLE))
    finally:
        translator.engine.stop(0)
    (hypothesis,) = reply.results[0].hypotheses
    assert len(hypothesis.tokens) == LIMITS.max_target_tokens
    assert lengths == [LIMITS.max_target_tokens - 1]
    assert len(hypothesis.alignment) > 0


def _errors_alive() -> int:
    return sum(type(each) is TextTooLong for each in gc.get_objects())  # isinstance would ask objects of torch


async def test_texts_that_are_refused_leave_no_reference_cycles(tmp_path: Path):
    bounds = EngineLimits()
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), bounds), bounds)

    async def refuse() -> None:
        await translator.translate(pb.TranslateRequest(texts=["b" * 9000, "a" * 9000]))
        await translator.score(pb.ScoreRequest(pairs=[pb.ScorePair(source="a" * 9000, target="a")]))

    await refuse()  # fills caches
    gc.collect()
    gc.disable()
    try:
        of_others = _errors_alive()
        await refuse()
        assert _errors_alive() == of_others
    finally:
        gc.enable()
