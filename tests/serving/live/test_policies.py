"""When drafts of an open sentence are agreed, on plain numbers."""

from __future__ import annotations

import pytest

from lingon.errors import InvalidRequest
from lingon.serving.live.policies import (
    AlignmentGuided,
    Draft,
    LengthRatio,
    LocalAgreement,
    WaitK,
    WholeSentences,
    policy_of,
)
from lingon.translation.v1 import translation_pb2 as pb


def draft(*tokens: int, ends: tuple[int, ...] = (), words: int = 9, **fields: object) -> Draft:
    return Draft(tokens=tokens, word_ends=ends or tuple(range(1, len(tokens) + 1)), source_words=words, **fields)


def test_local_agreement_is_the_words_with_which_the_last_drafts_begin():
    assert LocalAgreement(2).agree([draft(5, 6, 7), draft(5, 6, 8)]) == 2
    assert LocalAgreement(3).agree([draft(5, 6, 7), draft(5, 7), draft(5, 6, 8)]) == 1


def test_local_agreement_waits_for_enough_drafts():
    assert LocalAgreement(2).agree([draft(5, 6)]) == 0


def test_local_agreement_ends_where_a_word_ends_in_all_drafts():
    assert LocalAgreement(2).agree([draft(5, 6, 7, ends=(1, 3)), draft(5, 6, 8, ends=(1, 2, 3))]) == 1


def test_wait_k_has_as_many_words_as_the_source_less_the_lag():
    policy = WaitK(3)
    assert [policy.agree([draft(1, 2, 3, 4, 5, 6, words=words)]) for words in (2, 3, 5, 9, 20)] == [0, 0, 2, 6, 6]


def test_wait_k_is_scaled_by_the_ratio_of_the_lengths():
    assert WaitK(3).agree([draft(1, 2, 3, 4, 5, 6, words=7, words_per_word=0.5)]) == 2


def test_alignment_ends_before_the_first_token_that_looks_at_one_of_the_last_words():
    looks_at = [0, 1, 6, 2, 8]
    tokens = draft(1, 2, 3, 4, 5, words=9, looks_at=looks_at, ends=(1, 2, 4, 5))
    assert AlignmentGuided(3).agree([tokens]) == 2
    assert AlignmentGuided(2).agree([tokens]) == 4
    assert AlignmentGuided(9).agree([tokens]) == 0


def test_whole_sentences_agree_on_nothing():
    assert WholeSentences().agree([draft(1, 2, 3)]) == 0


@pytest.mark.parametrize("words", [1, 3, 4])
@pytest.mark.parametrize("policy", [WaitK(3), AlignmentGuided(3)])
def test_a_policy_that_may_not_agree_does_not(policy: WaitK | AlignmentGuided, words: int):
    found = policy.agree([draft(1, 2, words=words, looks_at=[0, 0])])
    assert bool(found) <= policy.may_agree(words)


def test_the_ratio_of_lengths_begins_at_one_and_follows_the_speaker():
    ratio = LengthRatio()
    assert ratio.value == 1
    ratio.add(20, 40)
    assert ratio.value == 1.5


def test_a_policy_has_its_default_lag():
    assert policy_of(pb.LIVE_POLICY_UNSPECIFIED, 0) == (pb.LIVE_POLICY_LOCAL_AGREEMENT, LocalAgreement(3))
    assert policy_of(pb.LIVE_POLICY_WAIT_K, 0)[1] == WaitK(5)
    assert policy_of(pb.LIVE_POLICY_ALIGNMENT, 4)[1] == AlignmentGuided(4)


def test_unknown_policies_and_lags_are_refused():
    with pytest.raises(InvalidRequest, match=r"start.policy has no value 9"):
        policy_of(9, 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"start.lag_words must be 0 to 20, got 21"):
        policy_of(pb.LIVE_POLICY_WAIT_K, 21)
