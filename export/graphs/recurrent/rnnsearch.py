"""RNNsearch as ONNX nodes; see lingon.training.models.recurrent.rnnsearch."""

from __future__ import annotations

from lingon.bundle import State
from lingon.export.graphs.layers import Layers
from lingon.export.graphs.recurrent.attention import (
    ANNOTATIONS,
    KEYS,
    AttentionMemory,
    attend_to_memory,
    attention_keys,
    attention_states,
)
from lingon.export.graphs.recurrent.cells import Sources, recurrent_read, recurrent_step, split_values
from lingon.export.graphs.recurrent.system import (
    StepInputs,
    StepOutputs,
    System,
    batch_major,
    named_states,
    stack_states,
    stack_values,
)
from lingon.training.models.recurrent.luong import Window
from lingon.training.models.recurrent.rnnsearch import Rnnsearch


class RnnsearchSystem(System[Rnnsearch]):
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
