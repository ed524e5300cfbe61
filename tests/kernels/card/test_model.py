"""A whole tiny Transformer of the operators for cards, against the same model of those for the CPU.

The graphs are those of fp32-native, whose nodes are rewritten here: the exporter has tests of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper

from lingon.export.graphs.native import NativeTransformerGraphs
from lingon.export.graphs.onnx_writer import IR_VERSION, KERNELS, OPSET, WeightFiles
from lingon.export.graphs.precisions import weight_files
from lingon.serving.runtime.device import LIBRARY
from lingon.text import BOS, EOS, UNK
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer
from tests.support.card_emulation import Card, aligned
from tests.support.native_operators import run as run_on_cpu
from tests.support.native_operators import same_bits

HOST = ("candidate_count",)  # inputs in main memory

VOCAB, DIM, HEADS, LAYERS = 200, 64, 2, 2
SIZE = DIM // HEADS
SOURCES = 19, 3, 7  # tokens of each sentence
CAPACITY, WIDTH, STEPS = 8, 32, 3
TYPES = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float32): TensorProto.FLOAT}


@functools.cache
def native_graphs() -> dict[str, onnx.ModelProto]:
    """Return the fp32-native graphs with their weights, which float16 holds exactly."""
    torch.manual_seed(3)
    sizes = dict(dim=DIM, heads=HEADS, ffn=2 * DIM, encoder_layers=LAYERS, decoder_layers=LAYERS)
    settings = TransformerSettings.model_validate(
        dict(kind="transformer", norm="pre", output_bias=True, max_positions=24, **sizes)
    )
    model = Transformer(settings, VOCAB, VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
            parameter.copy_(parameter.half())
    weights = WeightFiles()
    graphs = NativeTransformerGraphs(model, np.float32, weights, quantised=False).files()
    files = {name.rpartition("/")[2]: content for name, content in weight_files(weights).items()}
    found = {}
    for name in ("encoder", "decoder"):
        found[name] = onnx.load_from_string(graphs[f"{name}.onnx"])
        for tensor in found[name].graph.initializer:
            if tensor.external_data:
                place = {entry.key: entry.value for entry in tensor.external_data}
                begin, length = int(place["offset"]), int(place["length"])
                tensor.raw_data = files[place["location"]][begin : begin + length]
                tensor.ClearField("external_data")
                tensor.data_location = TensorProto.DEFAULT
    return found


def native_session(name: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(LIBRARY))
    return ort.InferenceSession(native_graphs()[name].SerializeToString(), options, providers=["CPUExecutionProvider"])


@dataclass
class Rewriter:
    """Writes the nodes of a native graph as those for cards.

    nodes: those written so far
    """

    source: onnx.ModelProto
    nodes: list[NodeProto]

    def weights(self) -> list[TensorProto]:
        """Return all weights as float16."""
        return [
            numpy_helper.from_array(numpy_helper.to_array(each).astype(np.float16), each.name)
            for each in self.source.graph.initializer
        ]

    def write(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=KERNELS, **attributes))

    def write_encoder(self) -> None:
        """Write tokens without padding, their positions, tiles -> FloatLinear.*, the rows of the memory."""
        for node in self._kept():
            if node.op_type == "SelfAttention":
                node.input[1] = "tiles"
            if node.op_type not in ("Tokens", "Memory32"):
                self.nodes.append(node)

    def write_step(self, step: str, token_ids: str, positions: str) -> None:
        """Write a decoder step, whose values have names with the end `step`."""
        nodes = self._kept()
        logits = next(node for node in nodes if list(node.output) == ["logits"])
        inner = {name for node in nodes for name in node.output} - {"logits"}
        renamed = {"token_ids": token_ids, "positions": positions} | {name: name + step for name in inner}
        for node in nodes:
            if node.op_type in ("Shape", "Candidates") or node is logits:
                continue
            if node.op_type == "StepAttention32":
                node.op_type = "StepAttention"
                del node.output[1:]
            self._rename(node, renamed)
            node.name += step
            self.nodes.append(node)
        rows, weights, bias, gain, shift = logits.input
        self.write(
            "ChooseWithLogits",
            [renamed[rows], weights, bias, "candidate_count", gain, shift],
            [f"{name}{step}" for name in ("candidate_ids", "candidate_log_probs", "logits")],
            **{each.name: helper.get_attribute_value(each) for each in logits.attribute if each.name != "relu"},
        )

    def _kept(self) -> list[NodeProto]:
        """Return copies of the nodes but those that widen weights, which the others read as they are."""
        found = []
        for node in self.source.graph.node:
            if node.op_type == "Cast":
                continue
            copied = NodeProto()
            copied.CopyFrom(node)
            self._rename(copied, {name: name.removesuffix(".wide") for name in node.input})
            found.append(copied)
        return found

    @staticmethod
    def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
        for values in (node.input, node.output):
            renamed = [names.get(value, value) for value in values]
            del values[:]
            values.extend(renamed)

    def model(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, int]) -> bytes:
        """Return the graph; outputs: types by name."""
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in inputs.items()
        ]
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
        read = {name for node in self.nodes for name in node.input}
        weights = [each for each in self.weights() if each.name in read]
        graph = helper.make_graph(self.nodes, "card", declared, results, weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(KERNELS, 1)]
        made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
        return made


def sources() -> tuple[np.ndarray, np.ndarray]:
    """Random sources with padding, and their lengths."""
    draw = np.random.default_rng(5)
    ids = np.zeros((len(SOURCES), max(SOURCES)), np.int64)
    for row, length in zip(ids, SOURCES, strict=True):
        row[:length] = [*draw.integers(UNK + 1, VOCAB, length - 1), EOS]
    return ids, np.array(SOURCES)


@functools.cache
def native_memory() -> dict[str, np.ndarray]:
    """The memory of every layer, of the operators for the CPU."""
    session = native_session("encoder")
    ids, lengths = sources()
    outputs = session.run(None, {"source_ids": ids, "source_lengths": lengths})
    return {each.name: value for each, value in zip(session.get_outputs(), outputs, strict=True)}


@functools.cache
def _card_memory(card: Card) -> dict[str, np.ndarray]:
    ids, lengths = sources()
    places = [(row, place) for row, length in enumerate(lengths) for place in range(length)]
    begins = np.cumsum([0, *lengths])
    tiles = [
        (begins[row] + first, min(16, length - first), begins[row], length)
        for row, length in enumerate(lengths)
        for first in range(0, length, 16)
    ]
    feed = {
        "ids": aligned(np.array([ids[place] for place in places])),
        "positions": aligned(np.array([place for _, place in places])),
        "tiles": aligned(np.array(tiles, np.int32)),
    }
    encoder = Rewriter(native_graphs()["encoder"], [])
    encoder.write_encoder()
    memory = encoder.nodes[-1].output[0]
    session = card.session(encoder.model(feed, {memory: TensorProto.FLOAT16}))
    (rows,) = card.run(session, feed, {})

    targets = np.array([(token, row, place, 0) for token, (row, place) in enumerate(places)], np.int32)
    placed = {"rows": aligned(rows), "targets": aligned(targets)}
    writer = Rewriter(native_graphs()["encoder"], [])
    for layer in range(LAYERS):
        for kind, shape in (("key", (SIZE, WIDTH)), ("value", (WIDTH, SIZE))):
            placed[f"memory.{layer}.{kind}"] = aligned(np.full((len(SOURCES), HEADS, *shape), np.nan, np.float16))
        states = [f"memory.{layer}.{kind}" for kind in ("key", "value")]
        attributes = dict(heads=HEADS, layer=layer, layers=LAYERS)
        writer.write("PlaceMemory", ["rows", "targets", *states], [f"done.{layer}"], **attributes)
    session = card.session(writer.model(placed, {f"done.{layer}": TensorProto.INT32 for layer in range(LAYERS)}))
    card.run(session, placed, {})
    return {name: each for name, each in placed.items() if name.startswith("memory")}


def card_memory(card: Card, beams: int = 1) -> dict[str, np.ndarray]:
    """The memory of every layer in the emulated card, and the empty past of each of its rows."""
    rows = len(SOURCES) * beams
    past = {
        f"past.self.{layer}.{kind}": aligned(np.full((rows, HEADS, CAPACITY, SIZE), np.nan, np.float16))
        for layer in range(LAYERS)
        for kind in ("key", "value")
    }
    fixed = {
        "memory_lengths": aligned(np.array(SOURCES)),
        "beam_table": aligned(np.zeros((rows, CAPACITY), np.int32)),
        "candidate_count": aligned(np.array([2 * beams])),
    }
    return {**_card_memory(card), **past, **fixed}


def native_step(
    session: ort.InferenceSession, state: dict[str, np.ndarray], tokens: np.ndarray, positions: np.ndarray
) -> list[np.ndarray]:
    """Return candidates, their log-probabilities and the logits of a step on the CPU, and change the state."""
    outputs = session.run(None, {**state, "token_ids": tokens, "positions": positions})
    found = {each.name: value for each, value in zip(session.get_outputs(), outputs, strict=True)}
    for name, value in found.items():
        if name.startswith("present"):
            state[name.replace("present", "past")] = value
    return [found[name] for name in ("candidate_ids", "candidate_log_probs", "logits")]


def native_state(beams: int = 1) -> dict[str, np.ndarray]:
    rows = len(SOURCES) * beams
    past = {
        f"past.self.{layer}.{kind}": np.zeros((rows, HEADS, CAPACITY, SIZE), np.float32)
        for layer in range(LAYERS)
        for kind in ("key", "value")
    }
    fixed = {
        "memory_lengths": np.array(SOURCES),
        "beam_table": np.zeros((rows, CAPACITY), np.int32),
        "candidate_count": np.array([2 * beams]),
    }
    return {**native_memory(), **past, **fixed}


def card_step(card: Card, feed: Mapping[str, np.ndarray]) -> ort.InferenceSession:
    """Return a session of one decoder step."""
    decoder = Rewriter(native_graphs()["decoder"], [])
    decoder.write_step("", "token_ids", "positions")
    types = {
        "candidate_ids": TensorProto.INT64,
        "candidate_log_probs": TensorProto.FLOAT,
        "logits": TensorProto.FLOAT,
    }
    return card.session(decoder.model(feed, types))


def with_tokens(feed: dict[str, np.ndarray], beams: int = 1) -> dict[str, np.ndarray]:
    rows = len(SOURCES) * beams
    return {**feed, "token_ids": aligned(np.full(rows, BOS)), "positions": aligned(np.zeros(rows, np.int64))}


def test_the_memory_of_sources_is_that_of_the_cpu(card: Card):
    found, expected = _card_memory(card), native_memory()
    for name, each in expected.items():
        assert each.shape == found[name].shape
        for sentence, length in enumerate(SOURCES):
            seen = (sentence, ..., slice(length)) if name.endswith("key") else (sentence, slice(None), slice(length))
            np.testing.assert_allclose(found[name][seen], each[seen], rtol=1e-2, atol=2e-2)


def test_a_padded_cell_of_the_memory_is_not_written(card: Card):
    for name, each in _card_memory(card).items():
        for sentence, length in enumerate(SOURCES):
            rest = (
                (sentence, ..., slice(length, None))
                if name.endswith("key")
                else (sentence, slice(None), slice(length, None))
            )
            assert np.isnan(each[rest]).all()


def test_the_logits_of_each_step_are_those_of_the_cpu(card: Card):
    """Both take the tokens that the CPU chooses."""
    feed, state = with_tokens(card_memory(card)), native_state()
    on_cpu, on_card = native_session("decoder"), card_step(card, feed)
    for step in range(STEPS):
        expected = native_step(on_cpu, state, feed["token_ids"], feed["positions"])
        ids, log_probs, logits = card.run(on_card, feed, {}, HOST)
        np.testing.assert_allclose(logits[:, :VOCAB], expected[2][:, :VOCAB], rtol=1e-2, atol=5e-2)
        assert (ids == np.argsort(-logits, axis=1, kind="stable")[:, :2]).all()
        np.testing.assert_allclose(log_probs, expected[1], rtol=1e-2, atol=5e-2)
        feed["token_ids"][:], feed["positions"][:] = expected[0][:, 0], step + 1


def test_several_greedy_steps_in_one_graph_have_the_bits_of_single_steps(card: Card):
    alone = with_tokens(card_memory(card))
    session = card_step(card, alone)
    expected = []
    for step in range(STEPS):
        ids, log_probs, _ = card.run(session, alone, {}, HOST)
        expected.append(np.stack([ids[:, 0], log_probs[:, 0]], axis=1).astype(np.float32))
        alone["token_ids"][:], alone["positions"][:] = ids[:, 0], step + 1

    together = with_tokens(card_memory(card))
    together["history"] = aligned(np.zeros((STEPS + 1, len(SOURCES), 2), np.float32))
    together["step"] = aligned(np.array([0]))
    decoder, state = Rewriter(native_graphs()["decoder"], []), ["token_ids", "positions", "step"]
    for step in range(STEPS):
        decoder.write_step(f"@{step}", state[0], state[1])
        chosen = [f"candidate_ids@{step}", f"candidate_log_probs@{step}"]
        after = [f"{name}@{step + 1}" for name in ("token_ids", "positions", "step")]
        decoder.write("GreedyStep", [*chosen, *state[:2], "history", state[2]], after)
        state = after
    session = card.session(decoder.model(together, dict.fromkeys(state, TensorProto.INT64)))
    # The last step writes what the first one of the next run reads.
    places = dict(zip(state, ("token_ids", "positions", "step"), strict=True))
    card.run(session, together, places, HOST)
    assert same_bits(together["history"][:STEPS], np.array(expected))
    assert (together["history"][STEPS] == 0).all()
    assert together["step"] == STEPS
    assert same_bits(together["token_ids"], alone["token_ids"])
    assert same_bits(together["positions"], alone["positions"])


@pytest.mark.parametrize("beams", [2, 3])
def test_a_beam_search_on_the_card_is_the_search_of_the_cpu_over_the_same_candidates(card: Card, beams: int):
    """The search of the CPU reads the candidates from the log, as a server does."""
    sentences, rows, count = len(SOURCES), len(SOURCES) * beams, 2 * beams
    feed = with_tokens(card_memory(card, beams), beams)
    order = np.tile(np.arange(beams), (sentences, 1))
    totals = np.full((sentences, beams), -np.inf, np.float32)
    totals[:, 0] = 0
    feed |= {
        "rows": aligned(order),
        "totals": aligned(totals),
        "log_ids": aligned(np.zeros((STEPS, rows, count), np.int64)),
        "log_values": aligned(np.zeros((STEPS, rows, count), np.float32)),
        "step": aligned(np.array([0])),
    }
    decoder, state = Rewriter(native_graphs()["decoder"], []), ["token_ids", "positions", "step"]
    for step in range(STEPS):
        decoder.write_step(f"@{step}", state[0], state[1])
        chosen = [f"candidate_ids@{step}", f"candidate_log_probs@{step}"]
        after = [f"{name}@{step + 1}" for name in ("token_ids", "positions", "step")]
        searched = ["rows", "totals", "beam_table", "log_ids", "log_values"]
        decoder.write("BeamStep", [*chosen, *state[:2], *searched, state[2]], after, end=EOS)
        state = after
    session = card.session(decoder.model(feed, dict.fromkeys(state, TensorProto.INT64)))
    card.run(session, feed, dict(zip(state, ("token_ids", "positions", "step"), strict=True)), HOST)

    past = (sentences, beams, CAPACITY)
    searched = [
        *(np.full(rows, BOS), np.zeros(rows, np.int64), order, totals),
        *(np.zeros(past, np.int64), np.zeros(past, np.float32), np.zeros((rows, CAPACITY), np.int32)),
    ]
    native, on_cpu = native_state(beams), native_session("decoder")
    for step in range(STEPS):
        ids, log_probs = feed["log_ids"][step], feed["log_values"][step]
        native["beam_table"] = searched[6]
        _, _, logits = native_step(on_cpu, native, searched[0], searched[1])
        exact = logits.astype(np.float64)
        every = exact - np.log(np.exp(exact).sum(1, keepdims=True))
        np.testing.assert_allclose(log_probs, np.take_along_axis(every, ids, 1), rtol=1e-2, atol=5e-2)
        searched = run_on_cpu("BeamStep", ids, log_probs, *searched, end=EOS)[:7]
    names = "token_ids", "positions", "rows", "totals", None, None, "beam_table"
    for name, each in zip(names, searched, strict=True):
        assert name is None or same_bits(feed[name], each), name
    assert (feed["beam_table"] != 0).any()
    assert feed["step"] == 0  # after the last entry of the log comes the first one
