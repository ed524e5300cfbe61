"""The graphs of a recurrent system: encoder, decoder step, scorer, and two graphs for decoding with a shortlist."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np

from lingon.bundle import names
from lingon.bundle.manifest import NO_ALIGNMENT, Alignment, State
from lingon.export.graphs.layers import (
    FloatMatMul,
    Int8MatMul,
    Layers,
    embedding_of,
    pad_to_blocks,
    table_name,
    to_numpy,
)
from lingon.export.graphs.onnx_writer import INT8_FILE, GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import OutputLayer, write_candidates, write_step_attention
from lingon.export.graphs.quantisation import InputRange, ModelT
from lingon.export.graphs.recurrent_layers import (
    ANNOTATIONS,
    KEYS,
    AttentionMemory,
    Sources,
    ValueNames,
    attend_to_memory,
    attention_keys,
    attention_states,
    read_stack,
    recurrent_read,
    recurrent_step,
    split_values,
    stack_step,
    with_products,
    zeros,
)
from lingon.training.models.interface import AnyModel
from lingon.training.models.recurrent import Luong, PieceEmbedding, Recurrence, Rnnenc, Rnnsearch, Window

# What the graphs of a recurrent system are made of: its encoder, one step of its decoder, and its states.

PARTS = "hidden", "cell"  # of the state of a cell


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What a step of the decoder reads.

    token: (rows, embedding_dim)
    positions: int64 (sentences, beams, 1) or (1, 1, 1), the number of tokens before
    states: by name, memory of the sentences and recurrent states of the rows
    lengths: (sentences), source tokens
    batch: int64 [sentences]
    """

    token: str
    positions: str
    states: Mapping[str, str]
    lengths: str
    batch: str


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """What a step of the decoder computes.

    hidden: (rows, output_dim), which the output layer reads
    recurrent: the new recurrent states by name
    attention: (sentences, beams, source_length), or None without attention
    """

    hidden: str
    recurrent: dict[str, str]
    attention: str | None = None


@dataclass(frozen=True, slots=True)
class RecurrentSystem(ABC, Generic[ModelT]):
    """A recurrent system, whose model has all products as modules. See lingon.export.graphs.recurrent_layers."""

    model: ModelT

    @property
    def reverse_source(self) -> bool:
        """Whether the encoder reads all tokens of a source but the last one in reverse order."""
        return False

    @abstractmethod
    def states(self) -> tuple[State, ...]:
        """Return the states that the decoder reads at every step."""

    @abstractmethod
    def encode(self, layers: Layers, source: Sources) -> dict[str, str]:
        """Write the encoder and return the memory of each sentence and the first recurrent states by name."""

    @abstractmethod
    def step(self, layers: Layers, inputs: StepInputs) -> StepOutputs:
        """Write one step of the decoder."""

    def embed(self, layers: Layers, side: str, ids: str) -> str:
        """Return sqrt(embedding_dim) * piece, (..., embedding_dim), for ids (...); side: source or target."""
        module = self.model.get_submodule(f"{side}_embedding")
        assert isinstance(module, PieceEmbedding)
        table = pad_to_blocks(to_numpy(embedding_of(self.model, side).weight))
        pieces = layers.graph.gather(table_name(self.model, side), table, ids)
        return layers.graph.op("Mul", pieces, layers.graph.scalar(module.scale))


def stack_states(name: str, cells: Sequence[Recurrence]) -> tuple[State, ...]:
    """Return the recurrent states of a stack: NAME.LAYER.hidden, and for an LSTM NAME.LAYER.cell."""
    return tuple(
        State(each, "recurrent", (cell.dim,))
        for number, cell in enumerate(cells)
        for each in state_names(f"{name}.{number}", cell)
    )


def state_names(name: str, cell: Recurrence) -> list[str]:
    """Return the names of the tensors of the state of a cell."""
    return [f"{name}.{part}" for part in PARTS[: cell.tensors]]


def named_states(name: str, cells: Sequence[Recurrence], values: Sequence[ValueNames]) -> dict[str, str]:
    """Return the states of a stack by name."""
    return {
        each: value
        for number, (cell, state) in enumerate(zip(cells, values, strict=True))
        for each, value in zip(state_names(f"{name}.{number}", cell), state, strict=True)
    }


