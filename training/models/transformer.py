"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), for training and for the reference search.

Dimensions besides those of `interface`: dim is d_model, head_dim is d_k, ffn is d_ff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import (
    CrossAttention,
    KeyValue,
    RelativeBias,
    SelfAttention,
    causal_window,
    encoder_heads_of,
    softcap,
    visible_positions,
    within_window,
)
from lingon.training.models.interface import AttentionModel
from lingon.training.models.layers import SSRU, CellState, Embedding, FeedForward, norm_of, residual_connection

LayerPast = KeyValue | CellState


class TransformerMemory(NamedTuple):
    """The encoded batch of sources that the decoder reads, computed once.

    layers: keys and values of the cross-attention of every decoder layer
    visible: (batch, 1, 1, source_length), True at source tokens, False at padding
    """

    layers: list[KeyValue]
    visible: Tensor


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection; section 3.1."""

    def __init__(self, settings: TransformerSettings, window: int = 0) -> None:
        """window: of the self-attention. See TransformerSettings.windows."""
        super().__init__()
        self.attention = SelfAttention(settings, encoder_heads_of(settings), window=window)
        self.around_attention = residual_connection(settings, norm_inside=settings.query_norm)
        self.feed_forward, self.around_feed_forward = FeedForward(settings), residual_connection(settings)

    def forward(self, hidden: Tensor, visible: Tensor) -> Tensor:
        """Return (batch, source_length, dim), from hidden of the same shape; visible as in `attend`."""
        attended = self.attention(self.around_attention.before(hidden), visible)
        hidden = self.around_attention.after(hidden, attended)
        return self.around_feed_forward.after(hidden, self.feed_forward(self.around_feed_forward.before(hidden)))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention, feed-forward, each in a residual connection; section 3.1.

    A recurrent cell can replace the self-attention.
    """

    attention: SelfAttention | SSRU

    def __init__(self, settings: TransformerSettings, window: int = 0) -> None:
        """window: of the self-attention. See TransformerSettings.windows."""
        super().__init__()
        recurrent = settings.decoder_cell == "ssru"
        self.attention = SSRU(settings) if recurrent else SelfAttention(settings, window=window)
        self.around_attention = residual_connection(settings, norm_inside=settings.query_norm and not recurrent)
        self.cross, self.around_cross = CrossAttention(settings), residual_connection(settings)
        self.feed_forward, self.around_feed_forward = FeedForward(settings), residual_connection(settings)

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return (batch, target_length, dim), from hidden of the same shape.

        memory, visible: as in `TransformerMemory`
        bias: what self-attention sees and adds to its scores, see `attend`, or None if it sees all positions up to
            each one
        """
        return self._rest(self._attend_to_itself(hidden, bias), memory, visible)

    def with_weights(
        self, hidden: Tensor, memory: KeyValue, visible: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the result of `forward`, and its cross-attention (batch, heads, target_length, source_length)."""
        hidden = self._attend_to_itself(hidden, bias)
        weights = self.cross.weights(self.around_cross.before(hidden), memory, visible)
        return self._rest(hidden, memory, visible), weights

    def step(
        self, hidden: Tensor, past: LayerPast, memory: KeyValue, visible: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, LayerPast]:
        """Decode one new position, hidden (batch, 1, dim), and return it, and the past with this position added.

        bias: as in `forward`, of the new position alone
        """
        attended, present = self._step_past(self.around_attention.before(hidden), past, bias)
        return self._rest(self.around_attention.after(hidden, attended), memory, visible), present

    def _step_past(self, read: Tensor, past: LayerPast, bias: Tensor | None) -> tuple[Tensor, LayerPast]:
        if isinstance(self.attention, SSRU):
            assert isinstance(past, CellState)
            return self.attention.step(read, past)
        assert isinstance(past, KeyValue)
        return self.attention.step(read, past, bias)

    def _attend_to_itself(self, hidden: Tensor, bias: Tensor | None) -> Tensor:
        attended = self.attention(self.around_attention.before(hidden), bias, causal=bias is None)
        return self.around_attention.after(hidden, attended)

    def _rest(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        crossed = self.cross(self.around_cross.before(hidden), memory, visible)
        hidden = self.around_cross.after(hidden, crossed)
        return self.around_feed_forward.after(hidden, self.feed_forward(self.around_feed_forward.before(hidden)))


class Transformer(AttentionModel[TransformerMemory, list[LayerPast]]):
    """Encoder and decoder of figure 1. The past is the keys and values, or the state of the cell, of every layer."""

    settings: TransformerSettings

    def __init__(self, settings: TransformerSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        self.source_embedding = Embedding(settings, source_vocab)
        self.target_embedding = Embedding(settings, target_vocab)
        encoder = nn.ModuleList(EncoderLayer(settings, window) for window in settings.windows("encoder"))
        decoder = nn.ModuleList(DecoderLayer(settings, window) for window in settings.windows("decoder"))
        self.encoder, self.decoder = cast("Sequence[EncoderLayer]", encoder), cast("Sequence[DecoderLayer]", decoder)
        # A post-norm layer ends with a norm. A stack of pre-norm layers needs a final one (Xiong et al., 2020).
        self.encoder_norm = norm_of(settings) if settings.final_norm else nn.Identity()
        self.decoder_norm = norm_of(settings) if settings.final_norm else nn.Identity()
        relative = settings.positions == "relative"
        self.encoder_bias = RelativeBias(settings, both_sides=True) if relative else None
        self.decoder_bias = None
        if relative and settings.decoder_cell == "attention":
            self.decoder_bias = RelativeBias(settings, both_sides=False)
        self.output = nn.Linear(settings.dim, target_vocab, bias=settings.output_bias)
        self._initialise()
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)  # section 3.4

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> TransformerMemory:
        visible = visible_positions(source_lengths, source_ids.size(1))
        windows = self.settings.windows("encoder")
        seen = {window: within_window(visible, window) if window else visible for window in windows}
        if self.encoder_bias is not None:
            seen = {window: self.encoder_bias.masked(each) for window, each in seen.items()}
        hidden = self.source_embedding(source_ids)
        for layer, window in zip(self.encoder, windows, strict=True):
            hidden = layer(hidden, seen[window])
        encoder_output = self.encoder_norm(hidden)
        return TransformerMemory([layer.cross.project_key_value(encoder_output) for layer in self.decoder], visible)

    def decode(self, target_ids: Tensor, memory: TransformerMemory) -> Tensor:
        hidden = self.target_embedding(target_ids)
        for layer, layer_memory, bias in zip(self.decoder, memory.layers, self._biases(hidden), strict=True):
            hidden = layer(hidden, layer_memory, memory.visible, bias)
        return self._logits(hidden)

    def decode_with_attention(self, target_ids: Tensor, memory: TransformerMemory) -> tuple[Tensor, Tensor]:
        hidden, weights = self.target_embedding(target_ids), []
        for layer, layer_memory, bias in zip(self.decoder, memory.layers, self._biases(hidden), strict=True):
            hidden, layer_weights = layer.with_weights(hidden, layer_memory, memory.visible, bias)
            weights.append(layer_weights)
        return self._logits(hidden), torch.stack(weights, dim=1)

    def start(self, memory: TransformerMemory) -> list[LayerPast]:
        """Return the empty past of every decoder layer: (rows, heads, 0, head_dim), or cells of zeros (rows, dim)."""
        rows = memory.visible.size(0)
        empty = self.output.weight.new_empty(rows, self.settings.heads, 0, self.settings.head_dim)
        return [
            layer.attention.start(rows) if isinstance(layer.attention, SSRU) else KeyValue(empty, empty)
            for layer in self.decoder
        ]

    def decode_step(
        self, token_ids: Tensor, past: list[LayerPast], memory: TransformerMemory
    ) -> tuple[Tensor, list[LayerPast]]:
        """Return logits (rows, vocab) after one more token for each row, and the past with that token added.

        token_ids: (rows)
        past: keys and values (rows, heads, length, head_dim) of every layer, or the states of its cell
        """
        length = _length(past[0])
        hidden, present = self.target_embedding(token_ids[:, None], length), []
        biases = self._biases(hidden, length)
        for layer, layer_past, layer_memory, bias in zip(self.decoder, past, memory.layers, biases, strict=True):
            hidden, layer_present = layer.step(hidden, layer_past, layer_memory, memory.visible, bias)
            present.append(layer_present)
        return self._logits(hidden)[:, 0], present

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., vocab) of the last hidden states (..., dim)."""
        logits: Tensor = self.output(self.decoder_norm(hidden))
        return softcap(logits, self.settings.output_softcap) if self.settings.output_softcap else logits

    def _biases(self, hidden: Tensor, first: int = 0) -> list[Tensor | None]:
        """Return what the self-attention of each decoder layer sees and adds to its scores. See `DecoderLayer`.

        hidden: of the queries (batch, length, dim), at the positions first, first + 1 and so on
        """
        windows = self.settings.windows("decoder")
        biases = {window: self._bias(window, first + hidden.size(1), hidden.device) for window in set(windows)}
        return [None if (bias := biases[window]) is None else bias[:, :, first:] for window in windows]

    def _bias(self, window: int, length: int, device: torch.device) -> Tensor | None:
        """Return the bias of the layers that have this window, (1, heads or 1, length, length), or None."""
        if not window and self.decoder_bias is None:
            return None
        seen = causal_window(length, window, device)
        return seen if self.decoder_bias is None else self.decoder_bias.masked(seen)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.pieces.weight, std=self.settings.dim**-0.5)


def _length(past: LayerPast) -> int:
    """Return the number of tokens in a past, which is that of every row."""
    return int(past.length[0]) if isinstance(past, CellState) else past.key.size(2)
