"""The structure of the graphs in our own operators for CUDA: their kernels, their inputs, and the order of steps."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import onnx
import pytest

from lingon.bundle import names
from lingon.errors import SettingsError
from lingon.export.graphs.card import BEAM_COUNT, GREEDY_COUNT
from lingon.export.graphs.onnx_writer import KERNELS, WeightFiles
from lingon.export.graphs.precisions import build, precisions_of
from lingon.export.graphs.transformer import states
from lingon.export.manifest import check_precisions
from lingon.export.settings import ExportSettings
from lingon.serving.runtime.device import FP16_NATIVE
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer
from tests.support.random_models import VOCAB, random_model, recurrent_model

BASE = {"preset": "base", "dim": 64, "heads": 2, "ffn": 128}
"""The layers of Transformer base. The number of kernels does not depend on the widths."""

LAUNCHES = {
    **dict.fromkeys(("Embed", "FloatLinear", "StepAttention", "CrossAttention", "SelfAttention", "PlaceMemory"), 1),
    **{"Choose": 2, "ChooseWithLogits": 2, "GreedyStep": 1, "BeamStep": 2, "LayerNormalization": 1},
}
"""Kernels of a node, by operator. A choice with a norm has one more."""


@cache
def graphs(precision: str = FP16_NATIVE, **settings: Any) -> dict[str, onnx.GraphProto]:
    settings = settings or {**BASE, "norm": "pre"}
    model = Transformer(TransformerSettings.model_validate(settings), VOCAB, VOCAB).eval()
    built = build(model, precision, WeightFiles(), [], shortlist=True).graphs
    return {path.partition("/")[2]: onnx.load_model_from_string(content).graph for path, content in built.items()}


def kernels(graph: onnx.GraphProto) -> int:
    """The kernels that a run of a graph starts."""
    found = 0
    for node in graph.node:
        chooses = node.op_type.startswith("Choose")
        norms = chooses and any(each.name == "norm" and each.i for each in node.attribute)
        found += LAUNCHES[node.op_type] + norms
    return found


def inputs(graph: onnx.GraphProto) -> set[str]:
    return {each.name for each in graph.input}


def outputs(graph: onnx.GraphProto) -> list[str]:
    return [each.name for each in graph.output]


def own(graph: onnx.GraphProto, kind: str) -> list[onnx.NodeProto]:
    """The nodes of an operator of ours, in order."""
    return [node for node in graph.node if node.op_type == kind and node.domain == KERNELS]


def test_a_step_of_base_starts_at_most_56_kernels() -> None:
    found = graphs()
    assert kernels(found[names.GREEDY]) == 53
    assert kernels(found[names.GREEDY_STEPS]) == GREEDY_COUNT * 53
    assert kernels(found[names.BEAM_STEPS]) == BEAM_COUNT * 54
    before = graphs("fp16", **BASE, norm="pre")
    assert len(before[names.GREEDY].node) == 164


def test_norms_after_the_sum_take_no_kernels_of_their_own() -> None:
    found, before = graphs(**BASE, norm="post"), graphs()
    for name in (names.ENCODER, names.PLACE, names.DECODER, names.GREEDY, names.GREEDY_STEPS, names.BEAM_STEPS):
        assert kernels(found[name]) == kernels(before[name])
        assert not any(node.op_type == "LayerNormalization" for node in found[name].node)
    assert kernels(found[names.GREEDY]) == 53
    assert kernels(found[names.BEAM_STEPS]) == BEAM_COUNT * 54


@pytest.mark.parametrize(("name", "norms"), [(names.GREEDY, 17), (names.ENCODER, 11)])
def test_a_norm_after_the_sum_is_written_by_the_product_that_computes_it_and_read_as_a_residual(
    name: str, norms: int
) -> None:
    products = own(graphs(**BASE, norm="post")[name], "FloatLinear")
    kept = {node.output[1]: place for place, node in enumerate(products) if len(node.output) > 1}
    residuals = {node.input[5]: place for place, node in enumerate(products) if len(node.input) > 5}
    assert len(kept) == norms
    assert all(residuals[each] > place for each, place in kept.items())
    assert all(len(node.output) == 1 for node in own(graphs()[name], "FloatLinear"))


def test_encoder_and_placing_start_few_kernels() -> None:
    found, before = graphs(), graphs("fp16", **BASE, norm="pre")
    assert [kernels(found[name]) for name in (names.ENCODER, names.PLACE)] == [32, 6]
    assert [len(before[name].node) for name in (names.ENCODER, names.PLACE)] == [209, 179]


def test_states_are_inputs_alone_and_each_step_writes_each_cache_once() -> None:
    model = random_model(**BASE, norm="pre")
    caches = {names.past_name(each.name) for each in states(model) if each.kind == "cache"}
    memory = {each.name for each in states(model) if each.kind == "memory"}
    for name, steps in ((names.DECODER, 1), (names.GREEDY, 1), (names.GREEDY_STEPS, 8), (names.BEAM_STEPS, 4)):
        graph = graphs()[name]
        assert {*caches, *memory, names.BEAM_TABLE} < inputs(graph)
        readers = Counter(each for node in own(graph, "StepAttention") for each in node.input if each in caches)
        assert readers == dict.fromkeys(caches, steps)
        assert not any(each.startswith("present.") for each in outputs(graph))


@pytest.mark.parametrize(("name", "kind"), [(names.GREEDY_STEPS, "GreedyStep"), (names.BEAM_STEPS, "BeamStep")])
def test_each_step_reads_the_tokens_of_the_step_before(name: str, kind: str) -> None:
    """No other edge orders the steps: caches, history and beams are written in the memory of inputs."""
    graph = graphs()[name]
    advances, embeds, attentions = own(graph, kind), own(graph, "Embed"), own(graph, "StepAttention")
    layers = len(attentions) // len(advances)
    tokens, positions, index = names.TOKEN_IDS, names.POSITIONS, names.STEP_INDEX
    for step, (advance, embed) in enumerate(zip(advances, embeds, strict=True)):
        assert (embed.input[0], embed.input[2]) == (tokens, positions)
        assert {node.input[3] for node in attentions[step * layers : (step + 1) * layers]} == {positions}
        assert {tokens, positions, index} < set(advance.input)
        tokens, positions, index = advance.output
    assert [tokens, positions, index] == outputs(graph)
    assert outputs(graph) == [names.changed_name(each) for each in (names.TOKEN_IDS, names.POSITIONS, names.STEP_INDEX)]


def test_logits_leave_the_graph_of_one_step_only() -> None:
    found = graphs()
    with_logits = [name for name, graph in found.items() if own(graph, "ChooseWithLogits")]
    assert with_logits == [names.DECODER]
    (choice,) = own(found[names.DECODER], "ChooseWithLogits")
    assert list(choice.output) == [names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS, names.LOGITS]
    assert choice.input[3] == names.CANDIDATE_COUNT
    assert len(choice.input) == 6  # with the gain and the shift of the last norm


def test_the_encoder_reads_tokens_without_padding_and_returns_one_memory() -> None:
    graph = graphs()[names.ENCODER]
    assert inputs(graph) == {names.SOURCE_IDS, names.SOURCE_POSITIONS, names.SOURCE_TILES}
    assert outputs(graph) == [names.MEMORY]
    assert graph.output[0].type.tensor_type.shape.dim[1].dim_value == 6 * 2 * 64
    assert {node.input[1] for node in own(graph, "SelfAttention")} == {names.SOURCE_TILES}


def test_the_weights_are_those_of_fp16() -> None:
    weights, model = WeightFiles(), random_model(**BASE)
    built = build(model, "fp16", weights, [], shortlist=False)
    size = weights.size("fp16.bin")
    assert build(model, FP16_NATIVE, weights, [], shortlist=False).reads == built.reads == ("fp16.bin",)
    assert weights.size("fp16.bin") == size


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": "rotary"}, "no relative or rotary positions"),
        ({"positions": "relative"}, "no relative or rotary positions"),
        ({"score": "additive"}, "additive attention"),
        ({"encoder_window": 3}, "windows"),
        ({"decoder_window": 3}, "windows"),
        ({"attention_softcap": 3.0}, "soft caps"),
        ({"output_softcap": 3.0}, "no soft cap of logits"),
        ({"encoder_attention": "linear"}, "linear"),
        ({"decoder_cell": "ssru"}, "no SSRU"),
        ({"heads": 4}, "heads must have 32, 64, 128 dimensions, got 16"),
        ({"ffn": 72}, "model.ffn must be a multiple of 16, got 72"),
    ],
)
def test_a_model_that_the_operators_do_not_compute_has_no_such_precision(
    settings: dict[str, Any], message: str
) -> None:
    model = random_model(**{"dim": 64, "heads": 2, **settings})
    assert FP16_NATIVE not in precisions_of(model)
    with pytest.raises(SettingsError, match=f"^--precision fp16-native: .*{message}"):
        check_precisions(model, ExportSettings(precisions=(FP16_NATIVE,), shortlist=None))


def test_beams_beyond_the_candidates_of_the_operators_are_refused() -> None:
    settings = ExportSettings(precisions=(FP16_NATIVE,), shortlist=None, max_beam_size=9)
    with pytest.raises(SettingsError, match=r"beam sizes must be at most 8, got 9$"):
        check_precisions(random_model(**BASE), settings)


def test_a_recurrent_system_has_no_such_precision() -> None:
    assert FP16_NATIVE not in precisions_of(recurrent_model("luong gru"))


def test_fp16_is_exported_with_it_and_no_export_writes_it_unasked() -> None:
    assert ExportSettings(precisions=(FP16_NATIVE,), shortlist=None).build_order == ["fp32", "fp16", FP16_NATIVE]
    assert FP16_NATIVE not in ExportSettings().build_order
    assert FP16_NATIVE in precisions_of(random_model(**BASE))
