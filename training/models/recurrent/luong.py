"""The global and the local attention of Luong et al. (2015): attention after the state, and input feeding.

    s_t = f(s_{t-1}, [y_{t-1}; a_{t-1}])       a stack of layers; a_{t-1} only with input feeding, section 3.3
    alpha_t(j) = softmax of score(s_t, h_j)    equation 7; over all source tokens, or over those of the window
    c_t = sum over j of alpha_t(j) h_j
    a_t = tanh(W_c [c_t; s_t])                 equation 5, the attentional state
    p(y_t) = softmax(W_s a_t)                  equation 6

h and s are the states of the last layers; every decoder layer begins with the last state of its encoder layer, and
a_0 = 0. Local attention, section 3.2, sees the source positions j, counted from 0, with |j - p_t| <= D:

    local-monotonic:   p_t = t                                       the last source token, if the target is longer
    local-predictive:  p_t = S sigmoid(v_p^T tanh(W_p s_t))          equation 9; S is the number of source tokens
                       alpha_t(j) exp(-(j - p_t)^2 / (2 sigma^2))    equation 10, sigma = D / 2, not normalised again
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lingon.training.config import LuongSettings
from lingon.training.models.interface import AttentionModel
from lingon.training.models.layers import Dropout
from lingon.training.models.recurrent.cells import PieceEmbedding, RecurrentState, Stack, linear
from lingon.training.models.recurrent.scores import make_score, masked_softmax, real_tokens


class LuongMemory(NamedTuple):
    """What the decoder reads of a batch of sources.

    annotations: (batch, source_length, dim)
    keys: (batch, source_length, key_dim), what the score makes of the annotations
    visible: (batch, 1, source_length), True at source tokens, False at padding
    last: the state of every encoder layer after the last token, (batch, dim) each
    """

    annotations: Tensor
    keys: Tensor
    visible: Tensor
    last: list[RecurrentState]


class LuongPast(NamedTuple):
    """What the decoder keeps of each row.

    layers: the state of every layer, (rows, dim) each
    attentional: (rows, dim), the last attentional state
    steps: (rows), the number of tokens so far
    """

    layers: list[RecurrentState]
    attentional: Tensor
    steps: Tensor


class Window(nn.Module):
    """The whole source: global attention."""

    def forward(self, scores: Tensor, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        """Return weights (rows, target_length, source_length).

        scores: (rows, target_length, source_length)
        states: (rows, target_length, dim)
        steps: (rows, target_length), the number of target tokens before each
        visible: (rows, 1, source_length)
        """
        return masked_softmax(scores, visible)


class MonotonicWindow(Window):
    """The positions around p_t = t."""

    def __init__(self, settings: LuongSettings) -> None:
        super().__init__()
        self.reach = settings.window

    def centre(self, states: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return p_t (rows, target_length); lengths (rows, 1) of the sources."""
        return torch.minimum(steps, lengths - 1).float()

    def distance(self, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        """Return j - p_t (rows, target_length, source_length)."""
        positions = torch.arange(visible.size(-1), device=visible.device)
        return positions - self.centre(states, steps, visible.sum(-1))[..., None]

    def forward(self, scores: Tensor, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        distance = self.distance(states, steps, visible)
        return masked_softmax(scores, visible & (distance.abs() <= self.reach))


class PredictiveWindow(MonotonicWindow):
    """The positions around a p_t that the state predicts, weighted by a Gaussian."""

    def __init__(self, settings: LuongSettings) -> None:
        super().__init__(settings)
        self.inner = linear(settings.dim, settings.dim)
        self.outer = linear(settings.dim, 1)

    def centre(self, states: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        share = torch.sigmoid(self.outer(torch.tanh(self.inner(states)))[..., 0].float())
        return lengths * share

    def forward(self, scores: Tensor, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        distance = self.distance(states, steps, visible)
        weights = masked_softmax(scores, visible & (distance.abs() <= self.reach))
        sigma = self.reach / 2
        return weights * torch.exp(-(distance**2) / (2 * sigma**2))


def window(settings: LuongSettings) -> Window:
    """Return the window of settings.alignment."""
    match settings.alignment:
        case "local-monotonic":
            return MonotonicWindow(settings)
        case "local-predictive":
            return PredictiveWindow(settings)
    return Window()


class Luong(AttentionModel[LuongMemory, LuongPast]):
    """Two stacks of recurrent layers, and attention from the last decoder layer to the last encoder layer."""

    settings: LuongSettings

    def __init__(self, settings: LuongSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        self.source_embedding = PieceEmbedding(settings, source_vocab)
        self.target_embedding = PieceEmbedding(settings, target_vocab)
        self.encoder = Stack(settings, settings.layers, settings.embedding_dim)
        fed = settings.dim if settings.input_feeding else 0
        self.decoder = Stack(settings, settings.layers, settings.embedding_dim + fed)
        self.score = make_score(settings.score, settings.dim, settings.dim, settings.attention_dim)
        self.window = window(settings)
        self.combine = linear(2 * settings.dim, settings.dim)
        self.dropout = Dropout(settings.dropout)
        self.output = linear(settings.output_dim, target_vocab)
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> LuongMemory:
        annotations, last = self.encoder.read(self.source_embedding(source_ids), source_lengths)
        visible = real_tokens(source_lengths, source_ids.size(1))
        return LuongMemory(annotations, self.score.prepare(annotations), visible, last)

    def decode(self, target_ids: Tensor, memory: LuongMemory) -> Tensor:
        return self.decode_with_attention(target_ids, memory)[0]

    def decode_with_attention(self, target_ids: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        tokens = self.target_embedding(target_ids)
        if self.settings.input_feeding:
            attentional, weights = self._decode_by_steps(tokens, memory)
        else:  # no state depends on attention, so that one pass computes the states of all steps
            steps = torch.arange(target_ids.size(1), device=target_ids.device).expand(target_ids.shape)
            attentional, weights = self.attend(self.decoder(tokens, memory.last), steps, memory)
        return self.output(self.dropout(attentional)), weights[:, None, None]

    def start(self, memory: LuongMemory) -> LuongPast:
        rows = memory.annotations.size(0)
        zeros = memory.annotations.new_zeros(rows, self.settings.dim)
        return LuongPast(memory.last, zeros, torch.zeros(rows, dtype=torch.long, device=zeros.device))

    def decode_step(self, token_ids: Tensor, past: LuongPast, memory: LuongMemory) -> tuple[Tensor, LuongPast]:
        present, _ = self._advance(self.target_embedding(token_ids), past, memory)
        return self.output(self.dropout(present.attentional)), present

    def attend(self, states: Tensor, steps: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        """Return attentional states (rows, target_length, dim) and weights (rows, target_length, source_length).

        states: (rows, target_length, dim)
        steps: (rows, target_length), the number of target tokens before each
        """
        weights = self.window(self.score(states, memory.keys), states, steps, memory.visible)
        context = weights @ memory.annotations
        return torch.tanh(self.combine(torch.cat([context, states], dim=-1))), weights

    def _decode_by_steps(self, tokens: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        past, found = self.start(memory), []
        for token in tokens.unbind(1):
            past, weights = self._advance(token, past, memory)
            found.append((past.attentional, weights))
        attentional, weights = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
        return attentional, weights

    def _advance(self, token: Tensor, past: LuongPast, memory: LuongMemory) -> tuple[LuongPast, Tensor]:
        """Return the past with one more token, token (rows, embedding_dim), and its weights (rows, source_length)."""
        inputs = torch.cat([token, past.attentional], dim=-1) if self.settings.input_feeding else token
        layers = self.decoder.step(inputs, past.layers)
        attentional, weights = self.attend(layers[-1][0][:, None], past.steps[:, None], memory)
        return LuongPast(layers, attentional[:, 0], past.steps + 1), weights[:, 0]
