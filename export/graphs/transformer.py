"""The graphs of a Transformer: encoder, decoder step, scorer, and two graphs for decoding with a shortlist.

One class builds them for every provider and precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lingon import bundle
from lingon.bundle import State, StateKind
from lingon.export.graphs.blocks import Blocks, table_name, to_numpy
from lingon.export.graphs.matmul import FloatMatMul, Int8MatMul
from lingon.export.graphs.onnx_writer import INT8_FILE, GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import OutputLayer, cast_to_float32, write_candidates, write_greedy_step
from lingon.export.graphs.quantisation import Range
from lingon.export.graphs.state_graphs import state_graphs
from lingon.export.graphs.step_attention import GroupedAttention, ScatteredAttention, StepAttention
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer


def states(model: Transformer) -> tuple[State, ...]:
    """Return the states that the decoder reads at every step: for each layer a memory of the source and a cache."""
    settings = model.settings
    shapes: dict[str, tuple[StateKind, tuple[int | str, ...]]] = {
        "memory.{}.key": ("memory", (settings.heads, settings.head_dim, "source_length")),
        "memory.{}.value": ("memory", (settings.heads, "source_length", settings.head_dim)),
        "self.{}.key": ("cache", (settings.heads, "capacity", settings.head_dim)),
        "self.{}.value": ("cache", (settings.heads, "capacity", settings.head_dim)),
    }
    layers = range(settings.decoder_layers)
    return tuple(State(name.format(layer), *rest) for layer in layers for name, rest in shapes.items())


@dataclass(slots=True)
class TransformerGraphs:
    """Builds the graphs of a model in one precision.

    dtype: of the arithmetic, float32 or float16. The CPU provider and CUDA have all operators for both types, but for
        GroupQueryAttention, which CUDA has for float16 only.
    device_states: whether the graphs are for a provider with memory of its own: the length of the caches is an input,
        since computing it would make every step wait for the device, and there are graphs that place and copy states
    scattered: whether decoder steps use ScatteredAttention, as float32 on CUDA must, and not GroupQueryAttention
    ranges: the input range of each matrix product; with them, products are in 8-bit integers (CPU provider only)
    reads: the weight files that the graphs built so far point to
    """

    model: Transformer
    dtype: type[np.floating[Any]]
    weights: WeightFiles
    ranges: Mapping[str, Range] | None = None
    device_states: bool = False
    scattered: bool = False
    reads: set[str] = field(default_factory=set)

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """Return every graph file by name; with shortlist, also those for decoding with a shortlist."""
        files = {bundle.ENCODER: self.encoder(), bundle.DECODER: self.decoder(), bundle.SCORER: self.scorer()}
        if shortlist:
            files |= {bundle.OUTPUT_ROWS: self.output_rows(), bundle.DECODER_SHORTLIST: self.decoder_shortlist()}
        if self.device_states:
            files |= {bundle.GREEDY: self.greedy(), **state_graphs(states(self.model), self.dtype)}
        return files

    def encoder(self) -> bytes:
        """Return the graph source_ids, source_lengths -> the memory of every decoder layer."""
        blocks = self._blocks("encoder")
        graph = blocks.graph
        source = _Source.declare(blocks)
        rows, _ = self._encode(blocks, source)
        for layer, (key, value) in enumerate(self._memory(blocks, rows, source.batch)):
            heads, head_dim = self.model.settings.heads, self.model.settings.head_dim
            graph.output(key, f"memory.{layer}.key", self.dtype, ("batch", heads, head_dim, "source_length"))
            graph.output(value, f"memory.{layer}.value", self.dtype, ("batch", heads, "source_length", head_dim))
        return self._finish(graph)

    def decoder(self) -> bytes:
        """Return the step graph: tokens, positions, candidate_count, memory, past -> candidates, logits, present."""
        blocks, rows, _ = self._decoder_step("decoder")
        graph = blocks.graph
        named = graph.declare_output(bundle.LOGITS, self.dtype, ("rows", self._output_layer.width))
        write_candidates(graph, cast_to_float32(graph, self._output_layer.logits(blocks, rows, named=named)))
        return self._finish(graph)

    def greedy(self) -> bytes:
        """Return a graph like decoder whose outputs are what the next step of greedy search reads."""
        blocks, rows, _ = self._decoder_step("greedy")
        logits = cast_to_float32(blocks.graph, self._output_layer.logits(blocks, rows))
        write_greedy_step(blocks.graph, logits, bundle.TOKEN_IDS, bundle.POSITIONS)
        return self._finish(blocks.graph)

    def output_rows(self) -> bytes:
        """Return the graph piece_ids -> the rows of the output layer for these pieces, inputs of decoder_shortlist."""
        blocks = self._blocks("output_rows")
        self._output_layer.gather_pieces(blocks, blocks.graph.input(bundle.PIECE_IDS, np.int64, ["union"]))
        return self._finish(blocks.graph)

    def decoder_shortlist(self) -> bytes:
        """Return a graph like decoder, without logits, over those pieces of piece_ids that each sentence may use."""
        blocks, rows, batch = self._decoder_step("decoder_shortlist")
        logits, pieces = self._output_layer.logits_of_pieces(blocks, rows, batch)
        write_candidates(blocks.graph, cast_to_float32(blocks.graph, logits), pieces)
        return self._finish(blocks.graph)

    def _decoder_step(self, name: str) -> tuple[Blocks, str, str]:
        """Write a decoder step up to the input of the output layer (rows, dim); return also the int64 [sentences]."""
        blocks = self._blocks(name)
        graph = blocks.graph
        ids = graph.input(bundle.TOKEN_IDS, np.int64, ["rows"])
        positions = graph.input(bundle.POSITIONS, np.int64, ["rows"])
        lengths = graph.input(bundle.MEMORY_LENGTHS, np.int64, ["sentences"])
        declared = {state.name: self._declare_state(graph, state) for state in states(self.model)}
        batch = graph.op("Shape", lengths)
        width = graph.op("Shape", declared["memory.0.key"], start=3, end=4)
        bias = blocks.attention_bias(_visible(graph, lengths, width))
        attention = self._step_attention(blocks, positions, declared)
        rows = blocks.embed(self.model.target_embedding, table_name(self.model, "target"), "target", ids, positions)
        for number, layer in enumerate(self._decoder_layers()):
            name = f"decoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            past, present = self._past(graph, declared, number)
            packed = blocks.linear(layer.attention.qkv, f"{name}.attention.qkv", read)
            mixed = attention.attend(f"{name}.attention", packed, past, present)
            attended = blocks.linear(layer.attention.output, f"{name}.attention.output", mixed)
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            memory = (declared[f"memory.{number}.key"], declared[f"memory.{number}.value"])
            rows, _ = self._rest_of_layer(blocks, layer, name, rows, memory, batch, bias)
        return blocks, blocks.norm(self.model.decoder_norm, "decoder_norm", rows), batch

    def _step_attention(self, blocks: Blocks, positions: str, declared: Mapping[str, str]) -> StepAttention:
        if not self.scattered:
            return GroupedAttention.write(blocks, positions, given=self.device_states)
        capacity = blocks.graph.op("Shape", declared["self.0.key"], start=2, end=3)
        return ScatteredAttention.write(blocks, positions, capacity)

    def _past(
        self, graph: GraphBuilder, declared: dict[str, str], layer: int
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the names of keys and values of a layer before and after the step."""
        shape = ("rows", self.model.settings.heads, "capacity", self.model.settings.head_dim)
        key, value = f"self.{layer}.key", f"self.{layer}.value"
        present = [graph.declare_output(bundle.present_name(name), self.dtype, shape) for name in (key, value)]
        return (declared[key], declared[value]), (present[0], present[1])

    def scorer(self) -> bytes:
        """Return the teacher-forced graph: source, target, labels -> log-probabilities of labels, attention weights."""
        blocks = self._blocks("scorer")
        graph = blocks.graph
        source = _Source.declare(blocks)
        target = graph.input(bundle.TARGET_IDS, np.int64, ["batch", "target_length"])
        labels = graph.input(bundle.LABELS, np.int64, ["batch", "target_length"])
        rows, encoder_weights = self._encode(blocks, source)
        memories = self._memory(blocks, rows, source.batch)
        positions = graph.count_up(graph.op("Shape", target, start=1, end=2))
        causal_bias = blocks.attention_bias(
            graph.op("LessOrEqual", positions, graph.op("Unsqueeze", positions, graph.int64s(1)))
        )
        embedded = blocks.embed(
            self.model.target_embedding, table_name(self.model, "target"), "target", target, positions
        )
        rows = graph.op("Reshape", embedded, graph.int64s(-1, self.model.settings.dim))
        own_weights, cross_weights = [], []
        for number, (layer, memory) in enumerate(zip(self._decoder_layers(), memories, strict=True)):
            name = f"decoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            attended, own = blocks.self_attention(layer.attention, f"{name}.attention", read, source.batch, causal_bias)
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows, cross = self._rest_of_layer(blocks, layer, name, rows, memory, source.batch, source.bias)
            own_weights.append(own)
            cross_weights.append(cross)
        rows = blocks.norm(self.model.decoder_norm, "decoder_norm", rows)
        log_probs = graph.op("LogSoftmax", cast_to_float32(graph, self._output_layer.logits(blocks, rows)), axis=-1)
        chosen = graph.op("GatherElements", log_probs, graph.op("Reshape", labels, graph.int64s(-1, 1)), axis=1)
        shaped = graph.op("Reshape", chosen, graph.op("Shape", labels))
        graph.output(shaped, bundle.TOKEN_LOG_PROBS, np.float32, ("batch", "target_length"))
        for weights, output, shape in (
            (encoder_weights, bundle.ENCODER_ATTENTION, ("source_length", "source_length")),
            (own_weights, bundle.DECODER_ATTENTION, ("target_length", "target_length")),
            (cross_weights, bundle.CROSS_ATTENTION, ("target_length", "source_length")),
        ):
            stacked = graph.op("Concat", *(graph.op("Unsqueeze", each, graph.int64s(1)) for each in weights), axis=1)
            sizes = ("batch", len(weights), self.model.settings.heads, *shape)
            graph.output(cast_to_float32(graph, stacked), output, np.float32, sizes)
        return self._finish(graph)

    def _blocks(self, name: str) -> Blocks:
        graph = GraphBuilder(name, self.weights, self.dtype, file=INT8_FILE if self.ranges is not None else None)
        matmul = FloatMatMul(graph) if self.ranges is None else Int8MatMul(graph, self.ranges)
        return Blocks(graph, matmul, self.model.settings)

    def _finish(self, graph: GraphBuilder) -> bytes:
        self.reads |= graph.reads
        return graph.finish()

    @property
    def _output_layer(self) -> OutputLayer:
        return OutputLayer(self.model)

    def _declare_state(self, graph: GraphBuilder, state: State) -> str:
        first = "sentences" if state.kind == "memory" else "rows"
        name = state.name if state.kind == "memory" else bundle.past_name(state.name)
        return graph.input(name, self.dtype, (first, *state.shape))

    def _decoder_layers(self) -> list[DecoderLayer]:
        return list(self.model.decoder)

    def _encode(self, blocks: Blocks, source: _Source) -> tuple[str, list[str]]:
        """Write the encoder; return its output (batch * source_length, dim) and the attention weights of all layers."""
        graph, model = blocks.graph, self.model
        hidden = blocks.embed(
            model.source_embedding, table_name(model, "source"), "source", source.ids, source.positions
        )
        rows = graph.op("Reshape", hidden, graph.int64s(-1, model.settings.dim))
        all_weights = []
        for number, layer in enumerate(model.encoder):
            name = f"encoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            attended, weights = blocks.self_attention(
                layer.attention, f"{name}.attention", read, source.batch, source.bias
            )
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows = self._feed_forward(blocks, layer, name, rows)
            all_weights.append(weights)
        return blocks.norm(model.encoder_norm, "encoder_norm", rows), all_weights

    def _memory(self, blocks: Blocks, rows: str, batch: str) -> list[tuple[str, str]]:
        """Return keys and values of the cross-attention of every decoder layer, computed in one matrix product."""
        layers = self._decoder_layers()
        weight = np.concatenate([to_numpy(layer.cross.key_value.weight) for layer in layers])
        bias = np.concatenate([to_numpy(layer.cross.key_value.bias) for layer in layers])
        packed = blocks.matmul.linear("memory", rows, weight, bias)
        parts = blocks.split(packed, 2 * len(layers))
        return [
            (blocks.split_heads_transposed(key, batch), blocks.split_heads(value, batch))
            for key, value in zip(parts[::2], parts[1::2], strict=True)
        ]

    def _rest_of_layer(
        self,
        blocks: Blocks,
        layer: DecoderLayer,
        name: str,
        rows: str,
        memory: tuple[str, str],
        batch: str,
        bias: str,
    ) -> tuple[str, str]:
        """Write cross-attention and feed-forward of a decoder layer; also return the weights of the cross-attention."""
        read = blocks.before(layer.around_cross, f"{name}.around_cross", rows)
        crossed, weights = blocks.cross_attention(layer.cross, f"{name}.cross", read, memory, batch, bias)
        rows = blocks.after(layer.around_cross, f"{name}.around_cross", rows, crossed)
        return self._feed_forward(blocks, layer, name, rows), weights

    def _feed_forward(self, blocks: Blocks, layer: EncoderLayer | DecoderLayer, name: str, rows: str) -> str:
        read = blocks.before(layer.around_feed_forward, f"{name}.around_feed_forward", rows)
        fed = blocks.feed_forward(layer.feed_forward, f"{name}.feed_forward", read)
        return blocks.after(layer.around_feed_forward, f"{name}.around_feed_forward", rows, fed)


@dataclass(frozen=True, slots=True)
class _Source:
    """The inputs of an encoder, and values computed from them.

    ids: (batch, source_length)
    batch: int64 [batch]
    positions: 0 to source_length - 1
    bias: (batch, 1, 1, source_length), from Blocks.attention_bias
    """

    ids: str
    batch: str
    positions: str
    bias: str

    @classmethod
    def declare(cls, blocks: Blocks) -> _Source:
        graph = blocks.graph
        ids = graph.input(bundle.SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = graph.input(bundle.SOURCE_LENGTHS, np.int64, ["batch"])
        width = graph.op("Shape", ids, start=1, end=2)
        return cls(
            ids,
            graph.op("Shape", lengths),
            graph.count_up(width),
            blocks.attention_bias(_visible(graph, lengths, width)),
        )


def _visible(graph: GraphBuilder, lengths: str, width: str) -> str:
    """Return a mask (n, 1, 1, width), True at the positions before each of lengths (n)."""
    return graph.op("Less", graph.count_up(width), graph.op("Unsqueeze", lengths, graph.int64s(1, 2, 3)))
