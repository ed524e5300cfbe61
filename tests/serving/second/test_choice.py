"""Which sentences a request sends, within the bounds of the server."""

from __future__ import annotations

import math

import pytest

from lingon.errors import InvalidRequest
from lingon.serving.guard import Flag, Judgement
from lingon.serving.second.choice import SecondChoice, expected_gain
from lingon.translation.v1 import translation_pb2 as pb

SERVER = SecondChoice(below=0.5, sentences=4, characters=10)


def test_a_request_lowers_the_bounds_of_the_server_and_never_raises_them():
    assert SERVER.within(pb.SecondOptions()) == SERVER
    assert SERVER.within(pb.SecondOptions(below=0.25, sentences=1)) == SecondChoice(0.25, 1, 10)
    assert SERVER.within(pb.SecondOptions(below=1.0, sentences=100)) == SERVER
    assert SERVER.within(pb.SecondOptions(never=True)).sentences == 0


@pytest.mark.parametrize("below", [-0.1, 1.1, math.nan, math.inf])
def test_a_threshold_that_is_no_share_is_refused(below):
    with pytest.raises(InvalidRequest, match=r"second\.below must be 0 to 1"):
        SERVER.within(pb.SecondOptions(below=below))


@pytest.mark.parametrize(
    ("judgement", "characters", "reason"),
    [
        (Judgement((), 0.4), 10, pb.SECOND_REASON_CONFIDENCE),
        (Judgement((), 0.4), 9, None),
        (Judgement((), 0.5), 10, None),
        (Judgement((), None), 10, None),
        (Judgement((Flag.LOW_CONFIDENCE,), 0.6), 10, None),
        (Judgement((Flag.REPETITION,), 0.0), 1, pb.SECOND_REASON_SUSPECT),
        (Judgement((Flag.NUMBERS,), None), 1, pb.SECOND_REASON_SUSPECT),
    ],
)
def test_a_sentence_is_doubtful_by_its_confidence_and_length_or_by_a_suspicion(judgement, characters, reason):
    assert SERVER.reason(judgement, characters) == reason


def test_of_equal_doubt_the_longer_sentence_has_more_to_gain():
    assert expected_gain(Judgement((), 0.4), 80) > expected_gain(Judgement((), 0.4), 20)
    assert expected_gain(Judgement((Flag.REPETITION,), 0.9), 20) > expected_gain(Judgement((), 0.5), 20)
