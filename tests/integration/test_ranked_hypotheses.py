"""Which hypotheses a result has, and their order, with a real graph: the coverage penalty and alternatives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from lingon.bundle.store import Bundle, open_bundle
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.in_process import LocalTranslator
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.translation.attention import LEAST_COVERAGE, coverage, covering_tokens, with_coverage
from lingon.serving.translation.translator import Translator
from lingon.text import PAD, Tokenizer
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.random_models import VOCAB, random_model, written_bundle
from tests.support.tokenizers import train_sentencepiece

LINES = ["the quick brown fox", "jumps over", "the lazy dog", "pack my box with five dozen jugs", "sphinx"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WHOLE = pb.TextOptions(guard=pb.GUARD_POLICY_OFF)
BEAM = 6


class Loaded(NamedTuple):
    """A model, and its bundle, graphs and tokenizer apart."""

    bundle: Bundle
    translator: LocalTranslator
    runner: OnnxRunner
    tokenizer: Tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    lines = [f"{word}{LETTERS[place:]} {LETTERS[:place]}" for place, word in enumerate(" ".join(LINES).split() * 3)]
    files = {"tokenizer.model": train_sentencepiece(lines, VOCAB)}
    bundle = written_bundle(random_model(), tmp_path_factory.mktemp("models") / "random", files=files)
    folder = bundle.folder
    with LocalTranslator(folder, threads=1) as translator:
        yield Loaded(
            bundle, translator, load_runner(open_bundle(folder), "fp32", 1), Tokenizer(*bundle.tokenizer_files())
        )


def translations(model: Loaded, texts: list[str], **options: float) -> list[list[pb.Hypothesis]]:
    wanted: dict[str, Any] = {"beam_size": BEAM, "return_tokens": True, **options}
    asked = pb.DecodingOptions(**wanted)
    request = pb.TranslateRequest(texts=texts, options=asked, text=WHOLE)
    return [list(result.hypotheses) for result in model.translator.translate(request).results]


def pieces(found: pb.Hypothesis) -> tuple[str, ...]:
    return tuple(token.piece for token in found.tokens)


def covered(model: Loaded, source: str, found: pb.Hypothesis) -> float:
    """The sum over source tokens, by the attention of the scorer."""
    source_ids = model.tokenizer.encode_source(source)
    ids = [model.tokenizer.target.piece_to_id(token.piece) for token in found.tokens]
    rows = len(ids) + (found.finish_reason == pb.FINISH_REASON_END)
    (scored,) = model.runner.score(
        np.array([source_ids]), np.array([len(source_ids)]), np.array([[*ids, PAD, PAD]]), np.array([len(ids)])
    )
    return sum(
        math.log(min(max(column, LEAST_COVERAGE), 1.0)) for column in scored.attention[:rows].sum(axis=0).tolist()
    )


@pytest.mark.parametrize("patience", [1.0, 1.5])
@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_the_best_by_coverage_of_all_that_the_search_ends_with_are_returned(
    model: Loaded, penalty: float, patience: float
) -> None:
    """A tiny penalty leaves the order of the search, and all its hypotheses are returned."""
    shared = {"length_penalty": penalty, "patience": patience}
    every = translations(model, LINES, **shared, coverage_penalty=1e-30, num_hypotheses=BEAM)
    best = translations(model, LINES, **shared, coverage_penalty=0.8, num_hypotheses=2)
    moved = 0
    for source, plain, ranked in zip(LINES, every, best, strict=True):
        expected = {pieces(each): each.score + 0.8 * covered(model, source, each) for each in plain}
        scores = sorted((expected[pieces(each)] for each in plain), reverse=True)[:2]
        assert all(each.score == pytest.approx(expected.get(pieces(each), each.score), abs=1e-4) for each in ranked)
        assert [each.score for each in ranked] == pytest.approx(scores, abs=1e-4) or patience > 1
        assert all(found.score >= least - 1e-4 for found, least in zip(ranked, scores, strict=True))
        moved += pieces(ranked[0]) != pieces(plain[0])
    assert moved


def test_a_coverage_penalty_gives_the_same_bits_alone_and_in_a_batch(model: Loaded) -> None:
    wanted = {"coverage_penalty": 0.8, "num_hypotheses": 3}
    alone = [translations(model, [line], **wanted)[0] for line in LINES]
    assert translations(model, LINES, **wanted) == alone


def test_alternatives_are_in_the_order_of_their_tokens_and_not_of_their_scores(model: Loaded) -> None:
    differs = 0
    for found in translations(model, LINES, alternatives=6, beam_size=1):
        assert len(found) == 6
        likely = [each.tokens[0].log_prob for each in found if each.tokens]
        scores = [each.score for each in found]
        assert likely == sorted(likely, reverse=True)
        differs += scores != sorted(scores, reverse=True)
    assert differs


def test_a_sentence_after_the_one_with_alternatives_is_searched_as_without_them(model: Loaded) -> None:
    texts = [f"{first}\n{second}" for first in LINES[:2] for second in LINES[2:]]
    for plain, found in zip(translations(model, texts), translations(model, texts, alternatives=3), strict=True):
        later = plain[0].text.partition("\n")[2]
        assert [each.text.partition("\n")[2] for each in found] == [later] * 3


def test_tokens_that_nothing_attends_to_lower_the_score_and_more_attention_than_one_raises_none() -> None:
    attention = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], np.float32)
    assert coverage(attention) == pytest.approx(math.log(0.5) + math.log(LEAST_COVERAGE))
    found = with_coverage(Hypothesis((7,), (-1.0, -1.0), -2.0, True), attention, 0.5)
    assert found.score == pytest.approx(-2 + 0.5 * (math.log(0.5) + math.log(LEAST_COVERAGE)))
    assert covering_tokens(found) == (7,)
    assert covering_tokens(Hypothesis((7, 8), (-1.0, -1.0), -2.0, False)) == (7,)


@pytest.mark.parametrize(
    "options",
    [{"return_alignment": True}, {"return_alignment": True, "num_hypotheses": 3}, {"coverage_penalty": 0.8}],
    ids=str,
)
@pytest.mark.parametrize("beam_size", [1, BEAM])
async def test_a_search_that_keeps_where_it_looked_needs_no_scorer(
    model: Loaded, options: dict[str, Any], beam_size: int
) -> None:
    wanted = {**options, "beam_size": beam_size, "num_hypotheses": min(options.get("num_hypotheses", 1), beam_size)}
    asked = pb.TranslateRequest(texts=LINES, options=pb.DecodingOptions(**wanted), text=WHOLE)
    limits = EngineLimits()
    engine = Engine(FaultyRunner(model.runner, Failpoints.parse("score=raise")), limits)
    engine.start(scorer=False)
    try:
        reply = await Translator(model.bundle, engine, limits).translate(asked)
    finally:
        engine.stop(timeout=0)
    assert not any(result.status.code for result in reply.results)
    assert reply.results == model.translator.translate(asked).results
