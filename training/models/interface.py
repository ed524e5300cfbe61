"""The interface of all systems: what training, search and evaluation use of a model.

Every dimension has one name throughout the repository:
    batch (sentences), rows (hypotheses of a search), source_length, target_length, dim (of a state), heads, vocab
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

from lingon.text import FORBIDDEN
from lingon.training.model_settings import ModelSettings

FORBIDDEN_LOGIT = -3e4  # gives probability 0 in every precision, and is finite in fp16 (at most 65504)

Values = TypeVar("Values")
Memory = TypeVar("Memory")
Past = TypeVar("Past")


def select_rows(values: Values, rows: Tensor) -> Values:
    """Return these rows of a memory or a past; rows (selected) may repeat, reorder and drop rows.

    values: a tensor whose first dimension is the row, or a list, tuple or named tuple of such values
    """
    if isinstance(values, Tensor):
        return cast("Values", values[rows])
    assert isinstance(values, list | tuple), f"a memory or a past has tensors, lists and tuples, not {type(values)}"
    chosen = [select_rows(value, rows) for value in values]
    make = getattr(values, "_make", type(values))  # a named tuple takes its fields one by one
    return cast("Values", make(chosen))


class TranslationModel(nn.Module, ABC, Generic[Memory, Past]):
    """An encoder and a decoder. Training uses `forward`. Search uses `encode`, `start` and `decode_step`.

    Memory: what the decoder reads of a batch of sources, computed once
    Past: what the decoder keeps of the tokens of each row, replaced at every step

    Both are nested lists and named tuples of tensors whose first dimension is the sentence or the row, so that
    `select_rows` works on them. Subclasses make `output`, the layer of the logits, in their constructor.
    """

    settings: ModelSettings
    output: nn.Linear
    forbidden: Tensor  # (vocab): added to the logits by log_probs

    def __init__(self, settings: ModelSettings, target_vocab: int) -> None:
        super().__init__()
        self.settings = settings
        forbidden = torch.zeros(target_vocab)
        forbidden[[*FORBIDDEN, *settings.never_generated]] = FORBIDDEN_LOGIT
        self.register_buffer("forbidden", forbidden, persistent=False)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return teacher-forced logits (batch, target_length, vocab) of the token after each of target_ids.

        source_ids: (batch, source_length), each row as the tokenizer of the model frames it
        source_lengths: (batch)
        target_ids: (batch, target_length), each row begins with BOS
        """
        return self.decode(target_ids, self.encode(source_ids, source_lengths))

    @abstractmethod
    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Memory:
        """Return the memory of source_ids (batch, source_length) with source_lengths (batch)."""

    @abstractmethod
    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Return logits (batch, target_length, vocab); target_ids (batch, target_length) begins with BOS."""

    @abstractmethod
    def start(self, memory: Memory) -> Past:
        """Return the past before the first token: one row for each sentence of the memory."""

    @abstractmethod
    def decode_step(self, token_ids: Tensor, past: Past, memory: Memory) -> tuple[Tensor, Past]:
        """Return logits (rows, vocab) after one more token for each row, and the past with that token added.

        token_ids: (rows)
        past, memory: of the same rows
        """

    def log_probs(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (..., vocab) for search. Pieces that are never generated have probability 0."""
        return (logits.float() + self.forbidden).log_softmax(dim=-1)

    def _tie(self, source: nn.Embedding, target: nn.Embedding) -> None:
        """Share embedding and output matrices as settings.tie says (Press and Wolf, 2017)."""
        if self.settings.tie in ("all", "decoder"):
            self.output.weight = target.weight
        if self.settings.tie == "all":
            source.weight = target.weight


class AttentionModel(TranslationModel[Memory, Past]):
    """A system whose decoder attends to the source."""

    @abstractmethod
    def decode_with_attention(self, target_ids: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the logits of `decode`, and the weights of `attention`."""

    def attention(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return the weights of cross-attention (batch, layers, heads, target_length, source_length), teacher-forced.

        Entry (t, j) is the weight of source token j in the prediction of the token after token t of target_ids. Padding
        of the source has weight 0. The arguments are those of `forward`.
        """
        return self.decode_with_attention(target_ids, self.encode(source_ids, source_lengths))[1]


class WithAttention(nn.Module):
    """A module whose `forward` returns logits and attention weights, for a loss that has both."""

    def __init__(self, model: AttentionModel[Any, Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `decode_with_attention` returns. The arguments are those of `TranslationModel.forward`."""
        return self.model.decode_with_attention(target_ids, self.model.encode(source_ids, source_lengths))


AnyModel: TypeAlias = TranslationModel[Any, Any]
