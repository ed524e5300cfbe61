"""What the graphs of a recurrent system are made of: its encoder, one step of its decoder, and its states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from lingon.bundle import State
from lingon.export.graphs.layers import Layers, embedding_of, pad_to_blocks, table_name, to_numpy
from lingon.export.graphs.recurrent.cells import Sources, Values
from lingon.training.models.interface import AnyModel
from lingon.training.models.recurrent.cells import PieceEmbedding, Recurrence

ModelT = TypeVar("ModelT", bound=AnyModel)
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
    attention: (sentences, beams, source_length); None without attention
    """

    hidden: str
    recurrent: dict[str, str]
    attention: str | None = None


@dataclass(frozen=True, slots=True)
class System(ABC, Generic[ModelT]):
    """A recurrent system, whose model has all products as modules; see lingon.export.graphs.recurrent.products."""

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
        """Write the encoder; return the memory of each sentence and the first recurrent states by name."""

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


def named_states(name: str, cells: Sequence[Recurrence], values: Sequence[Values]) -> dict[str, str]:
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
    places = graph.count_up(graph.op("Shape", ids, start=1))
    if reverse:
        turned = graph.op("Unsqueeze", graph.op("Sub", lengths, graph.constant(np.array(1))), graph.int64s(1))
        mirrored = graph.op("Sub", graph.op("Sub", turned, graph.constant(np.array(1))), places)
        ids = graph.op(
            "GatherElements", ids, graph.op("Where", graph.op("Less", places, turned), mirrored, places), axis=1
        )
    real = graph.op(
        "Less", graph.op("Unsqueeze", places, graph.int64s(1, 2)), graph.op("Unsqueeze", lengths, graph.int64s(1))
    )
    return Sources(graph.op("Transpose", ids, perm=[1, 0]), lengths, real, graph.op("Shape", lengths))
