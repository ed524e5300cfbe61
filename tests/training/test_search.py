from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from lingon.errors import SettingsError
from lingon.text import BOS, EOS
from lingon.training.models.transformer import Transformer
from lingon.training.search import Hypothesis, SearchSettings, translate
from tests.support.training_runs import tiny_model

WORDS = (4, 5, 6)
SOURCES = [[4, 5, EOS], [6, EOS], [5, 5, 4, 6, EOS], [EOS], [4, 6, 6, 4, 5, 4, EOS]]


def small_vocab_model(seed: int) -> Transformer:
    """A model of seven pieces with flat distributions, so that searches find different results."""
    model = tiny_model(seed, vocab=7, tie="none", norm="pre")
    with torch.no_grad():
        model.output.weight.mul_(2.0)
    return model


def log_probability(model: Transformer, source: list[int], tokens: tuple[int, ...]) -> float:
    """Return the log-probability of a sequence of generated tokens, decoded at once."""
    lengths, target = torch.tensor([len(source)]), torch.tensor([[BOS, *tokens[:-1]]])
    log_probs = model.log_probs(model(torch.tensor([source]), lengths, target))[0]
    return sum(log_probs[place, token].item() for place, token in enumerate(tokens))


def all_hypotheses(model: Transformer, source: list[int], longest: int, alpha: float) -> list[Hypothesis]:
    """Return every translation of at most `longest` tokens, the end token counted, the best first."""
    return sorted(_enumerate(model, source, longest, alpha), key=lambda hypothesis: -hypothesis.score)


def _enumerate(model: Transformer, source: list[int], longest: int, alpha: float) -> Iterator[Hypothesis]:
    for length in range(longest):
        for words in itertools.product(WORDS, repeat=length):
            total = log_probability(model, source, (*words, EOS))
            yield Hypothesis(words, total / (length + 1) ** alpha, finished=True)
    for words in itertools.product(WORDS, repeat=longest):
        yield Hypothesis(words, log_probability(model, source, words) / longest**alpha, finished=False)


def test_of_equally_likely_continuations_the_better_parent_and_then_the_lower_id_comes_first() -> None:
    model = small_vocab_model(0)
    with torch.no_grad():
        model.output.weight.zero_()
    (found,) = translate(model, [[4, EOS]], SearchSettings(beam_size=3, num_hypotheses=3, length_penalty=1.0))
    assert [hypothesis.tokens for hypothesis in found] == [(), (4,), (4, 4)]


@pytest.mark.parametrize("seed", range(3))
def test_greedy_search_takes_the_likeliest_token_until_the_end(seed: int) -> None:
    model = small_vocab_model(seed)
    found = translate(model, SOURCES, SearchSettings(length_factor=1.0, length_extra=5))
    for source, hypotheses in zip(SOURCES, found, strict=True):
        tokens: list[int] = []
        while EOS not in tokens and len(tokens) < len(source) + 5:
            logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *tokens]]))
            tokens.append(int(model.log_probs(logits)[0, -1].argmax()))
        finished = tokens[-1] == EOS
        assert hypotheses[0].tokens == tuple(tokens[: len(tokens) - finished])
        assert hypotheses[0].finished == finished
        assert hypotheses[0].score == pytest.approx(log_probability(model, source, tuple(tokens)), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_an_exhaustive_beam_finds_the_best_translations(seed: int, alpha: float) -> None:
    model, source = small_vocab_model(seed), [4, 6, EOS]
    wide = SearchSettings(beam_size=400, num_hypotheses=5, length_penalty=alpha, length_factor=0, length_extra=4)
    found = translate(model, [source], wide)[0]
    expected = all_hypotheses(model, source, 4, alpha)[:5]
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in expected]
    assert [hypothesis.finished for hypothesis in found] == [hypothesis.finished for hypothesis in expected]
    scores = [hypothesis.score for hypothesis in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx(scores, abs=1e-4)


def test_a_wider_beam_finds_what_greedy_search_misses() -> None:
    gains = 0
    for seed in range(5):
        model = small_vocab_model(seed)
        greedy, beam = (translate(model, SOURCES, SearchSettings(beam_size=size)) for size in (1, 4))
        gains += sum(wide[0].score > narrow[0].score + 1e-6 for narrow, wide in zip(greedy, beam, strict=True))
    assert gains > 0


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_n_best_are_sorted_and_all_different(alpha: float) -> None:
    settings = SearchSettings(beam_size=4, num_hypotheses=4, length_penalty=alpha)
    for hypotheses in translate(small_vocab_model(1), SOURCES, settings):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({(hypothesis.tokens, hypothesis.finished) for hypothesis in hypotheses}) == 4


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_score_is_the_log_probability_over_the_length_with_its_penalty(beam_size: int) -> None:
    model, settings = small_vocab_model(2), SearchSettings(beam_size=beam_size, length_penalty=0.7)
    for source, hypotheses in zip(SOURCES, translate(model, SOURCES, settings), strict=True):
        generated = hypotheses[0].tokens + (EOS,) * hypotheses[0].finished
        expected = log_probability(model, source, generated) / len(generated) ** 0.7
        assert hypotheses[0].score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_no_translation_is_longer_than_its_limit_and_one_that_reaches_it_is_unfinished(beam_size: int) -> None:
    settings = SearchSettings(beam_size=beam_size, length_factor=1.0, length_extra=1)
    reached = 0
    for seed in range(4):
        for source, hypotheses in zip(SOURCES, translate(small_vocab_model(seed), SOURCES, settings), strict=True):
            limit = len(source) + 1
            for hypothesis in hypotheses:
                assert len(hypothesis.tokens) + hypothesis.finished <= limit
                assert hypothesis.finished or len(hypothesis.tokens) == limit
                reached += not hypothesis.finished
    assert reached


def test_the_length_limit_is_at_most_the_positions_of_the_model() -> None:
    assert SearchSettings(length_factor=2.0, length_extra=16).max_length(10, 256) == 36
    assert SearchSettings(length_factor=2.0, length_extra=16).max_length(200, 256) == 256


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_translates_the_same_alone_as_in_a_batch(beam_size: int) -> None:
    model, settings = small_vocab_model(4), SearchSettings(beam_size=beam_size, length_penalty=1.0)
    together = translate(model, SOURCES, settings)
    for source, hypotheses in zip(SOURCES, together, strict=True):
        assert translate(model, [source], settings)[0][0].tokens == hypotheses[0].tokens
    backwards = translate(model, SOURCES[::-1], settings, batch_size=2)
    assert [found[0].tokens for found in backwards[::-1]] == [found[0].tokens for found in together]


def test_nothing_to_translate_gives_nothing() -> None:
    assert translate(small_vocab_model(0), [], SearchSettings()) == []


@pytest.mark.parametrize("length_penalty", [-0.1, 10.1, 1000.0, float("nan"), float("inf")])
def test_a_length_penalty_out_of_bounds_is_rejected(length_penalty: float) -> None:
    with pytest.raises(SettingsError, match=rf"length_penalty must be from 0 to 10, got {length_penalty}"):
        SearchSettings(length_penalty=length_penalty)


@pytest.mark.parametrize(("beam_size", "num_hypotheses"), [(0, 1), (2, 3), (2, 0)])
def test_more_hypotheses_than_beam_size_are_rejected(beam_size: int, num_hypotheses: int) -> None:
    with pytest.raises(SettingsError, match=r"num_hypotheses must be from 1 to beam_size \("):
        SearchSettings(beam_size=beam_size, num_hypotheses=num_hypotheses)