def stack_values(name: str, cells: Sequence[Recurrence], states: Mapping[str, str]) -> list[list[str]]:
    """Return the state of each cell of a stack from the states by name."""
    return [[states[each] for each in state_names(f"{name}.{number}", cell)] for number, cell in enumerate(cells)]


def batch_major(layers: Layers, values: str) -> str:
    """Return values (source_length, batch, n) as (batch, source_length, n)."""
    return layers.graph.op("Transpose", values, perm=[1, 0, 2])


def declare_sources(layers: Layers, ids: str, lengths: str, *, reverse: bool) -> Sources:
    """Return the sources of ids (batch, source_length) with lengths (batch).

    reverse: whether all tokens of a source but the last one are read in reverse order
    """
    graph = layers.graph
    positions = graph.count_up(graph.op("Shape", ids, start=1))
    if reverse:
        turned = graph.op("Unsqueeze", graph.op("Sub", lengths, graph.constant(np.array(1))), graph.int64s(1))
        mirrored = graph.op("Sub", graph.op("Sub", turned, graph.constant(np.array(1))), positions)
        ids = graph.op(
            "GatherElements", ids, graph.op("Where", graph.op("Less", positions, turned), mirrored, positions), axis=1
        )
    real = graph.op(
        "Less", graph.op("Unsqueeze", positions, graph.int64s(1, 2)), graph.op("Unsqueeze", lengths, graph.int64s(1))
    )
    return Sources(graph.op("Transpose", ids, perm=[1, 0]), lengths, real, graph.op("Shape", lengths))


class RnnencSystem(RecurrentSystem[Rnnenc]):
    """An encoder and a decoder without attention: all states are recurrent."""

    @property
    def reverse_source(self) -> bool:
        return self.model.settings.reverse_source

    def states(self) -> tuple[State, ...]:
        return stack_states("decoder", self.model.decoder.layers)

    def encode(self, layers: Layers, source: Sources) -> dict[str, str]:
        embedded = self.embed(layers, "source", source.ids)
        _, last = read_stack(layers, self.model.encoder, "encoder", embedded, source)
        return named_states("decoder", self.model.decoder.layers, last)

    def step(self, layers: Layers, inputs: StepInputs) -> StepOutputs:
        past = stack_values("decoder", self.model.decoder.layers, inputs.states)
        present = stack_step(layers, self.model.decoder, "decoder", inputs.token, past)
        return StepOutputs(present[-1][0], named_states("decoder", self.model.decoder.layers, present))


class RnnsearchSystem(RecurrentSystem[Rnnsearch]):
    """A bidirectional encoder, and a decoder that attends before each state."""

    @property
    def annotation_dim(self) -> int:
        return 2 * self.model.settings.encoder_dim

    def states(self) -> tuple[State, ...]:
        memory = attention_states(self.model.score, self.annotation_dim)
        return (*memory, *stack_states("decoder", [self.model.decoder]))

    def encode(self, layers: Layers, source: Sources) -> dict[str, str]:
        graph, encoder = layers.graph, self.model.encoder
        embedded = self.embed(layers, "source", source.ids)
        ahead, _ = recurrent_read(layers, encoder.ahead, "encoder.ahead", embedded, source)
        back, first = recurrent_read(layers, encoder.back, "encoder.back", embedded, source, reverse=True)
        annotations = batch_major(layers, graph.op("Concat", ahead, back, axis=2))
        start = graph.op("Tanh", layers.linear(self.model.first_state, "first_state", first[0]))
        decoder = self.model.decoder
        state = split_values(graph, start, *[decoder.dim] * decoder.tensors)
        keys = attention_keys(layers, self.model.score, annotations, self.annotation_dim)
        return {ANNOTATIONS: annotations, KEYS: keys, **named_states("decoder", [decoder], [state])}

    def step(self, layers: Layers, inputs: StepInputs) -> StepOutputs:
        graph, decoder = layers.graph, self.model.decoder
        (past,) = stack_values("decoder", [decoder], inputs.states)
        memory = AttentionMemory(inputs.states[ANNOTATIONS], inputs.states[KEYS], inputs.lengths, inputs.batch)
        context, weights = attend_to_memory(layers, self.model.score, Window(), past[0], inputs.positions, memory)
        read = graph.op("Concat", inputs.token, context, axis=1)
        present = recurrent_step(layers, decoder, "decoder", read, past)
        hidden = self._deep_output(layers, present[0], inputs.token, context)
        return StepOutputs(hidden, named_states("decoder", [decoder], [present]), weights)

    def _deep_output(self, layers: Layers, state: str, token: str, context: str) -> str:
        """Return (rows, output_dim): the larger of each two neighbours of U s_t + V y_{t-1} + C c_t."""
        graph, module = layers.graph, self.model.deep_output
        of_state = layers.linear(module.of_state, "deep_output.of_state", state)
        of_token = layers.linear(module.of_token, "deep_output.of_token", token)
        of_context = layers.linear(module.of_context, "deep_output.of_context", context)
        summed = graph.op("Add", graph.op("Add", of_state, of_token), of_context)
        pairs = graph.op("Reshape", summed, graph.int64s(-1, self.model.settings.output_dim, 2))
        return graph.op("ReduceMax", pairs, graph.int64s(2), keepdims=0)


