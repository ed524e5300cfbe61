"""The peers compute what we compute: the same weights, and so the same tokens; and what is made of differences."""

from __future__ import annotations

import copy
import functools
import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.nn import functional

from lingon import bundle as names
from lingon.bench.engines import lingon as ours
from lingon.bench.engines.agreement import TIE, compare
from lingon.bench.engines.base import Cell, Contestant, Setting
from lingon.bench.engines.batches import batches
from lingon.bench.engines.conversion import model_of
from lingon.bundle import Bundle, write_bundle
from lingon.errors import BundleError, SettingsError
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.data.batches import pad
from lingon.training.models.transformer import FORBIDDEN_LOGIT, Transformer
from tests.support.random_models import VOCAB, limits_of, manifest_of, random_model, random_sources

pytestmark = pytest.mark.peer

SOURCES, SEEN = random_sources(48), random_sources(48, seed=1)
SHORT, LONG = (10, EOS), (*range(10, 30), EOS)
EVERYWHERE = (
    11  # tokens: what the limits of tests.support.random_models let the shortest source have, so that all have it
)
SHAPES = {
    "as in the paper": {},
    "pre-norm, gelu": {"norm": "pre", "activation": "gelu"},
    "nothing tied, learned positions, silu": {"tie": "none", "positions": "learned", "activation": "silu"},
}


def cell(beam_size: int = 1, **values) -> Cell:
    return Cell(**{"work": "base", "batch": 16, "beam_size": beam_size, "max_length": EVERYWHERE, **values})


