"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), for training and for the reference search.

Every dimension has one name throughout the repository:
    batch, source_length, target_length, dim (d_model), heads, head_dim (d_k), ffn (d_ff), vocab
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lingon.text import FORBIDDEN
from lingon.training.config import ModelSettings
from lingon.training.models.attention import CrossAttention, KeyValue, SelfAttention, visible_positions
from lingon.training.models.layers import Embedding, FeedForward, residual_connection

FORBIDDEN_LOGIT = -3e4  # gives probability 0 in every precision, and is finite in fp16 (at most 65504)


class Memory(NamedTuple):
    """The encoded batch of sources that the decoder reads, computed once.

    layers: keys and values of the cross-attention of every decoder layer
    visible: (batch, 1, 1, source_length), True at source tokens, False at padding
    """

    layers: list[KeyValue]
    visible: Tensor


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection; section 3.1."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention, self.around_attention = SelfAttention(settings), residual_connection(settings)
        self.feed_forward, self.around_feed_forward = FeedForward(settings), residual_connection(settings)

    def forward(self, hidden: Tensor, visible: Tensor) -> Tensor:
        """Return (batch, source_length, dim), from hidden of the same shape; visible (batch, 1, 1, source_length)."""
        attended = self.attention(self.around_attention.before(hidden), visible)
        hidden = self.around_attention.after(hidden, attended)
        return self.around_feed_forward.after(hidden, self.feed_forward(self.around_feed_forward.before(hidden)))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention, feed-forward, each in a residual connection; section 3.1."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention, self.around_attention = SelfAttention(settings), residual_connection(settings)
        self.cross, self.around_cross = CrossAttention(settings), residual_connection(settings)
        self.feed_forward, self.around_feed_forward = FeedForward(settings), residual_connection(settings)

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """Return (batch, target_length, dim), from hidden of the same shape; memory and visible as in `Memory`."""
        attended = self.attention(self.around_attention.before(hidden), causal=True)
        return self._rest(self.around_attention.after(hidden, attended), memory, visible)

    def step(self, hidden: Tensor, past: KeyValue, memory: KeyValue, visible: Tensor) -> tuple[Tensor, KeyValue]:
        """Decode one new position, hidden (batch, 1, dim); return it, and the past with this position added."""
        attended, present = self.attention.step(self.around_attention.before(hidden), past)
        return self._rest(self.around_attention.after(hidden, attended), memory, visible), present

    def _rest(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        crossed = self.cross(self.around_cross.before(hidden), memory, visible)
        hidden = self.around_cross.after(hidden, crossed)
        return self.around_feed_forward.after(hidden, self.feed_forward(self.around_feed_forward.before(hidden)))


class Transformer(nn.Module):
    """Encoder and decoder. Training uses `forward`; search uses `encode`, `empty_past` and `decode_step`."""

    forbidden: Tensor  # (vocab): added to the logits by log_probs

    def __init__(self, settings: ModelSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.source_embedding = Embedding(settings, source_vocab)
        self.target_embedding = Embedding(settings, target_vocab)
        encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        self.encoder, self.decoder = cast("Sequence[EncoderLayer]", encoder), cast("Sequence[DecoderLayer]", decoder)
        # A post-norm layer ends with a norm; a stack of pre-norm layers needs a final one (Xiong et al., 2020).
        last_norm = nn.LayerNorm if settings.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last_norm(settings.dim), last_norm(settings.dim)
        self.output = nn.Linear(settings.dim, target_vocab, bias=False)
        self._initialise()
        self._tie()
        forbidden = torch.zeros(target_vocab)
        forbidden[list(FORBIDDEN)] = FORBIDDEN_LOGIT
        self.register_buffer("forbidden", forbidden, persistent=False)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return teacher-forced logits (batch, target_length, vocab) of the token after each of target_ids.

        source_ids: (batch, source_length), each row ends with EOS
        source_lengths: (batch)
        target_ids: (batch, target_length), each row begins with BOS
        """
        return self.decode(target_ids, self.encode(source_ids, source_lengths))

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Memory:
        """Return the memory of source_ids (batch, source_length) with source_lengths (batch)."""
        visible = visible_positions(source_lengths, source_ids.size(1))
        hidden = self.source_embedding(source_ids)
        for layer in self.encoder:
            hidden = layer(hidden, visible)
        encoder_output = self.encoder_norm(hidden)
        return Memory([layer.cross.project_key_value(encoder_output) for layer in self.decoder], visible)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Return logits (batch, target_length, vocab); target_ids (batch, target_length) begins with BOS."""
        hidden = self.target_embedding(target_ids)
        for layer, layer_memory in zip(self.decoder, memory.layers, strict=True):
            hidden = layer(hidden, layer_memory, memory.visible)
        return self.output(self.decoder_norm(hidden))  # type: ignore[no-any-return]

    def empty_past(self, rows: int) -> list[KeyValue]:
        """Return the empty past (rows, heads, 0, head_dim) of every decoder layer."""
        empty = self.output.weight.new_empty(rows, self.settings.heads, 0, self.settings.head_dim)
        return [KeyValue(empty, empty) for _ in self.decoder]

    def decode_step(self, token_ids: Tensor, past: list[KeyValue], memory: Memory) -> tuple[Tensor, list[KeyValue]]:
        """Return logits (rows, vocab) after one more token for each row, and the past with that token added.

        token_ids: (rows)
        past: keys and values (rows, heads, length, head_dim) of every layer
        """
        hidden = self.target_embedding(token_ids[:, None], past[0].key.size(2))
        present = []
        for layer, layer_past, layer_memory in zip(self.decoder, past, memory.layers, strict=True):
            hidden, layer_present = layer.step(hidden, layer_past, layer_memory, memory.visible)
            present.append(layer_present)
        return self.output(self.decoder_norm(hidden))[:, 0], present

    def log_probs(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (..., vocab) for search; pieces that are never generated have probability 0."""
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
        """Share embedding and output matrices as settings.tie says (section 3.4; Press and Wolf, 2017)."""
        if self.settings.tie in ("all", "decoder"):
            self.output.weight = self.target_embedding.pieces.weight
        if self.settings.tie == "all":
            self.source_embedding.pieces.weight = self.target_embedding.pieces.weight