ATTENTIONAL = "attentional"  # the attentional state, which the next step reads with input feeding


class LuongSystem(RecurrentSystem[Luong]):
    """Two stacks, attention after the state, and input feeding as an option."""

    def states(self) -> tuple[State, ...]:
        settings = self.model.settings
        memory = attention_states(self.model.score, settings.dim)
        fed = (State(ATTENTIONAL, "recurrent", (settings.dim,)),) if settings.input_feeding else ()
        return (*memory, *stack_states("decoder", self.model.decoder.layers), *fed)

    def encode(self, layers: Layers, source: Sources) -> dict[str, str]:
        model, dim = self.model, self.model.settings.dim
        embedded = self.embed(layers, "source", source.ids)
        hidden, last = read_stack(layers, model.encoder, "encoder", embedded, source)
        annotations = batch_major(layers, hidden)
        keys = attention_keys(layers, model.score, annotations, dim)
        fed = {ATTENTIONAL: zeros(layers.graph, source.batch, dim)} if model.settings.input_feeding else {}
        return {ANNOTATIONS: annotations, KEYS: keys, **named_states("decoder", model.decoder.layers, last), **fed}

    def step(self, layers: Layers, inputs: StepInputs) -> StepOutputs:
        graph, model, states = layers.graph, self.model, inputs.states
        feeding = model.settings.input_feeding
        read = graph.op("Concat", inputs.token, states[ATTENTIONAL], axis=1) if feeding else inputs.token
        past = stack_values("decoder", model.decoder.layers, states)
        present = stack_step(layers, model.decoder, "decoder", read, past)
        memory = AttentionMemory(states[ANNOTATIONS], states[KEYS], inputs.lengths, inputs.batch)
        state = present[-1][0]
        context, weights = attend_to_memory(layers, model.score, model.window, state, inputs.positions, memory)
        combined = layers.linear(model.combine, "combine", graph.op("Concat", context, state, axis=1))
        attentional = graph.op("Tanh", combined)
        recurrent = named_states("decoder", model.decoder.layers, present)
        if feeding:
            recurrent[ATTENTIONAL] = attentional
        return StepOutputs(attentional, recurrent, weights)


WIDTH = 16  # source positions; the widths of running batches are multiples of it
RecurrentModel = Rnnenc | Rnnsearch | Luong


def system_of(model: RecurrentModel) -> RecurrentSystem[Any]:
    """Return the system of a model, whose products become modules."""
    match model:
        case Rnnenc():
            return RnnencSystem(with_products(model))
        case Rnnsearch():
            return RnnsearchSystem(with_products(model))
        case Luong():
            return LuongSystem(with_products(model))


