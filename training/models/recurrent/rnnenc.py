"""RNNenc: an encoder and a decoder without attention (Sutskever et al., 2014; Cho et al., 2014).

The encoder reads the source x_1 .. x_S, the decoder begins with the encoder's last state and reads the target:

    h_i = f(h_{i-1}, x_i),  s_0 = h_S,  s_t = g(s_{t-1}, y_{t-1}),  p(y_t) = softmax(W s_t)

(Sutskever et al., section 2). Each decoder layer begins with the last state of its encoder layer. The last state is all
that the decoder has of the source. Cho et al. (equation 3) also show it to the decoder at every step, and transform it
before (appendix A.1.2); these two are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lingon.training.config import RnnencSettings
from lingon.training.models.interface import TranslationModel
from lingon.training.models.layers import Dropout
from lingon.training.models.recurrent.cells import PieceEmbedding, RecurrentState, Stack, linear, reverse_rows


class RnnencMemory(NamedTuple):
    """What the decoder gets of a batch of sources.

    last: the state of every encoder layer after the last token, (batch, dim) each
    """

    last: list[RecurrentState]


class Rnnenc(TranslationModel[RnnencMemory, list[RecurrentState]]):
    """Two stacks of recurrent layers. The past is the state of every decoder layer."""

    settings: RnnencSettings

    def __init__(self, settings: RnnencSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        self.source_embedding = PieceEmbedding(settings, source_vocab)
        self.target_embedding = PieceEmbedding(settings, target_vocab)
        self.encoder = Stack(settings, settings.layers, settings.embedding_dim)
        self.decoder = Stack(settings, settings.layers, settings.embedding_dim)
        self.dropout = Dropout(settings.dropout)
        self.output = linear(settings.output_dim, target_vocab)
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> RnnencMemory:
        if self.settings.reverse_source:  # Sutskever et al., section 3.3; EOS stays last
            source_ids = reverse_rows(source_ids, source_lengths, kept=1)
        _, last = self.encoder.read(self.source_embedding(source_ids), source_lengths)
        return RnnencMemory(last)

    def decode(self, target_ids: Tensor, memory: RnnencMemory) -> Tensor:
        states = self.decoder(self.target_embedding(target_ids), memory.last)
        return self.output(self.dropout(states))  # type: ignore[no-any-return]

    def start(self, memory: RnnencMemory) -> list[RecurrentState]:
        return memory.last

    def decode_step(
        self, token_ids: Tensor, past: list[RecurrentState], memory: RnnencMemory
    ) -> tuple[Tensor, list[RecurrentState]]:
        present = self.decoder.step(self.target_embedding(token_ids), past)
        return self.output(self.dropout(present[-1][0])), present
