"""Quotas: the amount of a minute, the time to wait, what a request costs, and which refused ones are refunded."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.bundle.manifest import Defaults
from lingon.errors import InvalidRequest, QuotaExceeded
from lingon.serving.auth.api_keys import new_key
from lingon.serving.auth.charges import DETECT, DETECT_TEXT, characters_of, weighted_characters
from lingon.serving.auth.quota import BURST, MINUTE, REFUNDED, REFUSAL, SECOND, Bucket, Quota, RefundLimit
from lingon.serving.decoding.job import DecodeJob, Options, Sampling
from lingon.serving.engine.cost import DECODE, ENCODE, FORCE, RESTRICT, SAMPLE, SCORE, ChargedModel, cost_of
from lingon.serving.settings import MAX_TEXTS
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import EchoRunner, RunningServer, details, failure, running, vocabulary
from tests.support.timing import eventually

PER_MINUTE = st.integers(1, 10_000)
MOMENTS = st.lists(st.tuples(st.integers(0, 90 * SECOND), st.integers(0, 12_000)), min_size=1, max_size=40)


@given(PER_MINUTE, MOMENTS)
def test_no_period_gets_more_than_the_quota_of_a_minute_plus_what_it_regains(per_minute, requested):
    bucket, now, taken = Bucket(per_minute), 0, []
    for pause, amount in requested:
        now += pause
        if amount <= per_minute and not bucket.wait(amount, now):
            bucket.take(amount, now)
            taken.append((now, amount))
    for first in range(len(taken)):
        total = 0
        for moment, amount in taken[first:]:
            total += amount
            lasted = moment - taken[first][0]
            # each cost is rounded down by less than a nanosecond
            assert total * MINUTE <= per_minute * (MINUTE + lasted + len(taken))


@given(PER_MINUTE, MOMENTS)
def test_the_wait_is_exact_to_the_nanosecond(per_minute, requested):
    bucket, now = Bucket(per_minute), 0
    for pause, amount in requested:
        now += pause
        if amount > per_minute:
            continue
        wait = bucket.wait(amount, now)
        if wait:
            assert bucket.wait(amount, now + wait - 1) == 1
            assert bucket.wait(amount, now + wait) == 0
        else:
            bucket.take(amount, now)


@given(PER_MINUTE)
def test_the_quota_of_a_minute_can_be_used_at_once(per_minute):
    bucket = Bucket(per_minute)
    assert bucket.wait(per_minute, 0) == 0
    bucket.take(per_minute, 0)
    assert bucket.wait(1, 0) == MINUTE // per_minute
    assert bucket.wait(per_minute, MINUTE) == 0


@given(PER_MINUTE, PER_MINUTE, MOMENTS)
def test_requests_and_characters_are_charged_together_or_not_at_all(requests, characters, requested):
    quota = Quota(requests, characters)
    alone = {"requests": Bucket(requests), "characters": Bucket(characters)}  # they see accepted requests only
    now = 0
    for pause, amount in requested:
        now += pause
        if amount > characters:
            with pytest.raises(InvalidRequest):
                quota.take(amount, now)
            continue
        waits = alone["requests"].wait(1, now), alone["characters"].wait(amount, now)
        if max(waits):
            with pytest.raises(QuotaExceeded) as raised:
                quota.take(amount, now)
            assert raised.value.retry_after == max(waits) / SECOND
        else:
            quota.take(amount, now)
            alone["requests"].take(1, now)
            alone["characters"].take(amount, now)


@given(PER_MINUTE, MOMENTS, st.lists(st.tuples(st.integers(0, 39), st.booleans()), max_size=40))
def test_a_refund_has_the_effect_of_no_charge_whenever_it_comes(per_minute, requested, ends):
    """ends: after each take, an open charge to settle, and whether it was served"""
    bucket, now, taken, under_way = Bucket(per_minute), 0, [], []
    for (pause, amount), (which, served) in itertools.zip_longest(requested, ends, fillvalue=(0, False)):
        now += pause
        if amount <= per_minute and not bucket.wait(amount, now):
            under_way.append((bucket.take(amount, now), (now, amount)))
            taken.append((now, amount))
        if under_way:
            charge, entry = under_way.pop(which % len(under_way))
            bucket.settle(charge, served=served)
            if not served:
                taken.remove(entry)
        never = Bucket(per_minute)
        for moment, each in taken:
            never.take(each, moment)
        assert bucket.wait(per_minute, now) == never.wait(per_minute, now)


@pytest.mark.parametrize("served", [True, False])
def test_a_long_request_does_not_make_the_list_of_charges_grow(served: bool):
    bucket = Bucket(1_000_000)
    first = bucket.take(1, 0)
    for moment in range(1000):
        bucket.settle(bucket.take(1, moment), served=served)
        assert len(bucket._charges) <= 4
    bucket.settle(first, served=True)
    assert len(bucket._charges) <= 2


def test_without_limits_nothing_is_refused():
    quota = Quota()
    for _ in range(1000):
        quota.take(10**9, 0)


def test_a_request_above_the_quota_of_a_minute_is_invalid():
    with pytest.raises(InvalidRequest, match="counts as 11 characters; the key may send 10 in a minute"):
        Quota(5, 10).take(11, 0)


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 1_000_000)), min_size=1, max_size=60))
def test_no_period_gets_more_refunds_than_the_limit_and_one_request(refusals: list[tuple[int, int]]):
    limit, now, refunded = RefundLimit(), 0, []
    for pause, characters in refusals:
        now += pause
        if limit.take(characters, now):
            refunded.append((now, REFUSAL + characters))
    for first in range(len(refunded)):
        *total, last = (work for _, work in refunded[first:])
        lasted = refunded[-1][0] - refunded[first][0]
        # each time is rounded down by less than a nanosecond
        assert sum(total) * SECOND < REFUNDED * (BURST * SECOND + lasted + len(refunded)), last


def test_a_client_that_is_refused_now_and_then_gets_every_refund():
    limit = RefundLimit()
    assert all(limit.take(0, number * SECOND // 20) for number in range(20 * 600))
    assert all(limit.take(10_000, 2 * MINUTE * number // 60) for number in range(10 * 60, 12 * 60))


def test_a_limit_of_refunds_that_was_exceeded_recovers():
    limit = RefundLimit()
    assert limit.take(10 * REFUNDED, 0)
    assert not limit.take(0, 8 * SECOND)
    assert limit.take(0, 9 * SECOND)


SHOP, OPS = new_key(), new_key()
QUEUE, QUOTA, TRIES = 16, 10, 40
SPACES = 20_000  # characters of a text that make work for the tokeniser and no tokens
SPLIT = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)
LONG = pb.TranslateRequest(texts=["The old man and the sea. " * 12 + " " * SPACES], options=SPLIT)
WIDE = pb.ScorePair(source="The old man and the sea." + " " * 700, target="Tom" + " " * 1000)
PAIRS = pb.ScoreRequest(pairs=[WIDE] * QUEUE)
SAMPLING = pb.SamplingOptions()


@asynccontextmanager
async def full(folder: Path, key: str, **shop: int) -> AsyncIterator[RunningServer]:
    """A server whose queue is full of short texts of a key; shop: the quota of the shop."""
    runner = EchoRunner()
    keys = write_key_file(folder, {"shop": SHOP, "ops": OPS}, shop=shop)
    async with running(runner, api_keys=keys, max_rows=2, max_queue_texts=QUEUE) as server:
        runner.gate.clear()
        first = asyncio.ensure_future(
            server.stub.Translate(pb.TranslateRequest(texts=["Tom"] * 2), metadata=bearer(OPS))
        )
        await eventually(lambda: _metric(server, "running_sentences") == 2)
        rest = server.stub.Translate(pb.TranslateRequest(texts=["Tom"] * QUEUE), metadata=bearer(key))
        await eventually(lambda: _metric(server, "queue_depth") == QUEUE)
        yield server
        runner.gate.set()
        await asyncio.gather(first, rest)


def _metric(server: RunningServer, name: str) -> float:
    return server.metric(f"lingon_{name}", model="en-de", version="1")


async def reasons(server: RunningServer, request: pb.TranslateRequest | pb.ScoreRequest, tries: int) -> Counter[str]:
    """The reasons with which requests of the shop are refused, one after the other."""
    found: Counter[str] = Counter()
    method = server.stub.Score if isinstance(request, pb.ScoreRequest) else server.stub.Translate
    for _ in range(tries):
        status, _ = await failure(method(request, metadata=bearer(SHOP)))
        found[details(status)["ErrorInfo"].reason] += 1
    return found


@pytest.mark.parametrize("asked", [LONG, PAIRS], ids=["translate", "score"])
async def test_a_key_whose_requests_are_tokenised_and_refused_runs_into_its_quota(asked: Any, tmp_path: Path):
    async with full(tmp_path, OPS, requests_per_minute=QUOTA) as server:
        start = time.monotonic()
        found = await reasons(server, asked, TRIES)
        seconds = BURST + time.monotonic() - start
    # One refund may be larger than what is left of the limit, and the quota regains some requests too.
    refunds = 1 + seconds * REFUNDED / (REFUSAL + sum(characters_of(asked)))
    assert found["QUEUE_FULL"] <= QUOTA + refunds + seconds * QUOTA / 60 + 1
    assert found.total() == TRIES
    assert found["QUOTA_EXCEEDED"] or seconds > 10


async def test_a_key_whose_requests_are_refused_before_they_are_tokenised_keeps_its_quota(tmp_path: Path):
    async with full(tmp_path, SHOP, requests_per_minute=QUOTA) as server:
        found = await reasons(server, LONG, TRIES)
    assert found == {"QUEUE_FULL": TRIES}


TOM, SEA = "Tom lives in Boston.", "the sea..."  # 20 and 10 characters


def translation(prefix: str = "", **options: Any) -> pb.TranslateRequest:
    return pb.TranslateRequest(
        texts=[TOM], target_prefixes=[prefix] if prefix else [], options=pb.DecodingOptions(**options)
    )


REQUESTS: dict[str, tuple[Any, float]] = {
    "greedy": (translation(), 20),
    "two texts": (pb.TranslateRequest(texts=[TOM, "äöü"]), 23),
    "a stream": (pb.TranslateStreamRequest(texts=[TOM]), 20),
    "a beam": (translation(beam_size=4), 20 * (ENCODE + 4 * DECODE)),
    "hypotheses of a beam": (translation(beam_size=4, num_hypotheses=2), 20 * (ENCODE + 4 * DECODE)),
    "samples": (translation(sampling=SAMPLING, num_hypotheses=4), 20 * 4 * (ENCODE + DECODE + SAMPLE)),
    "a restriction": (translation(no_repeat_ngram_size=3), 20 * (ENCODE + DECODE + RESTRICT)),
    "forced words": (translation(forced_words=["a"], beam_size=4), 20 * (ENCODE + 4 * (DECODE + RESTRICT + FORCE))),
    "alternatives": (
        translation(beam_size=2, alternatives=3),
        20 * 3 * (ENCODE + 2 * (DECODE + RESTRICT)),
    ),
    "a soft prefix": (translation(SEA, prefix_bias=0.5), 20 * ENCODE + 30 * (DECODE + RESTRICT)),
    "a coverage penalty": (
        translation(beam_size=4, coverage_penalty=0.5, patience=2),
        20 * (ENCODE + 4 * DECODE + 8 * (ENCODE + SCORE)),
    ),
    "no restriction": (translation(min_output_tokens=1, repetition_penalty=1.0), 20),
    "an alignment": (translation(return_alignment=True), 20 * (1 + ENCODE + SCORE)),
    "alignments": (
        translation(beam_size=4, num_hypotheses=4, return_alignment=True),
        20 * (ENCODE + 4 * DECODE + 4 * (ENCODE + SCORE)),
    ),
    "a prefix": (translation(SEA), 20 * ENCODE + 30 * DECODE),
    "a prefix in a beam": (translation(SEA, beam_size=4), 20 * ENCODE + 30 * 4 * DECODE),
    "a score": (pb.ScoreRequest(pairs=[pb.ScorePair(source=TOM, target=SEA)]), 20 * ENCODE + 10 * SCORE),
    "languages": (pb.DetectLanguagesRequest(texts=[TOM, "a" * 9_980]), 2 * DETECT_TEXT + 2_020 * DETECT),
    "languages of many texts": (pb.DetectLanguagesRequest(texts=[""] * 256), 256),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_quota_counts_what_a_request_makes_the_engine_do(name: str):
    request, work = REQUESTS[name]
    assert weighted_characters(request) == round(work)


@pytest.mark.parametrize("options", [{}, {"beam_size": 4, "num_hypotheses": 4}])
def test_an_alignment_of_the_search_costs_nothing(options: dict[str, Any]):
    model = ChargedModel(steps_attend=True)
    aligned = translation(return_alignment=True, **options)
    assert weighted_characters(aligned, model) == weighted_characters(translation(**options), model)


@pytest.mark.parametrize("attends", [False, True])
async def test_a_quota_charges_the_scorer_where_the_served_model_runs_it(tmp_path: Path, attends: bool):
    keys = write_key_file(tmp_path, {"shop": SHOP}, shop={"characters_per_minute": 1000})
    request = translation(return_alignment=True)
    async with running(api_keys=keys) as server:
        server.runner.steps_attend = attends
        await server.stub.Translate(request, metadata=bearer(SHOP))
        charged = server.metric("lingon_key_characters_total", key="shop")
    assert charged == weighted_characters(request, ChargedModel(steps_attend=attends))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_no_option_makes_a_request_cheaper_than_a_greedy_one(beams: int, hypotheses: int, samples: bool, aligned: bool):
    options: dict[str, Any] = {"beam_size": beams, "num_hypotheses": hypotheses, "return_alignment": aligned}
    if samples:
        options["sampling"] = SAMPLING
    assert weighted_characters(translation(**options)) >= len(TOM)


JOBS: dict[str, tuple[pb.TranslateRequest, dict[str, Any]]] = {
    "greedy": (translation(), {"options": Options()}),
    "a beam": (translation(beam_size=4), {"options": Options(beam_size=4)}),
    "a sample": (translation(sampling=SAMPLING), {"options": Options(sampling=Sampling())}),
    "forbidden words": (
        translation(forbidden_words=["a"]),
        {"options": Options(rules=vocabulary().rules(forbidden=["a"]).of_part(0))},
    ),
    "forced words": (
        translation(forced_words=["a"]),
        {"options": Options(rules=vocabulary().rules(forced=["a"]).of_part(0))},
    ),
    "a sample of valid UTF-8": (
        translation(sampling=SAMPLING),
        {"options": Options(sampling=Sampling(), rules=vocabulary().rules().of_part(0))},
    ),
    "a prefix": (translation(SEA, beam_size=4), {"options": Options(beam_size=4), "prefix": tuple(SEA.encode())}),
}


@pytest.mark.parametrize("kind", JOBS)
def test_a_quota_and_the_engine_agree_if_a_token_is_a_character(kind: str):
    request, values = JOBS[kind]
    job = DecodeJob(source_ids=tuple(TOM.encode()), caller="", call=0, on_done=lambda _: None, **values)
    assert weighted_characters(request) == cost_of(job)


@pytest.mark.parametrize("field", ["texts", "target_prefixes"])
def test_very_many_texts_are_not_counted_one_by_one(field: str):
    request = pb.TranslateRequest(**{field: ["a"] * (MAX_TEXTS + 1)})
    assert characters_of(request) == (request.ByteSize(), 0)
    languages = pb.DetectLanguagesRequest(texts=["a"] * (MAX_TEXTS + 1))
    assert characters_of(languages) == (languages.ByteSize(), 0)


@pytest.mark.parametrize("quota", [{"requests_per_minute": 3}, {"characters_per_minute": 900}])
async def test_detecting_languages_is_charged_to_the_quota(tmp_path: Path, quota: dict[str, int]):
    keys = write_key_file(tmp_path, {"shop": SHOP}, shop=quota)
    request = pb.DetectLanguagesRequest(texts=["Das ist ein Haus."] * 256)
    async with running(api_keys=keys) as server:
        for _ in range(3):
            await server.stub.DetectLanguages(request, metadata=bearer(SHOP))
        status, _ = await failure(server.stub.DetectLanguages(request, metadata=bearer(SHOP)))
        assert details(status)["ErrorInfo"].reason == "QUOTA_EXCEEDED"
        await server.stub.ListModels(pb.ListModelsRequest(), metadata=bearer(SHOP))
        assert server.metric("lingon_key_characters_total", key="shop") == 3 * weighted_characters(request)


async def test_the_quota_and_the_metric_count_the_work(tmp_path: Path):
    keys = write_key_file(tmp_path, {"shop": SHOP}, shop={"characters_per_minute": 18})
    async with running(api_keys=keys) as server:

        async def translate(beam_size: int) -> Any:
            options = pb.DecodingOptions(beam_size=beam_size)
            request = pb.TranslateRequest(texts=["Tom lives"], options=options)
            return await server.stub.Translate(request, metadata=bearer(SHOP))

        status, _ = await failure(translate(3))
        assert status.message.startswith("the request counts as 20 characters; the key may send 18 in a minute")
        await translate(2)
        assert server.metric("lingon_key_characters_total", key="shop") == 14
        with pytest.raises(grpc.aio.AioRpcError, match="18 characters in a minute; try again in"):
            await translate(2)
        assert server.metric("lingon_key_characters_total", key="shop") == 14


@pytest.mark.parametrize(
    ("left", "given"),
    [
        ({}, {"beam_size": 4, "num_hypotheses": 2}),
        ({"return_alignment": True}, {"return_alignment": True, "beam_size": 4, "num_hypotheses": 2}),
        ({"beam_size": 1}, {"beam_size": 1, "num_hypotheses": 1}),
        ({"num_hypotheses": 3}, {"beam_size": 4, "num_hypotheses": 3}),
        ({"sampling": SAMPLING}, {"sampling": SAMPLING, "num_hypotheses": 2}),
    ],
)
def test_an_option_that_a_request_leaves_to_the_model_counts_with_its_default(left: Any, given: Any):
    model = ChargedModel(Defaults(beam_size=4, num_hypotheses=2))
    assert weighted_characters(translation(**left), model) == weighted_characters(translation(**given))


async def test_a_quota_charges_the_default_beam_of_the_served_model(tmp_path: Path):
    keys = write_key_file(tmp_path, {"shop": SHOP}, shop={"characters_per_minute": 50})
    async with running(api_keys=keys, bundles=({"defaults": Defaults(beam_size=4)},)) as server:
        status, _ = await failure(server.stub.Translate(translation(), metadata=bearer(SHOP)))
        assert status.message.startswith("the request counts as 56 characters")
        await server.stub.Translate(translation(beam_size=1), metadata=bearer(SHOP))
