"""The systems of Luong et al. (2015) as ONNX nodes; see lingon.training.models.recurrent.luong."""

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
from lingon.export.graphs.recurrent.cells import Sources, read_stack, stack_step, zeros
from lingon.export.graphs.recurrent.system import (
    StepInputs,
    StepOutputs,
    System,
    batch_major,
    named_states,
    stack_states,
    stack_values,
)
from lingon.training.models.recurrent.luong import Luong

ATTENTIONAL = "attentional"  # the attentional state, which the next step reads with input feeding


class LuongSystem(System[Luong]):
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
