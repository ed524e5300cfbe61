"""Decoding options: defaults and refused combinations."""

from __future__ import annotations

import pytest

from lingon.bundle import Defaults
from lingon.errors import InvalidRequest
from lingon.serving.translation.planning.options import resolve
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import manifest, vocabulary


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
