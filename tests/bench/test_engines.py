"""The other engines compute the same tokens as Lingon from the same weights; differences are explained."""

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

import lingon.bench.engines.torch_graph as torch_graph
from lingon.bench.engines import lingon as lingon_engine
from lingon.bench.engines.agreement import TIE, compare
from lingon.bench.engines.base import BenchEngine, Cell, Setting, batches
from lingon.bench.engines.conversion import model_of
from lingon.bench.synthetic import Shape, forced_workloads, outputs
from lingon.bench.workloads import Workload
from lingon.bundle.store import write_bundle
from lingon.errors import BundleError, SettingsError
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.batches import pad
from lingon.training.models.interface import FORBIDDEN_LOGIT
from lingon.training.models.transformer import Transformer
from tests.support.random_models import VOCAB, limits_of, random_model, random_sources, written_bundle

pytestmark = pytest.mark.peer

SOURCES, LEARNED = random_sources(48), random_sources(48, seed=1)
SHORT, LONG = (10, EOS), (*range(10, 30), EOS)
MAX_LENGTH = 11  # target tokens: allowed for the shortest source by tests.support.random_models, so for all sources
SHAPES = {
    "as in the paper": {},
    "pre-norm, gelu": {"norm": "pre", "activation": "gelu"},
    "nothing tied, learned positions, silu": {"tie": "none", "positions": "learned", "activation": "silu"},
}


def cell(beam_size: int = 1, **values) -> Cell:
    return Cell(**{"workload": "base", "batch": 16, "beam_size": beam_size, "max_length": MAX_LENGTH, **values})


