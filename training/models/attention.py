"""Multi-head attention of Vaswani et al. (2017), section 3.2: scaled dot products, self- and cross-attention.

Options: additive scores, positions by rotation, a window around each position, and attention of linear cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.model_settings import TransformerSettings
from lingon.training.models.layers import norm_of


class KeyValue(NamedTuple):
    """Keys and values of one attention: (batch, heads, length, head_dim) each."""

    key: Tensor
    value: Tensor


def visible_positions(lengths: Tensor, longest: int) -> Tensor:
    """Return a mask (batch, 1, 1, longest), True at the positions before each length.

    lengths: (batch)
    """
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None, None, :]


def within_window(visible: Tensor, radius: int) -> Tensor:
    """Return a mask (batch, 1, length, length), True where position i may see j: |i - j| <= radius, and j is visible.

    visible: (batch, 1, 1, length)

    A padded position sees itself too: without any key its softmax would be NaN, which spreads.
    """
    positions = torch.arange(visible.size(-1), device=visible.device)
    distance = (positions[:, None] - positions).abs()
    return (visible & (distance <= radius)) | (distance == 0)


def causal_window(length: int, window: int, device: torch.device) -> Tensor:
    """Return a mask (1, 1, length, length), True where position i may see j: i - window <= j <= i; window 0 is all."""
    seen = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return (seen.triu(-window) if window else seen)[None, None]


def softcap(values: Tensor, bound: float) -> Tensor:
    """Return values within +-bound: bound * tanh(value / bound), of any shape. Gemma Team (2024), section 2.

    https://arxiv.org/abs/2408.00118
    """
    return bound * torch.tanh(values / bound)


def rotate(heads: Tensor, first: int = 0) -> Tensor:
    """Return heads with each pair of dimensions rotated by its position: Su et al. (2021), equations 14, 15 and 34.

    Pair i at position p turns by the angle p / 10000^(2i / head_dim). The product of a rotated query and a rotated key
    depends on the difference of their positions alone.

    heads: (batch, heads, length, head_dim), at the positions first, first + 1 and so on
    """
    pairs = torch.arange(0, heads.size(-1), 2, device=heads.device, dtype=torch.float64)
    positions = torch.arange(first, first + heads.size(2), device=heads.device, dtype=torch.float64)
    angle = positions[:, None] * 10000.0 ** (-pairs / heads.size(-1))
    cosine, sine = angle.cos().to(heads.dtype), angle.sin().to(heads.dtype)
    left, right = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([left * cosine - right * sine, left * sine + right * cosine], dim=-1).flatten(-2)


def attend(query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(head_dim)) V.

    query: (batch, heads, target_length, head_dim)
    past: keys and values (batch, heads, source_length, head_dim)
    visible: (batch, 1, 1 or target_length, source_length), True where a key may be seen, or None if every key may be
        seen. Or what is added to the scores, (batch, heads, target_length, source_length), -inf where a key may not be
        seen.
    causal: whether position i sees only the keys 0 to i

    Returns the concatenated heads (batch, target_length, heads * head_dim).
    """
    mixed = functional.scaled_dot_product_attention(query, *past, attn_mask=visible, is_causal=causal)
    return mixed.transpose(1, 2).flatten(2)


