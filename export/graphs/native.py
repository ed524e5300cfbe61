"""The graphs in our own operators (`kernels/`): products of 8-bit integers whose rows have scales of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from lingon.bundle.names import (
    BEAM,
    BEAM_LOG_PROBS,
    BEAM_ROWS,
    BEAM_TABLE,
    BEAM_TOKENS,
    BEAM_TOTALS,
    CANDIDATE_COUNT,
    CANDIDATE_IDS,
    CANDIDATE_LOG_PROBS,
    ENDED,
    ENDED_LOG_PROBS,
    ENDED_TABLE,
    ENDED_TOKENS,
    ENDED_TOTALS,
    FAILED,
    POSITIONS,
    SOURCE_IDS,
    SOURCE_LENGTHS,
    TARGET_IDS,
    TOKEN_IDS,
    changed_name,
)
from lingon.export.graphs.attention import Caches, Mask, ProductScores, StepAttention, attention_weights, lay_out_keys
from lingon.export.graphs.fusion import fuse
from lingon.export.graphs.layers import Blocks, FloatMatMul, Layers, MatMul, pad_to_blocks, table_name, to_numpy
from lingon.export.graphs.onnx_writer import INT8_FILE, KERNELS, GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import OutputLayer, declare_step_attention
from lingon.export.graphs.quantisation import quantise_columns
from lingon.export.graphs.recurrent import RecurrentGraphs
from lingon.export.graphs.transformer import Crossing, EncoderInputs, TransformerGraphs, states, zero_cells
from lingon.serving.runtime.runner import NARROWEST
from lingon.text import EOS
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import CrossAttention, SelfAttention
from lingon.training.models.layers import SSRU, Embedding

# Matrix products by our own operators: of 8-bit integers, with a scale for every row, or of floats.

PANEL, GROUP = 16, 8  # output columns, and input columns, that a product reads together; as in kernels/kernels.h


WITHOUT = {"norm": 0, "epsilon": 0.0, "relu": 0}
"""The attributes of a product alone; lingon.export.graphs.fusion changes them."""


@dataclass(frozen=True, slots=True)
class NativeFloatMatMul(FloatMatMul):
    """See lingon.export.graphs.layers.MatMul. Weights that float16 holds exactly are read as such."""

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """See MatMul."""
        inputs = rows, self.graph.table(shared or f"{name}.weight", weight), self.graph.weight(f"{name}.bias", bias)
        found = self.graph.op("FloatLinear", *inputs, domain=KERNELS, named=named or None, **WITHOUT)
        return self.graph.describe(found, len(weight))

    def gather_pieces(self, name: str, weight: np.ndarray, bias: np.ndarray, pieces: str, *, shared: str) -> list[str]:
        """See MatMul: panels of these outputs, and their biases. A Gemm would pack their rows at every step."""
        stored = self.graph.table(shared or f"{name}.weight", weight), self.graph.weight(f"{name}.bias", bias)
        outputs = [f"{name}.pieces.{part}" for part in ("panels", "bias")]
        return self.graph.ops("FloatGatherColumns", pieces, *stored, outputs=outputs, domain=KERNELS)

    def piece_tensors(self, size: int) -> list[tuple[np.dtype[Any], list[int | str]]]:
        """See MatMul."""
        number = np.dtype(np.float32)
        return [(number, ["panels", size * PANEL]), (number, ["union"])]

    def linear_of_pieces(self, name: str, rows: str, chosen: list[str], *, named: str = "") -> str:
        """See MatMul."""
        return _packed_product(self.graph, "FloatPackedLinear", rows, chosen, named)


@dataclass(frozen=True, slots=True)
class NativeInt8MatMul:
    """See lingon.export.graphs.layers.MatMul. The weights are those of Int8MatMul, in the same file."""

    graph: GraphBuilder

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """See MatMul."""
        inputs = rows, *self._stored(name, weight, bias)
        found = self.graph.op("Linear", *inputs, domain=KERNELS, named=named or None, **WITHOUT)
        return self.graph.describe(found, len(weight))

    def relu(self, rows: str, reader: str) -> str:
        """See MatMul; lingon.export.graphs.fusion makes it part of the product before it."""
        return self.graph.op("Relu", rows)

    def gather_pieces(self, name: str, weight: np.ndarray, bias: np.ndarray, pieces: str, *, shared: str) -> list[str]:
        """See MatMul: panels of these columns, the sums of their weights, their scales and biases."""
        outputs = [f"{name}.pieces.{part}" for part in ("panels", "sums", "scale", "bias")]
        return self.graph.ops(
            "GatherColumns", pieces, *self._stored(name, weight, bias), outputs=outputs, domain=KERNELS
        )

    def piece_tensors(self, size: int) -> list[tuple[np.dtype[Any], list[int | str]]]:
        """See MatMul."""
        number = np.dtype(np.float32)
        panels: list[int | str] = ["panels", -(-size // GROUP) * GROUP * PANEL]
        vectors: list[tuple[np.dtype[Any], list[int | str]]] = [
            (each, ["union"]) for each in (np.dtype(np.int32), number, number)
        ]
        return [(np.dtype(np.int8), panels), *vectors]

    def linear_of_pieces(self, name: str, rows: str, chosen: list[str], *, named: str = "") -> str:
        """See MatMul."""
        return _packed_product(self.graph, "PackedLinear", rows, chosen, named)

    def _stored(self, name: str, weight: np.ndarray, bias: np.ndarray) -> tuple[str, str, str]:
        columns, scale = quantise_columns(weight)
        return (
            self.graph.initializer(f"{name}.columns", columns.T),
            self.graph.initializer(f"{name}.scale", scale),
            self.graph.weight(f"{name}.bias", bias),
        )


def _packed_product(graph: GraphBuilder, kind: str, rows: str, chosen: list[str], named: str) -> str:
    """Return the product of rows with gathered columns, which lie as the operator `kind` reads them."""
    return graph.op(kind, rows, *chosen, domain=KERNELS, named=named or None, norm=0, epsilon=0.0)


def native_products(name: str, weights: WeightFiles, *, quantised: bool) -> tuple[GraphBuilder, MatMul]:
    """Return the builder of a graph, and what writes its products; quantised: whether they are in 8-bit integers."""
    graph = GraphBuilder(name, weights, np.float32, file=INT8_FILE if quantised else None, rewrite=fuse)
    return graph, NativeInt8MatMul(graph) if quantised else NativeFloatMatMul(graph)


def write_candidates(graph: GraphBuilder, logits: str, pieces: str = "", allowed: str = "") -> None:
    """Output the candidates of each row with their log-probabilities.

    logits: (rows, columns)
    pieces, allowed: the piece of each column, and which of them each sentence may use. See OutputLayer
    """
    count = graph.input(CANDIDATE_COUNT, np.int64, [1])
    names, shape = (CANDIDATE_IDS, CANDIDATE_LOG_PROBS), ("rows", "candidates")
    for name, dtype in zip(names, (np.int64, np.float32), strict=True):
        graph.declare_output(name, dtype, shape)
    given = (pieces, allowed) if pieces else ()
    graph.ops("Candidates", logits, count, *given, outputs=list(names), domain=KERNELS)


PASTS = "sentences", "beams", "capacity"
CHANGED = {
    TOKEN_IDS: (np.int64, ("rows",)),
    POSITIONS: (np.int64, ("rows",)),
    BEAM_ROWS: (np.int64, PASTS[:2]),
    BEAM_TOTALS: (np.float32, PASTS[:2]),
    BEAM_TOKENS: (np.int64, PASTS),
    BEAM_LOG_PROBS: (np.float32, PASTS),
    BEAM_TABLE: (np.int32, ("rows", "capacity")),
}
"""What the step changes, in the memory of its inputs; in the order of the operator."""

FOUND = {
    ENDED: (np.bool_, PASTS[:2]),
    ENDED_TOTALS: (np.float32, PASTS[:2]),
    ENDED_TOKENS: (np.int64, PASTS),
    ENDED_LOG_PROBS: (np.float32, PASTS),
    FAILED: (np.bool_, PASTS[:1]),
    ENDED_TABLE: (np.int32, PASTS),
}
"""What the step returns besides."""


def beam_graph() -> bytes:
    """Return the graph candidates, states -> changed states, hypotheses that ended."""
    graph = GraphBuilder("beam", WeightFiles(), np.float32)
    candidates = [
        graph.input(name, dtype, ("rows", "candidates"))
        for name, dtype in ((CANDIDATE_IDS, np.int64), (CANDIDATE_LOG_PROBS, np.float32))
    ]
    states = [graph.input(name, dtype, shape) for name, (dtype, shape) in CHANGED.items()]
    outputs = {changed_name(name): each for name, each in CHANGED.items()} | FOUND
    for name, (dtype, shape) in outputs.items():
        graph.declare_output(name, dtype, shape)
    graph.ops("BeamStep", *candidates, *states, outputs=list(outputs), domain=KERNELS, end=EOS)
    return graph.finish()


HEAD_STEP = 8  # dimensions; the operators take heads of a multiple of these, as many as floats fit a vector


def has_native_attention(settings: TransformerSettings) -> bool:
    """Return whether the operators have the attention of a model. The standard nodes compute any other one."""
    softmax = settings.encoder_attention == "softmax" and not (settings.encoder_window or settings.decoder_window)
    return softmax and has_native_heads(settings) and settings.positions not in ("rotary", "relative")


def has_native_heads(settings: TransformerSettings) -> bool:
    """Return whether the operators take the heads of a model, and have their scores."""
    return settings.score == "scaled-dot" and not settings.attention_softcap and settings.head_dim % HEAD_STEP == 0


@dataclass
class NativeTransformerGraphs(TransformerGraphs):
    """See TransformerGraphs. Products are operators of ours in every graph, the attention of steps and encoders too.

    quantised: whether products are in 8-bit integers. Keys and values are then float16, because the products differ
        by more than that
    """

    quantised: bool = True

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """See TransformerGraphs; with the graph of beam search where attention reads its table."""
        files = super().files(shortlist=shortlist)
        return files | {BEAM: beam_graph()} if self._has_native_steps else files

    @property
    def narrows_memory(self) -> bool:
        """Whether keys and values of the source are float16."""
        return self.quantised and has_native_heads(self.model.settings)

    @property
    def narrows_past(self) -> bool:
        """Whether keys and values of the target so far are float16."""
        return self.quantised and self._has_native_steps

    @property
    def _has_native_steps(self) -> bool:
        """Whether the attention of steps is an operator, which reads the table of beam search."""
        settings = self.model.settings
        return has_native_attention(settings) and settings.decoder_cell == "attention"

    def encoder(self) -> bytes:
        """See TransformerGraphs."""
        if not has_native_attention(self.model.settings):
            return super().encoder()
        blocks = self._blocks("encoder")
        graph = blocks.graph
        padded = graph.input(SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = graph.input(SOURCE_LENGTHS, np.int64, ["batch"])
        ids, positions = graph.ops("Tokens", padded, lengths, outputs=["ids", "positions"], domain=KERNELS)
        self._write_memory(blocks, self._encoded(blocks, ids, positions, lengths), padded, lengths)
        return self._finish(graph)

    def _encoded(self, blocks: Blocks, ids: str, positions: str, sentences: str) -> str:
        """Write the layers of the encoder over tokens without padding, and return its output (tokens, dim).

        ids, positions: int64 (tokens)
        sentences: what the operator SelfAttention reads of the extents of the sentences
        """
        graph, model, settings = blocks.graph, self.model, self.model.settings
        rows = blocks.embed(model.source_embedding, table_name(model, "source"), "source", ids, positions)
        for number, layer in enumerate(model.encoder):
            name = f"encoder.{number}"
            read = blocks.before(layer.around_attention, f"{name}.around_attention", rows)
            packed = blocks.packed(layer.attention, f"{name}.attention", read)
            mixed = graph.op(
                "SelfAttention",
                *(packed, sentences),
                domain=KERNELS,
                heads=settings.heads,
                scale=settings.head_dim**-0.5,
            )
            attended = blocks.linear(layer.attention.output, f"{name}.attention.output", mixed)
            rows = blocks.after(layer.around_attention, f"{name}.around_attention", rows, attended)
            rows = self._feed_forward(blocks, layer, name, rows)
        return blocks.norm(model.encoder_norm, "encoder_norm", rows)

    def _write_memory(self, blocks: Blocks, rows: str, padded: str, lengths: str) -> None:
        """Output the memory of every decoder layer, and the first values of recurrent states."""
        graph, layers = blocks.graph, self._decoder_layers()
        packed = self._memory_rows(blocks, rows)
        # As wide as the memory of a running batch, so that a sentence is placed there by one copy.
        sizes = {"heads": blocks.settings.heads, "layers": len(layers), "narrowest": NARROWEST}
        shapes = {state.name: ("batch", *state.shape) for state in states(self.model)}
        for layer in range(len(layers)):
            names = [f"memory.{layer}.key", f"memory.{layer}.value"]
            for name in names:
                graph.declare_output(name, self._type_of(name), shapes[name])
            kind = "Memory" if self.narrows_memory else "Memory32"
            graph.ops(kind, packed, padded, lengths, outputs=names, domain=KERNELS, layer=layer, **sizes)
        for state in states(self.model):
            if state.kind == "recurrent":
                batch = graph.op("Shape", lengths)
                graph.output(zero_cells(blocks, batch), state.name, self.dtype, shapes[state.name])

    def _type_of(self, state: str) -> type[np.floating[Any]]:
        """See TransformerGraphs: what the operators read of keys and values is half as wide as their arithmetic."""
        narrow = {"memory": self.narrows_memory, "self": self.narrows_past}
        return np.float16 if narrow.get(state.partition(".")[0]) else super()._type_of(state)

    def _memory(self, blocks: Blocks, rows: str, batch: str) -> list[tuple[str, str]]:
        memory = super()._memory(blocks, rows, batch)
        if not self.narrows_memory:
            return memory

        def narrow(value: str) -> str:
            return blocks.graph.op("Cast", value, to=TensorProto.FLOAT16)

        return [(narrow(key), narrow(value)) for key, value in memory]

    def _step_attention(self, blocks: Blocks, positions: str, declared: Mapping[str, str]) -> StepAttention | None:
        if self._has_native_steps:
            table = blocks.graph.input(BEAM_TABLE, np.int32, ["rows", "capacity"])
            return NativeStepAttention(
                blocks, positions, table, "StepAttention" if self.quantised else "StepAttention32"
            )
        return super()._step_attention(blocks, positions, declared)

    def _step_cell(self, blocks: Blocks, module: SSRU, name: str, rows: str, past: str, present: str) -> str:
        gates = blocks.linear(module.gates, f"{name}.gates", rows)
        outputs = [blocks.graph.new_name("StepCell"), present]
        return blocks.graph.ops("StepCell", gates, past, outputs=outputs, domain=KERNELS)[0]

    def _crossing(self, blocks: Blocks, key: str, lengths: str, batch: str, *, single: bool) -> Crossing:
        if not has_native_heads(blocks.settings):
            return super()._crossing(blocks, key, lengths, batch, single=single)

        def write(module: CrossAttention, name: str, rows: str, memory: tuple[str, str]) -> tuple[str, str]:
            _, mixed = _cross(blocks, module, name, rows, memory, lengths)
            return blocks.linear(module.output, f"{name}.output", mixed), ""

        return write

    def _attending(self, blocks: Blocks, crossing: Crossing, lengths: str) -> Crossing:
        if not has_native_heads(blocks.settings):
            return super()._attending(blocks, crossing, lengths)

        def write(module: CrossAttention, name: str, rows: str, memory: tuple[str, str]) -> tuple[str, str]:
            aligned = declare_step_attention(blocks.graph)
            heads = blocks.graph.int64s(*self.alignment.heads)
            _, mixed = _cross(blocks, module, name, rows, memory, lengths, heads, aligned=aligned)
            return blocks.linear(module.output, f"{name}.output", mixed), aligned

        return write

    def _weighted_crossing(self, blocks: Blocks, source: EncoderInputs) -> Crossing:
        if not has_native_heads(blocks.settings):
            return super()._weighted_crossing(blocks, source)
        lengths, heads = SOURCE_LENGTHS, ProductScores(blocks)

        def write(module: CrossAttention, name: str, rows: str, memory: tuple[str, str]) -> tuple[str, str]:
            """Return the mix with the bits of a step. Standard nodes compute the weights, which are only returned."""
            query, mixed = _cross(blocks, module, name, rows, memory, lengths)
            by_head = heads.query(query, source.batch)
            key = blocks.graph.op("Cast", memory[0], to=TensorProto.FLOAT) if self.narrows_memory else memory[0]
            weights = attention_weights(heads, blocks, by_head, key, source.bias)
            return blocks.linear(module.output, f"{name}.output", mixed), weights

        return write

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
        settings, graph, heads = blocks.settings, blocks.graph, ProductScores(blocks)
        if not has_native_attention(settings):
            return super()._self_attention(blocks, module, name, rows, source, mask, weighted=weighted, lengths=lengths)
        packed = blocks.packed(module, name, rows)
        query, key, _ = blocks.split(packed, 3)
        scaled = graph.op("Mul", heads.query(query, source.batch), graph.scalar(heads.scale))
        weights = attention_weights(heads, blocks, scaled, lay_out_keys(blocks, key, source.batch), mask.bias)
        causal = not lengths
        if causal:
            width = graph.op("Shape", TARGET_IDS, start=1, end=2)
            lengths = graph.op("Expand", width, graph.op("Shape", SOURCE_LENGTHS))
        mixed = graph.op(
            "SelfAttention",
            *(packed, lengths),
            domain=KERNELS,
            heads=settings.heads,
            scale=heads.scale,
            causal=int(causal),
            narrow=int(self.quantised),
        )
        return blocks.linear(module.output, f"{name}.output", mixed), weights

    def _write_candidates(self, graph: GraphBuilder, logits: str) -> None:
        write_candidates(graph, logits)

    def decoder_shortlist(self) -> bytes:
        """See TransformerGraphs."""
        blocks, rows, _ = self._decoder_step("decoder_shortlist")
        write_candidates(blocks.graph, *self._output_layer.product_of_pieces(blocks, rows))
        return self._finish(blocks.graph)

    def _blocks(self, name: str) -> Blocks:
        graph, matmul = native_products(name, self.weights, quantised=self.quantised)
        return NativeBlocks(graph, matmul, self.model.settings)


@dataclass(frozen=True, slots=True)
class NativeBlocks(Blocks):
    """See Blocks: embeddings by the operator Embed."""

    def embed(self, module: Embedding, name: str, side: str, ids: str, positions: str) -> str:
        """See Blocks. The result is (rows, dim) for ids of any shape."""
        graph = self.graph
        inputs = [ids, graph.table(name, pad_to_blocks(to_numpy(module.pieces.weight)))]
        if table := self.position_table(side):
            inputs += [positions, self._positions(table, module)]
        found = graph.op("Embed", *inputs, domain=KERNELS, scale=float(module.scale))
        return self.norm(module.norm, f"{side}_embedding.norm", found)

    def _positions(self, table: str, module: Embedding) -> str:
        """Return the table of positions, in the type that the operator takes."""
        return self.graph.initializer(table, to_numpy(module.positions))


@dataclass(frozen=True, slots=True)
class NativeStepAttention:
    """See StepAttention: an operator of ours. kind: its name, by the type of the caches."""

    blocks: Blocks
    positions: str
    table: str
    kind: str

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        settings = self.blocks.settings
        return self.blocks.graph.ops(
            self.kind,
            *(packed, *past, self.positions, self.table),
            outputs=[f"{name}.mixed", *present],
            domain=KERNELS,
            heads=settings.heads,
            scale=settings.head_dim**-0.5,
        )[0]


def _cross(
    blocks: Blocks,
    module: CrossAttention,
    name: str,
    rows: str,
    memory: tuple[str, str],
    *inputs: str,
    aligned: str = "",
) -> tuple[str, str]:
    """Return the scaled queries of rows and what they read of a memory, (rows, dim) each.

    inputs: the lengths of the memories, and with `aligned` the heads whose mean it is
    aligned: the name of the mean of their weights (rows, source_length), or "" for none
    """
    graph, settings = blocks.graph, blocks.settings
    query = blocks.linear(module.query, f"{name}.query", rows, settings.head_dim**-0.5)
    outputs = [graph.new_name("CrossAttention"), *([aligned] if aligned else [])]
    sizes = {"heads": settings.heads, "scale": 1.0}
    return query, graph.ops("CrossAttention", query, *memory, *inputs, outputs=outputs, domain=KERNELS, **sizes)[0]


@dataclass(slots=True)
class NativeRecurrentGraphs(RecurrentGraphs):
    """See RecurrentGraphs; quantised: whether products are in 8-bit integers, with a scale for every row."""

    quantised: bool = True

    def decoder_shortlist(self) -> bytes:
        """See RecurrentGraphs."""
        layers, hidden, _ = self._decoder_step("decoder_shortlist")
        write_candidates(layers.graph, *OutputLayer(self._model).product_of_pieces(layers, hidden))
        return self._finish(layers)

    def _write_candidates(self, graph: GraphBuilder, logits: str) -> None:
        write_candidates(graph, logits)

    def _layers(self, name: str) -> Layers:
        return Layers(*native_products(name, self.weights, quantised=self.quantised))
