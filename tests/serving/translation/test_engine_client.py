"""Outcomes reach the event loop, and translations are valid UTF-8, whatever bytes the model would write."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, cast

import pytest

from lingon.errors import Cancelled
from lingon.serving.decoding.job import Job, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.translation.engine_client import EngineClient, LoopCallbacks, ValidUtf8
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, RunningServer, full_shortlist, running, tokenizer, vocabulary
from tests.support.timing import eventually


async def test_a_callback_that_raises_does_not_stop_the_others() -> None:
    received: list[int] = []

    def receive(value: Any) -> None:
        if value == 1:
            raise RuntimeError("injected")
        received.append(value)

    callbacks = LoopCallbacks(asyncio.get_running_loop())
    for value in range(4):
        callbacks.post(receive, value)
    await eventually(lambda: 3 in received)
    assert received == [0, 2, 3]


async def test_all_requests_of_an_event_loop_share_its_callbacks() -> None:
    loop = asyncio.get_running_loop()
    assert LoopCallbacks.of(loop) is LoopCallbacks.of(loop)
    other = asyncio.new_event_loop()
    assert LoopCallbacks.of(other) is not LoopCallbacks.of(loop)
    other.close()


class HeldEngine:
    """Takes jobs, and ends those that are cancelled."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Keep none: they end when they are cancelled."""

    def cancel(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.on_done(Cancelled("cancelled"))


async def _calls_to_cancel(jobs: int) -> int:
    """How many functions are called while a request with so many jobs is cancelled."""
    client = EngineClient(cast(Engine, HeldEngine()), ValidUtf8(vocabulary()), None)
    pending = [client.decode((5, 2), Options(beam_size=1, max_output_tokens=9)) for _ in range(jobs)]
    client.submit(pending)
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        client.cancel_all()
        await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    assert all(isinstance(each.outcome.result(), Cancelled) for each in pending)
    return calls


async def test_the_work_to_cancel_a_request_grows_with_its_jobs_and_not_with_their_square() -> None:
    """Otherwise the event loop stands still for seconds when a request with thousands of sentences is cancelled."""
    assert await _calls_to_cancel(400) < 6 * await _calls_to_cancel(100)


TEXT = "Tom lives in Boston."
WORDS = tokenizer().encode_source("Tom lives")[:-1]
REST = tokenizer().encode_source("in Boston.")
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1, "length_penalty": 0.0},
    "shortlist": {"beam_size": 1, "shortlist": True},
    "beam": {"beam_size": 4, "num_hypotheses": 4},
    "beam with a shortlist": {"beam_size": 4, "shortlist": True},
}
BROKEN = {
    "a stray byte": b"\xa6",
    "a byte that no character has": b"\xff",
    "a character that is not complete": b"\xf0\x9f\x98",
    "a character too long for its value": b"\xc0\xaf",
    "a surrogate": b"\xed\xa0\x80",
    "the replacement character": b"\xef\xbf\xbd",
    "a stray byte after a character": "😀".encode() + b"\x80",
}
ways = pytest.mark.parametrize("way", WAYS)


def spelled(text: bytes) -> list[int]:
    """Return the byte pieces of bytes."""
    return [vocabulary().pieces.token_of[byte] for byte in text]


def writing(tokens: list[int]) -> EchoRunner:
    """Return a runner that writes these tokens for every text."""
    return EchoRunner(says=lambda source: tokens, shortlist=full_shortlist())


async def translated(server: RunningServer, way: str, **fields: Any) -> pb.TextResult:
    options = pb.DecodingOptions(return_tokens=True, **WAYS[way])
    text = pb.TextOptions(guard=pb.GUARD_POLICY_WARN)
    (result,) = (await server.translate(TEXT, options=options, text=text, **fields)).results
    return result


def is_valid(tokens: Any) -> bool:
    pieces = tokenizer().target.piece_to_id([token.piece for token in tokens])
    text = b"".join(vocabulary().pieces.texts[piece] for piece in pieces)
    return "\ufffd" not in text.decode()  # raises UnicodeDecodeError


@pytest.mark.parametrize("broken", BROKEN)
async def test_no_hypothesis_breaks_a_character(broken: str):
    async with running(writing([*WORDS, *spelled(BROKEN[broken]), *REST])) as server:
        for way in WAYS:
            found = await translated(server, way)
            assert found.hypotheses
            assert not [(way, each.text) for each in found.hypotheses if "\ufffd" in each.text]
            assert all(is_valid(each.tokens) for each in found.hypotheses)


@ways
async def test_what_greedy_search_found_before_the_character_stays(way: str):
    broken = spelled(BROKEN["a stray byte after a character"])
    async with running(writing([*WORDS, *broken, *REST])) as server:
        result = await translated(server, way)
    best = result.hypotheses[0]
    before = tokenizer().target_pieces([*WORDS, *broken[:-1]])
    assert [token.piece for token in best.tokens][: len(before)] == before
    assert best.text.startswith("Tom lives😀")
    assert [token.log_prob for token in best.tokens][: len(before)] == pytest.approx([-0.1] * len(before))
    length = len(best.tokens) + (best.finish_reason == pb.FINISH_REASON_END)
    total = sum(token.log_prob for token in best.tokens) + (length - len(best.tokens)) * -0.1
    assert best.score == pytest.approx(total / length ** WAYS[way].get("length_penalty", 1.0), abs=1e-4)


@ways
async def test_a_prefix_that_ends_in_bytes_is_followed_by_no_stray_byte(way: str):
    prefix = "Tom 😀"
    tokens = tokenizer().encode_target(prefix)
    async with running(writing([*tokens, *spelled(b"\xa6"), *REST])) as server:
        before = server.runner.encoded
        found = await translated(server, way, target_prefixes=[prefix])
        searches = server.runner.encoded - before
    assert all(each.text.startswith(prefix) and "\ufffd" not in each.text for each in found.hypotheses)
    assert all(is_valid(each.tokens) for each in found.hypotheses)
    assert searches == 1, "with rules from the beginning there is no second search"


@ways
async def test_a_character_that_is_cut_at_the_bound_is_left_out(way: str):
    tokens = [*WORDS, *spelled("😀".encode()), *REST]
    async with running(writing(tokens)) as server:
        options = pb.DecodingOptions(max_output_tokens=len(WORDS) + 2, return_tokens=True, **WAYS[way])
        (result,) = (await server.translate(TEXT, options=options)).results
    assert all(is_valid(each.tokens) and "\ufffd" not in each.text for each in result.hypotheses)
    assert all(len(each.tokens) <= len(WORDS) + 2 for each in result.hypotheses)
    assert result.hypotheses[0].text.startswith("Tom lives")


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_whole_characters_in_bytes_are_searched_once(beam_size: int):
    async with running(writing([*WORDS, *spelled("😀日".encode()), *REST])) as server:
        before = server.runner.encoded
        (found,) = (await server.translate(TEXT, options=pb.DecodingOptions(beam_size=beam_size))).results
        assert server.runner.encoded - before == 1
    assert found.hypotheses[0].text == "Tom lives😀日 in Boston."


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_stream_takes_nothing_back_and_has_no_broken_character(broken: str):
    async with running(writing([*WORDS, *spelled(BROKEN[broken]), *REST])) as server:
        _, *events = await server.stream(TEXT, options=pb.DecodingOptions(beam_size=1))
    deltas = [event.delta.text for event in events if event.HasField("delta")]
    done = events[-1].done.result.hypotheses[0].text
    assert "".join(deltas) == done
    assert "\ufffd" not in done
    assert len(deltas) > 1, "what comes before the character is sent at once"