def attention_weights(query: Tensor, key: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Return the weights by which `attend` mixes the values, softmax(Q K^T / sqrt(head_dim)) of equation 1.

    query, visible, causal: as in `attend`
    key: (batch, heads, source_length, head_dim)

    Returns (batch, heads, target_length, source_length).
    """
    return _softmax(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), visible, causal=causal)


def _softmax(scores: Tensor, visible: Tensor | None, *, causal: bool) -> Tensor:
    """Return the weights of scores (batch, heads, target_length, source_length). Keys that are not seen have 0."""
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf) if visible.dtype == torch.bool else scores + visible
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(dim=-1)


def feature_map(heads: Tensor) -> Tensor:
    """Return phi(x) = elu(x) + 1, Katharopoulos et al. (2020), equation 7. Every element is positive or 0."""
    return functional.elu(heads) + 1


def attend_linearly(query: Tensor, past: KeyValue, visible: Tensor | None = None) -> Tensor:
    """Return the linear attention of Katharopoulos et al. (2020), equations 4 to 6. No matrix of length x length is
    made.

    V'_i = phi(Q_i)^T (sum_j phi(K_j) V_j^T) / (phi(Q_i)^T sum_j phi(K_j)). The first sum is a state of head_dim x
    head_dim, computed once for all queries. It is in float32 in mixed precision too, since float16 ends at 65,504.

    query, past, visible: as in `attend`; visible is the same for all queries: (batch, 1, 1, source_length)

    Returns the concatenated heads (batch, target_length, heads * head_dim).
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        queries, keys = feature_map(query.to(wide)), _visible_features(past.key.to(wide), visible)
        state = keys.transpose(-2, -1) @ past.value.to(wide)
        mixed = queries @ state / _positive(queries @ keys.sum(dim=2)[..., None])
    return mixed.transpose(1, 2).flatten(2)


def linear_attention_weights(query: Tensor, key: Tensor, visible: Tensor | None = None) -> Tensor:
    """Return the weights by which `attend_linearly` mixes the values: phi(Q_i)^T phi(K_j) over their sum over j.

    Arguments and result have the shapes of `attention_weights`.
    """
    products = feature_map(query) @ _visible_features(key, visible).transpose(-2, -1)
    return products / _positive(products.sum(dim=-1, keepdim=True))


def _visible_features(key: Tensor, visible: Tensor | None) -> Tensor:
    """Return phi of the keys, and 0 for keys that are not seen."""
    features = feature_map(key)
    return features if visible is None else features.masked_fill(~visible.transpose(-2, -1), 0)


def _positive(norm: Tensor) -> Tensor:
    """Return a sum of products of features, which is 0 if all of them are too small for the type, as a divisor."""
    return norm.clamp_min(torch.finfo(norm.dtype).tiny)


class DotProductHeads(nn.Module):
    """The heads of equation 1; without weights of its own."""

    def forward(self, query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return the concatenated heads. See `attend`."""
        return attend(query, past, visible, causal=causal)

    def weights(self, query: Tensor, key: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return the weights of the values. See `attention_weights`."""
        return attention_weights(query, key, visible, causal=causal)


class CappedHeads(DotProductHeads):
    """Scaled dot products within +-bound, see `softcap`. What is added to scores and masks comes after it."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        mixed = self.weights(query, past.key, visible, causal=causal).to(past.value.dtype) @ past.value
        return mixed.transpose(1, 2).flatten(2)

    def weights(self, query: Tensor, key: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        return _softmax(softcap(scores, self.bound), visible, causal=causal)


class AdditiveHeads(DotProductHeads):
    """Additive scores instead of scaled dot products: w^T tanh(q + k) with a w for each head.

    Bahdanau et al. (2015), appendix A.1.2. The products of q and k with W1 and W2 are the projections of the heads.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(settings.heads, settings.head_dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        mixed = self.weights(query, past.key, visible, causal=causal).to(past.value.dtype) @ past.value
        return mixed.transpose(1, 2).flatten(2)

    def weights(self, query: Tensor, key: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        summed = torch.tanh(query[:, :, :, None] + key[:, :, None])
        return _softmax((summed @ self.weight[:, None, :, None])[..., 0], visible, causal=causal)


class LinearHeads(DotProductHeads):
    """Heads of linear attention, for the encoder: a causal mask would need a state for each position."""

    def forward(self, query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        assert not causal
        return attend_linearly(query, past, visible)

    def weights(self, query: Tensor, key: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        assert not causal
        return linear_attention_weights(query, key, visible)


def heads_of(settings: TransformerSettings) -> DotProductHeads:
    """Return the heads of settings.score."""
    if settings.attention_softcap:
        return CappedHeads(settings.attention_softcap)
    return AdditiveHeads(settings) if settings.score == "additive" else DotProductHeads()


def encoder_heads_of(settings: TransformerSettings) -> DotProductHeads:
    """Return the heads of the encoder's self-attention."""
    return LinearHeads() if settings.encoder_attention == "linear" else heads_of(settings)


class QueryNormProducts(nn.Module):
    """Queries of the norm of the input, keys and values of the input as it is.

    So computes Marian with `transformer-preprocess: n`, see `LayerAttention` in its src/models/transformer.h.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.norm = norm_of(settings)
        self.query = nn.Linear(settings.dim, settings.attention_dim, bias=settings.bias)
        self.key_value = nn.Linear(settings.dim, 2 * settings.attention_dim, bias=settings.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return queries, keys and values (batch, length, 3 * attention_dim), of hidden (batch, length, dim)."""
        return torch.cat([self.query(self.norm(hidden)), self.key_value(hidden)], dim=-1)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself, section 3.2.2. One product gives queries, keys and values.

    With a norm of the queries, there are two products.

    window: of the layer, see TransformerSettings.windows. The caller makes the mask of it
    """

    qkv: nn.Linear | QueryNormProducts

    def __init__(self, settings: TransformerSettings, heads: DotProductHeads | None = None, *, window: int = 0) -> None:
        super().__init__()
        self.heads, self.window = settings.heads, window
        self.rotary = settings.positions == "rotary"
        self.mix = heads or heads_of(settings)
        if settings.query_norm:
            self.qkv = QueryNormProducts(settings)
        else:
            self.qkv = nn.Linear(settings.dim, 3 * settings.attention_dim, bias=settings.bias)
        self.output = nn.Linear(settings.attention_dim, settings.dim, bias=settings.bias)

    def project(self, hidden: Tensor, first: int = 0) -> tuple[Tensor, KeyValue]:
        """Return the queries, and the keys with the values: (batch, heads, length, head_dim) each.

        hidden: (batch, length, dim), at the positions first, first + 1 and so on
        """
        query, key, value = self.qkv(hidden).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.rotary:
            query, key = rotate(query, first), rotate(key, first)
        return query, KeyValue(key, value)

    def forward(self, hidden: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return (batch, length, dim).

        hidden: (batch, length, dim)
        visible, causal: as in `attend`
        """
        query, present = self.project(hidden)
        return self.output(self.mix(query, present, visible, causal=causal))  # type: ignore[no-any-return]

    def step(self, hidden: Tensor, past: KeyValue, visible: Tensor | None = None) -> tuple[Tensor, KeyValue]:
        """Attend from one new position over the past and itself.

        hidden: (batch, 1, dim)
        past: keys and values (batch, heads, length, head_dim)
        visible: as in `attend`

        Returns (batch, 1, dim), and the keys and values of length + 1 positions.
        """
        query, new = self.project(hidden, past.key.size(2))
        present = KeyValue(torch.cat([past.key, new.key], 2), torch.cat([past.value, new.value], 2))
        return self.output(self.mix(query, present, visible)), present


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the output of the encoder, section 3.2.3."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.mix = heads_of(settings)
        self.query = nn.Linear(settings.dim, settings.attention_dim, bias=settings.bias)
        self.key_value = nn.Linear(settings.dim, 2 * settings.attention_dim, bias=settings.bias)
        self.output = nn.Linear(settings.attention_dim, settings.dim, bias=settings.bias)

    def project_key_value(self, encoder_output: Tensor) -> KeyValue:
        """Return keys and values (batch, heads, source_length, head_dim).

        encoder_output: (batch, source_length, dim)
        """
        return KeyValue(*self.key_value(encoder_output).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4))

    def project(self, hidden: Tensor) -> Tensor:
        """Return queries (batch, heads, target_length, head_dim) of hidden (batch, target_length, dim)."""
        return self.query(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """Return (batch, target_length, dim).

        hidden: (batch, target_length, dim)
        memory: from `project_key_value`
        visible: (batch, 1, 1, source_length)
        """
        return self.output(self.mix(self.project(hidden), memory, visible))  # type: ignore[no-any-return]

    def weights(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """Return the weights by which `forward` mixes the values (batch, heads, target_length, source_length)."""
        return self.mix.weights(self.project(hidden), memory.key, visible)


# Relative positions of T5: a learned bias of each score for the distance of its key.
# Raffel et al. (2020), section 2.1. The ranges of the buckets are those of its code.


class RelativeBias(nn.Module):
    """A bias for each head and bucket of distances. All layers of a side share it, and cross-attention has none.

    Half of the buckets hold one distance each, the others ranges that grow with the logarithm of the distance. With
    both_sides, half of all buckets are for keys after the query. Otherwise those keys are in the bucket of distance 0.
    """

    def __init__(self, settings: TransformerSettings, *, both_sides: bool) -> None:
        super().__init__()
        self.both_sides, self.farthest = both_sides, settings.relative_distance
        self.weight = nn.Parameter(torch.empty(settings.relative_buckets, settings.heads))
        nn.init.normal_(self.weight, std=settings.dim**-0.5)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (heads, queries, keys) between positions (queries) and (keys)."""
        return self.of_distances(keys - queries[:, None]).permute(2, 0, 1)

    def of_distances(self, distances: Tensor) -> Tensor:
        """Return the biases (..., heads) of distances (...), position of the key - position of the query."""
        return self.weight[self.buckets(distances)]

    def masked(self, visible: Tensor) -> Tensor:
        """Return what attention adds to its scores, -inf where a key is not seen: (batch, heads, length, length).

        visible: broadcast over that shape, True where a query sees a key
        """
        positions = torch.arange(visible.size(-1), device=visible.device)
        return torch.where(visible, self(positions, positions), -math.inf)

    def buckets(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance, of the same shape."""
        count = len(self.weight) // 2 if self.both_sides else len(self.weight)
        first = (distances > 0).long() * count if self.both_sides else torch.zeros_like(distances)
        far = distances.abs() if self.both_sides else (-distances).clamp_min(0)
        exact = count // 2
        share = torch.log(far.clamp_min(1).float() / exact) / math.log(self.farthest / exact)
        grown = (exact + (share * (count - exact)).long()).clamp_max(count - 1)
        return first + torch.where(far < exact, far, grown)
