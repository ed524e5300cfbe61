"""Draws of tokens: what they depend on, how they are distributed, and which tokens they never give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.decoding.choice import Candidates, draw, log_prob
from lingon.serving.decoding.job import Sampling

LOGITS = np.log(np.array([0.05, 0.4, 0.25, 0.2, 0.1])).astype(np.float32)


def test_a_draw_is_a_function_of_seed_stream_and_step() -> None:
    draws = {
        (seed, stream, step): draw(LOGITS, Sampling(seed=seed, stream=stream), step)
        for seed in range(4)
        for stream in range(4)
        for step in range(4)
    }
    again = {key: draw(LOGITS, Sampling(seed=key[0], stream=key[1]), key[2]) for key in reversed(draws)}
    assert draws == again
    assert len(set(draws.values())) == len(LOGITS)


def test_draws_follow_the_probabilities() -> None:
    counts = np.bincount([draw(LOGITS, Sampling(seed=7), step) for step in range(4000)], minlength=5)
    assert counts / 4000 == pytest.approx(np.exp(LOGITS), abs=0.03)


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(top_k=2), {1, 2}),
        (Sampling(top_p=0.6), {1, 2}),
        (Sampling(top_p=0.01), {1}),
        (Sampling(temperature=0.01), {1}),
    ],
)
def test_top_k_top_p_and_temperature_limit_the_tokens_drawn(sampling: Sampling, possible: set[int]) -> None:
    drawn = {draw(LOGITS, sampling, step) for step in range(300)}
    assert drawn == possible


@given(
    st.sampled_from([1e-45, 1e-38, float(np.finfo(np.float32).tiny), 1e-30, 1e-8]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, -50.0, 50.0]),
    st.sampled_from([Sampling(), Sampling(top_k=3), Sampling(top_p=0.5)]),
)
def test_a_tiny_temperature_gives_the_likeliest_token(
    temperature: float, seed: int, shift: float, sampling: Sampling
) -> None:
    random = np.random.default_rng(seed)
    logits = random.standard_normal(600).astype(np.float32)
    logits += np.float32(shift) - logits.max()
    logits[random.random(600) < 0.3] = -np.inf
    logits[7] = shift
    likeliest = np.flatnonzero(logits == logits.max())
    assert draw(logits, replace(sampling, temperature=temperature, seed=seed), 0) in likeliest


def possible_tokens(logits: np.ndarray, sampling: Sampling) -> set[int]:
    """The tokens that a draw may give, by sorting all of them."""
    order = np.argsort(-logits, kind="stable")
    probabilities = np.exp((logits[order].astype(np.float64) - logits.max()) / sampling.temperature)
    probabilities[sampling.top_k or len(order) :] = 0
    probabilities /= probabilities.sum()
    before = np.cumsum(probabilities) - probabilities
    kept = order[(probabilities > 0) & (before < sampling.top_p)]
    return set(kept[logits[kept] > -np.inf].tolist())


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([5, 300, 3000]),
    st.sampled_from([0.01, 1.0, 8.0]),
    st.sampled_from([0, 1, 7, 400]),
    st.sampled_from([0.3, 0.9, 1.0]),
    st.sampled_from([0.5, 1.0, 10.0]),
)
def test_a_draw_gives_a_token_that_a_full_sort_would_keep(
    seed: int, size: int, spread: float, top_k: int, top_p: float, temperature: float
) -> None:
    random = np.random.default_rng(seed)
    logits = (spread * random.standard_normal(size)).astype(np.float32)
    logits[random.random(size) < 0.3] = -np.inf
    logits[0] = logits[-1] = 0.0
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    assert {draw(logits, sampling, step) for step in range(40)} <= possible_tokens(logits, sampling)


@pytest.mark.parametrize("sampling", [Sampling(top_k=40), Sampling(top_p=0.5), Sampling(temperature=2.0, top_k=90)])
def test_every_token_that_a_full_sort_would_keep_is_drawn(sampling: Sampling) -> None:
    logits = np.repeat(np.float32([1.0, 0.5, 0.0]), 50)[np.random.default_rng(1).permutation(150)]
    drawn = {draw(logits, sampling, step) for step in range(3000)}
    assert drawn == possible_tokens(logits, sampling)


def test_unlikely_tokens_are_drawn_if_together_they_are_likely() -> None:
    logits = np.full(3000, -7.0, np.float32)  # together nearly three times as likely as the first
    logits[0] = 0.0
    sampling = Sampling(top_p=0.95)
    drawn = {draw(logits, sampling, step) for step in range(400)}
    assert drawn <= possible_tokens(logits, sampling)
    assert len(drawn) > 100
    assert max(drawn) > 2000


def test_of_equal_tokens_the_first_ones_are_kept() -> None:
    assert {draw(np.zeros(1000, np.float32), Sampling(top_k=3), step) for step in range(100)} == {0, 1, 2}


@pytest.mark.parametrize("place", [0, 255, 256, 5999])
def test_one_possible_token_is_always_drawn(place: int) -> None:
    logits = np.full(6000, -np.inf, np.float32)
    logits[place] = -2.0
    assert {draw(logits, Sampling(seed=seed), 0) for seed in range(50)} == {place}


def test_draws_over_a_large_vocabulary_follow_the_probabilities() -> None:
    logits = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    groups = np.arange(2000) % 4
    expected = np.bincount(groups, weights=np.exp(logits.astype(np.float64)))
    drawn = np.bincount(groups[[draw(logits, Sampling(seed=3), step) for step in range(6000)]], minlength=4)
    assert drawn / 6000 == pytest.approx(expected / expected.sum(), abs=0.03)


def test_log_prob_is_the_logarithm_of_the_softmax() -> None:
    likeliest = Candidates(np.array([1]), np.array([LOGITS[1]]))
    assert log_prob(LOGITS + 3, 2, likeliest) == pytest.approx(LOGITS[2])
