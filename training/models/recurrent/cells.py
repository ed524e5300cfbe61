"""Recurrent layers: GRU and LSTM, one step at a time or a whole sequence at once, and stacks of them.

Rows of a batch have different lengths. A sequence is not packed: a mask keeps the state of a row from its last token
on, and a backward direction reads each row from its own last token.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.config import RecurrentSettings
from lingon.training.models.layers import Dropout

RecurrentState: TypeAlias = tuple[Tensor, ...]
"""The state of a layer: the hidden state (rows, dim), and for an LSTM also its cell (rows, dim)."""


class Recurrence(nn.Module, ABC):
    """One layer in one direction. `step` is its definition; `forward` computes the same with a kernel of torch."""

    tensors: int  # of a state

    def __init__(self, kernel: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        self.kernel = kernel
        self.dim = kernel.hidden_size

    def start(self, rows: int) -> RecurrentState:
        """Return the state before the first input: zeros."""
        zeros = self._weight("weight_hh_l0").new_zeros(rows, self.dim)
        return (zeros,) * self.tensors

    def project(self, inputs: Tensor) -> Tensor:
        """Return what the inputs (..., input_dim) add to the gates: (..., gates * dim)."""
        return functional.linear(inputs, self._weight("weight_ih_l0"), self._weight("bias_ih_l0"))

    def step(self, inputs: Tensor, state: RecurrentState) -> RecurrentState:
        """Return the state after one more input (rows, input_dim)."""
        return self._step(self.project(inputs), state)

    def _step(self, projected: Tensor, state: RecurrentState) -> RecurrentState:
        recurrent = functional.linear(state[0], self._weight("weight_hh_l0"), self._weight("bias_hh_l0"))
        return self.update(projected, recurrent, state)

    def _weight(self, name: str) -> Tensor:
        """Return a weight of the kernel by the name that torch gives it."""
        return cast("Tensor", getattr(self.kernel, name))

    @abstractmethod
    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        """Return the new state.

        projected: W x + b, from `project`
        recurrent: U h + b, of the same shape (rows, gates * dim)
        """

    @abstractmethod
    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        """Return the hidden state after every input (rows, length, dim); inputs (rows, length, input_dim)."""

    def read(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        """Return the hidden state after every input (batch, length, dim), and the state after each row's last token.

        inputs: (batch, length, input_dim)
        lengths: (batch)

        The hidden states beyond a row's length are finite and mean nothing.
        """
        return self.read_by_steps(inputs, lengths)

    def read_by_steps(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        """Return what `read` returns; the hidden states beyond a row's length are that of its last token."""
        state, outputs = self.start(inputs.size(0)), []
        within = torch.arange(inputs.size(1), device=lengths.device)[:, None, None] < lengths[None, :, None]
        for projected, real in zip(self.project(inputs).unbind(1), within, strict=True):
            after = self._step(projected, state)
            state = tuple(torch.where(real, new, old) for new, old in zip(after, state, strict=True))
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state


