"""The graphs of a Transformer: encoder, decoder step, scorer, and two graphs for decoding with a shortlist.

One class builds them for every provider and precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from lingon.bundle import names
from lingon.bundle.manifest import NO_ALIGNMENT, Alignment, State, StateKind
from lingon.export.graphs.attention import (
    AdditiveAttention,
    GroupedAttention,
    Mask,
    RelativeScores,
    Rotation,
    ScatteredAttention,
    StepAttention,
    cache_key_shape,
    cross_attention,
    lay_out_keys,
    memory_key_shape,
    self_attention,
    since,
)
from lingon.export.graphs.fusion import fuse_norms
from lingon.export.graphs.layers import BLOCK, Blocks, FloatMatMul, Int8MatMul, bias_of, table_name, to_numpy
from lingon.export.graphs.onnx_writer import INT8_FILE, GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import (
    OutputLayer,
    cast_to_float32,
    device_block,
    write_candidates,
    write_greedy_step,
    write_step_attention,
)
from lingon.export.graphs.quantisation import InputRange
from lingon.export.graphs.state_graphs import state_graphs
from lingon.training.models.attention import CrossAttention, SelfAttention
from lingon.training.models.layers import SSRU
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer

# The inputs of an encoder, and what its graph computes from them.


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """The inputs of an encoder, and values computed from them.

    ids: (batch, source_length)
    batch: int64 [batch]
    positions: 0 to source_length - 1
    bias: of cross-attention (batch, 1, 1, source_length), from Blocks.attention_bias, or "" if no node may read it
    masks: of the encoder's self-attention, by the window of a layer
    rotation: of the encoder's self-attention
    """

    ids: str
    batch: str
    positions: str
    bias: str
    masks: Mapping[int, Mask]
    rotation: Rotation | None

    @classmethod
    def declare(cls, blocks: Blocks, relative: RelativeScores | None, *, crossed: bool) -> EncoderInputs:
        """Write inputs and values.

        relative: of the encoder, if positions are relative
        crossed: whether the graph has cross-attention too
        """
        graph, settings = blocks.graph, blocks.settings
        ids = graph.input(names.SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = graph.input(names.SOURCE_LENGTHS, np.int64, ["batch"])
        width = graph.op("Shape", ids, start=1, end=2)
        batch, positions = graph.op("Shape", lengths), graph.count_up(width)
        seen = visible(graph, lengths, width)
        softmax, windows = settings.encoder_attention == "softmax", sorted({*settings.windows("encoder")})
        bias = blocks.attention_bias(seen) if crossed or (softmax and 0 in windows) else ""
        masks = {}
        for window in windows:
            near = _within_window(graph, seen, positions, window) if window else seen
            masks[window] = Mask(near, blocks.attention_bias(near) if window else bias if softmax else "")
        if relative is not None:
            masks = relative.added_to(masks, positions)
        rotation = Rotation.of_sequences(blocks, batch) if settings.positions == "rotary" else None
        return cls(ids, batch, positions, bias, masks, rotation)


def visible(graph: GraphBuilder, lengths: str, width: str) -> str:
    """Return a mask (n, 1, 1, width), True at the positions before each of lengths (n)."""
    return graph.op("Less", graph.count_up(width), graph.op("Unsqueeze", lengths, graph.int64s(1, 2, 3)))


def _within_window(graph: GraphBuilder, seen: str, positions: str, radius: int) -> str:
    """Return a mask (n, 1, width, width), True where position i may see j: |i - j| <= radius, and j is visible.

    seen: (n, 1, 1, width)

    A padded position may see nothing. Its bias is finite, and so are its weights, which no other position reads.
    """
    distance = graph.op("Abs", graph.op("Sub", graph.op("Unsqueeze", positions, graph.int64s(1)), positions))
    near = graph.op("LessOrEqual", distance, graph.constant(np.array(radius)))
    return graph.op("And", seen, near)


# The SSRU of a decoder layer as ONNX nodes: one step, and whole targets. See lingon.training.models.layers.SSRU.


def step_cell(blocks: Blocks, module: SSRU, name: str, rows: str, past: str, present: str) -> str:
    """Return what the cell says after one more position: (rows, dim).

    rows: the input of the cell (rows, dim)
    past: the input of the graph (rows, dim). No other node may read it, since the runner binds `present` to its memory
    present: the output of the graph
    """
    keep, new = _gated(blocks, module, name, rows)
    kept = blocks.graph.op("Mul", keep, past)
    return blocks.graph.op("Relu", blocks.graph.op("Add", kept, new, named=present))


def run_cell(blocks: Blocks, module: SSRU, name: str, rows: str, batch: str) -> str:
    """Return what the cell says at each position of whole targets: (batch * length, dim), of rows of that shape.

    batch: int64 [batch]
    """
    graph, dim = blocks.graph, blocks.settings.dim
    by_time = [_by_time(blocks, each, batch) for each in _gated(blocks, module, name, rows)]

    def advance(states: list[str], inputs: list[str]) -> tuple[list[str], list[str]]:
        cell = graph.op("Add", graph.op("Mul", inputs[0], states[0]), inputs[1])
        return [cell], [cell]

    _, (found,) = graph.scan([zero_cells(blocks, batch)], [(each, graph.dtype) for each in by_time], advance)
    by_row = graph.op("Transpose", found, perm=[1, 0, 2])
    return graph.op("Relu", graph.op("Reshape", by_row, graph.int64s(-1, dim)))


def zero_cells(blocks: Blocks, batch: str) -> str:
    """Return the cells before the first token (batch, dim); batch: int64 [batch]."""
    graph = blocks.graph
    return graph.op("Expand", graph.scalar(0), graph.op("Concat", batch, graph.int64s(blocks.settings.dim), axis=0))


def _gated(blocks: Blocks, module: SSRU, name: str, rows: str) -> tuple[str, str]:
    """Return the share of the cell that each row keeps, and what it adds: (n, dim) each."""
    graph = blocks.graph
    gate, value = blocks.split(blocks.linear(module.gates, f"{name}.gates", rows), 2)
    keep = graph.op("Sigmoid", gate)
    return keep, graph.op("Mul", graph.op("Sub", graph.scalar(1), keep), value)


def _by_time(blocks: Blocks, rows: str, batch: str) -> str:
    """Reshape rows (batch * length, dim) to (length, batch, dim)."""
    graph = blocks.graph
    sizes = graph.op("Concat", batch, graph.int64s(-1, blocks.settings.dim), axis=0)
    return graph.op("Transpose", graph.op("Reshape", rows, sizes), perm=[1, 0, 2])


Crossing = Callable[[CrossAttention, str, str, tuple[str, str]], tuple[str, str]]
"""Writes the cross-attention of a module, with its name, of rows over a memory. See `cross_attention`."""


def states(model: Transformer) -> tuple[State, ...]:
    """Return the states that the decoder reads at every step: for each layer a memory of the source, and its past."""
    settings = model.settings
    shapes: dict[str, tuple[StateKind, tuple[int | str, ...]]] = {
        "memory.{}.key": ("memory", memory_key_shape(settings)),
        "memory.{}.value": ("memory", (settings.heads, "source_length", settings.head_dim)),
    }
    if settings.decoder_cell == "ssru":
        shapes["cell.{}"] = ("recurrent", (settings.dim,))
    else:
        shapes["self.{}.key"] = ("cache", cache_key_shape(settings))
        shapes["self.{}.value"] = ("cache", (settings.heads, "capacity", settings.head_dim))
    layers = range(settings.decoder_layers)
    return tuple(State(name.format(layer), *rest) for layer in layers for name, rest in shapes.items())


@dataclass(slots=True)
class TransformerGraphs:
    """A builder of the graphs of a model in one precision.

    dtype: of the arithmetic, float32 or float16. The CPU provider and CUDA have all operators for both types, but for
        GroupQueryAttention, which CUDA has for float16 only.
    device_states: whether the graphs are for a provider with memory of its own: the length of the caches is an input,
        since computing it would make every step wait for the device, and there are graphs that position and copy states
    scattered: whether decoder steps use ScatteredAttention, as float32 on CUDA must, and not GroupQueryAttention
    ranges: the input range of each matrix product. With them, products are in 8-bit integers (CPU provider only)
    alignment: the heads whose mean weights a decoder step outputs. Without heads, and for a provider with memory of its
        own, it outputs none
    reads: the weight files that the graphs built so far point to
    """

    model: Transformer
    dtype: type[np.floating[Any]]
    weights: WeightFiles
    ranges: Mapping[str, InputRange] | None = None
    device_states: bool = False
    scattered: bool = False
    alignment: Alignment = NO_ALIGNMENT
    reads: set[str] = field(default_factory=set)

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """Return every graph file by name; with shortlist, also those for decoding with a shortlist."""
        files = {names.ENCODER: self.encoder(), names.DECODER: self.decoder(), names.SCORER: self.scorer()}
        if shortlist:
            files |= {names.OUTPUT_ROWS: self.output_rows(), names.DECODER_SHORTLIST: self.decoder_shortlist()}
        if self.device_states:
            files |= {names.GREEDY: self.greedy(), **state_graphs(states(self.model), self.dtype)}
        return files

    def encoder(self) -> bytes:
        """Return the graph source_ids, source_lengths -> the memory of every decoder layer."""
        blocks = self._blocks("encoder")
        graph = blocks.graph
        source = EncoderInputs.declare(blocks, self._relative(blocks, "encoder"), crossed=False)
        rows, _ = self._encode(blocks, source, weighted=False)
        shapes = {state.name: ("batch", *state.shape) for state in states(self.model)}
        for layer, (key, value) in enumerate(self._memory(blocks, rows, source.batch)):
            for value_of, name in ((key, f"memory.{layer}.key"), (value, f"memory.{layer}.value")):
                graph.output(value_of, name, self._type_of(name), shapes[name])
        for state in states(self.model):
            if state.kind == "recurrent":
                graph.output(zero_cells(blocks, source.batch), state.name, self.dtype, shapes[state.name])
        return self._finish(graph)

    def decoder(self) -> bytes:
        """Return the step graph: tokens, positions, candidate_count, memory, past -> candidates, logits, present."""
        blocks, rows, _ = self._decoder_step("decoder")
        graph = blocks.graph
        named = graph.declare_output(names.LOGITS, self.dtype, ("rows", self._output_layer.width))
        self._write_candidates(graph, self._output_layer.logits(blocks, rows, named=named))
        return self._finish(graph)

    def _write_candidates(self, graph: GraphBuilder, logits: str) -> None:
        block = device_block(self._output_layer.width) if self.device_states else BLOCK
        write_candidates(graph, cast_to_float32(graph, logits), block=block)

    def greedy(self) -> bytes:
        """Return a graph like decoder whose outputs are what the next step of greedy search reads."""
        blocks, rows, _ = self._decoder_step("greedy", single=True)
        logits = cast_to_float32(blocks.graph, self._output_layer.logits(blocks, rows))
        block = device_block(self._output_layer.width)
        write_greedy_step(blocks.graph, logits, names.TOKEN_IDS, names.POSITIONS, block)
        return self._finish(blocks.graph)

    def output_rows(self) -> bytes:
        """Return the graph piece_ids -> the rows of the output layer for these pieces, inputs of decoder_shortlist."""
        blocks = self._blocks("output_rows")
        self._output_layer.gather_pieces(blocks, blocks.graph.input(names.PIECE_IDS, np.int64, ["union"]))
        return self._finish(blocks.graph)

    def decoder_shortlist(self) -> bytes:
        """Return a graph like decoder, without logits, over those pieces of piece_ids that each sentence may use."""
        blocks, rows, batch = self._decoder_step("decoder_shortlist")
        logits, pieces = self._output_layer.logits_of_pieces(blocks, rows, batch)
        write_candidates(blocks.graph, cast_to_float32(blocks.graph, logits), pieces)
        return self._finish(blocks.graph)

    def _decoder_step(self, name: str, *, single: bool = False) -> tuple[Blocks, str, str]:
        """Write a decoder step up to the input of the output layer (rows, dim), and return the int64 [sentences].

        single: whether each sentence has one row
        """
        blocks = self._blocks(name)
        graph = blocks.graph
        ids = graph.input(names.TOKEN_IDS, np.int64, ["rows"])
        positions = graph.input(names.POSITIONS, np.int64, ["rows"])
        lengths = graph.input(names.MEMORY_LENGTHS, np.int64, ["sentences"])
        declared = {state.name: self._declare_state(graph, state) for state in states(self.model)}
        batch = graph.op("Shape", lengths)
        crossing = self._crossing(blocks, declared["memory.0.key"], lengths, batch, single=single)
        outputs_attention = self.alignment.heads and not self.device_states
        attending = self._attending(blocks, crossing, lengths) if outputs_attention else crossing
        attention = self._step_attention(blocks, positions, declared)
        return blocks, self._step_rows(blocks, ids, positions, declared, attention, crossing, attending), batch

    def _step_rows(
        self,
        blocks: Blocks,
        ids: str,
        positions: str,
        declared: dict[str, str],
        attention: StepAttention | None,
        crossing: Crossing,
        attending: Crossing,
    ) -> str:
        """Write the layers of a decoder step and return the input of the output layer (rows, dim).

        declared: the inputs of the graph for the states, by the names of the states
        attending: the cross-attention of the layer for alignments; of the others, `crossing`
        """
        rows = blocks.embed(self.model.target_embedding, table_name(self.model, "target"), "target", ids, positions)
        for number, layer in enumerate(self._decoder_layers()):
            name = f"decoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            attended = self._step_past(blocks, layer, number, read, declared, attention)
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            memory = (declared[f"memory.{number}.key"], declared[f"memory.{number}.value"])
            writes = attending if number == self.alignment.layer else crossing
            rows, _ = self._rest_of_layer(blocks, layer, name, rows, memory, writes)
        return blocks.norm(self.model.decoder_norm, "decoder_norm", rows)

    def _step_past(
        self,
        blocks: Blocks,
        layer: DecoderLayer,
        number: int,
        read: str,
        declared: dict[str, str],
        attention: StepAttention | None,
    ) -> str:
        """Return what a layer reads of the target so far (rows, dim); read: the input of its attention or cell."""
        name, module = f"decoder.{number}.attention", layer.attention
        if isinstance(module, SSRU):
            cell, shape = f"cell.{number}", ("rows", self.model.settings.dim)
            present = blocks.graph.declare_output(names.present_name(cell), self.dtype, shape)
            return self._step_cell(blocks, module, name, read, declared[cell], present)
        assert attention is not None
        past, presents = self._past(blocks.graph, declared, number)
        packed = blocks.packed(module, name, read)
        mixed = attention.attend(module, name, packed, past, presents)
        return blocks.linear(module.output, f"{name}.output", mixed)

    def _step_cell(self, blocks: Blocks, module: SSRU, name: str, rows: str, past: str, present: str) -> str:
        """See step_cell."""
        return step_cell(blocks, module, name, rows, past, present)

    def _step_attention(self, blocks: Blocks, positions: str, declared: Mapping[str, str]) -> StepAttention | None:
        """Return what writes self-attention into a step, or None if the layers have cells."""
        settings = self.model.settings
        if settings.decoder_cell == "ssru":
            if self.device_states:
                blocks.graph.input(names.TOTAL_LENGTH, np.int32, [])
            return None
        rotation = Rotation.of_steps(blocks, positions) if settings.positions == "rotary" else None
        relative = self._relative(blocks, "decoder")
        if settings.score == "scaled-dot" and not self.scattered:
            return GroupedAttention.write(blocks, positions, rotation, relative, given=self.device_states)
        axis = 1 + cache_key_shape(settings).index("capacity")
        capacity = blocks.graph.op("Shape", declared["self.0.key"], start=axis, end=axis + 1)
        if settings.score == "scaled-dot":
            return ScatteredAttention.write(blocks, positions, capacity, rotation, relative)
        return AdditiveAttention.write(blocks, positions, capacity, rotation, given=self.device_states)

    def _crossing(self, blocks: Blocks, key: str, lengths: str, batch: str, *, single: bool) -> Crossing:
        """Return what writes cross-attention into a step; key: a memory of the first layer."""
        graph, axis = blocks.graph, 1 + memory_key_shape(self.model.settings).index("source_length")
        width = graph.op("Shape", key, start=axis, end=axis + 1)
        bias = blocks.attention_bias(visible(graph, lengths, width))
        return partial(cross_attention, blocks, batch=batch, bias=bias, single=single)

    def _attending(self, blocks: Blocks, crossing: Crossing, lengths: str) -> Crossing:
        """Return what writes the cross-attention of the layer for alignments into a step, and outputs STEP_ATTENTION.

        crossing: what writes that of the other layers; lengths: of the memories
        """

        def write(module: CrossAttention, name: str, rows: str, memory: tuple[str, str]) -> tuple[str, str]:
            graph, (crossed, weights) = blocks.graph, crossing(module, name, rows, memory)
            chosen = graph.op("Gather", weights, graph.int64s(*self.alignment.heads), axis=1)
            mean = graph.op("ReduceMean", chosen, graph.int64s(1), keepdims=0)
            write_step_attention(graph, cast_to_float32(graph, mean))
            return crossed, weights

        return write

    def _weighted_crossing(self, blocks: Blocks, source: EncoderInputs) -> Crossing:
        """Return what writes cross-attention into the scorer, with its weights."""
        return partial(cross_attention, blocks, batch=source.batch, bias=source.bias)

    def _self_attention(
        self,
        blocks: Blocks,
        module: SelfAttention,
        name: str,
        rows: str,
        source: EncoderInputs,
        mask: Mask,
        *,
        weighted: bool,
        lengths: str,
    ) -> tuple[str, str]:
        """Return the self-attention of whole sequences, and its weights. See `self_attention`.

        lengths: of the sequences of an encoder, int64 (batch), or "" for a decoder, which sees what came before
        """
        return self_attention(blocks, module, name, rows, source.batch, mask, source.rotation, weighted=weighted)

    def _past(
        self, graph: GraphBuilder, declared: dict[str, str], layer: int
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the names of keys and values of a layer before and after the step."""
        key, value = f"self.{layer}.key", f"self.{layer}.value"
        shapes = {state.name: ("rows", *state.shape) for state in states(self.model)}
        present = [
            graph.declare_output(names.present_name(name), self._type_of(name), shapes[name]) for name in (key, value)
        ]
        return (declared[key], declared[value]), (present[0], present[1])

    def scorer(self) -> bytes:
        """Return the teacher-forced graph: source, target, labels -> log-probabilities of labels, attention weights."""
        blocks = self._blocks("scorer")
        graph = blocks.graph
        source = EncoderInputs.declare(blocks, self._relative(blocks, "encoder"), crossed=True)
        target = graph.input(names.TARGET_IDS, np.int64, ["batch", "target_length"])
        labels = graph.input(names.LABELS, np.int64, ["batch", "target_length"])
        rows, encoder_weights = self._encode(blocks, source, weighted=True)
        memories = self._memory(blocks, rows, source.batch)
        rows, own_weights, cross_weights = self._decode_whole(blocks, source, target, memories)
        log_probs = graph.op("LogSoftmax", cast_to_float32(graph, self._output_layer.logits(blocks, rows)), axis=-1)
        chosen = graph.op("GatherElements", log_probs, graph.op("Reshape", labels, graph.int64s(-1, 1)), axis=1)
        shaped = graph.op("Reshape", chosen, graph.op("Shape", labels))
        graph.output(shaped, names.TOKEN_LOG_PROBS, np.float32, ("batch", "target_length"))
        for weights, output, shape in (
            (encoder_weights, names.ENCODER_ATTENTION, ("source_length", "source_length")),
            (own_weights, names.DECODER_ATTENTION, ("target_length", "target_length")),
            (cross_weights, names.CROSS_ATTENTION, ("target_length", "source_length")),
        ):
            if not weights:
                continue
            stacked = graph.op("Concat", *(graph.op("Unsqueeze", each, graph.int64s(1)) for each in weights), axis=1)
            sizes = ("batch", len(weights), self.model.settings.heads, *shape)
            graph.output(cast_to_float32(graph, stacked), output, np.float32, sizes)
        return self._finish(graph)

    def _decode_whole(
        self, blocks: Blocks, source: EncoderInputs, target: str, memories: Sequence[tuple[str, str]]
    ) -> tuple[str, list[str], list[str]]:
        """Return the output of the decoder for whole targets, and the weights of each layer: its own and the crossing.

        target: token ids, int64 (batch, target_length)
        """
        graph = blocks.graph
        positions = graph.count_up(graph.op("Shape", target, start=1, end=2))
        causal = self._causal_masks(blocks, positions)
        embedded = blocks.embed(
            self.model.target_embedding, table_name(self.model, "target"), "target", target, positions
        )
        rows = graph.op("Reshape", embedded, graph.int64s(-1, self.model.settings.dim))
        crossing = self._weighted_crossing(blocks, source)
        own_weights, cross_weights = list[str](), list[str]()
        for number, (layer, memory) in enumerate(zip(self._decoder_layers(), memories, strict=True)):
            name = f"decoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            if isinstance(layer.attention, SSRU):
                attended = run_cell(blocks, layer.attention, f"{name}.attention", read, source.batch)
            else:
                mask = causal[layer.attention.window]
                attended, own = self._self_attention(
                    blocks, layer.attention, f"{name}.attention", read, source, mask, weighted=True, lengths=""
                )
                own_weights.append(own)
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows, cross = self._rest_of_layer(blocks, layer, name, rows, memory, crossing)
            cross_weights.append(cross)
        return blocks.norm(self.model.decoder_norm, "decoder_norm", rows), own_weights, cross_weights

    def _causal_masks(self, blocks: Blocks, positions: str) -> dict[int, Mask]:
        """Return the masks of the decoder's self-attention by the window of a layer; positions: int64 (length)."""
        graph, masks = blocks.graph, {}
        queries = graph.op("Unsqueeze", positions, graph.int64s(1))
        seen = graph.op("LessOrEqual", positions, queries)
        for window in sorted({*self.model.settings.windows("decoder")}):
            near = graph.op("And", seen, since(graph, positions, queries, window)) if window else seen
            masks[window] = Mask(near, blocks.attention_bias(near))
        relative = self._relative(blocks, "decoder")
        return masks if relative is None else relative.added_to(masks, positions)

    def _relative(self, blocks: Blocks, side: str) -> RelativeScores | None:
        """Return the writer of the relative positions of a side, or None if it has none."""
        module = self.model.encoder_bias if side == "encoder" else self.model.decoder_bias
        return None if module is None else RelativeScores(blocks, f"{side}_distances", module)

    def _blocks(self, name: str) -> Blocks:
        file = INT8_FILE if self.ranges is not None else None
        # In float32 the Gemm of CUDA and this sum would differ from the other graphs in the last bit for no gain.
        fused = self.device_states and self.dtype == np.float16
        graph = GraphBuilder(name, self.weights, self.dtype, file=file, rewrite=fuse_norms if fused else None)
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
        name = state.name if state.kind == "memory" else names.past_name(state.name)
        return graph.input(name, self._type_of(state.name), (first, *state.shape))

    def _type_of(self, state: str) -> type[np.floating[Any]]:
        return self.dtype

    def _decoder_layers(self) -> list[DecoderLayer]:
        return list(self.model.decoder)

    def _encode(self, blocks: Blocks, source: EncoderInputs, *, weighted: bool) -> tuple[str, list[str]]:
        """Write the encoder and return its output (batch * source_length, dim) and the attention weights of all layers.

        weighted: see `self_attention`
        """
        graph, model = blocks.graph, self.model
        hidden = blocks.embed(
            model.source_embedding, table_name(model, "source"), "source", source.ids, source.positions
        )
        rows = graph.op("Reshape", hidden, graph.int64s(-1, model.settings.dim))
        all_weights = []
        for number, layer in enumerate(model.encoder):
            name = f"encoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            attended, weights = self._self_attention(
                blocks,
                layer.attention,
                f"{name}.attention",
                read,
                source,
                source.masks[layer.attention.window],
                weighted=weighted,
                lengths=names.SOURCE_LENGTHS,
            )
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows = self._feed_forward(blocks, layer, name, rows)
            all_weights.append(weights)
        return blocks.norm(model.encoder_norm, "encoder_norm", rows), all_weights

    def _memory(self, blocks: Blocks, rows: str, batch: str) -> list[tuple[str, str]]:
        """Return keys and values of the cross-attention of every decoder layer, computed in one matrix product."""
        parts = blocks.split(self._memory_rows(blocks, rows), 2 * len(self._decoder_layers()))
        return [
            (lay_out_keys(blocks, key, batch), blocks.split_heads(value, batch))
            for key, value in zip(parts[::2], parts[1::2], strict=True)
        ]

    def _memory_rows(self, blocks: Blocks, rows: str, named: str = "") -> str:
        """Return keys and values of the cross-attention of every decoder layer: (n, layers * 2 * attention_dim)."""
        layers = self._decoder_layers()
        weight = np.concatenate([to_numpy(layer.cross.key_value.weight) for layer in layers])
        bias = np.concatenate([bias_of(layer.cross.key_value) for layer in layers])
        return blocks.matmul.linear("memory", rows, weight, bias, named=named)

    def _rest_of_layer(
        self, blocks: Blocks, layer: DecoderLayer, name: str, rows: str, memory: tuple[str, str], crossing: Crossing
    ) -> tuple[str, str]:
        """Write cross-attention and feed-forward of a decoder layer and return the weights of the cross-attention."""
        read = blocks.before(layer.around_cross, f"{name}.around_cross", rows)
        crossed, weights = crossing(layer.cross, f"{name}.cross", read, memory)
        rows = blocks.after(layer.around_cross, f"{name}.around_cross", rows, crossed)
        return self._feed_forward(blocks, layer, name, rows), weights

    def _feed_forward(self, blocks: Blocks, layer: EncoderLayer | DecoderLayer, name: str, rows: str) -> str:
        read = blocks.before(layer.around_feed_forward, f"{name}.around_feed_forward", rows)
        fed = blocks.feed_forward(layer.feed_forward, f"{name}.feed_forward", read)
        return blocks.after(layer.around_feed_forward, f"{name}.around_feed_forward", rows, fed)
