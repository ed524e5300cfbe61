"""The graphs of a recurrent system: encoder, decoder step, scorer, and two graphs for decoding with a shortlist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lingon import bundle
from lingon.bundle import State
from lingon.export.graphs.layers import Layers
from lingon.export.graphs.matmul import FloatMatMul, Int8MatMul
from lingon.export.graphs.onnx_writer import INT8_FILE, GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import OutputLayer, write_candidates
from lingon.export.graphs.quantisation import Range
from lingon.export.graphs.recurrent.luong import LuongSystem
from lingon.export.graphs.recurrent.products import with_products
from lingon.export.graphs.recurrent.rnnenc import RnnencSystem
from lingon.export.graphs.recurrent.rnnsearch import RnnsearchSystem
from lingon.export.graphs.recurrent.system import StepInputs, StepOutputs, System, declare_sources
from lingon.training.models.interface import AnyModel
from lingon.training.models.recurrent.luong import Luong
from lingon.training.models.recurrent.rnnenc import Rnnenc
from lingon.training.models.recurrent.rnnsearch import Rnnsearch

WIDTH = 16  # source positions; the widths of running batches are multiples of it
RecurrentModel = Rnnenc | Rnnsearch | Luong


def system_of(model: RecurrentModel) -> System[Any]:
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
    """Builds the graphs of a system in one precision, for the CPU provider.

    ranges: the input range of each matrix product; with them, products are in 8-bit integers
    reads: the weight files that the graphs built so far point to
    """

    system: System[Any]
    weights: WeightFiles
    ranges: Mapping[str, Range] | None = None
    reads: set[str] = field(default_factory=set)

    @property
    def _model(self) -> AnyModel:
        model: AnyModel = self.system.model
        return model

    def files(self, *, shortlist: bool = False) -> dict[str, bytes]:
        """Return every graph file by name; with shortlist, also those for decoding with a shortlist."""
        files = {bundle.ENCODER: self.encoder(), bundle.DECODER: self.decoder(), bundle.SCORER: self.scorer()}
        if shortlist:
            files |= {bundle.OUTPUT_ROWS: self.output_rows(), bundle.DECODER_SHORTLIST: self.decoder_shortlist()}
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
        named = layers.graph.declare_output(bundle.LOGITS, np.float32, ("rows", output.width))
        self._write_candidates(layers.graph, output.logits(layers, hidden, named=named))
        return self._finish(layers)

    def _write_candidates(self, graph: GraphBuilder, logits: str) -> None:
        """Output the candidates of each row of logits."""
        write_candidates(graph, logits)

    def output_rows(self) -> bytes:
        """Return the graph piece_ids -> the rows of the output layer for these pieces, inputs of decoder_shortlist."""
        layers = self._layers("output_rows")
        pieces = layers.graph.input(bundle.PIECE_IDS, np.int64, ["union"])
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
        target = graph.input(bundle.TARGET_IDS, np.int64, ["batch", "target_length"])
        labels = graph.input(bundle.LABELS, np.int64, ["batch", "target_length"])
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
            width = graph.op("Shape", bundle.SOURCE_IDS, start=1)
            cut = graph.op("Slice", weights, graph.int64s(0), width, graph.int64s(3))
            stacked = graph.op("Unsqueeze", graph.op("Transpose", cut, perm=[1, 2, 0, 3]), graph.int64s(1))
            sizes = ("batch", 1, 1, "target_length", "source_length")
            graph.output(stacked, bundle.CROSS_ATTENTION, np.float32, sizes)
        return self._finish(layers)

    def _full_width(self, graph: GraphBuilder, encoded: dict[str, str]) -> dict[str, str]:
        """Return states with zeros to a multiple of WIDTH source positions, as those of a running batch have.

        The sums of an attention, whose kernels take a vector at a time, do not depend on padding then.
        """
        axes = {state.name: state.shape.index("source_length") + 1 for state in self.system.states() if state.varying}
        if not axes:
            return encoded
        width = graph.op("Shape", bundle.SOURCE_IDS, start=1)
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
        graph.output(shaped, bundle.TOKEN_LOG_PROBS, np.float32, ("batch", "target_length"))

    def _encode(self, layers: Layers) -> tuple[dict[str, str], str, str]:
        """Write the encoder; return states by name, the lengths of the sources, and the int64 vector [batch]."""
        ids = layers.graph.input(bundle.SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = layers.graph.input(bundle.SOURCE_LENGTHS, np.int64, ["batch"])
        source = declare_sources(layers, ids, lengths, reverse=self.system.reverse_source)
        return self.system.encode(layers, source), lengths, source.batch

    def _decoder_step(self, name: str) -> tuple[Layers, str, str]:
        """Write a step up to what the output layer reads (rows, dim); also return the int64 vector [sentences]."""
        layers = self._layers(name)
        graph = layers.graph
        ids = graph.input(bundle.TOKEN_IDS, np.int64, ["rows"])
        positions = graph.input(bundle.POSITIONS, np.int64, ["rows"])
        lengths = graph.input(bundle.MEMORY_LENGTHS, np.int64, ["sentences"])
        states = {state.name: _declare(graph, state) for state in self.system.states()}
        batch = graph.op("Shape", lengths)
        shape = graph.op("Concat", batch, graph.int64s(-1, 1), axis=0)
        by_sentence = graph.op("Reshape", positions, shape)
        token = self.system.embed(layers, "target", ids)
        done = self.system.step(layers, StepInputs(token, by_sentence, states, lengths, batch))
        self._output_states(graph, done)
        return layers, done.hidden, batch

    def _output_states(self, graph: GraphBuilder, done: StepOutputs) -> None:
        """Output the recurrent states. The runner binds past and present of a state to the same memory.

        That is right because each present state is computed from all that the step reads of its past.
        """
        for state in self.system.states():
            if state.kind == "recurrent":
                present = bundle.present_name(state.name)
                graph.output(done.recurrent[state.name], present, np.float32, ("rows", *state.shape))

    def _layers(self, name: str) -> Layers:
        graph = GraphBuilder(name, self.weights, np.float32, file=INT8_FILE if self.ranges is not None else None)
        return Layers(graph, FloatMatMul(graph) if self.ranges is None else Int8MatMul(graph, self.ranges))

    def _finish(self, layers: Layers) -> bytes:
        self.reads |= layers.graph.reads
        return layers.graph.finish()


def _declare(graph: GraphBuilder, state: State) -> str:
    memory = state.kind == "memory"
    name = state.name if memory else bundle.past_name(state.name)
    return graph.input(name, np.float32, ("sentences" if memory else "rows", *state.shape))
