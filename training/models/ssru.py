"""The simpler simple recurrent unit (SSRU) of Kim et al. (2019), in the place of the decoder's self-attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lingon.training.config import TransformerSettings


class CellState(NamedTuple):
    """What a cell keeps of the tokens of each row.

    cell: (rows, dim)
    length: number of these tokens (rows), int64
    """

    cell: Tensor
    length: Tensor


class SSRU(nn.Module):
    """Kim et al. (2019), section 3.1: a cell whose gate reads the input alone, so that one product computes all gates.

    f_t = sigmoid(x_t W_f + b_f), c_t = f_t * c_(t-1) + (1 - f_t) * (x_t W + b), y_t = max(0, c_t), with c_0 = 0. The
    paper has no b; a model that has none has zeros there. W_f and W are one matrix, W_f first.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.gates = nn.Linear(settings.dim, 2 * settings.dim)

    def start(self, rows: int) -> CellState:
        """Return the state before the first token."""
        weight = self.gates.weight
        lengths = torch.zeros(rows, dtype=torch.long, device=weight.device)
        return CellState(weight.new_zeros(rows, weight.size(1)), lengths)

    def forward(self, hidden: Tensor, visible: Tensor | None = None, *, causal: bool = True) -> Tensor:
        """Return (batch, length, dim), from hidden of the same shape; every position reads those up to it."""
        assert visible is None
        assert causal
        keep, new = self._gated(hidden)
        cell, found = torch.zeros_like(new[:, 0]), []
        for position in range(hidden.size(1)):
            cell = keep[:, position] * cell + new[:, position]
            found.append(cell)
        return torch.stack(found, dim=1).relu()

    def step(self, hidden: Tensor, past: CellState) -> tuple[Tensor, CellState]:
        """Read one more position, hidden (rows, 1, dim); return (rows, 1, dim), and the state after it."""
        keep, new = self._gated(hidden)
        cell = keep[:, 0] * past.cell + new[:, 0]
        return cell[:, None].relu(), CellState(cell, past.length + 1)

    def _gated(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the share of the cell that each position keeps, and what it adds: (batch, length, dim) each."""
        gate, value = self.gates(hidden).chunk(2, dim=-1)
        keep = torch.sigmoid(gate)
        return keep, (1 - keep) * value
