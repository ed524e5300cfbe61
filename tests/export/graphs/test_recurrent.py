"""The graphs of recurrent systems and of variants of the Transformer compute what their model computes.

Alone and in company, to the last bit.
"""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest

from lingon.bundle import names
from lingon.export.gates_checkpoint import check_attention, check_tensors, draw_grid
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import DEFAULT_PRECISIONS, build, states_of
from lingon.serving.runtime.onnx_runner import OnnxRunner
from tests.support.random_models import (
    KINDS,
    RECURRENT,
    STEPS,
    VARIANTS,
    decode,
    emulated_grid,
    encode,
    limits_of,
    random_pairs,
    random_sources,
    recurrent_grid,
    recurrent_model,
    recurrent_runner,
    runner_of,
)

EIGHT_BITS = "int8", "int8-native"
precisions = pytest.mark.parametrize("precision", ["fp32", "fp32-native", *EIGHT_BITS])
OTHERS = "rnnsearch lstm", "rnnsearch mlp"


def test_the_tiny_models_have_every_kind_of_state() -> None:
    kinds = {state.kind for name in KINDS for state in states_of(recurrent_model(name))}
    assert kinds == {"memory", "recurrent"}


@pytest.mark.parametrize("precision", ["fp32", "fp32-native"])
@pytest.mark.parametrize("name", RECURRENT)
def test_graphs_compute_the_outputs_and_the_attention_of_the_model(name: str, precision: str) -> None:
    runner, grid = recurrent_runner(name, precision), recurrent_grid(name)
    assert 0 < check_tensors(runner, precision, grid).step_difference < 2e-5
    assert list(grid[0].rows[0].attention) == ([] if name.startswith("rnnenc") else ["cross"])
    if runner.manifest.alignment.heads:
        attention = check_attention(runner, precision, grid)
        assert (attention.heads, attention.largest < 1e-5) == (1, True)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("precision", DEFAULT_PRECISIONS)
def test_graphs_of_a_variant_compute_the_outputs_and_the_attention_of_the_model(name: str, precision: str) -> None:
    runner, grid = recurrent_runner(name, precision), recurrent_grid(name)
    steps = check_tensors(runner, precision, grid)
    attention = check_attention(runner, precision, grid)
    own = 0 if "ssru" in name else 2  # layers of the decoder with self-attention
    assert attention.heads == 2 * (2 + own + 2), "of encoder, decoder and cross-attention"
    if precision.startswith("fp32"):
        assert 0 < steps.step_difference < 2e-5
        assert attention.largest < 1e-5


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        *(("int8", name) for name in VARIANTS),
        *((each, name) for each in EIGHT_BITS for name in [*KINDS, *OTHERS, "luong concat", "luong content"]),
    ],
)
def test_8_bit_graphs_compute_what_their_emulation_computes(name: str, precision: str) -> None:
    runner = recurrent_runner(name, precision)
    # PyTorch rounds a few values otherwise on other processors; with a wrong scale no row is exact.
    found = check_tensors(runner, precision, recurrent_grid(name), emulated_grid(name, precision), cost=0.0)
    assert found.exact_rows is not None
    assert found.exact_rows > 0.7


@pytest.mark.parametrize("precision", EIGHT_BITS)
@pytest.mark.parametrize("name", [*KINDS, *VARIANTS])
def test_8_bit_graphs_have_no_product_with_a_weight_in_floating_point(name: str, precision: str) -> None:
    graphs = build(recurrent_model(name), precision, WeightFiles(), random_pairs(4), shortlist=True).graphs
    for content in graphs.values():
        graph = onnx.load_model_from_string(content).graph
        bodies = [each.g for node in graph.node for each in node.attribute if each.name == "body"]
        kinds = {node.op_type for part in (graph, *bodies) for node in part.node}
        assert not kinds & {"Gemm", "FloatLinear", "GRU", "LSTM"}


