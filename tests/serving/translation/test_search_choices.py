"""Alternatives, soft prefixes, patience and the coverage penalty over a real socket."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.rpc import code_pb2

from lingon.bundle.manifest import Alignment
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import LIMITS, failure, running, tokenizer

OPTIONS = pb.DecodingOptions
TEXT = "Tom lives in Boston."
beams = pytest.mark.parametrize("beam_size", [1, 4])


def texts(result: pb.TextResult) -> list[str]:
    return [each.text for each in result.hypotheses]


@beams
async def test_alternatives_begin_with_the_prefix_and_differ_in_the_token_after_it(beam_size: int):
    options = OPTIONS(beam_size=beam_size, alternatives=3, return_tokens=True)
    async with running() as server:
        (plain,) = (await server.translate(TEXT, options=OPTIONS(beam_size=1), target_prefixes=["Tom"])).results
        (found,) = (await server.translate(TEXT, options=options, target_prefixes=["Tom"])).results
    assert found.hypotheses[0].text == plain.hypotheses[0].text == TEXT
    length = len(tokenizer().encode_target("Tom"))
    following = [each.tokens[length] if len(each.tokens) > length else None for each in found.hypotheses]
    assert len({each and each.piece for each in following}) == 3
    likely = [each.log_prob for each in following if each]
    assert likely == sorted(likely, reverse=True)
    assert all(each.startswith("Tom") for each in texts(found))


async def test_only_the_first_sentence_has_alternatives():
    async with running() as server:
        (plain,) = (await server.translate(f"{TEXT} Where is the station?")).results
        before, options = server.runner.encoded, OPTIONS(alternatives=3)
        (found,) = (await server.translate(f"{TEXT} Where is the station?", options=options)).results
        encoded = server.runner.encoded - before
    assert encoded == 3 + 1
    assert len(found.hypotheses) == 3
    assert texts(found)[0] == plain.hypotheses[0].text
    assert all(each.endswith(" Where is the station?") for each in texts(found))
    assert len(set(texts(found))) == 3


async def test_a_sentence_with_strings_that_are_kept_has_alternatives_too():
    async with running() as server:
        (found,) = (await server.translate("Tom lives in {city}.", options=OPTIONS(alternatives=2))).results
    assert len(found.hypotheses) == 2


async def test_unlikely_alternatives_are_left_out_and_the_likeliest_never_is():
    """The echo gives its token exp(-0.1), another one exp(-3), and all others exp(-20)."""
    async with running() as server:
        counts = []
        for least in (0.0, 0.03, 0.06, 1.0):
            options = OPTIONS(alternatives=4, min_alternative_probability=least)
            counts.append(len((await server.translate(TEXT, options=options)).results[0].hypotheses))
    assert counts == [4, 2, 1, 1]


async def test_alternatives_come_at_the_end_of_a_stream():
    async with running() as server:
        events = await server.stream(TEXT, options=OPTIONS(alternatives=2))
    assert [event.WhichOneof("event") for event in events] == ["start", "done"]
    assert len(events[1].done.result.hypotheses) == 2


async def test_every_text_of_a_request_has_its_own_alternatives():
    async with running() as server:
        asked = {"options": OPTIONS(alternatives=2)}
        both = (await server.translate("Tom", TEXT, **asked, target_prefixes=["", "Tom"])).results
        alone = [
            (await server.translate(text, **asked, target_prefixes=[prefix])).results[0]
            for text, prefix in (("Tom", ""), (TEXT, "Tom"))
        ]
    assert list(both) == alone


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sampling": ({"sampling": pb.SamplingOptions()}, "sampling"),
    "coverage": ({"coverage_penalty": 0.5}, "coverage_penalty"),
    "bias": ({"prefix_bias": 0.5}, "prefix_bias"),
    "hypotheses": ({"beam_size": 4, "num_hypotheses": 2}, "num_hypotheses above 1"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_alternatives_are_refused_with_options_that_contradict_them(case: str):
    values, name = REFUSED[case]
    async with running() as server:
        status, _ = await failure(server.translate(TEXT, options=OPTIONS(alternatives=2, **values)))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert status.message == f"options.alternatives must be unset or 0 with {name}, got 2"


@beams
async def test_a_soft_prefix_holds_by_its_weight(beam_size: int):
    async with running() as server:
        found = {}
        for weight in (1.0, 0.99, 0.5, 0.001):
            options = OPTIONS(beam_size=beam_size, prefix_bias=weight, length_penalty=0)
            reply = await server.translate(TEXT, "Tom", options=options, target_prefixes=["Grüße", ""])
            found[weight] = [each.hypotheses[0].text for each in reply.results]
        hard = await server.translate(
            TEXT, "Tom", options=OPTIONS(beam_size=beam_size, length_penalty=0), target_prefixes=["Grüße", ""]
        )
    assert found[1.0] == [each.hypotheses[0].text for each in hard.results]
    assert found[0.99][0].startswith("Grüße")
    assert found[0.001] == [TEXT, "Tom"]
    assert {each[1] for each in found.values()} == {"Tom"}


async def test_the_tokens_of_a_soft_prefix_count_for_the_score():
    """The echo gives each token of its own exp(-0.1)."""
    async with running() as server:
        options = OPTIONS(prefix_bias=0.25, return_tokens=True, length_penalty=0)
        (found,) = (await server.translate("Tom", options=options, target_prefixes=["Tom"])).results
    tokens = found.hypotheses[0].tokens
    assert len(tokens) == len(tokenizer().encode_target("Tom"))
    biased = math.log(0.75 * math.exp(-0.1) + 0.25)
    assert [each.log_prob for each in tokens] == pytest.approx([biased] * len(tokens), abs=1e-5)
    assert found.hypotheses[0].score == pytest.approx(len(tokens) * biased - 0.1, abs=1e-5)


async def test_a_model_without_attention_has_no_coverage_penalty():
    async with running(bundles=({"alignment": Alignment(0, ())},)) as server:
        status, _ = await failure(server.translate(TEXT, options=OPTIONS(coverage_penalty=0.5)))
        plain = await server.translate(TEXT, options=OPTIONS(coverage_penalty=0.0))
    assert status.code == code_pb2.UNIMPLEMENTED
    assert status.message.startswith("options.coverage_penalty: the model en-de/1 declares no attention heads")
    assert plain.results[0].hypotheses[0].text == TEXT


async def test_a_coverage_penalty_is_added_to_the_score_of_a_greedy_translation():
    """The echo attends with 0.9 to the token of the same place and with 0.01 to the others."""
    async with running() as server:
        options = OPTIONS(coverage_penalty=0.5)
        (plain,) = (await server.translate("Tom")).results
        (found,) = (await server.translate("Tom", options=options)).results
    tokens = plain.usage.target_tokens - 1
    places = [0.9 + 0.01 * tokens] * (tokens + 1)
    expected = plain.hypotheses[0].score + 0.5 * sum(math.log(min(each, 1)) for each in places)
    assert found.hypotheses[0].text == plain.hypotheses[0].text
    assert found.hypotheses[0].score == pytest.approx(expected, abs=1e-5)


async def test_a_coverage_penalty_of_zero_and_a_patience_of_one_change_no_bit():
    neutral = {"coverage_penalty": 0.0, "patience": 1.0, "prefix_bias": 1.0, "alternatives": 0}
    async with running() as server:
        for wanted in ({"beam_size": 1}, {"beam_size": 4, "num_hypotheses": 3}):
            plain = await server.translate(TEXT, "Tom", options=OPTIONS(**wanted))
            assert await server.translate(TEXT, "Tom", options=OPTIONS(**wanted, **neutral)) == plain


async def test_a_sentence_with_strings_that_are_kept_has_a_coverage_penalty_too():
    async with running() as server:
        text = "Tom lives in {city}."
        (plain,) = (await server.translate(text, options=OPTIONS(beam_size=4))).results
        (found,) = (await server.translate(text, options=OPTIONS(beam_size=4, coverage_penalty=0.5))).results
    assert texts(found) == texts(plain)
    assert found.hypotheses[0].score < plain.hypotheses[0].score - 0.1


async def test_there_may_be_more_alternatives_than_beams():
    async with running() as server:
        (found,) = (await server.translate(TEXT, options=OPTIONS(alternatives=32))).results
        status, _ = await failure(server.translate(TEXT, options=OPTIONS(alternatives=33)))
    assert len(found.hypotheses) == 32 > LIMITS.max_beam_size
    assert status.message == "options.alternatives must be 0 to 32, got 33"