@functools.cache
def trained_model(shape: str) -> Transformer:
    """A model trained for a few steps to reverse its source, so that outputs for unseen SOURCES vary."""
    model = copy.deepcopy(random_model(**SHAPES[shape]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    lengths = torch.tensor([len(source) for source in LEARNED])
    sources, targets = pad(LEARNED), pad([[BOS, *reversed(source[:-1]), EOS] for source in LEARNED])
    for _ in range(60):
        logits = model(sources, lengths, targets[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def short_list() -> Shortlist:
    """The end token for all sentences, and three pieces for each source piece."""
    pieces = np.arange(3 * VOCAB, dtype=np.int32) * 7 % (VOCAB - UNK - 1) + UNK + 1
    return Shortlist(np.array([EOS], np.int32), np.arange(0, 3 * VOCAB + 1, 3, dtype=np.int32), pieces)


@pytest.fixture(scope="module")
def bundle_of(tmp_path_factory):
    """The bundle of a trained model, written once for each shape."""
    return functools.cache(
        lambda shape: written_bundle(trained_model(shape), tmp_path_factory.mktemp("bundle"), shortlist=short_list())
    )


@pytest.fixture(scope="module")
def engine_of(bundle_of, tmp_path_factory):
    """Another engine, loaded; its files are written once for each shape."""

    @functools.cache
    def folder(name: str, shape: str) -> Path:
        path = tmp_path_factory.mktemp(name) / "model"
        module(name).prepare(bundle_of(shape), path)
        return path

    def loaded(name: str, shape: str = "as in the paper", **setting) -> BenchEngine:
        return module(name).load(folder(name, shape), Setting(**{"threads": 1, **setting}))

    return loaded


def module(name: str) -> ModuleType:
    """The module of an engine; the test is skipped if it is not installed."""
    found = importlib.import_module(f"lingon.bench.engines.{name}")
    if reason := found.unavailable_reason():
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def lingon_of(bundle_of):
    """Lingon, loaded once for each shape."""
    return functools.cache(
        lambda shape="as in the paper": lingon_engine.load(bundle_of(shape).folder, Setting(threads=1))
    )


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_ctranslate2_finds_the_same_tokens(engine_of, lingon_of, shape, beam_size):
    decoded = cell(beam_size)
    assert engine_of("ctranslate2", shape).translate(SOURCES, decoded) == lingon_of(shape).translate(SOURCES, decoded)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("shape", ["as in the paper", "pre-norm, gelu"])
def test_transformers_finds_the_same_tokens(engine_of, lingon_of, shape, beam_size):
    decoded = cell(beam_size)
    assert engine_of("transformers", shape).translate(SOURCES, decoded) == lingon_of(shape).translate(SOURCES, decoded)


def test_optimum_finds_the_same_tokens(engine_of, lingon_of):
    engine, lingon = engine_of("optimum"), lingon_of()
    for decoded in (cell(1), cell(4)):
        assert engine.translate(SOURCES, decoded) == lingon.translate(SOURCES, decoded)


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_vary_enough_to_show_a_difference(lingon_of, shape):
    greedy, beam = (lingon_of(shape).translate(SOURCES, cell(beam_size)) for beam_size in (1, 4))
    assert sum(one != other for one, other in zip(greedy, beam, strict=True)) > len(SOURCES) / 8
    assert np.mean([len(set(tokens)) for tokens in beam]) > 2
    assert len({len(tokens) for tokens in beam}) > 6


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", ["ctranslate2", "transformers"])
def test_every_output_has_the_exact_length(engine_of, name, beam_size):
    found = engine_of(name).translate(SOURCES, cell(beam_size, exact_length=9))
    assert {len(tokens) for tokens in found} == {9}
    assert min(map(min, found)) > UNK


@pytest.mark.parametrize("name", ["ctranslate2", "transformers"])
def test_the_batch_size_changes_no_token(engine_of, name):
    engine = engine_of(name)
    assert engine.translate(SOURCES, cell(4, batch=5)) == engine.translate(SOURCES, cell(4, batch=48))


def test_two_workers_of_ctranslate2_return_the_order_of_the_sources(engine_of, lingon_of):
    engine = engine_of("ctranslate2", workers=2)
    assert engine.translate(SOURCES, cell()) == lingon_of().translate(SOURCES, cell())


@pytest.mark.parametrize("name", ["ctranslate2", "transformers"])
def test_an_endless_output_is_cut_at_its_own_limit_in_any_batch(tmp_path, name):
    model = copy.deepcopy(random_model())
    model.forbidden[EOS] = FORBIDDEN_LOGIT
    bundle = written_bundle(model, tmp_path, shortlist=short_list())
    module(name).prepare(bundle, tmp_path / name)
    engine, limits = module(name).load(tmp_path / name, Setting(threads=1)), bundle.manifest.limits
    found = engine.translate([SHORT, LONG, SHORT, LONG, SHORT], cell(batch=3, max_length=200))
    short, long = (limits.max_output(len(source)) for source in (SHORT, LONG))
    assert list(map(len, found)) == [short, long, short, long, short]


def test_sentences_of_similar_length_are_decoded_together_with_the_limit_of_the_longest():
    decoded, limits = cell(max_length=200), limits_of(random_model())
    found = batches([SHORT, LONG, SHORT, LONG, SHORT], decoded, limits, size=3)
    assert [batch.indices for batch in found] == [(1, 3, 0), (2, 4)]
    assert [batch.longest for batch in found] == [limits.max_output(len(source)) for source in (LONG, SHORT)]


@pytest.mark.parametrize(("length", "longest"), [({"exact_length": 30}, 30), ({"max_length": 12}, 12)])
def test_a_batch_has_at_most_the_length_of_the_cell(length, longest):
    (batch,) = batches([SHORT, LONG], cell(**length), limits_of(random_model()), size=2)
    assert batch.longest == longest


def test_ctranslate2_in_8_bits_finds_similar_tokens(engine_of):
    found, exact = (
        engine_of("ctranslate2", precision=precision).translate(SOURCES, cell()) for precision in ("int8", "fp32")
    )
    assert found != exact
    assert sum(one == other for one, other in zip(found, exact, strict=True)) > len(SOURCES) / 4


def test_ctranslate2_with_batch_size_1_uses_the_shortlist_as_lingon_does(engine_of, lingon_of):
    decoded = cell(4, batch=1, shortlist=True)
    found = engine_of("ctranslate2").translate(SOURCES, decoded)
    assert found == lingon_of().translate(SOURCES, decoded)
    assert found != engine_of("ctranslate2").translate(SOURCES, replace(decoded, shortlist=False))
    assert all(set(tokens) <= set(short_list().select(source)) for source, tokens in zip(SOURCES, found, strict=True))


def test_a_converted_model_has_no_padding_of_the_vocabulary(bundle_of):
    model = model_of(bundle_of("nothing tied, learned positions, silu"))
    assert len(model.output.weight) == len(model.output.bias) == len(model.decoder.pieces) == VOCAB
    assert not model.tied


def test_transformers_rejects_several_embedding_matrices(bundle_of, tmp_path):
    with pytest.raises(BundleError, match="several embedding matrices"):
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
    """The runner that scores differing hypotheses."""
    return load_runner(bundle_of("as in the paper"), "fp32", threads=1)


@pytest.fixture(scope="module")
def best_of(lingon_of):
    """The outputs of Lingon by beam size."""
    return functools.cache(lambda beam_size: lingon_of().translate(SOURCES, cell(beam_size)))


def limit_of(runner: OnnxRunner, source: tuple[int, ...]) -> int:
    """The maximum number of tokens of a source's translation."""
    return runner.limits.max_output(len(source))


def log_prob(runner: OnnxRunner, tokens: list[int], *, ended: bool = True) -> float:
    """The scorer's log-probability of a hypothesis for the first source, with the end token if it ended."""
    source = np.array([SOURCES[0]])
    (scored,) = runner.score(source, np.array([source.size]), np.array([tokens]), np.array([len(tokens)]))
    return float(scored.log_probs[: len(tokens) + ended].sum())


def test_identical_outputs_have_no_differences(runner, best_of):
    found = compare(runner, SOURCES, best_of(1), best_of(1), cell())
    assert (found.identical, found.differences) == (1.0, ())


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(("side", "sign"), [("ours", 1), ("theirs", -1)])
def test_the_cause_names_the_likelier_of_two_hypotheses(runner, best_of, beam_size, side, sign):
    best = best_of(beam_size)
    worse = [[UNK + 1] * MAX_LENGTH, *best[1:]]
    found = compare(runner, SOURCES, *((best, worse) if side == "ours" else (worse, best)), cell(beam_size))
    (difference,) = found.differences
    assert (difference.index, difference.cause) == (0, f"{side} is likelier")
    assert sign * (difference.log_probs[0] - difference.log_probs[1]) > TIE
    assert sign * difference.gap > TIE
    assert found.identical == 47 / 48


def test_the_log_probabilities_of_a_difference_are_those_of_whole_hypotheses(runner):
    mine, other = [9, 10, 11], [12]
    (difference,) = compare(runner, SOURCES[:1], [mine], [other], cell(4)).differences
    assert difference.log_probs == pytest.approx((log_prob(runner, mine), log_prob(runner, other)), abs=1e-4)


def test_a_hypothesis_at_its_limit_is_scored_without_an_end_token(runner):
    pair = [9] * 9, [10] * 9
    (difference,) = compare(runner, SOURCES[:1], *([each] for each in pair), cell(4, exact_length=9)).differences
    assert difference.log_probs == pytest.approx([log_prob(runner, each, ended=False) for each in pair], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_difference_by_our_lower_limit_has_the_cause_bound(runner, beam_size):
    mine, other = [9] * limit_of(runner, SHORT), [9] * limit_of(runner, LONG)
    pair = ([mine, other], [other, other])
    (difference,) = compare(runner, [SHORT, LONG], *pair, cell(beam_size, max_length=200)).differences
    assert (difference.index, difference.cause) == (0, "bound")


def test_with_equal_limits_the_cause_is_not_bound(runner):
    mine, other = [9] * limit_of(runner, SHORT), [9] * limit_of(runner, LONG)
    pair = ([mine, other], [other, other])
    (difference,) = compare(runner, [SHORT, LONG], *pair, cell(4, max_length=200), size=1).differences
    assert difference.cause != "bound"


def test_a_greedy_difference_before_any_limit_does_not_have_the_cause_bound(runner):
    mine, other = [9] * limit_of(runner, SHORT), [10] * limit_of(runner, LONG)
    pair = ([mine, other], [other, other])
    (difference,) = compare(runner, [SHORT, LONG], *pair, cell(max_length=200)).differences
    assert difference.cause != "bound"


def test_hypotheses_that_use_all_positions_can_be_compared(runner):
    pair = [9] * runner.limits.max_target_tokens, [10] * runner.limits.max_target_tokens
    (difference,) = compare(runner, [LONG], *([each] for each in pair), cell(max_length=1000)).differences
    assert difference.cause in ("ours is likelier", "theirs is likelier")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_hypotheses_with_equal_scores_are_a_tie(tmp_path, beam_size):
    model = copy.deepcopy(random_model())
    with torch.no_grad():
        model.output.weight[9] = model.output.weight[10]
    runner = load_runner(written_bundle(model, tmp_path, shortlist=short_list()), "fp32", threads=1)
    (difference,) = compare(runner, SOURCES[:1], [[5, 9, 11]], [[5, 10, 11]], cell(beam_size)).differences
    assert (difference.cause, abs(difference.gap) < TIE) == ("tie", True)


LOOP_SHAPES = {
    "as in the paper": {},
    "pre-norm, gelu": {"norm": "pre", "activation": "gelu"},
    "nothing tied, learned positions, silu": {"tie": "none", "positions": "learned", "activation": "silu"},
}
STEPS = 9


@functools.cache
def endless_model(shape: str) -> Transformer:
    """A model that never prefers the end token."""
    model = copy.deepcopy(random_model(**LOOP_SHAPES[shape]))
    model.forbidden[EOS] = FORBIDDEN_LOGIT
    return model


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> list[Workload]:
    """A tiny model whose outputs vary, with 16 sources of one length and 32 of mixed lengths."""
    shape = Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)
    return forced_workloads(tmp_path_factory.mktemp("cache"), "tiny", shape, CPU, sentences=16)


def cell_of(workload: Workload, beam_size: int) -> Cell:
    return Cell(
        workload=workload.name,
        batch=8,
        beam_size=beam_size,
        exact_length=workload.exact_length,
        target_ratio=workload.target_ratio,
    )


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("shape", LOOP_SHAPES)
def test_the_loop_finds_the_tokens_of_a_search_with_the_model(tmp_path: Path, shape: str, beam_size: int):
    model, sources = endless_model(shape), random_sources(16)
    expected = outputs(model, sources, beam_size, STEPS).tokens.tolist()
    engine = torch_graph.load(written_bundle(model, tmp_path).folder, Setting(threads=1))
    cell = Cell(workload="base", batch=4, beam_size=beam_size, exact_length=STEPS)
    assert engine.translate(sources, cell) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("mixed", [False, True], ids=["one length", "mixed lengths"])
def test_the_loop_finds_the_tokens_of_lingon(workloads: list[Workload], mixed: bool, beam_size: int):
    workload = workloads[mixed]
    theirs, ours = (
        module.load(workload.bundle, Setting(threads=1)).translate(workload.sources, cell_of(workload, beam_size))
        for module in (torch_graph, lingon_engine)
    )
    assert theirs == ours
    assert len({tuple(tokens) for tokens in ours}) == len(ours)


def test_a_second_search_of_the_same_shape_begins_afresh(workloads: list[Workload]):
    engine = torch_graph.load(workloads[0].bundle, Setting(threads=1))
    cell, sources = cell_of(workloads[0], 4), workloads[0].sources
    first, second = sources[:8], sources[8:]
    engine.translate(second, cell)
    assert engine.translate(first, cell) == engine.translate(sources, cell)[:8]


def test_outputs_without_a_given_length_are_refused(workloads: list[Workload]):
    engine = torch_graph.load(workloads[0].bundle, Setting(threads=1))
    with pytest.raises(SettingsError, match="torch-graph decodes only outputs whose lengths are given"):
        engine.translate(workloads[0].sources, Cell(workload="base", batch=8))


@pytest.mark.gpu
@pytest.mark.parametrize("beam_size", [1, 4])
def test_captured_steps_on_the_gpu_find_nearly_the_tokens_of_the_cpu(workloads: list[Workload], beam_size: int):
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    cell, sources = cell_of(workloads[1], beam_size), workloads[1].sources
    here, there = (
        torch_graph.load(workloads[1].bundle, setting).translate(sources, cell)
        for setting in (Setting(threads=1), Setting(precision="fp16", threads=1, device="cuda"))
    )
    assert sum(mine == theirs for mine, theirs in zip(here, there, strict=True)) >= 0.8 * len(sources)
