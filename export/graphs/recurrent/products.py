"""The products of a recurrent system as modules of their own.

A kernel of torch holds the weights of a cell, and the scores `concat` and `mlp` multiply parts of a matrix. An equal
model in which every product is an `nn.Linear` has a name for each, so that graphs can be written, ranges measured and
8-bit products emulated by the names of modules, as for a Transformer.
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from lingon.training.models.interface import AnyModel
from lingon.training.models.recurrent.cells import Recurrence, RecurrentState
from lingon.training.models.recurrent.scores import Additive, Concat, Perceptron, Score

ModelT = TypeVar("ModelT", bound=AnyModel)


class ProductCell(Recurrence):
    """A cell that computes what another does, step by step, with its two products in modules.

    input: W x + b, the product with the input
    recurrent: U h + b, the product with the hidden state
    """

    def __init__(self, cell: Recurrence) -> None:
        super().__init__(cell.kernel)
        self.tensors = cell.tensors
        self.cell = cell
        self.input, self.recurrent = (
            _linear(cast("Tensor", getattr(cell.kernel, f"weight_{of}_l0")), getattr(cell.kernel, f"bias_{of}_l0"))
            for of in ("ih", "hh")
        )

    def project(self, inputs: Tensor) -> Tensor:
        return self.input(inputs)  # type: ignore[no-any-return]

    def _step(self, projected: Tensor, state: RecurrentState) -> RecurrentState:
        return self.update(projected, self.recurrent(state[0]), state)

    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        return self.cell.update(projected, recurrent, state)

    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        state, outputs = start, []
        for projected in self.project(inputs).unbind(1):
            state = self._step(projected, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)


class ProductPerceptron(Score):
    """The score `mlp`: v^T tanh(W2 tanh(W1 s + V1 h + b1) + b2)."""

    def __init__(self, score: Perceptron) -> None:
        super().__init__()
        weight, bias = score.first.weight, score.first.bias
        self.of_state, self.of_annotation = _linear(weight[:, : score.dim]), _linear(weight[:, score.dim :], bias)
        self.second, self.weight = score.second, score.weight

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.of_annotation(annotations)  # type: ignore[no-any-return]

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        first = torch.tanh(self.of_state(states)[:, :, None] + keys[:, None])
        return self.weight(torch.tanh(self.second(first)))[..., 0]  # type: ignore[no-any-return]


def with_products(model: ModelT) -> ModelT:
    """Return a copy of a model that computes the same, in which every product with a weight is an nn.Linear."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        made = _as_products(module)
        if made is not None:
            above, _, own = name.rpartition(".")
            setattr(model.get_submodule(above), own, made)
    return model


def _as_products(module: nn.Module) -> nn.Module | None:
    """Return an equal module whose products are modules; None if they are already."""
    match module:
        case Recurrence():
            return ProductCell(module)
        case Concat():
            return _additive(module)
        case Perceptron():
            return ProductPerceptron(module)
    return None


def _additive(score: Concat) -> Additive:
    """Return W [s; h] as W1 s + W2 h."""
    weight = score.product.weight
    made = Additive(score.dim, weight.size(1) - score.dim, weight.size(0))
    made.of_state, made.of_annotation = _linear(weight[:, : score.dim]), _linear(weight[:, score.dim :])
    made.weight = score.weight
    return made


@torch.no_grad()
def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    made = nn.Linear(weight.size(1), weight.size(0), bias=bias is not None)
    made.weight.copy_(weight)
    if bias is not None:
        made.bias.copy_(bias)
    return made