@dataclass(slots=True)
class RecurrentGraphs:
    """A builder of the graphs of a system in one precision, for the CPU provider.

    ranges: the input range of each matrix product. With them, products are in 8-bit integers
    alignment: whether a decoder step outputs its attention, of the only head that there is; not without heads
    reads: the weight files that the graphs built so far point to
    """

    system: RecurrentSystem[Any]
    weights: WeightFiles
    ranges: Mapping[str, InputRange] | None = None
    alignment: Alignment = NO_ALIGNMENT
    reads: set[str] = field(default_factory=set)

    @property
    def _model(self) -> AnyModel:
        model: AnyModel = self.system.model
        return model

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """Return every graph file by name; with shortlist, also those for decoding with a shortlist."""
        files = {names.ENCODER: self.encoder(), names.DECODER: self.decoder(), names.SCORER: self.scorer()}
        if shortlist:
            files |= {names.OUTPUT_ROWS: self.output_rows(), names.DECODER_SHORTLIST: self.decoder_shortlist()}
        return files

    def encoder(self) -> bytes:
        """Return the graph source_ids, source_lengths -> memory, first recurrent states."""
        layers = self._layers("encoder")
        encoded, _, _ = self._encode(layers)
        for state in self.system.states():
            layers.graph.output(encoded[state.name], state.name, np.float32, ("batch", *state.shape))
        return self._finish(layers)

    def decoder(self) -> bytes:
        """Return the step graph: tokens, positions, candidate_count, states -> candidates, logits, states."""
        layers, hidden, _ = self._decoder_step("decoder")
        output = OutputLayer(self._model)
        named = layers.graph.declare_output(names.LOGITS, np.float32, ("rows", output.width))
        self._write_candidates(layers.graph, output.logits(layers, hidden, named=named))
        return self._finish(layers)

    def _write_candidates(self, graph: GraphBuilder, logits: str) -> None:
        write_candidates(graph, logits)

    def output_rows(self) -> bytes:
        """Return the graph piece_ids -> the rows of the output layer for these pieces, inputs of decoder_shortlist."""
        layers = self._layers("output_rows")
        pieces = layers.graph.input(names.PIECE_IDS, np.int64, ["union"])
        OutputLayer(self._model).gather_pieces(layers, pieces)
        return self._finish(layers)

    def decoder_shortlist(self) -> bytes:
        """Return a graph like decoder, without logits, over those pieces of piece_ids that each sentence may use."""
        layers, hidden, batch = self._decoder_step("decoder_shortlist")
        logits, pieces = OutputLayer(self._model).logits_of_pieces(layers, hidden, batch)
        write_candidates(layers.graph, logits, pieces)
        return self._finish(layers)

    def scorer(self) -> bytes:
        """Return the teacher-forced graph: source, target, labels -> log-probabilities of labels, attention weights."""
        layers = self._layers("scorer")
        graph = layers.graph
        encoded, lengths, batch = self._encode(layers)
        encoded = self._full_width(graph, encoded)
        target = graph.input(names.TARGET_IDS, np.int64, ["batch", "target_length"])
        labels = graph.input(names.LABELS, np.int64, ["batch", "target_length"])
        steps = graph.count_up(graph.op("Shape", target, start=1))
        tokens = self.system.embed(layers, "target", graph.op("Transpose", target, perm=[1, 0]))
        recurrent = [state.name for state in self.system.states() if state.kind == "recurrent"]

        def body(past: list[str], entry: list[str]) -> tuple[list[str], list[str]]:
            states = {**encoded, **dict(zip(recurrent, past, strict=True))}
            position = graph.op("Reshape", entry[1], graph.int64s(1, 1, 1))
            done = self.system.step(layers, StepInputs(entry[0], position, states, lengths, batch))
            outputs = [done.hidden] if done.attention is None else [done.hidden, done.attention]
            return [done.recurrent[name] for name in recurrent], outputs

        first = [encoded[name] for name in recurrent]
        _, (hidden, *attention) = graph.scan(first, [(tokens, graph.dtype), (steps, np.int64)], body)
        self._output_scores(layers, hidden, labels)
        for weights in attention:  # (target_length, batch, 1, source_length)
            width = graph.op("Shape", names.SOURCE_IDS, start=1)
            cut = graph.op("Slice", weights, graph.int64s(0), width, graph.int64s(3))
            stacked = graph.op("Unsqueeze", graph.op("Transpose", cut, perm=[1, 2, 0, 3]), graph.int64s(1))
            sizes = ("batch", 1, 1, "target_length", "source_length")
            graph.output(stacked, names.CROSS_ATTENTION, np.float32, sizes)
        return self._finish(layers)

    def _full_width(self, graph: GraphBuilder, encoded: dict[str, str]) -> dict[str, str]:
        """Return states with zeros to a multiple of WIDTH source positions, as those of a running batch have.

        The sums of an attention, whose kernels take a vector at a time, do not depend on padding then.
        """
        axes = {state.name: state.shape.index("source_length") + 1 for state in self.system.states() if state.varying}
        if not axes:
            return encoded
        width = graph.op("Shape", names.SOURCE_IDS, start=1)
        missing = graph.op("Mod", graph.op("Neg", width), graph.int64s(WIDTH))
        pads = graph.op("Concat", graph.int64s(0), missing, axis=0)
        return {
            name: graph.op("Pad", value, pads, "", graph.int64s(axes[name])) if name in axes else value
            for name, value in encoded.items()
        }

    def _output_scores(self, layers: Layers, hidden: str, labels: str) -> None:
        """Output the log-probabilities of labels (batch, target_length), from hidden (target_length, batch, dim)."""
        graph, output = layers.graph, OutputLayer(self._model)
        by_pair = graph.op("Transpose", hidden, perm=[1, 0, 2])
        rows = graph.op("Reshape", by_pair, graph.int64s(-1, self._model.output.in_features))
        log_probs = graph.op("LogSoftmax", output.logits(layers, rows), axis=-1)
        chosen = graph.op("GatherElements", log_probs, graph.op("Reshape", labels, graph.int64s(-1, 1)), axis=1)
        shaped = graph.op("Reshape", chosen, graph.op("Shape", labels))
        graph.output(shaped, names.TOKEN_LOG_PROBS, np.float32, ("batch", "target_length"))

    def _encode(self, layers: Layers) -> tuple[dict[str, str], str, str]:
        """Write the encoder and return states by name, the lengths of the sources, and the int64 vector [batch]."""
        ids = layers.graph.input(names.SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = layers.graph.input(names.SOURCE_LENGTHS, np.int64, ["batch"])
        source = declare_sources(layers, ids, lengths, reverse=self.system.reverse_source)
        return self.system.encode(layers, source), lengths, source.batch

    def _decoder_step(self, name: str) -> tuple[Layers, str, str]:
        """Write a step up to what the output layer reads (rows, dim), and return the int64 vector [sentences]."""
        layers = self._layers(name)
        graph = layers.graph
        ids = graph.input(names.TOKEN_IDS, np.int64, ["rows"])
        positions = graph.input(names.POSITIONS, np.int64, ["rows"])
        lengths = graph.input(names.MEMORY_LENGTHS, np.int64, ["sentences"])
        states = {state.name: _declare(graph, state) for state in self.system.states()}
        batch = graph.op("Shape", lengths)
        shape = graph.op("Concat", batch, graph.int64s(-1, 1), axis=0)
        by_sentence = graph.op("Reshape", positions, shape)
        token = self.system.embed(layers, "target", ids)
        done = self.system.step(layers, StepInputs(token, by_sentence, states, lengths, batch))
        self._output_states(graph, done)
        if self.alignment.heads and done.attention is not None:
            write_step_attention(graph, done.attention)
        return layers, done.hidden, batch

    def _output_states(self, graph: GraphBuilder, done: StepOutputs) -> None:
        """Output the recurrent states. The runner binds past and present of a state to the same memory.

        That is right because each present state is computed from all that the step reads of its past.
        """
        for state in self.system.states():
            if state.kind == "recurrent":
                present = names.present_name(state.name)
                graph.output(done.recurrent[state.name], present, np.float32, ("rows", *state.shape))

    def _layers(self, name: str) -> Layers:
        graph = GraphBuilder(name, self.weights, np.float32, file=INT8_FILE if self.ranges is not None else None)
        return Layers(graph, FloatMatMul(graph) if self.ranges is None else Int8MatMul(graph, self.ranges))

    def _finish(self, layers: Layers) -> bytes:
        self.reads |= layers.graph.reads
        return layers.graph.finish()


def _declare(graph: GraphBuilder, state: State) -> str:
    memory = state.kind == "memory"
    name = state.name if memory else names.past_name(state.name)
    return graph.input(name, np.float32, ("sentences" if memory else "rows", *state.shape))
