"""The cache of translations changes no answer, and holds no more than its bound."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import InvalidRequest, SettingsError
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.translation.cache import ENTRY_BYTES, MIB, TranslationCache
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, bundle

TEXTS = (
    "Tom lives in Boston.",
    "Tom  lives in Boston.",
    " Tom lives in Boston.\n",
    "Where is the station? It is raining.",
    "1,000 men",
    "",
    "☃ snow",
    "<b>Tom</b> lives.",
    "the " * 50,
)


@asynccontextmanager
async def translating(
    folder: Path, cache: TranslationCache | None, runner: EchoRunner | None = None, **rest: Any
) -> AsyncIterator[Translator]:
    engine = Engine(runner or EchoRunner(), EngineLimits())
    engine.start()
    try:
        yield Translator(bundle(folder, **rest), engine, EngineLimits(), precision="fp32", cache=cache)
    finally:
        engine.stop(0)


def drawn_request(draw: random.Random) -> pb.TranslateRequest:
    options = pb.DecodingOptions(
        long_text=draw.choice([pb.LONG_TEXT_POLICY_SPLIT, pb.LONG_TEXT_POLICY_REFUSE]),
        return_tokens=draw.random() < 0.3,
        return_alignment=draw.random() < 0.3,
    )
    if draw.random() < 0.5:
        options.beam_size = draw.choice([1, 2, 4])
        options.num_hypotheses = draw.randint(1, options.beam_size)
    if draw.random() < 0.2:
        options.max_output_tokens = draw.randint(1, 9)
    if draw.random() < 0.2:
        options.forbidden_words.append("Boston")
    text = pb.TextOptions(return_sentences=draw.random() < 0.3)
    if draw.random() < 0.3:
        text.format = pb.TEXT_FORMAT_HTML
    if draw.random() < 0.3:
        text.guard = draw.choice([pb.GUARD_POLICY_REFUSE, pb.GUARD_POLICY_OFF])
    texts = draw.choices(TEXTS, k=draw.randint(1, 4))
    prefixes = draw.choices(["", "Wo"], k=len(texts)) if not text.format and draw.random() < 0.3 else []
    return pb.TranslateRequest(texts=texts, options=options, text=text, target_prefixes=prefixes)


async def outcome(translator: Translator, request: pb.TranslateRequest) -> Any:
    try:
        return await translator.translate(request)
    except InvalidRequest as error:
        return str(error)


async def test_mixed_requests_have_the_same_replies_with_and_without_a_cache(tmp_path: Path) -> None:
    lookups: list[tuple[int, int]] = []
    cache = TranslationCache(1, on_lookup=lambda *counts: lookups.append(counts))
    draw = random.Random(7)
    async with translating(tmp_path / "a", cache) as cached, translating(tmp_path / "b", None) as plain:
        for _ in range(150):
            request = drawn_request(draw)
            expected = await outcome(plain, request)
            for _ in range(2):
                assert await outcome(cached, request) == expected
    hits, misses = map(sum, zip(*lookups, strict=True))
    assert hits > 200
    assert misses > 100
    assert any(found and missed for found, missed in lookups)  # requests of which a part was known


async def test_a_text_that_was_translated_is_not_decoded_again(tmp_path: Path) -> None:
    runner = EchoRunner()
    async with translating(tmp_path, TranslationCache(1), runner) as translator:
        first = await translator.translate(pb.TranslateRequest(texts=TEXTS[:1]))
        steps, encoded = runner.steps, runner.encoded
        assert await translator.translate(pb.TranslateRequest(texts=TEXTS[:1])) == first
        assert (runner.steps, runner.encoded) == (steps, encoded)
        await translator.translate(pb.TranslateRequest(texts=[TEXTS[0], TEXTS[3]]))
        assert runner.encoded == encoded + 2  # the two sentences of the new text


@pytest.mark.parametrize(
    "changed",
    [
        {"texts": ["Tom lives in Boston. "]},
        {"options": pb.DecodingOptions(length_penalty=0.5)},
        {"options": pb.DecodingOptions(return_tokens=True)},
        {"text": pb.TextOptions(protect=False)},
        {"target_prefixes": ["Wo"]},
    ],
)
async def test_other_texts_and_options_have_their_own_results(changed: dict[str, Any], tmp_path: Path) -> None:
    runner = EchoRunner()
    async with translating(tmp_path, TranslationCache(1), runner) as translator:
        await translator.translate(pb.TranslateRequest(texts=TEXTS[:1]))
        encoded = runner.encoded
        await translator.translate(pb.TranslateRequest(**{"texts": TEXTS[:1], **changed}))
        assert runner.encoded > encoded


async def test_models_share_a_cache_but_no_result(tmp_path: Path) -> None:
    cache, runner = TranslationCache(1), EchoRunner()
    async with translating(tmp_path, cache) as one, translating(tmp_path, cache, runner, version=2) as other:
        await one.translate(pb.TranslateRequest(texts=TEXTS[:1]))
        encoded = runner.encoded
        reply = await other.translate(pb.TranslateRequest(texts=TEXTS[:1]))
        assert runner.encoded == encoded + 1
        assert reply.version == "2"
        cache.drop(one.label)
        assert 0 < cache.size < 2 * ENTRY_BYTES
        cache.drop(other.label)
        assert cache.size == 0


async def test_sampled_texts_are_not_kept(tmp_path: Path) -> None:
    cache = TranslationCache(1)
    async with translating(tmp_path, cache) as translator:
        for sampling in (pb.SamplingOptions(), pb.SamplingOptions(seed=3)):
            request = pb.TranslateRequest(texts=TEXTS[:1], options=pb.DecodingOptions(sampling=sampling))
            await translator.translate(request)
    assert cache.size == 0


async def test_a_text_that_failed_is_not_kept_and_later_succeeds(tmp_path: Path) -> None:
    runner, cache = EchoRunner(faulty="station"), TranslationCache(1)
    async with translating(tmp_path, cache, runner) as translator:
        request = pb.TranslateRequest(texts=["station"])
        (failed,) = (await translator.translate(request)).results
        assert (failed.status.code != 0, cache.size) == (True, 0)
        runner.faulty = None
        (result,) = (await translator.translate(request)).results
        assert result.hypotheses[0].text == "station"


async def test_a_first_attempt_that_stays_for_lack_of_room_is_not_kept(tmp_path: Path) -> None:
    cache = TranslationCache(1)
    async with translating(tmp_path, cache, EchoRunner(says=lambda ids: [*ids[:-1] * 8, ids[-1]])) as translator:
        submit = translator.engine.submit
        translator.engine.submit = first_only(submit)  # type: ignore[method-assign]
        (result,) = (await translator.translate(pb.TranslateRequest(texts=["Tom lives."]))).results
        assert (result.status.code, cache.size) == (0, 0)
        translator.engine.submit = submit  # type: ignore[method-assign]
        await translator.translate(pb.TranslateRequest(texts=["Tom lives."]))
        assert cache.size > 0


def first_only(submit: Callable[[Sequence[Any]], None]) -> Callable[[Sequence[Any]], None]:
    """Return a `submit` that ends every follow-up job, as an engine that closes does."""

    def submitted(jobs: Sequence[Any]) -> None:
        if any(job.follow_up for job in jobs):
            raise InvalidRequest("texts", "no room")
        submit(jobs)

    return submitted


def result_of(size: int) -> pb.TextResult:
    return pb.TextResult(hypotheses=[pb.Hypothesis(text="x" * size)])


def test_the_least_recently_used_results_leave_first_and_the_bound_holds() -> None:
    changes: list[tuple[int, int]] = []
    cache = TranslationCache(1, on_change=lambda *change: changes.append(change))
    keys = cache.keys("m", (), [str(number) for number in range(12)], [])
    for key in keys[:10]:
        cache.store("m", key, result_of(100_000))
    assert cache.find(keys[:1])
    for key in keys[10:]:
        cache.store("m", key, result_of(100_000))
    assert sorted(cache.find(keys)) == [0, 3, *range(4, 12)]
    assert sum(evicted for _, evicted in changes) == 2
    assert all(size <= MIB for size, _ in changes)
    assert changes[-1][0] == cache.size
    cache.store("m", keys[1], result_of(2 * MIB))
    assert not cache.find(keys[1:2])


def test_parts_of_a_key_cannot_be_taken_for_each_other() -> None:
    cache = TranslationCache(1)
    keys = [
        *cache.keys("ab", (b"c",), ["d"], []),
        *cache.keys("a", (b"bc",), ["d"], []),
        *cache.keys("ab", (b"", b"c"), ["d"], []),
        *cache.keys("ab", (b"c",), ["", "d"], ["d", ""]),
    ]
    assert len({*keys}) == 4  # the last one is the first
    assert keys[0] == keys[-1]


def test_a_cache_without_memory_is_refused() -> None:
    with pytest.raises(SettingsError, match="cache must be at least 1 MiB, got 0"):
        TranslationCache(0)