class GatedUnit(Recurrence):
    """The GRU of Cho et al. (2014), equations 5 to 8, with the reset gate after the product, as kernels have it.

    r = sigmoid(W_r x + U_r h), z = sigmoid(W_z x + U_z h), n = tanh(W_n x + r * (U_n h)), h' = (1 - z) * n + z * h

    Every product has a bias. The paper has tanh(W_n x + U_n (r * h)), and z in the place of 1 - z.
    """

    tensors = 1

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__(nn.GRU(input_dim, dim, batch_first=True))

    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        reset_input, keep_input, new_input = projected.chunk(3, dim=-1)
        reset_state, keep_state, new_state = recurrent.chunk(3, dim=-1)
        reset, keep = torch.sigmoid(reset_input + reset_state), torch.sigmoid(keep_input + keep_state)
        new = torch.tanh(new_input + reset * new_state)
        return ((1 - keep) * new + keep * state[0],)

    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        return cast("Tensor", self.kernel(inputs, start[0][None])[0])

    def read(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        outputs = self(inputs, self.start(inputs.size(0)))
        return outputs, (outputs[torch.arange(inputs.size(0), device=lengths.device), lengths - 1],)


class LongShortTermMemory(Recurrence):
    """The LSTM of Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al. (2000).

    i, f, o = sigmoid(W x + U h) of their own, g = tanh(W_g x + U_g h), c' = f * c + i * g, h' = o * tanh(c')

    Every product has a bias. `read` goes step by step, because the kernel returns the cell only at the padded end; on a
    CPU that takes as long as the kernel.
    """

    tensors = 2

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__(nn.LSTM(input_dim, dim, batch_first=True))
        with torch.no_grad():  # Jozefowicz et al. (2015), section 2.2: the forget gate begins open
            self._weight("bias_ih_l0")[dim : 2 * dim] += 1.0

    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        enter, forget, new, leave = (projected + recurrent).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(cell), cell

    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        hidden, cell = (each[None].float() for each in start)
        with torch.autocast("cpu", enabled=False):  # on a CPU this kernel has no half precision
            return cast("Tensor", self.kernel(inputs.float(), (hidden, cell))[0])


def recurrence(settings: RecurrentSettings, input_dim: int, dim: int) -> Recurrence:
    """Return a layer of settings.cell."""
    return LongShortTermMemory(input_dim, dim) if settings.cell == "lstm" else GatedUnit(input_dim, dim)


def reverse_rows(values: Tensor, lengths: Tensor, kept: int = 0) -> Tensor:
    """Return values (batch, length, ...) with the first `length - kept` positions of each row in reverse order.

    lengths: (batch); the other positions stay in their places
    """
    positions = torch.arange(values.size(1), device=lengths.device)[None]
    turned = (lengths - kept)[:, None]
    order = torch.where(positions < turned, turned - 1 - positions, positions)
    return values[torch.arange(values.size(0), device=lengths.device)[:, None], order]


class Stack(nn.Module):
    """Layers in one direction; each reads the hidden states of the one below, with dropout (Zaremba et al., 2014)."""

    def __init__(self, settings: RecurrentSettings, layers: int, input_dim: int) -> None:
        super().__init__()
        sizes = [input_dim] + [settings.dim] * (layers - 1)
        stacked = nn.ModuleList(recurrence(settings, size, settings.dim) for size in sizes)
        self.layers = cast("Sequence[Recurrence]", stacked)
        self.dropout = Dropout(settings.dropout)

    def read(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, list[RecurrentState]]:
        """Return the hidden states of the last layer (batch, length, dim), and the last state of every layer."""
        last: list[RecurrentState] = []
        for index, layer in enumerate(self.layers):
            inputs, state = layer.read(self.dropout(inputs) if index else inputs, lengths)
            last.append(state)
        return inputs, last

    def forward(self, inputs: Tensor, start: Sequence[RecurrentState]) -> Tensor:
        """Return the hidden states of the last layer (rows, length, dim), for inputs (rows, length, input_dim)."""
        for index, (layer, state) in enumerate(zip(self.layers, start, strict=True)):
            inputs = layer(self.dropout(inputs) if index else inputs, state)
        return inputs

    def step(self, inputs: Tensor, past: Sequence[RecurrentState]) -> list[RecurrentState]:
        """Return the state of every layer after one more input (rows, input_dim)."""
        present: list[RecurrentState] = []
        for index, (layer, state) in enumerate(zip(self.layers, past, strict=True)):
            present.append(layer.step(self.dropout(inputs) if index else inputs, state))
            inputs = present[-1][0]
        return present


class PieceEmbedding(nn.Module):
    """Dropout(sqrt(embedding_dim) * piece): the factor gives the inputs of a cell about the variance 1."""

    def __init__(self, settings: RecurrentSettings, vocab: int) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.embedding_dim)
        self.pieces = nn.Embedding(vocab, settings.embedding_dim)
        nn.init.normal_(self.pieces.weight, std=settings.embedding_dim**-0.5)
        self.dropout = Dropout(settings.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return (..., embedding_dim) for ids (...)."""
        return self.dropout(self.pieces(ids) * self.scale)  # type: ignore[no-any-return]


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """Return a product with the initial weights of Glorot and Bengio (2010), and a bias of zeros if any."""
    made = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(made.weight)
    if bias:
        nn.init.zeros_(made.bias)
    return made
