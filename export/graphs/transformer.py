"""The graphs of a Transformer: encoder, decoder step, scorer, and the two of a shortlist.

One builder for every provider and precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto

from lingon import bundle
from lingon.bundle import State, StateKind
from lingon.export.graphs.blocks import Blocks, to_numpy
from lingon.export.graphs.matmul import FloatMatMul, Int8MatMul
from lingon.export.graphs.onnx_writer import GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import OutputLayer, cast_to_float32, write_candidates
from lingon.export.graphs.quantisation import Range
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer

INT8_FILE = "int8.bin"


def states(model: Transformer) -> tuple[State, ...]:
    """What the decoder reads at every step: per layer a memory of the source and a cache of its own past."""
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

    dtype: float32 for the CPU provider, float16 for CUDA. Both have GroupQueryAttention with a length for every row
    in that type (CUDA has no float32 kernel of it); all else is written in operators that both have.
    ranges: of what each product reads; with them products are in 8-bit integers, which only the CPU provider has
    reads: the weight files that the graphs built so far point to
    """

    model: Transformer
    dtype: type[np.floating[Any]]
    weights: WeightFiles
    ranges: Mapping[str, Range] | None = None
    reads: set[str] = field(default_factory=set)

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """Every graph file by name; with shortlist, also those that decode with one."""
        files = {bundle.ENCODER: self.encoder(), bundle.DECODER: self.decoder(), bundle.SCORER: self.scorer()}
        if shortlist:
            files |= {bundle.OUTPUT_ROWS: self.output_rows(), bundle.DECODER_SHORTLIST: self.decoder_shortlist()}
        return files

    def encoder(self) -> bytes:
        """source_ids, source_lengths -> the memory of every decoder layer."""
        blocks = self._blocks("encoder")
        graph = blocks.graph
        source = _Source.declare(blocks)
        rows, _ = self._encode(blocks, source)
        for layer, (key, value) in enumerate(self._memory(blocks, rows, source.outer)):
            heads, head_dim = self.model.settings.heads, self.model.settings.head_dim
            graph.output(key, f"memory.{layer}.key", self.dtype, ("batch", heads, head_dim, "source_length"))
            graph.output(value, f"memory.{layer}.value", self.dtype, ("batch", heads, "source_length", head_dim))
        return self._finish(graph)

    def decoder(self) -> bytes:
        """One step: token_ids, positions, candidate_count, memory, pasts -> candidates, logits, presents."""
        blocks, rows, _ = self._decoder_step("decoder")
        graph = blocks.graph
        named = graph.declare_output(bundle.LOGITS, self.dtype, ("rows", self._output_layer.width))
        write_candidates(graph, cast_to_float32(graph, self._output_layer.logits(blocks, rows, named=named)))
        return self._finish(graph)

    def output_rows(self) -> bytes:
        """piece_ids -> what the output layer knows of them, which decoder_shortlist reads."""
        blocks = self._blocks("output_rows")
        self._output_layer.gather_pieces(blocks, blocks.graph.input(bundle.PIECE_IDS, np.int64, ["union"]))
        return self._finish(blocks.graph)

    def decoder_shortlist(self) -> bytes:
        """As decoder, over the pieces of piece_ids that each sentence is allowed; without logits."""
        blocks, rows, outer = self._decoder_step("decoder_shortlist")
        logits, pieces = self._output_layer.logits_of_pieces(blocks, rows, outer)
        write_candidates(blocks.graph, cast_to_float32(blocks.graph, logits), pieces)
        return self._finish(blocks.graph)

    def _decoder_step(self, name: str) -> tuple[Blocks, str, str]:
        """A decoder step up to the last hidden rows; also returns the int64 vector [sentences]."""
        blocks = self._blocks(name)
        graph = blocks.graph
        ids = graph.input(bundle.TOKEN_IDS, np.int64, ["rows"])
        positions = graph.input(bundle.POSITIONS, np.int64, ["rows"])
        lengths = graph.input(bundle.MEMORY_LENGTHS, np.int64, ["sentences"])
        declared = {state.name: self._declare_state(graph, state) for state in states(self.model)}
        outer = graph.op("Shape", lengths)
        width = graph.op("Shape", declared["memory.0.key"], start=3, end=4)
        hidden = blocks.attention_bias(_visible(graph, lengths, width))
        past_lengths = _past_lengths(graph, positions)
        rows = blocks.embed(self.model.target_embedding, self._target_table(), "target", ids, positions)
        for number, layer in enumerate(self._decoder_layers()):
            name = f"decoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            past, present = self._past(graph, declared, number)
            attended = blocks.self_attention_step(
                layer.attention, f"{name}.attention", read, past, past_lengths, present
            )
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            memory = (declared[f"memory.{number}.key"], declared[f"memory.{number}.value"])
            rows, _ = self._rest_of_layer(blocks, layer, name, rows, memory, outer, hidden)
        return blocks, rows, outer

    def _past(
        self, graph: GraphBuilder, declared: dict[str, str], layer: int
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Keys and values of a layer before and after the step."""
        shape = ("rows", self.model.settings.heads, "capacity", self.model.settings.head_dim)
        key, value = f"self.{layer}.key", f"self.{layer}.value"
        present = [graph.declare_output(bundle.present_name(name), self.dtype, shape) for name in (key, value)]
        return (declared[key], declared[value]), (present[0], present[1])

    def scorer(self) -> bytes:
        """Teacher-forced: source and target at once -> log-probability of every label, every attention matrix."""
        blocks = self._blocks("scorer")
        graph = blocks.graph
        source = _Source.declare(blocks)
        target = graph.input(bundle.TARGET_IDS, np.int64, ["batch", "target_length"])
        labels = graph.input(bundle.LABELS, np.int64, ["batch", "target_length"])
        rows, encoder_weights = self._encode(blocks, source)
        memories = self._memory(blocks, rows, source.outer)
        places = _range(graph, graph.op("Shape", target, start=1, end=2))
        future = blocks.attention_bias(graph.op("LessOrEqual", places, graph.op("Unsqueeze", places, graph.int64s(1))))
        embedded = blocks.embed(self.model.target_embedding, self._target_table(), "target", target, places)
        rows = graph.op("Reshape", embedded, graph.int64s(-1, self.model.settings.dim))
        own_weights, cross_weights = [], []
        for number, (layer, memory) in enumerate(zip(self._decoder_layers(), memories, strict=True)):
            name = f"decoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            attended, own = blocks.self_attention(layer.attention, f"{name}.attention", read, source.outer, future)
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows, cross = self._rest_of_layer(blocks, layer, name, rows, memory, source.outer, source.hidden)
            own_weights.append(own)
            cross_weights.append(cross)
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
        return Blocks(graph, self.model.settings, matmul)

    def _finish(self, graph: GraphBuilder) -> bytes:
        self.reads |= graph.reads
        return graph.finish()

    @property
    def _output_layer(self) -> OutputLayer:
        return OutputLayer(self.model, self._target_table())

    def _declare_state(self, graph: GraphBuilder, state: State) -> str:
        owner = "sentences" if state.kind == "memory" else "rows"
        name = state.name if state.kind == "memory" else bundle.past_name(state.name)
        return graph.input(name, self.dtype, (owner, *state.shape))

    def _target_table(self) -> str:
        tied = self.model.source_embedding.pieces.weight is self.model.target_embedding.pieces.weight
        return "pieces" if tied else "target_pieces"

    def _decoder_layers(self) -> list[DecoderLayer]:
        return list(self.model.decoder)

    def _encode(self, blocks: Blocks, source: _Source) -> tuple[str, list[str]]:
        """The encoder's output as rows (batch * source_length, dim), and every layer's attention weights."""
        graph, model = blocks.graph, self.model
        tied = model.source_embedding.pieces.weight is model.target_embedding.pieces.weight
        name = "pieces" if tied else "source_pieces"
        hidden = blocks.embed(model.source_embedding, name, "source", source.ids, source.places)
        rows = graph.op("Reshape", hidden, graph.int64s(-1, model.settings.dim))
        seen = []
        for number, layer in enumerate(model.encoder):
            name = f"encoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            attended, weights = blocks.self_attention(
                layer.attention, f"{name}.attention", read, source.outer, source.hidden
            )
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows = self._feed_forward(blocks, layer, name, rows)
            seen.append(weights)
        return blocks.norm(model.encoder_norm, "encoder_norm", rows), seen

    def _memory(self, blocks: Blocks, rows: str, outer: str) -> list[tuple[str, str]]:
        """Keys and values of every decoder layer's cross-attention, all in one product."""
        layers = self._decoder_layers()
        weight = np.concatenate([to_numpy(layer.cross.key_value.weight) for layer in layers])
        bias = np.concatenate([to_numpy(layer.cross.key_value.bias) for layer in layers])
        packed = blocks.matmul.linear("memory", rows, weight, bias)
        parts = blocks.split(packed, 2 * len(layers))
        return [
            (blocks.split_heads_transposed(key, outer), blocks.split_heads(value, outer))
            for key, value in zip(parts[::2], parts[1::2], strict=True)
        ]

    def _rest_of_layer(
        self,
        blocks: Blocks,
        layer: DecoderLayer,
        name: str,
        rows: str,
        memory: tuple[str, str],
        outer: str,
        hidden: str,
    ) -> tuple[str, str]:
        """Cross-attention and feed-forward of a decoder layer; also returns the cross-attention's weights."""
        read = blocks.before(layer.around_cross, f"{name}.around_cross", rows)
        crossed, weights = blocks.cross_attention(layer.cross, f"{name}.cross", read, memory, outer, hidden)
        rows = blocks.after(layer.around_cross, f"{name}.around_cross", rows, crossed)
        return self._feed_forward(blocks, layer, name, rows), weights

    def _feed_forward(self, blocks: Blocks, layer: EncoderLayer | DecoderLayer, name: str, rows: str) -> str:
        read = blocks.before(layer.around_feed_forward, f"{name}.around_feed_forward", rows)
        fed = blocks.feed_forward(layer.feed_forward, f"{name}.feed_forward", read)
        return blocks.after(layer.around_feed_forward, f"{name}.around_feed_forward", rows, fed)


@dataclass(frozen=True, slots=True)
class _Source:
    """The inputs of an encoder and what follows from them.

    ids (batch, source_length), outer [batch], places 0..source_length - 1,
    hidden (batch, 1, 1, source_length) from Blocks.attention_bias
    """

    ids: str
    outer: str
    places: str
    hidden: str

    @classmethod
    def declare(cls, blocks: Blocks) -> _Source:
        graph = blocks.graph
        ids = graph.input(bundle.SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = graph.input(bundle.SOURCE_LENGTHS, np.int64, ["batch"])
        width = graph.op("Shape", ids, start=1, end=2)
        return cls(
            ids,
            graph.op("Shape", lengths),
            _range(graph, width),
            blocks.attention_bias(_visible(graph, lengths, width)),
        )


def _range(graph: GraphBuilder, width: str) -> str:
    """0 to width - 1; width is an int64 vector of one."""
    zero, one = graph.constant(np.array(0, np.int64)), graph.constant(np.array(1, np.int64))
    return graph.op("Range", zero, graph.op("Squeeze", width, graph.int64s(0)), one)


def _visible(graph: GraphBuilder, lengths: str, width: str) -> str:
    """(n, 1, 1, width): True before each of lengths (n)."""
    return graph.op("Less", _range(graph, width), graph.op("Unsqueeze", lengths, graph.int64s(1, 2, 3)))


def _past_lengths(graph: GraphBuilder, positions: str) -> tuple[str, str]:
    """What GroupQueryAttention asks for: the last index of each row as int32, and the longest length after the step."""
    last = graph.op("Cast", positions, to=TensorProto.INT32)
    longest = graph.op("ReduceMax", last, graph.int64s(0), keepdims=0)
    return last, graph.op("Add", longest, graph.constant(np.array(1, np.int32)))
