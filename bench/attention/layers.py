"""One layer of each kind over a sequence of vectors, with its operations and its memory by formula.

The ways to mix values take and return the same shapes; none has weights, masks or padding.

query: (batch, heads, length, head_dim)
past: keys and values (batch, heads, length, head_dim)

Returns the concatenated heads (batch, length, heads * head_dim).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.errors import SettingsError
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import KeyValue, SelfAttention, attend, attend_linearly, attention_weights
from lingon.training.models.recurrent import GatedUnit


def mix_by_matrix(query: Tensor, past: KeyValue) -> Tensor:
    """softmax(Q K^T / sqrt(head_dim)) V, Vaswani et al. (2017), equation 1; the matrix of weights is in memory."""
    return _concatenated(attention_weights(query, past.key) @ past.value)


def mix_fused(query: Tensor, past: KeyValue) -> Tensor:
    """The same as `mix_by_matrix` by the kernel of torch, which keeps only tiles of the matrix (Dao et al., 2022)."""
    return attend(query, past)


def mix_in_blocks(query: Tensor, past: KeyValue, radius: int) -> Tensor:
    """Attention of position i over the positions j with |i - j| <= radius, in blocks of `radius` queries.

    The blocks are those of Beltagy et al. (2020), section 3.1 and appendix A: a block of queries is multiplied with its
    own block of keys, the one before and the one after. These 3 radius keys hold all 2 radius + 1 that a query sees.
    No matrix of length x length is made.
    """
    length, blocks = query.size(2), -(-query.size(2) // radius)
    added = blocks * radius - length
    queries = functional.pad(query, (0, 0, 0, added)).view(*query.shape[:2], blocks, radius, -1)
    keys, values = (_neighbourhoods(each, radius, added) for each in past)
    scores = queries @ keys / math.sqrt(query.size(-1))
    scores = scores.masked_fill(~_within_blocks(length, blocks, radius, query.device), -math.inf)
    mixed = scores.softmax(dim=-1) @ values.transpose(-2, -1)
    return _concatenated(mixed.flatten(2, 3)[:, :, :length])


def _neighbourhoods(heads: Tensor, radius: int, added: int) -> Tensor:
    """The three blocks that each block of queries sees: (batch, heads, blocks, head_dim, 3 radius), a view.

    heads: (batch, heads, length, head_dim); added: positions that the last block lacks
    """
    return functional.pad(heads, (0, 0, radius, added + radius)).unfold(2, 3 * radius, radius)


def _within_blocks(length: int, blocks: int, radius: int, device: torch.device) -> Tensor:
    """A mask (blocks, radius, 3 radius), True where a query sees a key.

    A padded query sees the last key at least, which is less than `radius` away: no softmax is without keys.
    """
    first = torch.arange(blocks, device=device)[:, None, None] * radius
    queries = first + torch.arange(radius, device=device)[:, None]
    keys = first - radius + torch.arange(3 * radius, device=device)
    distance = (queries - keys).abs()
    return (distance <= radius) & (keys >= 0) & (keys < length)


def mix_linearly(query: Tensor, past: KeyValue) -> Tensor:
    """The linear attention of training, Katharopoulos et al. (2020), with phi(x) = elu(x) + 1."""
    return attend_linearly(query, past)


def _concatenated(mixed: Tensor) -> Tensor:
    return mixed.transpose(1, 2).flatten(2)


FLOAT = 4
"""Bytes of an element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The size of a layer and of its input."""

    length: int  # positions, T
    dim: int = 64  # width, D; even
    radius: int = 16  # positions to each side that windowed attention sees, r
    kernel: int = 3  # positions that the convolution sees, K; odd

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("dim", 2), ("radius", 1), ("kernel", 1)):
            if getattr(self, name) < least:
                raise SettingsError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.dim % 2:
            raise SettingsError(f"dim must be even, got {self.dim}")
        if not self.kernel % 2:
            raise SettingsError(f"kernel must be odd, got {self.kernel}")


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a cost, and its exponent of the length."""

    formula: str
    exponent: int


class Layer(nn.Module, ABC):
    """A layer from (batch, length, dim) to the same shape."""

    name: ClassVar[str]
    time: ClassVar[Order]
    memory: ClassVar[Order]

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size

    @staticmethod
    @abstractmethod
    def multiply_adds(size: Size) -> int:
        """The multiply-adds of one sequence."""

    @staticmethod
    @abstractmethod
    def kept_bytes(size: Size) -> int:
        """The bytes that the forward pass of one sequence keeps for the gradients, without weights."""

    @staticmethod
    @abstractmethod
    def weights(size: Size) -> int:
        """The weights of the layer."""


class Attention(Layer):
    """The projections of queries, keys, values and output around a way to mix, Vaswani et al. (2017), figure 2.

    The projections have 4 T D^2 multiply-adds. The formulas count them; the orders, as in the papers, do not.
    """

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.attention = SelfAttention(TransformerSettings.model_validate({"dim": size.dim, "heads": 1}))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.attention.output(self.mix(*self.attention.project(hidden)))  # type: ignore[no-any-return]

    @abstractmethod
    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        """Return the mixed values; see `lingon.bench.attention.layers`."""

    @staticmethod
    def weights(size: Size) -> int:
        return 4 * size.dim * (size.dim + 1)


