"""RNNsearch: attention to every state of a bidirectional encoder (Bahdanau et al., 2015).

    h_i = [forward h_i; backward h_i]                      the annotations, section 3.2
    s_0 = tanh(W_s backward h_1)                           appendix A.2.2
    e_ti = score(s_{t-1}, h_i), alpha_t = softmax(e_t)     equation 6
    c_t = sum over i of alpha_ti h_i                       equation 5
    s_t = f(s_{t-1}, y_{t-1}, c_t)                         section 3.1; f reads [y_{t-1}; c_t]
    u_t = U s_t + V y_{t-1} + C c_t                        appendix A.2.2, of width 2 * embedding_dim
    m_t = [max(u_t,2j-1, u_t,2j)] over all j               maxout
    p(y_t) = softmax(W_o m_t)

u_t has s_t, as equation 4 says; the appendix has s_{t-1}. An LSTM begins with a cell that is computed as s_0 is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lingon.training.config import RnnsearchSettings
from lingon.training.models.interface import AttentionModel
from lingon.training.models.layers import Dropout
from lingon.training.models.recurrent.cells import PieceEmbedding, RecurrentState, linear, recurrence, reverse_rows
from lingon.training.models.recurrent.scores import make_score, masked_softmax, real_tokens


class RnnsearchMemory(NamedTuple):
    """What the decoder reads of a batch of sources.

    annotations: (batch, source_length, 2 * encoder_dim)
    keys: (batch, source_length, key_dim), what the score makes of the annotations
    visible: (batch, 1, source_length), True at source tokens, False at padding
    start: the state before the first target token, (batch, dim) each
    """

    annotations: Tensor
    keys: Tensor
    visible: Tensor
    start: RecurrentState


class Bidirectional(nn.Module):
    """One layer that reads each row from its first token on, and one that reads it from its own last token back."""

    def __init__(self, settings: RnnsearchSettings) -> None:
        super().__init__()
        self.ahead = recurrence(settings, settings.embedding_dim, settings.encoder_dim)
        self.back = recurrence(settings, settings.embedding_dim, settings.encoder_dim)

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of both directions (batch, source_length, encoder_dim).

        embedded: (batch, source_length, embedding_dim)
        lengths: (batch)
        """
        rows = embedded.size(0)
        back = self.back(reverse_rows(embedded, lengths), self.back.start(rows))
        return self.ahead(embedded, self.ahead.start(rows)), reverse_rows(back, lengths)


class DeepOutput(nn.Module):
    """Maxout over U s_t + V y_{t-1} + C c_t; appendix A.2.2, and Goodfellow et al. (2013)."""

    def __init__(self, settings: RnnsearchSettings) -> None:
        super().__init__()
        self.of_state = linear(settings.dim, 2 * settings.output_dim, bias=True)
        self.of_token = linear(settings.embedding_dim, 2 * settings.output_dim)
        self.of_context = linear(2 * settings.encoder_dim, 2 * settings.output_dim)

    def forward(self, state: Tensor, token: Tensor, context: Tensor) -> Tensor:
        """Return (..., output_dim).

        state: (..., dim)
        token: (..., embedding_dim)
        context: (..., 2 * encoder_dim)
        """
        summed = self.of_state(state) + self.of_token(token) + self.of_context(context)
        return summed.unflatten(-1, (-1, 2)).amax(dim=-1)  # type: ignore[no-any-return]


class Rnnsearch(AttentionModel[RnnsearchMemory, RecurrentState]):
    """A bidirectional encoder, and a decoder that attends before each state. The past is the decoder's state."""

    settings: RnnsearchSettings

    def __init__(self, settings: RnnsearchSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        annotation_dim = 2 * settings.encoder_dim
        self.source_embedding = PieceEmbedding(settings, source_vocab)
        self.target_embedding = PieceEmbedding(settings, target_vocab)
        self.encoder = Bidirectional(settings)
        self.decoder = recurrence(settings, settings.embedding_dim + annotation_dim, settings.dim)
        self.first_state = linear(settings.encoder_dim, self.decoder.tensors * settings.dim, bias=True)
        self.score = make_score(settings.score, settings.dim, annotation_dim, settings.attention_dim)
        self.deep_output = DeepOutput(settings)
        self.dropout = Dropout(settings.dropout)
        self.output = linear(settings.output_dim, target_vocab)
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> RnnsearchMemory:
        ahead, back = self.encoder(self.source_embedding(source_ids), source_lengths)
        annotations = torch.cat([ahead, back], dim=-1)
        start = torch.tanh(self.first_state(back[:, 0])).chunk(self.decoder.tensors, dim=-1)
        visible = real_tokens(source_lengths, source_ids.size(1))
        return RnnsearchMemory(annotations, self.score.prepare(annotations), visible, start)

    def decode(self, target_ids: Tensor, memory: RnnsearchMemory) -> Tensor:
        return self.decode_with_attention(target_ids, memory)[0]

    def decode_with_attention(self, target_ids: Tensor, memory: RnnsearchMemory) -> tuple[Tensor, Tensor]:
        tokens, state = self.target_embedding(target_ids), memory.start
        steps: list[tuple[Tensor, Tensor, Tensor]] = []
        for token in tokens.unbind(1):
            weights, context = self.attend(state, memory)
            state = self.decoder.step(torch.cat([token, context], dim=-1), state)
            steps.append((state[0], context, weights))
        states, contexts, weights = (torch.stack(each, dim=1) for each in zip(*steps, strict=True))
        return self._logits(states, tokens, contexts), weights[:, None, None]

    def start(self, memory: RnnsearchMemory) -> RecurrentState:
        return memory.start

    def decode_step(
        self, token_ids: Tensor, past: RecurrentState, memory: RnnsearchMemory
    ) -> tuple[Tensor, RecurrentState]:
        token = self.target_embedding(token_ids)
        _, context = self.attend(past, memory)
        present = self.decoder.step(torch.cat([token, context], dim=-1), past)
        return self._logits(present[0], token, context), present

    def attend(self, state: RecurrentState, memory: RnnsearchMemory) -> tuple[Tensor, Tensor]:
        """Return the weights (rows, source_length) and the context (rows, 2 * encoder_dim); equations 5 and 6."""
        weights = masked_softmax(self.score(state[0][:, None], memory.keys), memory.visible)
        return weights[:, 0], (weights @ memory.annotations)[:, 0]

    def _logits(self, state: Tensor, token: Tensor, context: Tensor) -> Tensor:
        return self.output(self.dropout(self.deep_output(state, token, context)))  # type: ignore[no-any-return]
