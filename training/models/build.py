"""The choice of a model by its settings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from lingon.training.model_settings import (
    LuongSettings,
    ModelSettings,
    RnnencSettings,
    RnnsearchSettings,
    TransformerSettings,
)
from lingon.training.models.interface import AnyModel
from lingon.training.models.recurrent import Luong, Rnnenc, Rnnsearch
from lingon.training.models.transformer import Transformer

DRAWING = (init.normal_, init.uniform_, init.kaiming_uniform_, init.xavier_uniform_, Tensor.normal_, Tensor.uniform_)
"""What draws the first values of weights."""


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


def count_weights(settings: ModelSettings, source_vocab: int, target_vocab: int) -> int:
    """Return the number of weights of a model, without taking memory for them."""
    with torch.device("meta"):
        model = build_model(settings, source_vocab, target_vocab)
    return sum(parameter.numel() for parameter in model.parameters())


def build_unset(settings: ModelSettings, source_vocab: int, target_vocab: int) -> AnyModel:
    """Return a model whose weights are to be written, in training mode: drawing them would take time and memory."""
    with _Undrawn():
        return build_model(settings, source_vocab, target_vocab)


class _Undrawn(TorchFunctionMode):
    """A mode that leaves tensors as they are where random values would be drawn. Their memory is taken when they are
    written.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func in DRAWING:
            return args[0] if args else options["tensor"]
        return func(*args, **options)
