"""The scores of attention: how well a state s of the decoder matches an annotation h of the source.

`prepare` computes once what depends on the annotations alone. It is part of the memory of a system.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.models.recurrent.cells import linear


class Score(nn.Module, ABC):
    """A score of each state with each annotation."""

    def prepare(self, annotations: Tensor) -> Tensor:
        """Return the keys (batch, source_length, key_dim) of annotations (batch, source_length, annotation_dim)."""
        return annotations

    @abstractmethod
    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        """Return scores (rows, target_length, source_length).

        states: (rows, target_length, dim)
        keys: (rows, source_length, key_dim), from `prepare`
        """


class Dot(Score):
    """s^T h: Luong et al. (2015), equation 8."""

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return states @ keys.transpose(1, 2)


class ScaledDot(Score):
    """s^T h / sqrt(dim): Vaswani et al. (2017), equation 1."""

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return states @ keys.transpose(1, 2) / math.sqrt(states.size(-1))


class Content(Score):
    """b s^T h / (|s| |h|): the cosine, Graves et al. (2014), equations 5 and 6.

    The key strength b is one learned number, which begins at 1; the paper's controller emits one at every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.ones(()))

    def prepare(self, annotations: Tensor) -> Tensor:
        return functional.normalize(annotations, dim=-1)

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return self.strength * (functional.normalize(states, dim=-1) @ keys.transpose(1, 2))


class Additive(Score):
    """w^T tanh(W1 s + W2 h): Bahdanau et al. (2015), appendix A.1.2."""

    def __init__(self, dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.of_state = linear(dim, attention_dim)
        self.of_annotation = linear(annotation_dim, attention_dim)
        self.weight = linear(attention_dim, 1)

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.of_annotation(annotations)  # type: ignore[no-any-return]

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.of_state(states)[:, :, None] + keys[:, None])
        return self.weight(hidden)[..., 0]  # type: ignore[no-any-return]


class General(Score):
    """s^T W h: Luong et al. (2015), equation 8."""

    def __init__(self, dim: int, annotation_dim: int) -> None:
        super().__init__()
        self.product = linear(annotation_dim, dim)

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.product(annotations)  # type: ignore[no-any-return]

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return states @ keys.transpose(1, 2)


class Concat(Score):
    """v^T tanh(W [s; h]): Luong et al. (2015), equation 8. It is Additive with W1 and W2 in one matrix."""

    def __init__(self, dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.product = linear(dim + annotation_dim, attention_dim)
        self.weight = linear(attention_dim, 1)

    def prepare(self, annotations: Tensor) -> Tensor:
        return functional.linear(annotations, self.product.weight[:, self.dim :])

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(functional.linear(states, self.product.weight[:, : self.dim])[:, :, None] + keys[:, None])
        return self.weight(hidden)[..., 0]  # type: ignore[no-any-return]


class Perceptron(Score):
    """MLP(s, h) = v^T tanh(W2 tanh(W1 [s; h] + b1) + b2): a perceptron with two hidden layers of attention_dim."""

    def __init__(self, dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.first = linear(dim + annotation_dim, attention_dim, bias=True)
        self.second = linear(attention_dim, attention_dim, bias=True)
        self.weight = linear(attention_dim, 1)

    def prepare(self, annotations: Tensor) -> Tensor:
        return functional.linear(annotations, self.first.weight[:, self.dim :], self.first.bias)

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        first = torch.tanh(functional.linear(states, self.first.weight[:, : self.dim])[:, :, None] + keys[:, None])
        return self.weight(torch.tanh(self.second(first)))[..., 0]  # type: ignore[no-any-return]


def make_score(name: str, dim: int, annotation_dim: int, attention_dim: int) -> Score:
    """Return a score by its name in the settings.

    dim: of a state of the decoder; dot, scaled-dot and content need annotation_dim = dim
    attention_dim: of the hidden layers of additive, concat and mlp
    """
    match name:
        case "dot":
            return Dot()
        case "scaled-dot":
            return ScaledDot()
        case "content":
            return Content()
        case "additive":
            return Additive(dim, annotation_dim, attention_dim)
        case "general":
            return General(dim, annotation_dim)
        case "concat":
            return Concat(dim, annotation_dim, attention_dim)
    assert name == "mlp", name
    return Perceptron(dim, annotation_dim, attention_dim)


def masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Return weights (rows, target_length, source_length) that sum to 1; what is not visible has exactly 0.

    visible: (rows, 1 or target_length, source_length), True at one position of each row at least
    """
    return scores.float().masked_fill(~visible, -math.inf).softmax(dim=-1)


def real_tokens(lengths: Tensor, longest: int) -> Tensor:
    """Return a mask (batch, 1, longest), True at the positions before each length; lengths (batch)."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None]
