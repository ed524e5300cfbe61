"""Patience, soft prefixes and alternatives in the engine, compared with searches that share no code."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from lingon.serving.decoding.job import Alternative, Hypothesis, Options, PrefixBias, Sampling, ended_hypotheses
from lingon.serving.decoding.rules import Rules
from lingon.serving.decoding.spelling import Pieces, Spelling
from lingon.text import BOS, EOS, PAD, UNK
from tests.support.engine_harness import EngineHarness, Recorder, options_for, running_engine
from tests.support.naive_search import NaiveRules, NaiveSearch, logits_after
from tests.support.random_models import VOCAB, random_model, random_runner, random_sources, runner_of

LETTERS = Pieces([b""] * 4 + [f" {number}".encode() for number in range(VOCAB - 4)], {})
RULES = Rules(spelling=Spelling(LETTERS), vocab=VOCAB)
BEAMS = pytest.mark.parametrize("beam_size", [1, 2, 4])


def translations(harness: EngineHarness, jobs: list[tuple[Any, Options, dict[str, Any]]]) -> list[Any]:
    made = [harness.job(source, at, options=options, **rest) for at, (source, options, rest) in enumerate(jobs)]
    harness.engine.submit(made)
    found = harness.collect(len(made))
    return [found[at] for at in range(len(made))]


def log_probs_after(source: tuple[int, ...], tokens: tuple[int, ...]) -> np.ndarray:
    logits = logits_after(0, source, tokens)
    found: np.ndarray = logits - logits.max()
    return found - math.log(np.exp(found).sum())


@pytest.mark.parametrize(("beam_size", "patience", "expected"), [(4, 1, 4), (4, 2, 8), (5, 0.5, 3), (1, 0.1, 1)])
def test_patience_scales_the_number_of_ended_hypotheses(beam_size: int, patience: float, expected: int) -> None:
    assert ended_hypotheses(beam_size, patience) == expected


@pytest.mark.parametrize("patience", [0.25, 0.5, 2.0, 3.0])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_search_with_patience_finds_what_the_naive_search_finds(patience: float, penalty: float) -> None:
    runner, sources, beam_size = random_runner(), random_sources(12, longest=10), 4
    wanted = {"beam_size": beam_size, "num_hypotheses": 2, "length_penalty": penalty, "patience": patience}
    options = [options_for(runner, source, **wanted) for source in sources]
    with running_engine(runner) as harness:
        found = harness.translate(sources, options)
    for source, each in zip(sources, found, strict=True):
        bound = runner.limits.max_output(len(source))
        naive = NaiveSearch(LETTERS, NaiveRules(), lambda tokens, source=source: logits_after(0, source, tokens), bound)
        expected = naive.beam(beam_size, 2, penalty, ended=ended_hypotheses(beam_size, patience))
        assert [one.tokens for one in each] == [one.tokens for one in expected]


@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp32-native", marks=pytest.mark.native)])
@pytest.mark.parametrize("beam_size", [22, VOCAB + 8])
def test_a_beam_may_be_larger_than_the_vocabulary(precision: str, beam_size: int) -> None:
    runner = runner_of(random_model(), precision, max_beam_size=VOCAB + 8)
    sources = random_sources(4, longest=8)
    wanted = {"beam_size": beam_size, "num_hypotheses": beam_size}
    with running_engine(runner) as harness:
        found = harness.translate(sources, [options_for(runner, source, **wanted) for source in sources])
    for source, each in zip(sources, found, strict=True):
        bound = runner.limits.max_output(len(source))
        naive = NaiveSearch(LETTERS, NaiveRules(), lambda tokens, source=source: logits_after(0, source, tokens), bound)
        expected = naive.beam(beam_size, beam_size, 0.0)
        assert [one.tokens for one in each] == [one.tokens for one in expected]


def test_more_patience_searches_longer_and_never_finds_less_likely_translations() -> None:
    runner, sources = random_runner(), random_sources(24, longest=16)
    steps, best = {}, {}
    for patience in (0.25, 1.0, 3.0):
        recorder = Recorder()
        wanted: dict[str, Any] = {"beam_size": 4, "length_penalty": 0.6, "patience": patience}
        with running_engine(runner, recorder, max_rows=4) as harness:
            recorder.live.clear()
            found = harness.translate(sources, [options_for(runner, source, **wanted) for source in sources])
        steps[patience], best[patience] = len(recorder.live), [each[0].score for each in found]
    assert steps[0.25] < steps[1.0] < steps[3.0]
    assert all(more >= less for more, less in zip(best[3.0], best[1.0], strict=True))
    assert all(more >= less for more, less in zip(best[1.0], best[0.25], strict=True))


def biased(log_probs: np.ndarray, tokens: tuple[int, ...], wanted: tuple[int, ...], weight: float) -> np.ndarray:
    """The log-probabilities after a soft prefix, (vocab), by the definition."""
    if len(tokens) >= len(wanted) or tokens != wanted[: len(tokens)]:
        return log_probs
    probabilities = (1 - weight) * np.exp(log_probs)
    probabilities[wanted[len(tokens)]] += weight
    return np.log(np.maximum(probabilities, 1e-300))


@pytest.mark.parametrize("weight", [0.05, 0.5, 0.99])
@BEAMS
def test_a_soft_prefix_is_a_mixture_with_the_model(weight: float, beam_size: int) -> None:
    runner, sources, draw = random_runner(), random_sources(8, longest=10), random.Random(3)
    prefixes = [tuple(draw.randrange(UNK + 1, VOCAB) for _ in range(draw.randint(1, 4))) for _ in sources]
    wanted: dict[str, Any] = {"beam_size": beam_size, "num_hypotheses": beam_size, "rules": RULES}
    jobs = [
        (source, options_for(runner, source, **wanted), {"bias": PrefixBias(prefix, weight)})
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    with running_engine(runner) as harness:
        found = translations(harness, jobs)
    followed = 0
    for source, prefix, each in zip(sources, prefixes, found, strict=True):

        def logits(
            tokens: tuple[int, ...], source: tuple[int, ...] = source, prefix: tuple[int, ...] = prefix
        ) -> np.ndarray:
            return biased(log_probs_after(source, tokens), tokens, prefix, weight)

        naive = NaiveSearch(LETTERS, NaiveRules(), logits, runner.limits.max_output(len(source)))
        expected = [naive.greedy()] if beam_size == 1 else naive.beam(beam_size, beam_size, 0.0)
        assert [one.tokens for one in each] == [one.tokens for one in expected]
        assert [one.score for one in each] == pytest.approx([one.total for one in expected], abs=1e-4)
        followed += each[0].tokens[: len(prefix)] == prefix
    assert followed == {0.05: 0, 0.5: followed, 0.99: len(sources)}[weight]


@BEAMS
def test_a_soft_prefix_of_nearly_full_weight_is_the_prefix_itself(beam_size: int) -> None:
    runner, sources = random_runner(), random_sources(12, longest=10)
    options = [
        Options(beam_size=beam_size, rules=RULES, max_output_tokens=runner.limits.max_output(len(source)) - 2)
        for source in sources
    ]
    soft = [
        (
            source,
            options_for(runner, source, beam_size=beam_size, rules=RULES),
            {"bias": PrefixBias((31, 7), 1 - 1e-15)},
        )
        for source in sources
    ]
    hard = [(source, each, {"prefix": (31, 7)}) for source, each in zip(sources, options, strict=True)]
    with running_engine(runner) as harness:
        found, expected = translations(harness, soft), translations(harness, hard)
    assert [each[0].tokens for each in found] == [each[0].tokens for each in expected]


def test_a_soft_prefix_that_a_rule_forbids_changes_nothing() -> None:
    runner, source = random_runner(), random_sources(1)[0]
    rules = Rules(spelling=Spelling(LETTERS, [b"27"]), vocab=VOCAB)
    options = options_for(runner, source, rules=rules, beam_size=2)
    with running_engine(runner) as harness:
        plain, soft = translations(
            harness, [(source, options, {}), (source, options, {"bias": PrefixBias((31, 5), 0.9)})]
        )
    assert LETTERS.texts[31] == b" 27"
    assert soft == plain


def test_a_sampled_translation_begins_with_a_soft_prefix_as_often_as_its_weight_says() -> None:
    runner, source, weight = random_runner(), random_sources(3)[2], 0.4
    likely = np.exp(log_probs_after(source, ()))
    token = int(np.argsort(-likely)[6])
    options = [
        options_for(runner, source, rules=RULES, sampling=Sampling(seed=9, stream=stream)) for stream in range(600)
    ]
    with running_engine(runner) as harness:
        found = translations(harness, [(source, each, {"bias": PrefixBias((token,), weight)}) for each in options])
    share = sum(each[0].tokens[:1] == (token,) for each in found) / len(found)
    assert share == pytest.approx(weight + (1 - weight) * likely[token], abs=0.06)


def alternatives(
    harness: EngineHarness, source: tuple[int, ...], prefix: tuple[int, ...], count: int, **wanted: Any
) -> list[tuple[Hypothesis, ...]]:
    least, runner = wanted.pop("min_probability", 0.0), random_runner()
    jobs = [
        (
            source,
            options_for(runner, source, **{"rules": RULES, **wanted}, alternative=Alternative(rank, least)),
            {"prefix": prefix},
        )
        for rank in range(count)
    ]
    return translations(harness, jobs)


@BEAMS
@pytest.mark.parametrize("prefix", [(), (31,), (27, 31)])
def test_alternatives_are_the_likeliest_next_tokens_each_completed(beam_size: int, prefix: tuple[int, ...]) -> None:
    with running_engine(random_runner()) as harness:
        for source in random_sources(6, longest=10):
            found = alternatives(harness, source, prefix, 6, beam_size=beam_size, length_penalty=0.5)
            log_probs = log_probs_after(source, prefix)
            log_probs[[PAD, BOS, UNK]] = -math.inf
            expected = np.argsort(-log_probs, kind="stable")[:6].tolist()
            assert [next(iter(each.tokens[len(prefix) :]), EOS) for (each,) in found] == expected
            for token, (each,) in zip(expected, found, strict=True):
                assert each.log_probs[len(prefix)] == pytest.approx(log_probs[token], abs=1e-4)
                assert each.score == pytest.approx(sum(each.log_probs) / (len(each.log_probs) - len(prefix)) ** 0.5)
                check_completion(harness, source, (*prefix, token), beam_size, each)


@BEAMS
def test_every_token_that_may_come_next_is_an_alternative_and_so_is_the_end(beam_size: int) -> None:
    source, prefix = random_sources(3, longest=10)[2], (31,)
    with running_engine(random_runner()) as harness:
        found = alternatives(harness, source, prefix, VOCAB, beam_size=beam_size)
    log_probs = log_probs_after(source, prefix)
    expected = [token for token in np.argsort(-log_probs, kind="stable").tolist() if token not in (PAD, BOS, UNK)]
    assert [next(iter(each[0].tokens[1:]), EOS) for each in found if each] == expected
    (ended,) = found[expected.index(EOS)]
    assert (ended.tokens, ended.finished) == (prefix, True)


def check_completion(
    harness: EngineHarness, source: tuple[int, ...], prefix: tuple[int, ...], beam_size: int, found: Hypothesis
) -> None:
    """An alternative is what the search writes after the prefix and the alternative itself."""
    if prefix[-1] == EOS:
        assert found.finished
        assert found.tokens == prefix[:-1]
        return
    bound = random_runner().limits.max_output(len(source)) - 1
    options = Options(beam_size=beam_size, max_output_tokens=bound, rules=RULES)
    ((completed,),) = translations(harness, [(source, options, {"prefix": prefix})])
    assert found.tokens == completed.tokens or beam_size > 1
    assert found.finished == completed.finished or beam_size > 1


def test_the_first_alternative_of_greedy_search_is_the_plain_translation_bit_for_bit() -> None:
    runner, sources = random_runner(), random_sources(12)
    with running_engine(runner) as harness:
        plain = harness.translate(sources, [options_for(runner, source) for source in sources])
        found = [alternatives(harness, source, (), 1)[0] for source in sources]
    assert found == plain


@BEAMS
def test_alternatives_keep_to_the_rules_at_their_place(beam_size: int) -> None:
    rules = Rules(spelling=Spelling(LETTERS, [b"27 1"]), vocab=VOCAB, no_repeat_ngram=2, min_tokens=4)
    with running_engine(random_runner()) as harness:
        for source in random_sources(6, longest=10):
            found = alternatives(harness, source, (31, 31, 31), VOCAB, beam_size=beam_size, rules=rules)
            begun = [each[0].tokens[3] for each in found if each]
            assert len(begun) == len(set(begun))
            forbidden = {token for token in range(VOCAB) if LETTERS.texts[token].startswith(b" 1")} | {31, EOS}
            assert not forbidden.intersection(begun)
            assert len(begun) == VOCAB - 4 - len(forbidden - {EOS})


@BEAMS
def test_an_alternative_that_is_not_likely_enough_has_no_translation(beam_size: int) -> None:
    with running_engine(random_runner()) as harness:
        for source in random_sources(6, longest=10):
            likely = np.sort(np.exp(log_probs_after(source, ())))[::-1]
            least = float(likely[2] + likely[3]) / 2
            found = alternatives(harness, source, (), 6, beam_size=beam_size, min_probability=least)
            assert [len(each) for each in found] == [1, 1, 1, 0, 0, 0]
            assert alternatives(harness, source, (), 2, beam_size=beam_size, min_probability=1.0)[1:] == [()]


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_change_no_bit_of_these_options(workers: int) -> None:
    runner, sources, draw = random_runner(), random_sources(40, longest=30), random.Random(workers)
    jobs: list[tuple[Any, Options, dict[str, Any]]] = []
    for source in sources:
        rest: dict[str, Any] = {"prefix": (31,)} if draw.random() < 0.3 else {}
        alternative = Alternative(draw.randrange(6), 0.02) if draw.random() < 0.4 else None
        if alternative is None and draw.random() < 0.7:
            rest["bias"] = PrefixBias((draw.randrange(4, VOCAB), 9), draw.choice([0.1, 0.6]))
        beam_size = draw.choice([1, 1, 3, 4])
        rules = RULES if alternative or "bias" in rest or draw.random() < 0.3 else None
        wanted = {
            "beam_size": beam_size,
            "length_penalty": draw.choice([0.0, 1.0]),
            "patience": draw.choice([1.0, 2.0]),
        }
        jobs.append((source, options_for(runner, source, **wanted, rules=rules, alternative=alternative), rest))
    with running_engine(runner, max_rows=8) as harness:
        alone = [translations(harness, [job])[0] for job in jobs]
    with running_engine(runner, workers=workers, max_rows=33) as harness:
        assert translations(harness, jobs) == alone
