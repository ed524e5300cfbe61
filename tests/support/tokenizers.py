"""Small sentencepiece models for tests."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import sentencepiece

from lingon.text import BOS, EOS, PAD, UNK


def train_sentencepiece(lines: Iterable[str], vocab_size: int, **options: Any) -> bytes:
    """A model trained on lines, with the special ids of lingon.text; options: of sentencepiece's trainer."""
    model = io.BytesIO()
    special_ids = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "unk_id": UNK}
    unchanged = {"normalization_rule_name": "identity"}  # lingon.text.normalise is the only place that changes text
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        **{**special_ids, **unchanged, **options},
        minloglevel=2,
    )
    return model.getvalue()