@pytest.mark.parametrize("precision", ["int8-native", "fp32-native"])
@pytest.mark.parametrize("name", KINDS)
def test_graphs_of_weights_that_float16_holds_find_them_in_loops(name: str, precision: str) -> None:
    """Such biases are stored in half the bytes, so that a node outside a loop converts what a node inside reads."""
    model = copy.deepcopy(recurrent_model(name))
    for parameter in model.parameters():
        parameter.data = parameter.half().float()
    steps = check_tensors(runner_of(model, precision), precision, draw_grid(model, limits_of(model)))
    assert 0 < steps.step_difference < (1.0 if precision == "int8-native" else 2e-5)


def scored(runner: OnnxRunner, sources: list[tuple[int, ...]], padding: int = 0) -> list[np.ndarray]:
    """Return the scores and the attention of each source with its own reverse, as one array for each pair."""
    longest = max(map(len, sources)) + padding
    ids = np.array([[*source, *[0] * (longest - len(source))] for source in sources])
    targets = np.array([[*source[-2::-1], *[0] * (longest - len(source))] for source in sources])
    lengths = np.array([len(source) for source in sources])
    found = runner.score(ids, lengths, targets, lengths - 1)
    return [np.concatenate([each.log_probs, each.attention.ravel()]) for each in found]


@precisions
@pytest.mark.parametrize(
    "name", [*KINDS, *VARIANTS, "rnnsearch lstm", "rnnsearch content", "rnnsearch mlp", "luong gru"]
)
def test_no_bit_of_a_sentence_depends_on_its_company_or_on_padding(name: str, precision: str) -> None:
    runner, sources = recurrent_runner(name, precision), random_sources(17, longest=11)
    alone = [decode(runner, encode(runner, [source]), [0], 32) for source in sources]
    pairs = [scored(runner, [source])[0] for source in sources]
    shapes = ((1, 3, 64, 16), (2, 0, 32, 6), (5, 7, 32, 24), (8, 1, 128, 16), (17, 0, 32, 16), (17, 5, 64, 61))
    for rows, padding, width, capacity in shapes:
        encoded = encode(runner, sources[:rows], padding)
        together = decode(runner, encoded, list(range(rows)), width, capacity)
        for row in range(rows):
            own = encode(runner, [sources[row]])
            for state in (each for each in runner.manifest.states if each.kind != "cache"):
                mine, theirs = own[state.name][0], encoded[state.name][row]
                real = tuple(
                    slice(len(sources[row])) if size == "source_length" else slice(None) for size in state.shape
                )
                assert np.array_equal(mine[real], theirs[real]), (state.name, rows, row)
            assert all(np.array_equal(together[step][row], alone[row][step][0]) for step in range(STEPS)), (rows, row)
        for mine, theirs in zip(scored(runner, sources[:rows], padding), pairs[:rows], strict=True):
            assert np.array_equal(mine, theirs), rows


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        *((each, name) for each in ("int8", "fp32-native") for name in KINDS),
        *((each, name) for each in ("fp32", "int8-native") for name in [*KINDS, *VARIANTS]),
    ],
)
def test_no_bit_of_a_sentence_depends_on_the_number_of_threads(name: str, precision: str) -> None:
    """Products have no variants, and the attention of int8 and of fp32-native is that of fp32 and of int8-native."""
    large = {"dim": 64, **({} if name in VARIANTS else {"embedding_dim": 64})}
    if name.startswith("rnnsearch"):
        large["encoder_dim"] = 32
    sources = random_sources(33, longest=11)
    one, two = (recurrent_runner(name, precision, threads, **large) for threads in (1, 2))
    alone, together = (decode(runner, encode(runner, sources), list(range(33)), 32) for runner in (one, two))
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(alone, together, strict=True))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_step_reads_all_of_a_past_state_before_it_writes_the_present_one(name: str) -> None:
    """The runner binds both to the same memory."""
    content = build(recurrent_model(name), "fp32", WeightFiles(), [], shortlist=False).graphs["fp32/decoder.onnx"]
    nodes = onnx.load_model_from_string(content).graph.node
    for state in states_of(recurrent_model(name)):
        if state.kind == "recurrent":
            needed = {names.present_name(state.name)}
            for node in reversed(nodes):
                if needed & set(node.output):
                    needed |= set(node.input)
            readers = [node for node in nodes if names.past_name(state.name) in node.input]
            assert readers
            assert all(needed & set(node.output) for node in readers), state.name
