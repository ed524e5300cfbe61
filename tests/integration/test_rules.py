"""Rules of a request in greedy search, beam search and sampling, compared with a search that shares no code."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from lingon.serving.decoding.job import Hypothesis, Options, Sampling
from lingon.serving.decoding.rules import ForcedWords, Rules
from lingon.serving.decoding.spelling import Pieces, Spelling
from tests.support.engine_harness import Recorder, options_for, running_engine
from tests.support.naive_rules import is_valid, text_of
from tests.support.naive_search import NaiveRules, NaiveSearch, logits_after
from tests.support.random_models import VOCAB, random_runner, random_sources
from tests.support.rule_cases import CASES, PIECES, WORDS, rules_of


def test_the_pieces_of_the_cases_are_as_the_model_has_them() -> None:
    assert len(PIECES.texts) == VOCAB
    assert all(b"".join(PIECES.texts[token] for token in tokens).strip() == word for word, tokens in WORDS.items())


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("beam_size", "penalty"), [(1, 0.0), (3, 0.0), (4, 1.0)])
def test_the_engine_finds_the_translations_of_the_naive_search(
    case: NaiveRules, beam_size: int, penalty: float
) -> None:
    runner, sources, rules = random_runner(), random_sources(5, longest=10), rules_of(case)
    prefixes = [(), (31,), (), (27, 31), ()]
    wanted = {"beam_size": beam_size, "num_hypotheses": beam_size, "length_penalty": penalty, "rules": rules}
    with running_engine(runner) as harness:
        jobs = [
            harness.job(source, at, options=options_for(runner, source, **wanted), prefix=prefixes[at])
            for at, source in enumerate(sources)
        ]
        harness.engine.submit(jobs)
        found = harness.collect(len(jobs))
    for at, source in enumerate(sources):
        bound = runner.limits.max_output(len(source)) + len(prefixes[at])
        naive = NaiveSearch(
            PIECES, case, lambda tokens, source=source: logits_after(0, source, tokens), bound, prefixes[at]
        )
        expected = [naive.greedy()] if beam_size == 1 else naive.beam(beam_size, beam_size, penalty)
        assert [each.tokens for each in found[at]] == [each.tokens for each in expected]
        assert [each.finished for each in found[at]] == [each.finished for each in expected]
        scores = [naive.score(each, penalty) for each in expected]
        assert [each.score for each in found[at]] == pytest.approx(scores, abs=1e-4)
        check_rules(case, found[at], prefixes[at], bound)


def check_rules(case: NaiveRules, found: tuple[Hypothesis, ...], prefix: tuple[int, ...], bound: int) -> None:
    for each in found:
        text = text_of(PIECES, each.tokens).decode()
        assert is_valid(PIECES, each.tokens)
        assert not [word for word in case.forbidden if word in text and word not in text_of(PIECES, prefix).decode()]
        size = case.no_repeat_ngram
        places = [at for at in range(size, len(each.tokens) + 1) if size and is_valid(PIECES, each.tokens[: at - 1])]
        grams = [each.tokens[at - size : at] for at in places]
        assert len(grams) == len(set(grams))


def test_the_rules_bind_on_these_sentences() -> None:
    """Else the comparison above would show nothing."""
    runner, sources = random_runner(), random_sources(24, longest=10)
    with running_engine(runner) as harness:
        plain = harness.translate(sources, [options_for(runner, source) for source in sources])
        for case in CASES[1:]:
            restricted = [options_for(runner, source, rules=rules_of(case)) for source in sources]
            assert harness.translate(sources, restricted) != plain, case


def test_rules_that_exclude_no_candidate_change_no_bit() -> None:
    runner, sources = random_runner(), random_sources(16)
    harmless = Rules(spelling=Spelling(Pieces([b""] * VOCAB, {})), vocab=VOCAB, min_tokens=1)
    for beam_size in (1, 4):
        wanted: dict[str, Any] = {"beam_size": beam_size, "num_hypotheses": beam_size}
        with running_engine(runner) as harness:
            plain = harness.translate(sources, [options_for(runner, source, **wanted) for source in sources])
            ruled = [options_for(runner, source, **wanted, rules=harmless) for source in sources]
            assert harness.translate(sources, ruled) == plain


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_a_translation_with_nothing_left_to_continue_with_ends_at_once(beam_size: int) -> None:
    recorder, source = Recorder(), random_sources(1)[0]
    letters = Pieces([b""] * 4 + [b"a"] * (VOCAB - 4), {})
    rules = Rules(spelling=Spelling(letters, [b"aaa"]), vocab=VOCAB, min_tokens=9)
    wanted = Options(beam_size=beam_size, num_hypotheses=beam_size, rules=rules, max_output_tokens=30)
    with running_engine(random_runner(), recorder) as harness:
        recorder.live.clear()  # the steps of the warm-up
        (found,) = harness.translate([source], [wanted])
    assert found
    assert {(len(each.tokens), each.finished) for each in found} == {(2, True)}
    assert len(recorder.live) == 3


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("beam_size", [1, 2, 4, 8])
def test_every_translation_has_the_forced_words_if_the_length_allows(beam_size: int, penalty: float) -> None:
    runner, sources, draw = random_runner(), random_sources(24, longest=16), random.Random(beam_size)
    wanted = {"beam_size": beam_size, "num_hypotheses": beam_size, "length_penalty": penalty}
    options, words = [], []
    for source in sources:
        words.append(draw.sample(list(WORDS), draw.randint(1, 3)))
        case = NaiveRules(forbidden=("ab", "bc"), min_tokens=draw.choice([0, 12]))
        rules = rules_of(case, ForcedWords(PIECES, words[-1], [WORDS[word] for word in words[-1]]))
        options.append(options_for(runner, source, **wanted, rules=rules))
    with running_engine(runner) as harness:
        found = harness.translate(sources, options)
    for hypotheses, forced in zip(found, words, strict=True):
        best = hypotheses[0]
        text = text_of(PIECES, best.tokens)
        assert [word for word in forced if word not in text] == []
        assert best.missing == 0
        assert is_valid(PIECES, best.tokens)
        assert b"ab" not in text
        assert [each.missing for each in hypotheses] == sorted(each.missing for each in hypotheses)
        for each in hypotheses:
            assert each.missing == sum(word not in text_of(PIECES, each.tokens) for word in forced)
            assert not each.finished or not each.missing


def test_a_beam_places_forced_words_better_than_greedy_search() -> None:
    runner, sources = random_runner(), random_sources(24, longest=16)
    words = ForcedWords(PIECES, list(WORDS)[:2], list(WORDS.values())[:2])
    scores = {}
    with running_engine(runner) as harness:
        for beam_size in (1, 8):
            wanted: dict[str, Any] = {"beam_size": beam_size, "length_penalty": 1.0, "rules": rules_of(CASES[0], words)}
            found = harness.translate(sources, [options_for(runner, source, **wanted) for source in sources])
            scores[beam_size] = sum(best.score for best, *_ in found) / len(found)
    assert scores[8] > scores[1] + 0.2


def test_forced_words_that_take_the_whole_length_are_there_and_longer_ones_are_counted_as_missing() -> None:
    runner, source = random_runner(), random_sources(1)[0]
    rules = rules_of(NaiveRules(), ForcedWords(PIECES, list(WORDS), list(WORDS.values())))
    total = sum(map(len, WORDS.values()))
    for beam_size in (1, 2, 5):
        with running_engine(runner) as harness:
            for bound in range(1, total + 4):
                wanted = Options(beam_size=beam_size, num_hypotheses=beam_size, rules=rules, max_output_tokens=bound)
                (found,) = harness.translate([source], [wanted])
                assert [each.missing for each in found] == sorted(each.missing for each in found)
                for each in found:
                    assert each.missing == sum(word not in text_of(PIECES, each.tokens) for word in WORDS)
                    assert is_valid(PIECES, each.tokens)
                assert found[0].missing == 0 or bound < total


def test_forced_words_that_a_free_search_finds_anyway_change_no_token() -> None:
    runner, sources = random_runner(), random_sources(12)
    with running_engine(runner) as harness:
        for beam_size in (1, 4):
            free = harness.translate(sources, [options_for(runner, source, beam_size=beam_size) for source in sources])
            for source, (best, *_) in zip(sources, free, strict=True):
                text = text_of(PIECES, best.tokens[:3])
                if not best.finished or not is_valid(PIECES, best.tokens) or not text.strip():
                    continue
                words = ForcedWords(PIECES, [text.strip()], [best.tokens[:3]])
                forced = options_for(runner, source, beam_size=beam_size, rules=rules_of(NaiveRules(), words))
                ((again, *_),) = harness.translate([source], [forced])
                assert again.tokens == best.tokens or beam_size > 1
                assert text.strip() in text_of(PIECES, again.tokens)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_sampling_keeps_to_the_rules_and_spells_valid_text(temperature: float) -> None:
    runner, sources = random_runner(), random_sources(40)
    case = NaiveRules(forbidden=("ab", "bc", "é"), no_repeat_ngram=2, min_tokens=5)
    rules = rules_of(case, ForcedWords(PIECES, [b"dd"], [(20,)]))
    options = [
        options_for(runner, source, rules=rules, sampling=Sampling(seed=seed, temperature=temperature))
        for seed, source in enumerate(sources)
    ]
    with running_engine(runner) as harness:
        for source, found in zip(sources, harness.translate(sources, options), strict=True):
            check_rules(case, found, (), runner.limits.max_output(len(source)))
            assert b"dd" in text_of(PIECES, found[0].tokens)
            assert not found[0].finished or len(found[0].tokens) >= 4


def test_sampling_without_the_rule_would_spell_invalid_text() -> None:
    """Else the test above would show nothing."""
    runner, sources = random_runner(), random_sources(40)
    options = [
        options_for(runner, source, sampling=Sampling(seed=seed, temperature=10.0))
        for seed, source in enumerate(sources)
    ]
    with running_engine(runner) as harness:
        found = harness.translate(sources, options)
    assert not all(is_valid(PIECES, best.tokens) for (best,) in found)


def mixed_options(draw: random.Random, source: tuple[int, ...]) -> Any:
    """Options of a job, with rules in three of four."""
    runner = random_runner()
    beam_size = draw.choice([1, 1, 3, 4])
    sampling = Sampling(seed=5, top_p=0.9) if beam_size == 1 and draw.random() < 0.4 else None
    words = draw.sample(list(WORDS), draw.randint(1, 2))
    forced = ForcedWords(PIECES, words, [WORDS[word] for word in words]) if draw.random() < 0.4 else None
    rules = rules_of(draw.choice(CASES), forced) if draw.random() < 0.75 else None
    return options_for(runner, source, beam_size=beam_size, num_hypotheses=beam_size, sampling=sampling, rules=rules)


@pytest.mark.parametrize(("seed", "workers"), [(0, 1), (1, 2)])
def test_batches_of_sentences_with_and_without_rules_change_no_bit(seed: int, workers: int) -> None:
    runner, sources, draw = random_runner(), random_sources(40, longest=30), random.Random(seed)
    options = [mixed_options(draw, source) for source in sources]
    with running_engine(runner, max_rows=8) as harness:
        alone = [harness.translate([source], [each])[0] for source, each in zip(sources, options, strict=True)]
    with running_engine(runner, workers=workers, max_rows=33) as harness:
        assert harness.translate(sources, options) == alone


def test_log_probabilities_are_those_of_the_model() -> None:
    """Forbidden tokens take no probability away from the others, so that Score gives the same."""
    runner, source = random_runner(), random_sources(3)[2]
    with running_engine(runner) as harness:
        wanted = options_for(runner, source, rules=rules_of(CASES[6]))
        ((best,),) = harness.translate([source], [wanted])
    tokens = [*best.tokens, 2] if best.finished else list(best.tokens)
    for at, (token, log_prob) in enumerate(zip(tokens, best.log_probs, strict=True)):
        logits = logits_after(0, source, best.tokens[:at])
        expected = logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        assert log_prob == pytest.approx(expected, abs=1e-4)
