"""The options of a search have the meaning that they have in CTranslate2: tokens and scores of one model in both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from lingon import Model
from lingon.bundle.store import open_bundle
from lingon.cli.main import main
from lingon.client.results import TextResult
from lingon.text import Tokenizer, normalise
from tests.support.ctranslate2_models import save_ctranslate2
from tests.support.foreign_models import DATA, lines, save_opus_mt

GATES = ("--gate-source", str(DATA / "tatoeba.en"), "--gate-sentences", "20", "--parity-sentences", "10")
NEVER = [["<unk>"]]  # has no share of the probability in a bundle
BOUND = 12  # tokens of a translation: fewer than the bound of the bundle for each text

pytestmark = pytest.mark.peer


class Both(NamedTuple):
    """A model in both toolkits, and texts in pieces."""

    theirs: Any
    ours: Model
    texts: list[list[str]]

    def ask_theirs(self, prefixes: list[list[str]] | None = None, **options: Any) -> list[Any]:
        """Its results. A batch of its beam search gives other attention than a text alone."""
        shared: dict[str, Any] = {"return_scores": True, "max_batch_size": 1, "max_decoding_length": BOUND}
        shared |= {"min_decoding_length": 0, "suppress_sequences": NEVER, "return_attention": True}
        texts = [[*text, "</s>"] for text in self.texts]
        return list(self.theirs.translate_batch(texts, target_prefix=prefixes, **shared | options))

    def ask_ours(self, prefixes: list[list[str]] | None = None, **options: Any) -> list[TextResult]:
        written = [" ".join(prefix) for prefix in prefixes] if prefixes else None
        texts = [" ".join(text) for text in self.texts]
        shared: dict[str, Any] = {"format": "pieces", "max_output_tokens": BOUND, "target_prefix": written}
        return self.ours.translate(texts, **shared | options)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    room = tmp_path_factory.mktemp("both")
    opus = save_opus_mt(room / "opus", seed=6, ends=1.8)
    folder, bundle = save_ctranslate2(room / "ctranslate2", opus), room / "models" / "opus"
    assert main(["import", str(opus), str(bundle), *GATES, "--least-log-prob", "-9", "--no-compare"]) == 0
    tokenizer = Tokenizer(*open_bundle(bundle).tokenizer_files())
    read = [tokenizer.source.encode(normalise(text)) for text in lines("en")[:30]]
    texts = [tokenizer.source_pieces(ids) for ids in read]
    with Model(bundle, threads=1) as model:
        yield Both(ctranslate2.Translator(str(folder), compute_type="float32"), model, texts)


def check(theirs: list[Any], ours: list[TextResult], *, exact: bool, covered: bool = False) -> None:
    """Check tokens and scores; in beam search ours may be better, because it goes on while a hypothesis may win.

    covered: whether a coverage penalty ranks what the search has ended with, which may be other hypotheses then
    """
    same = 0
    for expected, found in zip(theirs, ours, strict=True):
        if found.text.split() == expected.hypotheses[0]:
            assert found.score == pytest.approx(expected.scores[0], abs=1e-4)
            same += 1
        else:
            assert not exact
            assert covered or found.score > expected.scores[0] - 1e-5
    assert same > len(ours) // 2


def prefixes_of(both: Both) -> list[list[str]]:
    """What each translation does not begin with: the begin of another one."""
    found = [result.hypotheses[0] for result in both.ask_theirs(beam_size=1)]
    return [tokens[:2] for tokens in (*found[1:], found[0])]


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_scores_and_tokens_are_the_same(both: Both, beam_size: int, penalty: float) -> None:
    options = {"beam_size": beam_size, "length_penalty": penalty}
    check(both.ask_theirs(**options), both.ask_ours(**options), exact=beam_size == 1)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("weight", [0.05, 0.5, 0.95])
def test_a_soft_prefix_is_the_same(both: Both, beam_size: int, weight: float) -> None:
    prefixes, options = prefixes_of(both), {"beam_size": beam_size, "length_penalty": 1.0}
    theirs = both.ask_theirs(prefixes, **options, prefix_bias_beta=weight)
    check(theirs, both.ask_ours(prefixes, **options, prefix_bias=weight), exact=beam_size == 1)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("penalty", [0.2, 1.0])
def test_a_coverage_penalty_is_the_same(both: Both, beam_size: int, penalty: float) -> None:
    options = {"beam_size": beam_size, "length_penalty": 0.0, "coverage_penalty": penalty}
    check(both.ask_theirs(**options), both.ask_ours(**options), exact=beam_size == 1, covered=True)


@pytest.mark.parametrize("patience", [0.5, 2.0])
def test_patience_counts_the_same_hypotheses(both: Both, patience: float) -> None:
    options = {"beam_size": 4, "length_penalty": 1.0, "patience": patience}
    check(both.ask_theirs(**options), both.ask_ours(**options), exact=False)


def test_alternatives_are_the_same_but_for_the_end_token(both: Both) -> None:
    theirs = both.ask_theirs(beam_size=1, num_hypotheses=5, return_alternatives=True, return_attention=False)
    ours = both.ask_ours(beam_size=1, alternatives=6)
    for expected, found in zip(theirs, ours, strict=True):
        texts = [each.text.split() for each in found.translations]
        assert [each for each in texts if each][:5] == expected.hypotheses
