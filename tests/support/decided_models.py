"""Models with random weights whose translations have clear decisions, as those of trained models have."""

from __future__ import annotations

import torch

from lingon.training.models.transformer import Transformer


def decided(model: Transformer, gain: float = 20) -> Transformer:
    """The model with random weights that give various translations; a large gain gives large margins."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for parameter in model.decoder_norm.parameters():
            parameter.mul_(gain)
    return model
