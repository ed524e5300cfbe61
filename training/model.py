"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), for training and as the reference.

Dimensions, by one name each throughout the repository:
    batch, source_length, target_length, dim (d_model), heads, head_dim (d_k), ffn (d_ff), vocab
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.text import FORBIDDEN
from lingon.training.config import ModelSettings

FORBIDDEN_LOGIT = -3e4  # a probability of zero in every precision, and finite in fp16 (largest 65504)


class KeyValue(NamedTuple):
    """Keys and values of one attention: (batch, heads, length, head_dim) each."""

    key: Tensor
    value: Tensor


class Memory(NamedTuple):
    """What the decoder sees of a batch of sources, computed once.

    layers: keys and values of every decoder layer's encoder-decoder attention
    visible: (batch, 1, 1, source_length), True where a source token stands
    """

    layers: list[KeyValue]
    visible: Tensor


def visible_positions(lengths: Tensor, longest: int) -> Tensor:
    """Mask (batch, 1, 1, longest), True at the positions before each length."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None, None, :]


def sinusoids(positions: int, dim: int) -> Tensor:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = the cosine; (positions, dim)."""
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


def attend(query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Equation 1, softmax(QK^T / sqrt(head_dim)) V; returns (batch, target_length, heads * head_dim).

    query: (batch, heads, target_length, head_dim)
    visible: (batch, 1, 1, source_length), True where a key may be seen
    """
    mixed = functional.scaled_dot_product_attention(query, *past, attn_mask=visible, is_causal=causal)
    return mixed.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself; one product for queries, keys and values."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.dim, 3 * settings.dim)
        self.output = nn.Linear(settings.dim, settings.dim)

    def project(self, hidden: Tensor) -> tuple[Tensor, KeyValue]:
        """Query, and key with value, of hidden (batch, length, dim)."""
        query, key, value = self.qkv(hidden).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, KeyValue(key, value)

    def forward(self, hidden: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """(batch, length, dim), from hidden of that shape."""
        query, present = self.project(hidden)
        return self.output(attend(query, present, visible, causal=causal))  # type: ignore[no-any-return]

    def step(self, hidden: Tensor, past: KeyValue) -> tuple[Tensor, KeyValue]:
        """One more position (batch, 1, dim) after a past; also returns the past grown by it."""
        query, new = self.project(hidden)
        present = KeyValue(torch.cat([past.key, new.key], 2), torch.cat([past.value, new.value], 2))
        return self.output(attend(query, present)), present


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the encoder's output."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.query = nn.Linear(settings.dim, settings.dim)
        self.key_value = nn.Linear(settings.dim, 2 * settings.dim)
        self.output = nn.Linear(settings.dim, settings.dim)

    def remember(self, encoder_output: Tensor) -> KeyValue:
        """Keys and values of encoder_output (batch, source_length, dim)."""
        return KeyValue(*self.key_value(encoder_output).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4))

    def project(self, hidden: Tensor) -> Tensor:
        """Queries (batch, heads, target_length, head_dim) of hidden (batch, target_length, dim)."""
        return self.query(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """(batch, target_length, dim), from hidden of that shape."""
        return self.output(attend(self.project(hidden), memory, visible))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Equation 2, position by position: max(0, x W1 + b1) W2 + b2, or with GELU or SiLU."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.inner = nn.Linear(settings.dim, settings.ffn)
        self.outer = nn.Linear(settings.ffn, settings.dim)
        self.activation = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}[settings.activation]()

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, length, dim), from hidden of that shape."""
        return self.outer(self.activation(self.inner(hidden)))  # type: ignore[no-any-return]


class Dropout(nn.Module):
    """Dropout that draws one random byte an element on the CPU, where `nn.Dropout` draws a 64-bit number in turn.

    That took a quarter of a training step. The rate is rounded to a 256th, and the scale follows what is kept.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.dropped = round(256 * rate)

    def forward(self, hidden: Tensor) -> Tensor:
        """In training, hidden with some elements 0 and the others greater; else hidden."""
        if not self.training or self.dropped == 0:
            return hidden
        if hidden.device.type != "cpu":
            return functional.dropout(hidden, self.rate)
        words = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.uint8)[: hidden.numel()].view(hidden.shape)
        return hidden * (drawn >= self.dropped).to(hidden.dtype).mul_(256 / (256 - self.dropped))


class PostNorm(nn.Module):
    """Add & Norm as in the paper: LayerNorm(x + Dropout(sublayer(x)))."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.dim)
        self.dropout = Dropout(settings.dropout)

    def before(self, hidden: Tensor) -> Tensor:
        """What the sublayer reads."""
        return hidden

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        """What the next sublayer gets."""
        return self.norm(hidden + self.dropout(sublayer))  # type: ignore[no-any-return]


class PreNorm(PostNorm):
    """The norm moved before the sublayer: x + Dropout(sublayer(LayerNorm(x))) (Xiong et al., 2020)."""

    def before(self, hidden: Tensor) -> Tensor:
        """What the sublayer reads."""
        return self.norm(hidden)  # type: ignore[no-any-return]

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        """What the next sublayer gets."""
        return hidden + self.dropout(sublayer)  # type: ignore[no-any-return]


def residual(settings: ModelSettings) -> PostNorm:
    """The wrapper around one sublayer."""
    return PreNorm(settings) if settings.norm == "pre" else PostNorm(settings)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each within Add & Norm."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention, self.around_attention = SelfAttention(settings), residual(settings)
        self.feed_forward, self.around_feed_forward = FeedForward(settings), residual(settings)

    def forward(self, hidden: Tensor, visible: Tensor) -> Tensor:
        """(batch, source_length, dim), from hidden of that shape."""
        attended = self.attention(self.around_attention.before(hidden), visible)
        hidden = self.around_attention.after(hidden, attended)
        return self.around_feed_forward.after(hidden, self.feed_forward(self.around_feed_forward.before(hidden)))


class DecoderLayer(nn.Module):
    """Masked self-attention, encoder-decoder attention, feed-forward, each within Add & Norm."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention, self.around_attention = SelfAttention(settings), residual(settings)
        self.cross, self.around_cross = CrossAttention(settings), residual(settings)
        self.feed_forward, self.around_feed_forward = FeedForward(settings), residual(settings)

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """(batch, target_length, dim), from hidden of that shape."""
        attended = self.attention(self.around_attention.before(hidden), causal=True)
        return self._rest(self.around_attention.after(hidden, attended), memory, visible)

    def step(self, hidden: Tensor, past: KeyValue, memory: KeyValue, visible: Tensor) -> tuple[Tensor, KeyValue]:
        """One position (batch, 1, dim) after a past of self-attention; also returns the past grown by it."""
        attended, present = self.attention.step(self.around_attention.before(hidden), past)
        return self._rest(self.around_attention.after(hidden, attended), memory, visible), present

    def _rest(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        crossed = self.cross(self.around_cross.before(hidden), memory, visible)
        hidden = self.around_cross.after(hidden, crossed)
        return self.around_feed_forward.after(hidden, self.feed_forward(self.around_feed_forward.before(hidden)))


class Embedding(nn.Module):
    """Dropout(sqrt(dim) * piece + position), sections 3.4, 3.5 and 5.4."""

    positions: Tensor  # (max_positions, dim)

    def __init__(self, settings: ModelSettings, vocab: int) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.dim)
        self.pieces = nn.Embedding(vocab, settings.dim)
        self.dropout = Dropout(settings.dropout)
        table = sinusoids(settings.max_positions, settings.dim)
        if settings.positions == "learned":
            self.positions = nn.Parameter(torch.empty_like(table).normal_(std=settings.dim**-0.5))
        else:
            self.register_buffer("positions", table, persistent=False)

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        """ids: (batch, length), the first of them at position `first`; returns (batch, length, dim)."""
        positions = self.positions[first : first + ids.size(1)]
        return self.dropout(self.pieces(ids) * self.scale + positions)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Encoder and decoder; `forward` trains, `encode` and `decode_step` translate."""

    forbidden: Tensor  # (vocab): what log_probs adds to the logits

    def __init__(self, settings: ModelSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.source_embedding = Embedding(settings, source_vocab)
        self.target_embedding = Embedding(settings, target_vocab)
        encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        self.encoder, self.decoder = cast("Sequence[EncoderLayer]", encoder), cast("Sequence[DecoderLayer]", decoder)
        # Post-norm layers end in a norm already; a pre-norm stack needs one of its own (Xiong et al., 2020).
        last_norm = nn.LayerNorm if settings.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last_norm(settings.dim), last_norm(settings.dim)
        self.output = nn.Linear(settings.dim, target_vocab, bias=False)
        self._initialise()
        self._tie()
        forbidden = torch.zeros(target_vocab)
        forbidden[list(FORBIDDEN)] = FORBIDDEN_LOGIT
        self.register_buffer("forbidden", forbidden, persistent=False)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Teacher-forced logits (batch, target_length, vocab) of the token after each of target_ids.

        source_ids: (batch, source_length), source_lengths: (batch), target_ids: (batch, target_length)
        """
        return self.decode(target_ids, self.encode(source_ids, source_lengths))

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Memory:
        """Everything the decoder will look at, for source_ids (batch, source_length)."""
        visible = visible_positions(source_lengths, source_ids.size(1))
        hidden = self.source_embedding(source_ids)
        for layer in self.encoder:
            hidden = layer(hidden, visible)
        encoder_output = self.encoder_norm(hidden)
        return Memory([layer.cross.remember(encoder_output) for layer in self.decoder], visible)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Logits (batch, target_length, vocab); target_ids (batch, target_length) begins with BOS."""
        hidden = self.target_embedding(target_ids)
        for layer, layer_memory in zip(self.decoder, memory.layers, strict=True):
            hidden = layer(hidden, layer_memory, memory.visible)
        return self.output(self.decoder_norm(hidden))  # type: ignore[no-any-return]

    def start(self, rows: int) -> list[KeyValue]:
        """The empty past of every decoder layer."""
        empty = self.output.weight.new_empty(rows, self.settings.heads, 0, self.settings.head_dim)
        return [KeyValue(empty, empty) for _ in self.decoder]

    def decode_step(self, token_ids: Tensor, past: list[KeyValue], memory: Memory) -> tuple[Tensor, list[KeyValue]]:
        """Logits (rows, vocab) after one more token (rows) on each row, and the past grown by it."""
        hidden = self.target_embedding(token_ids[:, None], past[0].key.size(2))
        present = []
        for layer, layer_past, layer_memory in zip(self.decoder, past, memory.layers, strict=True):
            hidden, layer_present = layer.step(hidden, layer_past, layer_memory, memory.visible)
            present.append(layer_present)
        return self.output(self.decoder_norm(hidden))[:, 0], present

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities (..., vocab) at inference: over the pieces that may be generated."""
        return (logits.float() + self.forbidden).log_softmax(dim=-1)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.pieces.weight, std=self.settings.dim**-0.5)

    def _tie(self) -> None:
        """Section 3.4: one matrix for the embeddings and the output, as far as the settings say."""
        if self.settings.tie in ("all", "decoder"):
            self.output.weight = self.target_embedding.pieces.weight
        if self.settings.tie == "all":
            self.source_embedding.pieces.weight = self.target_embedding.pieces.weight
