"""The graphs in our own operators for CUDA, in float16: few kernels a step, and several steps in one graph.

States are written in the memory of inputs, so that the operators have no outputs for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from lingon.bundle import names
from lingon.export.graphs.attention import Caches, StepAttention
from lingon.export.graphs.fusion import fuse
from lingon.export.graphs.layers import Blocks, to_numpy
from lingon.export.graphs.native import (
    NativeBlocks,
    NativeFloatMatMul,
    NativeTransformerGraphs,
    beam_graph,
    has_native_attention,
)
from lingon.export.graphs.onnx_writer import KERNELS, GraphBuilder
from lingon.export.graphs.state_graphs import copy_graphs
from lingon.export.graphs.transformer import Crossing, TransformerGraphs, states
from lingon.text import EOS
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import SelfAttention
from lingon.training.models.layers import Embedding

HEAD_DIMS = (32, 64, 128)  # dimensions of a head that the attention has kernels for
MULTIPLE = 16  # of rows of weights and of their values, which tensor cores read together
MOST_BEAMS = 8  # hypotheses of a sentence; a row has two candidates for each
GREEDY_COUNT, BEAM_COUNT = 8, 4  # steps of one run of the graphs for several steps


def operators_lack(settings: TransformerSettings, largest_beam: int = 1) -> str | None:
    """Return what the operators for CUDA lack for a model and a beam size, or None if they compute it."""
    sizes = {"model.dim": settings.dim, "model.ffn": settings.ffn}
    if settings.decoder_cell != "attention" or not has_native_attention(settings):
        return (
            "they have no relative or rotary positions, windows, soft caps, linear or additive attention, and no SSRU"
        )
    if settings.output_softcap:
        return "they have no soft cap of logits"
    if settings.head_dim not in HEAD_DIMS:
        return f"heads must have {', '.join(map(str, HEAD_DIMS))} dimensions, got {settings.head_dim}"
    if found := next((name for name, size in sizes.items() if size % MULTIPLE), None):
        return f"{found} must be a multiple of {MULTIPLE}, got {sizes[found]}"
    if largest_beam > MOST_BEAMS:
        return f"beam sizes must be at most {MOST_BEAMS}, got {largest_beam}"
    return None


@dataclass(frozen=True, slots=True)
class _StepGraph:
    """A graph of decoder steps, with the inputs that every step reads.

    declared: the inputs for the states, by the names of the states
    table: the input BEAM_TABLE
    """

    blocks: Blocks
    declared: dict[str, str]
    table: str
    crossing: Crossing

    @property
    def graph(self) -> GraphBuilder:
        return self.blocks.graph


@dataclass
class CardTransformerGraphs(NativeTransformerGraphs):
    """See TransformerGraphs. The scorer is that of fp16, in standard nodes.

    A step changes caches, history and beams in the memory of the inputs.
    """

    quantised: bool = False

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """See TransformerGraphs. There is no shortlist on CUDA."""
        return {
            names.ENCODER: self.encoder(),
            names.DECODER: self.decoder(),
            names.SCORER: self.scorer(),
            names.GREEDY: self.greedy(),
            names.GREEDY_STEPS: self.greedy(names.GREEDY_STEPS, GREEDY_COUNT),
            names.BEAM: beam_graph(),
            names.BEAM_STEPS: self.beam_steps(),
            names.PLACE: self.place(),
            **copy_graphs(states(self.model), self.dtype),
        }

    def encoder(self) -> bytes:
        """Return the graph source_ids, source_positions, source_tiles -> memory: tokens without padding."""
        blocks = self._blocks("encoder")
        graph = blocks.graph
        ids, positions = (
            graph.input(each, np.int64, ["tokens"]) for each in (names.SOURCE_IDS, names.SOURCE_POSITIONS)
        )
        tiles = graph.input(names.SOURCE_TILES, np.int32, ["tiles", 4])
        rows = self._encoded(blocks, ids, positions, tiles)
        memory = graph.declare_output(names.MEMORY, self.dtype, ["tokens", self._memory_width])
        self._memory_rows(blocks, rows, named=memory)
        return self._finish(graph)

    def place(self) -> bytes:
        """Return the graph memory, memory_targets, memory states -> placed: writes rows of memory into the states."""
        graph, layers = GraphBuilder("place", self.weights, self.dtype), len(self._decoder_layers())
        rows = graph.input(names.MEMORY, self.dtype, ["tokens", self._memory_width])
        targets = graph.input(names.MEMORY_TARGETS, np.int32, ["placed", 4])
        memory = [state for state in states(self.model) if state.kind == "memory"]
        declared = {state.name: self._declare_state(graph, state) for state in memory}
        for layer in range(layers):
            key, value = (declared[f"memory.{layer}.{part}"] for part in ("key", "value"))
            placed = graph.declare_output(names.placed_name(f"memory.{layer}"), np.int32, [1])
            sizes = {"heads": self.model.settings.heads, "layer": layer, "layers": layers}
            graph.op("PlaceMemory", rows, targets, key, value, named=placed, domain=KERNELS, **sizes)
        return self._finish(graph)

    def decoder(self) -> bytes:
        """Return the step graph: tokens, positions, candidate_count, memory, past, table -> candidates, logits."""
        step = self._step_graph("decoder")
        graph, (ids, positions) = step.graph, self._tokens(step.graph)
        count = graph.input(names.CANDIDATE_COUNT, np.int64, [1])
        row = ("rows", "candidates")
        outputs = [
            graph.declare_output(names.CANDIDATE_IDS, np.int64, row),
            graph.declare_output(names.CANDIDATE_LOG_PROBS, np.float32, row),
            graph.declare_output(names.LOGITS, np.float32, ("rows", self._output_layer.width)),
        ]
        self._choose(step, ids, positions, count, outputs)
        return self._finish(graph)

    def greedy(self, name: str = names.GREEDY, steps: int = 1) -> bytes:
        """Return a graph of steps of greedy search: outputs are what the next step reads.

        Inputs are those of decoder, history, and step_index.
        """
        step = self._step_graph(name.removesuffix(".onnx"))
        graph, (ids, positions) = step.graph, self._tokens(step.graph)
        history = graph.input(names.HISTORY, np.float32, ["steps" if steps == 1 else steps, "rows", 2])
        index = graph.input(names.STEP_INDEX, np.int64, [1])
        one = graph.int64s(1)
        for outputs in self._outputs_of_steps(graph, steps):
            found = self._choose(step, ids, positions, one)
            inputs = *found, ids, positions, history, index
            ids, positions, index = graph.ops("GreedyStep", *inputs, outputs=outputs, domain=KERNELS)
        return self._finish(graph)

    def beam_steps(self) -> bytes:
        """Return a graph of BEAM_COUNT steps of beam search, whose candidates are logged.

        Inputs are those of decoder, beam_rows, beam_totals, logged_ids, logged_log_probs, and step_index.
        """
        step = self._step_graph("beam_steps")
        graph, (ids, positions) = step.graph, self._tokens(step.graph)
        count = graph.input(names.CANDIDATE_COUNT, np.int64, [1])
        beams, logged = ("sentences", "beams"), (BEAM_COUNT, "rows", "candidates")
        changed = (
            graph.input(names.BEAM_ROWS, np.int64, beams),
            graph.input(names.BEAM_TOTALS, np.float32, beams),
            step.table,
            graph.input(names.LOGGED_IDS, np.int64, logged),
            graph.input(names.LOGGED_LOG_PROBS, np.float32, logged),
        )
        index = graph.input(names.STEP_INDEX, np.int64, [1])
        for outputs in self._outputs_of_steps(graph, BEAM_COUNT):
            found = self._choose(step, ids, positions, count)
            inputs = *found, ids, positions, *changed, index
            ids, positions, index = graph.ops("BeamStep", *inputs, outputs=outputs, domain=KERNELS, end=EOS)
        return self._finish(graph)

    def scorer(self) -> bytes:
        """See TransformerGraphs."""
        standard = TransformerGraphs(self.model, self.dtype, self.weights, device_states=True)
        content = standard.scorer()
        self.reads |= standard.reads
        return content

    @property
    def _memory_width(self) -> int:
        return 2 * len(self._decoder_layers()) * self.model.settings.attention_dim

    def _step_graph(self, name: str) -> _StepGraph:
        """Return a graph with the inputs that every step reads."""
        blocks = self._blocks(name)
        graph = blocks.graph
        lengths = graph.input(names.MEMORY_LENGTHS, np.int64, ["sentences"])
        declared = {state.name: self._declare_state(graph, state) for state in states(self.model)}
        table = graph.input(names.BEAM_TABLE, np.int32, ["rows", "capacity"])
        crossing = self._crossing(blocks, declared["memory.0.key"], lengths, "", single=False)
        return _StepGraph(blocks, declared, table, crossing)

    @staticmethod
    def _tokens(graph: GraphBuilder) -> tuple[str, str]:
        """Declare and return the tokens and the positions of the first step."""
        return graph.input(names.TOKEN_IDS, np.int64, ["rows"]), graph.input(names.POSITIONS, np.int64, ["rows"])

    @staticmethod
    def _outputs_of_steps(graph: GraphBuilder, steps: int) -> Iterator[list[str]]:
        """Yield the names of the tokens, positions and index after each step; the last ones are outputs."""
        shapes: dict[str, list[int | str]] = {
            names.TOKEN_IDS: ["rows"],
            names.POSITIONS: ["rows"],
            names.STEP_INDEX: [1],
        }
        for step in range(1, steps):
            yield [f"{step}.{name}" for name in shapes]
        yield [graph.declare_output(names.changed_name(name), np.int64, shape) for name, shape in shapes.items()]

    def _choose(
        self, step: _StepGraph, ids: str, positions: str, count: str, outputs: list[str] | None = None
    ) -> list[str]:
        """Write a step and return its candidates and log-probabilities, (rows, count) each.

        outputs: names for them and for logits. Without names there are no logits
        """
        graph = step.graph
        attention = CardStepAttention(step.blocks, positions, step.table)
        crossing = step.crossing
        rows = self._step_rows(step.blocks, ids, positions, step.declared, attention, crossing, crossing)
        kind = "Choose" if outputs is None else "ChooseWithLogits"
        inputs = rows, *self._output_layer.parameters(graph), count
        named = outputs or [f"{rows}.{part}" for part in ("ids", "log_probs")]
        return graph.ops(kind, *inputs, outputs=named, domain=KERNELS, norm=0, epsilon=0.0)[:2]

    def _past(
        self, graph: GraphBuilder, declared: dict[str, str], layer: int
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """See TransformerGraphs: the names before and after the step are the same."""
        past = declared[f"self.{layer}.key"], declared[f"self.{layer}.value"]
        return past, past

    def _step_attention(self, *_: object) -> StepAttention:
        raise AssertionError("_choose writes the attention of each step")

    def _blocks(self, name: str) -> Blocks:
        graph = GraphBuilder(name, self.weights, self.dtype, rewrite=partial(fuse, keep_norms=True))
        return CardBlocks(graph, NativeFloatMatMul(graph), self.model.settings)


@dataclass(frozen=True, slots=True)
class CardBlocks(NativeBlocks):
    """See NativeBlocks; tables of positions are float16, as pieces are."""

    def _positions(self, table: str, module: Embedding) -> str:
        return self.graph.table(table, to_numpy(module.positions))


@dataclass(frozen=True, slots=True)
class CardStepAttention:
    """See StepAttention: an operator that writes keys and values of the step in the memory of the caches."""

    blocks: Blocks
    positions: str
    table: str

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        settings = self.blocks.settings
        inputs = packed, *past, self.positions, self.table
        sizes = {"heads": settings.heads, "scale": settings.head_dim**-0.5}
        return self.blocks.graph.op("StepAttention", *inputs, domain=KERNELS, **sizes)
