"""The choice of a model by its settings."""

from __future__ import annotations

from lingon.training.config import (
    LuongSettings,
    ModelSettings,
    RnnencSettings,
    RnnsearchSettings,
    TransformerSettings,
)
from lingon.training.models.interface import AnyModel
from lingon.training.models.recurrent.luong import Luong
from lingon.training.models.recurrent.rnnenc import Rnnenc
from lingon.training.models.recurrent.rnnsearch import Rnnsearch
from lingon.training.models.transformer import Transformer


def build_model(settings: ModelSettings, source_vocab: int, target_vocab: int) -> AnyModel:
    """Return a model of this kind with random weights, in training mode."""
    match settings:
        case TransformerSettings():
            return Transformer(settings, source_vocab, target_vocab)
        case RnnencSettings():
            return Rnnenc(settings, source_vocab, target_vocab)
        case RnnsearchSettings():
            return Rnnsearch(settings, source_vocab, target_vocab)
        case LuongSettings():
            return Luong(settings, source_vocab, target_vocab)
    raise AssertionError(f"settings without a model: {type(settings).__name__}")
