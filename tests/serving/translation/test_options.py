"""Decoding options: defaults and refused combinations."""

from __future__ import annotations

import pytest

from lingon.bundle import Defaults
from lingon.errors import InvalidRequest
from lingon.serving.translation.options import resolve
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import manifest


def test_unset_options_have_the_defaults_of_the_model():
    resolved = resolve(pb.DecodingOptions(), manifest(defaults=Defaults(4, 2, 0.6)))
    assert (resolved.job.beam_size, resolved.num_hypotheses, resolved.job.length_penalty) == (4, 2, 0.6)
    narrow = resolve(pb.DecodingOptions(beam_size=1), manifest(defaults=Defaults(4, 2, 0.6)))
    assert (narrow.job.beam_size, narrow.num_hypotheses) == (1, 1)
    sampled = resolve(pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(defaults=Defaults(4, 2, 0.6)))
    assert (sampled.job.beam_size, sampled.num_hypotheses) == (1, 2)


def test_sampling_requires_a_beam_size_of_1():
    with pytest.raises(InvalidRequest, match=r"options.beam_size must be 1 to 1 \(with sampling\), got 2"):
        resolve(pb.DecodingOptions(beam_size=2, sampling=pb.SamplingOptions()), manifest())


@pytest.mark.parametrize(("default", "expected"), [(True, True), (False, False), (None, False)])
def test_a_shortlist_is_used_if_it_is_requested_or_the_default(default: bool | None, expected: bool):
    assert resolve(pb.DecodingOptions(), manifest(), default).job.shortlist is expected
    assert resolve(pb.DecodingOptions(shortlist=False), manifest(), default).job.shortlist is False
    assert resolve(pb.DecodingOptions(shortlist=True), manifest(), False).job.shortlist is True
    assert resolve(pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(), default).job.shortlist is False


def test_sampling_with_a_shortlist_is_refused():
    with pytest.raises(InvalidRequest, match=r"options.shortlist must be unset or false with sampling, got true"):
        resolve(pb.DecodingOptions(shortlist=True, sampling=pb.SamplingOptions()), manifest(), True)
