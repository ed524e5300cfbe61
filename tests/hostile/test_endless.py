"""A model that never ends a translation: the length limit ends it, and the reply carries a warning."""

from __future__ import annotations

from typing import Any

import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import LIMITS, EchoRunner, full_shortlist, running, tokenizer, warning_codes

TEXTS = ["Tom", "The old man and the sea", "I would like to know what time it is"]
LIMITED_WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"beam_size": 4, "num_hypotheses": 4},
    "drawn": {"num_hypotheses": 2, "sampling": pb.SamplingOptions(top_k=1)},
    "shortlist": {"shortlist": True},
    "shortlist, beams": {"shortlist": True, "beam_size": 4},
}


def bound(text: str, asked: int) -> int:
    """The length limit: the smallest of the requested one, factor * source + extra, and the limit of the model."""
    source = len(tokenizer().encode_source(text))
    return min(asked, int(LIMITS.output_factor * source) + LIMITS.output_extra, LIMITS.max_target_tokens)


@pytest.mark.parametrize("way", LIMITED_WAYS)
@pytest.mark.parametrize("asked", [1, 5, 10_000])
async def test_an_endless_translation_stops_at_its_limit_with_a_warning(way: str, asked: int):
    runner = EchoRunner(endless=True, shortlist=full_shortlist())
    options = pb.DecodingOptions(return_tokens=True, max_output_tokens=asked, **LIMITED_WAYS[way])
    whole = pb.TextOptions(guard=pb.GUARD_POLICY_OFF)
    async with running(runner) as server:
        reply = await server.translate(*TEXTS, options=options, text=whole)
        cut = server.metric("lingon_truncated_total", model="en-de", version="1")
    assert runner.steps <= max(bound(text, asked) for text in TEXTS) * len(TEXTS)
    for text, result in zip(TEXTS, reply.results, strict=True):
        assert warning_codes(result) == [pb.WARNING_CODE_LENGTH]
        best = result.hypotheses[0]
        assert best.finish_reason == pb.FINISH_REASON_LENGTH
        assert len(best.tokens) == bound(text, asked)
        assert result.usage.target_tokens <= len(result.hypotheses) * bound(text, asked)
    assert cut == len(TEXTS)


async def test_every_part_of_a_split_text_has_its_own_limit():
    long = " ".join(TEXTS * 12) + "."
    options = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT, return_tokens=True)
    async with running(EchoRunner(endless=True)) as server:
        (result,) = (await server.translate(long, options=options)).results
        *_, done = await server.stream(long, options=options)
    codes = [pb.WARNING_CODE_SPLIT, pb.WARNING_CODE_LENGTH]
    assert warning_codes(result) == codes
    assert warning_codes(done.done.result) == codes
    parts = int(result.warnings[0].message.split()[-2])
    assert parts < len(result.hypotheses[0].tokens) <= parts * LIMITS.max_target_tokens
