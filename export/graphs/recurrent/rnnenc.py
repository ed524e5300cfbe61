"""RNNenc as ONNX nodes; see lingon.training.models.recurrent.rnnenc."""

from __future__ import annotations

from lingon.bundle import State
from lingon.export.graphs.layers import Layers
from lingon.export.graphs.recurrent.cells import Sources, read_stack, stack_step
from lingon.export.graphs.recurrent.system import (
    StepInputs,
    StepOutputs,
    System,
    named_states,
    stack_states,
    stack_values,
)
from lingon.training.models.recurrent.rnnenc import Rnnenc


class RnnencSystem(System[Rnnenc]):
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