class SelfAttentionLayer(Attention):
    """Every position over all others, Vaswani et al. (2017), equation 1: softmax(Q K^T / sqrt(D)) V.

    T^2 D multiply-adds for Q K^T and T^2 D for the product with V. Kept: the input, Q, K, V and the mixed values (T D
    each), and the matrix of the weights (T^2).
    """

    name = "self-attention"
    time = Order("T^2 D", 2)
    memory = Order("T^2", 2)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return mix_by_matrix(query, past)

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 4 * size.length * size.dim**2 + 2 * size.length**2 * size.dim

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * (5 * size.length * size.dim + size.length**2)


class FusedSelfAttention(SelfAttentionLayer):
    """The same by the kernel that training and export use; Dao et al. (2022), theorem 1: the same operations.

    Kept: the input, Q, K, V and the mixed values (T D each), and the logarithm of each softmax's sum (T).
    """

    name = "self-attention, fused"
    memory = Order("T D", 1)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return mix_fused(query, past)

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * (5 * size.length * size.dim + size.length)


class WindowedSelfAttention(Attention):
    """Every position over those at most r away, Vaswani et al. (2017), section 4, in blocks of r queries.

    T' is T rounded up to whole blocks. Each block has 3 r keys (Beltagy et al., 2020, section 3.1): 3 T' r D
    multiply-adds for the scores and as many for the values. Kept: the input (T D), the padded Q and mixed values (T' D
    each), K and V with a block more on each side ((T' + 2 r) D each), the weights (3 T' r), and a byte of the mask for
    each.
    """

    name = "windowed attention"
    time = Order("T r D", 1)
    memory = Order("T (r + D)", 1)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return mix_in_blocks(query, past, self.size.radius)

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 4 * size.length * size.dim**2 + 6 * _whole_blocks(size) * size.radius * size.dim

    @staticmethod
    def kept_bytes(size: Size) -> int:
        padded, weights = _whole_blocks(size), 3 * _whole_blocks(size) * size.radius
        vectors = size.length + 2 * padded + 2 * (padded + 2 * size.radius)
        return FLOAT * (vectors * size.dim + weights) + weights


def _whole_blocks(size: Size) -> int:
    """The length rounded up to a multiple of the radius."""
    return -(-size.length // size.radius) * size.radius


class LinearAttention(Attention):
    """Katharopoulos et al. (2020), equations 5 to 7, with a state of D x D; their section 3.2 has the orders.

    T D^2 multiply-adds for the state, T D^2 for its products with the queries and T D for the norms. Kept: the input,
    Q, K, V, phi(Q), phi(K), the mixed values before and after the division (T D each), the state (D^2), its norm (D)
    and the norms of the queries (T).
    """

    name = "linear attention"
    time = Order("T D^2", 1)
    memory = Order("T D + D^2", 1)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return mix_linearly(query, past)

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 6 * size.length * size.dim**2 + size.length * size.dim

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * (8 * size.length * size.dim + size.dim**2 + size.dim + size.length)


class FullyConnected(Layer):
    """One product y = W x + b over the whole sequence as a vector of T D elements; its matrix has T^2 D^2 weights.

    Every output depends on every input: T^2 D^2 multiply-adds. Kept: the input (T D).
    """

    name = "fully connected"
    time = Order("T^2 D^2", 2)
    memory = Order("T D", 1)

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.product = nn.Linear(size.length * size.dim, size.length * size.dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.product(hidden.flatten(1)).view_as(hidden)  # type: ignore[no-any-return]

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return (size.length * size.dim) ** 2

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * size.length * size.dim

    @staticmethod
    def weights(size: Size) -> int:
        return size.length * size.dim * (size.length * size.dim + 1)


class Convolution(Layer):
    """A convolution of width K with padding, Gehring et al. (2017), section 3.2, without its gates.

    y_i = sum_k W_k x_(i + k - (K - 1) / 2) + b: K T D^2 multiply-adds. Kept: the input (T D).
    """

    name = "convolution"
    time = Order("K T D^2", 1)
    memory = Order("T D", 1)

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.convolution = nn.Conv1d(size.dim, size.dim, size.kernel, padding=size.kernel // 2)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.convolution(hidden.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return size.kernel * size.length * size.dim**2

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * size.length * size.dim

    @staticmethod
    def weights(size: Size) -> int:
        return size.dim * (size.kernel * size.dim + 1)


class Recurrent(Layer):
    """The GRU of Cho et al. (2014), equations 5 to 8; T steps that depend on each other.

    Three gates, each with a product of the input and one of the state: 6 T D^2 multiply-adds. Kept: the input, the
    state before each step, and six vectors of its gates (T D each).
    """

    name = "recurrence (GRU)"
    time = Order("T D^2", 1)
    memory = Order("T D", 1)

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.unit = GatedUnit(size.dim, size.dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.unit(hidden, self.unit.start(hidden.size(0)))  # type: ignore[no-any-return]

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 6 * size.length * size.dim**2

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * 8 * size.length * size.dim

    @staticmethod
    def weights(size: Size) -> int:
        return 6 * size.dim * (size.dim + 1)


LAYERS: tuple[type[Layer], ...] = (
    SelfAttentionLayer,
    FusedSelfAttention,
    WindowedSelfAttention,
    LinearAttention,
    FullyConnected,
    Convolution,
    Recurrent,
)
