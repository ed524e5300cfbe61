"""Options are resolved and checked, and restrictions hold over a real socket."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from google.rpc import code_pb2

from lingon.bundle.manifest import Defaults
from lingon.errors import InvalidRequest
from lingon.serving.translation.options import resolve
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import CORPUS, failure, manifest, running, tokenizer, vocabulary, warning_codes


def test_unset_options_have_the_defaults_of_the_model():
    resolved = resolve(pb.DecodingOptions(), manifest(defaults=Defaults(4, 2, 0.6)), vocabulary())
    assert (resolved.job.beam_size, resolved.num_hypotheses, resolved.job.length_penalty) == (4, 2, 0.6)
    narrow = resolve(pb.DecodingOptions(beam_size=1), manifest(defaults=Defaults(4, 2, 0.6)), vocabulary())
    assert (narrow.job.beam_size, narrow.num_hypotheses) == (1, 1)
    sampled = resolve(
        pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(defaults=Defaults(4, 2, 0.6)), vocabulary()
    )
    assert (sampled.job.beam_size, sampled.num_hypotheses) == (1, 2)


def test_sampling_requires_a_beam_size_of_1():
    with pytest.raises(InvalidRequest, match=r"options.beam_size must be 1 to 1 \(with sampling\), got 2"):
        resolve(pb.DecodingOptions(beam_size=2, sampling=pb.SamplingOptions()), manifest(), vocabulary())


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("beam_size", 4294967295, "4294967295"),
        ("length_penalty", 10.5, "10.5"),
        ("length_penalty", 123456.75, "123456.8"),
    ],
)
def test_a_refused_number_is_shown_with_the_digits_of_the_request(name: str, value: float, shown: str):
    with pytest.raises(InvalidRequest) as caught:
        resolve(pb.DecodingOptions(**{name: value}), manifest(), vocabulary())
    assert str(caught.value).endswith(f"got {shown}")


@pytest.mark.parametrize(("default", "expected"), [(True, True), (False, False), (None, False)])
def test_a_shortlist_is_used_if_it_is_requested_or_the_default(default: bool | None, expected: bool):
    assert resolve(pb.DecodingOptions(), manifest(), vocabulary(), default).job.shortlist is expected
    assert resolve(pb.DecodingOptions(shortlist=False), manifest(), vocabulary(), default).job.shortlist is False
    assert resolve(pb.DecodingOptions(shortlist=True), manifest(), vocabulary(), False).job.shortlist is True
    assert (
        resolve(pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(), vocabulary(), default).job.shortlist
        is False
    )


def test_sampling_with_a_shortlist_is_refused():
    with pytest.raises(InvalidRequest, match=r"options.shortlist must be unset or false with sampling, got true"):
        resolve(pb.DecodingOptions(shortlist=True, sampling=pb.SamplingOptions()), manifest(), vocabulary(), True)


RESTRICTIONS = {
    "min_output_tokens": 3,
    "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.5,
    "forbidden_words": ["a"],
    "forced_words": ["Tom"],
    "prefix_bias": 0.5,
    "alternatives": 2,
}


@pytest.mark.parametrize("name", RESTRICTIONS)
def test_a_restriction_needs_the_whole_vocabulary(name: str):
    values = {name: RESTRICTIONS[name]}
    resolved = resolve(pb.DecodingOptions(**values), manifest(), vocabulary(), True)
    assert resolved.job.shortlist is resolved.message.shortlist is False
    assert resolved.job_options(9, 0).needs_logits
    assert resolved.job_options(9, 0).restricts
    assert resolved.job_options(9, 0).forces_words is (name == "forced_words")
    with pytest.raises(InvalidRequest, match=f"options.shortlist must be unset or false with {name}, got true"):
        resolve(pb.DecodingOptions(shortlist=True, **values), manifest(), vocabulary(), True)


def test_values_that_restrict_nothing_cost_nothing():
    neutral = pb.DecodingOptions(
        min_output_tokens=1,
        no_repeat_ngram_size=0,
        repetition_penalty=1.0,
        patience=1.0,
        coverage_penalty=0.0,
        prefix_bias=1.0,
        alternatives=0,
    )
    options = resolve(neutral, manifest(), vocabulary(), True).job_options(9, 0)
    assert (options.rules, options.needs_logits, options.restricts, options.shortlist) == (None, False, False, True)
    assert options == resolve(pb.DecodingOptions(), manifest(), vocabulary(), True).job_options(9, 0)


def test_plain_jobs_of_one_length_share_their_options_and_drawn_ones_do_not():
    plain = resolve(pb.DecodingOptions(), manifest(), vocabulary())
    assert plain.job_options(9, 0) is plain.job_options(9, 1)
    assert [plain.job_options(longest, 0).max_output_tokens for longest in (9, 8, 9)] == [9, 8, 9]
    drawn = resolve(pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(), vocabulary())
    streams = [drawn.job_options(9, stream).sampling for stream in (3, 4)]
    assert [each.stream for each in streams if each is not None] == [3, 4]


def test_patience_and_a_coverage_penalty_leave_the_steps_to_the_graphs():
    asked = pb.DecodingOptions(beam_size=4, patience=2.0, coverage_penalty=0.5)
    options = resolve(asked, manifest(), vocabulary(), True).job_options(9, 0)
    assert (options.rules, options.needs_logits, options.shortlist) == (None, False, True)
    assert (options.num_hypotheses, options.enough) == (8, 8)


def test_forced_words_that_exceed_the_length_are_refused():
    words = pb.DecodingOptions(forced_words=["Tom lives in Boston."], max_output_tokens=3)
    with pytest.raises(
        InvalidRequest, match=r"options.forced_words come to \d+ tokens, which max_output_tokens must exceed"
    ):
        resolve(words, manifest(), vocabulary())


OPTIONS = pb.DecodingOptions
TEXT = "Tom lives in Boston."
LONG = " ".join(CORPUS.split())
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "num_hypotheses": 4},
    "sampling": {"num_hypotheses": 3, "sampling": pb.SamplingOptions(seed=3, temperature=3.0)},
}
ways = pytest.mark.parametrize("way", WAYS)


@ways
async def test_a_forbidden_word_is_in_no_hypothesis(way: str):
    words = ["lives", "n B", "T"]
    async with running() as server:
        free = (await server.translate(TEXT, options=OPTIONS(**WAYS[way]))).results[0]
        found = (await server.translate(TEXT, options=OPTIONS(**WAYS[way], forbidden_words=words))).results[0]
    assert any(word in each.text for each in free.hypotheses for word in words)
    assert found.hypotheses
    assert not [word for each in found.hypotheses for word in words if word in each.text]


@ways
async def test_a_forbidden_word_in_capitals_is_in_no_translation_of_a_text_in_capitals(way: str):
    words = ["LIVES", "TON"]
    async with running() as server:
        for text in (pb.TextOptions(), pb.TextOptions(lower_capitals=True)):
            options = OPTIONS(**WAYS[way], forbidden_words=words)
            found = (await server.translate(TEXT.upper(), options=options, text=text)).results[0]
            assert not [word for each in found.hypotheses for word in words if word in each.text]


async def test_a_forbidden_word_in_a_string_to_keep_is_refused():
    async with running() as server:
        request = {"options": OPTIONS(forbidden_words=["Bost"]), "text": pb.TextOptions(keep=["in Boston"])}
        status, _ = await failure(server.translate(TEXT, **request))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert status.message == "text.keep has a string with the forbidden word 'Bost'"


@ways
async def test_forced_words_are_in_the_best_translation(way: str):
    words = ["Grüße", "日本", "das Meer"]
    async with running() as server:
        found = (await server.translate(TEXT, options=OPTIONS(**WAYS[way], forced_words=words))).results[0]
    assert [word for word in words if word not in found.hypotheses[0].text] == []
    for each in found.hypotheses:
        assert list(each.missing_words) == [word for word in words if word not in each.text]
        assert each.finish_reason == pb.FINISH_REASON_END or each.missing_words or way != "greedy"


async def test_a_translation_without_room_for_its_forced_words_says_so():
    texts = ["日本本本", "Boston"]
    assert sum(len(tokenizer().encode_target(word)) for word in texts) > 12, "the bound of a text of two tokens"
    async with running() as server:
        tight = await server.translate("Tom", options=OPTIONS(forced_words=texts))
    (result,) = tight.results
    (hypothesis,) = result.hypotheses
    assert list(hypothesis.missing_words) == [word for word in texts if word not in hypothesis.text] != []
    assert warning_codes(result) == [pb.WARNING_CODE_LENGTH, pb.WARNING_CODE_FORCED_WORDS]
    assert result.warnings[1].message == "1 of 1 translations do not have all forced_words; see missing_words"


@ways
async def test_a_translation_has_at_least_the_least_length(way: str):
    async with running() as server:
        (result,) = (await server.translate("Tom", options=OPTIONS(**WAYS[way], min_output_tokens=8))).results
    assert result.usage.target_tokens >= 8 * len(result.hypotheses)


async def test_the_least_length_yields_to_the_bound_of_the_text():
    async with running() as server:
        (result,) = (await server.translate("Tom", options=OPTIONS(min_output_tokens=60))).results
    assert result.hypotheses[0].finish_reason == pb.FINISH_REASON_END
    assert 8 < result.usage.target_tokens < 60


async def test_a_prefix_counts_for_every_restriction():
    async with running() as server:
        found = await server.translate(TEXT, options=OPTIONS(forced_words=["Boston is"]), target_prefixes=["Boston"])
        assert found.results[0].hypotheses[0].text.startswith("Boston")
        assert "Boston is" in found.results[0].hypotheses[0].text
        met = await server.translate(TEXT, options=OPTIONS(forced_words=["Meer"]), target_prefixes=["Meer"])
        plain = await server.translate(TEXT, target_prefixes=["Meer"])
        assert met.results[0].hypotheses == plain.results[0].hypotheses
        options = OPTIONS(forbidden_words=["Tom lives"])
        refused = await server.translate(TEXT, TEXT, options=options, target_prefixes=["So Tom  lives", "So"])
    assert refused.results[0].status.code == code_pb2.INVALID_ARGUMENT
    assert refused.results[0].status.message == "target_prefixes[0] has options.forbidden_words[0] in it"
    assert refused.results[1].status.code == code_pb2.OK


@pytest.mark.parametrize("beam_size", [1, 3])
async def test_a_forbidden_phrase_does_not_reach_from_one_part_of_a_long_text_to_the_next(beam_size: int):
    split = {"long_text": pb.LONG_TEXT_POLICY_SPLIT, "beam_size": beam_size}
    async with running() as server:
        (free,) = (await server.translate(LONG, options=OPTIONS(**split))).results
        assert free.hypotheses[0].text == LONG
        pairs = [" ".join(pair) for pair in pairwise(LONG.split())]
        for phrases in (pairs[:40], pairs[40:]):
            (found,) = (await server.translate(LONG, options=OPTIONS(**split, forbidden_words=phrases))).results
            assert [phrase for phrase in phrases if phrase in found.hypotheses[0].text] == []


async def test_a_long_text_with_forced_words_is_refused():
    split = OPTIONS(long_text=pb.LONG_TEXT_POLICY_SPLIT, forced_words=["Tom"])
    async with running() as server:
        long, short = (await server.translate(LONG, TEXT, options=split)).results
    assert long.status.code == code_pb2.INVALID_ARGUMENT
    assert "options.forced_words needs a text that the model reads whole" in long.status.message
    assert short.hypotheses[0].text == TEXT


@pytest.mark.parametrize("way", ["greedy", "sampling"])
async def test_a_stream_with_restrictions_takes_nothing_back(way: str):
    wanted = {**WAYS[way], "num_hypotheses": 1}
    options = OPTIONS(**wanted, forbidden_words=["lives", "T"], forced_words=["日本", "Grüße"], min_output_tokens=9)
    async with running() as server:
        events = await server.stream(TEXT, "Wo ist der Bahnhof?", options=options)
    for index in range(2):
        deltas = [each.delta.text for each in events if each.HasField("delta") and each.delta.text_index == index]
        (done,) = [each.done.result for each in events if each.HasField("done") and each.done.text_index == index]
        assert len(deltas) > 1
        assert "".join(deltas) == done.hypotheses[0].text
        assert not done.hypotheses[0].missing_words


async def test_alignment_and_tokens_go_with_restrictions():
    options = OPTIONS(forbidden_words=["lives"], forced_words=["Grüße"], return_alignment=True, return_tokens=True)
    async with running() as server:
        ((hypothesis,),) = [result.hypotheses for result in (await server.translate(TEXT, options=options)).results]
    pieces = "".join(token.piece for token in hypothesis.tokens).replace("▁", " ").strip()
    assert "Grüße" in pieces
    assert hypothesis.alignment


async def test_sampling_never_returns_the_replacement_character():
    """The second likeliest token of this model is a byte that is no character."""
    options = OPTIONS(num_hypotheses=4, sampling=pb.SamplingOptions(temperature=10.0))
    async with running() as server:
        reply = await server.translate(*[TEXT] * 16, options=options)
    texts = [hypothesis.text for result in reply.results for hypothesis in result.hypotheses]
    assert len(set(texts)) > 32
    assert not [text for text in texts if "\ufffd" in text]


async def test_the_options_of_the_reply_have_the_words_that_were_used():
    options = OPTIONS(forbidden_words=[" a  b", "a b"], forced_words=["Tom"], repetition_penalty=2.0)
    async with running() as server:
        used = (await server.translate(TEXT, options=options)).options
    assert (list(used.forbidden_words), list(used.forced_words), used.repetition_penalty) == (["a b"], ["Tom"], 2.0)