@functools.cache
def taught_model(shape: str) -> Transformer:
    """A model that has begun to learn to say its source backwards: of SOURCES, which it never saw, it says much."""
    model = copy.deepcopy(random_model(**SHAPES[shape]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    lengths = torch.tensor([len(source) for source in SEEN])
    sources, targets = pad(SEEN), pad([[BOS, *reversed(source[:-1]), EOS] for source in SEEN])
    for _ in range(60):
        logits = model(sources, lengths, targets[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def short_list() -> Shortlist:
    """The end token for all, and three pieces that follow from each source piece."""
    pieces = np.arange(3 * VOCAB, dtype=np.int32) * 7 % (VOCAB - UNK - 1) + UNK + 1
    return Shortlist(np.array([EOS], np.int32), np.arange(0, 3 * VOCAB + 1, 3, dtype=np.int32), pieces)


def written(folder: Path, model: Transformer) -> Bundle:
    """The bundle of a model, with the shortlist."""
    weights = WeightFiles()
    built = build(model, "fp32", weights, (), shortlist=True)
    files = {**built.graphs, **weight_files(weights), names.SHORTLIST: short_list().to_bytes()}
    return write_bundle(folder / "1", replace(manifest_of(model, "fp32", built.reads), shortlist={}), files)


@pytest.fixture(scope="module")
def bundle_of(tmp_path_factory):
    """The bundle of a taught model, written once for every shape."""
    return functools.cache(lambda shape: written(tmp_path_factory.mktemp("bundle"), taught_model(shape)))


@pytest.fixture(scope="module")
def peer_of(bundle_of, tmp_path_factory):
    """A peer, loaded; its files are written once for every shape."""

    @functools.cache
    def folder(name: str, shape: str) -> Path:
        path = tmp_path_factory.mktemp(name) / "model"
        module(name).prepare(bundle_of(shape), path)
        return path

    def loaded(name: str, shape: str = "as in the paper", **setting) -> Contestant:
        return module(name).load(folder(name, shape), Setting(**{"threads": 1, **setting}))

    return loaded


def module(name: str) -> ModuleType:
    """The module of a peer, which may not be installed."""
    found = importlib.import_module(f"lingon.bench.engines.{name}")
    if reason := found.why_not():
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def lingon_of(bundle_of):
    """Our engine."""
    return functools.cache(lambda shape="as in the paper": ours.load(bundle_of(shape).folder, Setting(threads=1)))


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_ctranslate2_finds_the_same_tokens(peer_of, lingon_of, shape, beam_size):
    asked = cell(beam_size)
    assert peer_of("ctranslate2", shape).translate(SOURCES, asked) == lingon_of(shape).translate(SOURCES, asked)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("shape", ["as in the paper", "pre-norm, gelu"])
def test_transformers_finds_the_same_tokens(peer_of, lingon_of, shape, beam_size):
    asked = cell(beam_size)
    assert peer_of("transformers", shape).translate(SOURCES, asked) == lingon_of(shape).translate(SOURCES, asked)


def test_optimum_finds_the_same_tokens(peer_of, lingon_of):
    peer, lingon = peer_of("optimum"), lingon_of()
    for asked in (cell(1), cell(4)):
        assert peer.translate(SOURCES, asked) == lingon.translate(SOURCES, asked)


@pytest.mark.parametrize("shape", SHAPES)
def test_these_tokens_would_show_a_difference(lingon_of, shape):
    greedy, beam = (lingon_of(shape).translate(SOURCES, cell(beam_size)) for beam_size in (1, 4))
    assert sum(one != other for one, other in zip(greedy, beam, strict=True)) > len(SOURCES) / 8
    assert np.mean([len(set(tokens)) for tokens in beam]) > 2
    assert len({len(tokens) for tokens in beam}) > 6


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", ["ctranslate2", "transformers"])
def test_an_exact_length_is_kept_by_every_output(peer_of, name, beam_size):
    found = peer_of(name).translate(SOURCES, cell(beam_size, exact_length=9))
    assert {len(tokens) for tokens in found} == {9}
    assert min(map(min, found)) > UNK


@pytest.mark.parametrize("name", ["ctranslate2", "transformers"])
def test_the_size_of_a_batch_changes_no_token(peer_of, name):
    peer = peer_of(name)
    assert peer.translate(SOURCES, cell(4, batch=5)) == peer.translate(SOURCES, cell(4, batch=48))


def test_two_workers_of_ctranslate2_answer_in_the_order_of_the_sources(peer_of, lingon_of):
    peer = peer_of("ctranslate2", workers=2)
    assert peer.translate(SOURCES, cell()) == lingon_of().translate(SOURCES, cell())


@pytest.mark.parametrize("name", ["ctranslate2", "transformers"])
def test_a_sentence_that_never_ends_is_cut_at_its_own_limit_in_any_batch(tmp_path, name):
    model = copy.deepcopy(random_model())
    model.forbidden[EOS] = FORBIDDEN_LOGIT
    bundle = written(tmp_path, model)
    module(name).prepare(bundle, tmp_path / name)
    peer, limits = module(name).load(tmp_path / name, Setting(threads=1)), bundle.manifest.limits
    found = peer.translate([SHORT, LONG, SHORT, LONG, SHORT], cell(batch=3, max_length=200))
    short, long = (limits.max_output(len(source)) for source in (SHORT, LONG))
    assert list(map(len, found)) == [short, long, short, long, short]


def test_sentences_of_like_length_are_decoded_together_under_the_limit_of_the_longest():
    asked, limits = cell(max_length=200), limits_of(random_model())
    found = batches([SHORT, LONG, SHORT, LONG, SHORT], asked, limits, size=3)
    assert [batch.indices for batch in found] == [(1, 3, 0), (2, 4)]
    assert [batch.longest for batch in found] == [limits.max_output(len(source)) for source in (LONG, SHORT)]


@pytest.mark.parametrize(("asked", "longest"), [({"exact_length": 30}, 30), ({"max_length": 12}, 12)])
def test_no_limit_of_a_model_is_above_what_was_asked(asked, longest):
    (batch,) = batches([SHORT, LONG], cell(**asked), limits_of(random_model()), size=2)
    assert batch.longest == longest


def test_ctranslate2_in_8_bits_says_nearly_the_same(peer_of):
    found, exact = (
        peer_of("ctranslate2", precision=precision).translate(SOURCES, cell()) for precision in ("int8", "fp32")
    )
    assert found != exact
    assert sum(one == other for one, other in zip(found, exact, strict=True)) > len(SOURCES) / 4


def test_ctranslate2_alone_with_a_sentence_chooses_from_its_shortlist_as_we_do(peer_of, lingon_of):
    asked = cell(4, batch=1, shortlist=True)
    found = peer_of("ctranslate2").translate(SOURCES, asked)
    assert found == lingon_of().translate(SOURCES, asked)
    assert found != peer_of("ctranslate2").translate(SOURCES, replace(asked, shortlist=False))
    assert all(set(tokens) <= set(short_list().select(source)) for source, tokens in zip(SOURCES, found, strict=True))


def test_a_converted_model_ends_where_the_vocabulary_does(bundle_of):
    model = model_of(bundle_of("nothing tied, learned positions, silu"))
    assert len(model.output.weight) == len(model.output.bias) == len(model.decoder.pieces) == VOCAB
    assert not model.tied


def test_transformers_refuses_several_matrices_of_pieces(bundle_of, tmp_path):
    with pytest.raises(BundleError, match="several matrices of pieces"):
        module("transformers").prepare(bundle_of("nothing tied, learned positions, silu"), tmp_path)


def test_transformers_is_not_measured_in_8_bits(tmp_path):
    with pytest.raises(SettingsError, match="in fp32 with 1 worker, got int8 and 1"):
        module("transformers").load(tmp_path, Setting(precision="int8"))


def test_a_bundle_of_another_architecture_is_one_line(bundle_of, tmp_path):
    whole = bundle_of("as in the paper")
    files = {name: whole.read(name) for name in whole.manifest.checksums}
    files["fp32/encoder.onnx"] = files["fp32/encoder.onnx"].replace(b"memory.weight", b"memory.height")
    with pytest.raises(BundleError, match=r"fp32/encoder.onnx: has no weight memory.weight; only a Transformer"):
        model_of(write_bundle(tmp_path / "1", whole.manifest, files))


@pytest.fixture(scope="module")
def runner(bundle_of) -> OnnxRunner:
    """Whose scorer judges."""
    return load_runner(bundle_of("as in the paper"), "fp32", threads=1)


@pytest.fixture(scope="module")
def best_of(lingon_of):
    """What our engine finds, by beam size."""
    return functools.cache(lambda beam_size: lingon_of().translate(SOURCES, cell(beam_size)))


def limit_of(runner: OnnxRunner, source: tuple[int, ...]) -> int:
    """The most tokens that a source's translation may have."""
    return runner.limits.max_output(len(source))


def log_prob(runner: OnnxRunner, tokens: list[int], *, ended: bool = True) -> float:
    """What the scorer gives a hypothesis for the first source, with the end token if it ended."""
    source = np.array([SOURCES[0]])
    (scored,) = runner.score(source, np.array([source.size]), np.array([tokens]), np.array([len(tokens)]))
    return float(scored.log_probs[: len(tokens) + ended].sum())


def test_what_is_identical_needs_no_explanation(runner, best_of):
    found = compare(runner, SOURCES, best_of(1), best_of(1), cell())
    assert (found.identical, found.differences) == (1.0, ())
    assert found.line() == "100.00% of 48 sentences identical"


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(("whose", "sign"), [("ours", 1), ("theirs", -1)])
def test_the_likelier_of_two_hypotheses_is_named(runner, best_of, beam_size, whose, sign):
    best = best_of(beam_size)
    worse = [[UNK + 1, UNK + 2], *best[1:]]
    found = compare(runner, SOURCES, *((best, worse) if whose == "ours" else (worse, best)), cell(beam_size))
    (difference,) = found.differences
    assert (difference.index, difference.cause) == (0, f"{whose} is likelier")
    assert sign * (difference.log_probs[0] - difference.log_probs[1]) > TIE
    assert sign * difference.gap > TIE
    assert found.line() == f"97.92% of 48 sentences identical (1 {whose} is likelier)"


def test_the_log_probabilities_of_a_difference_are_those_of_whole_hypotheses(runner):
    mine, other = [9, 10, 11], [12]
    (difference,) = compare(runner, SOURCES[:1], [mine], [other], cell(4)).differences
    assert difference.log_probs == pytest.approx((log_prob(runner, mine), log_prob(runner, other)), abs=1e-4)


def test_a_hypothesis_that_its_limit_ended_counts_without_an_end_token(runner):
    pair = [9] * 9, [10] * 9
    (difference,) = compare(runner, SOURCES[:1], *([each] for each in pair), cell(4, exact_length=9)).differences
    assert difference.log_probs == pytest.approx([log_prob(runner, each, ended=False) for each in pair], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_what_only_our_lower_limit_ended_is_told_apart(runner, beam_size):
    mine, other = [9] * limit_of(runner, SHORT), [9] * limit_of(runner, LONG)
    pair = ([mine, other], [other, other])
    (difference,) = compare(runner, [SHORT, LONG], *pair, cell(beam_size, max_length=200)).differences
    assert (difference.index, difference.cause) == (0, "bound")


def test_no_limit_is_to_blame_where_both_have_the_same(runner):
    mine, other = [9] * limit_of(runner, SHORT), [9] * limit_of(runner, LONG)
    pair = ([mine, other], [other, other])
    (difference,) = compare(runner, [SHORT, LONG], *pair, cell(4, max_length=200), size=1).differences
    assert difference.cause != "bound"


def test_a_greedy_search_that_left_the_way_before_any_limit_has_no_excuse(runner):
    mine, other = [9] * limit_of(runner, SHORT), [10] * limit_of(runner, LONG)
    pair = ([mine, other], [other, other])
    (difference,) = compare(runner, [SHORT, LONG], *pair, cell(max_length=200)).differences
    assert difference.cause != "bound"


def test_hypotheses_as_long_as_the_model_has_positions_can_be_compared(runner):
    pair = [9] * runner.limits.max_target_tokens, [10] * runner.limits.max_target_tokens
    (difference,) = compare(runner, [LONG], *([each] for each in pair), cell(max_length=1000)).differences
    assert difference.cause in ("ours is likelier", "theirs is likelier")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_hypotheses_that_score_alike_are_a_tie(tmp_path, beam_size):
    model = copy.deepcopy(random_model())
    with torch.no_grad():
        model.output.weight[9] = model.output.weight[10]
    runner = load_runner(written(tmp_path, model), "fp32", threads=1)
    (difference,) = compare(runner, SOURCES[:1], [[5, 9, 11]], [[5, 10, 11]], cell(beam_size)).differences
    assert (difference.cause, abs(difference.gap) < TIE) == ("tie", True)
