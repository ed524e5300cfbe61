"""Averages of checkpoints, and weights rounded to fp16 values."""

from __future__ import annotations

from pathlib import Path

import torch

from lingon.errors import CheckpointError
from lingon.training.checkpoint import Checkpoint, load_checkpoint
from lingon.training.config import model_differences
from lingon.training.models.interface import AnyModel


@torch.no_grad()
def average_checkpoints(folders: list[Path]) -> Checkpoint:
    """Average the weights of checkpoints; settings, tokenizer and progress are those of the last one.

    Raises CheckpointError if their models or tokenizers differ, or a weight is not finite.
    """
    if not folders:
        raise CheckpointError("no checkpoint to average")
    last = _load_finite(folders[-1])
    total = {name: weight.double() for name, weight in last.model.named_parameters()}
    for folder in folders[:-1]:
        other = _load_finite(folder)
        _check_compatible(other, last)
        for name, weight in other.model.named_parameters():
            total[name] += weight
    for name, weight in last.model.named_parameters():
        weight.copy_(total[name] / len(folders))
    return last


@torch.no_grad()
def round_to_half(model: AnyModel) -> None:
    """Round every weight to the nearest fp16 value, so that 2 bytes store it without loss."""
    for name, weight in model.named_parameters():
        rounded = weight.half()
        if not rounded.isfinite().all():
            raise CheckpointError(f"{name} has a weight beyond the range of fp16 (65504)")
        weight.copy_(rounded)


def _load_finite(folder: Path) -> Checkpoint:
    """Load a checkpoint; raises CheckpointError for a weight that is not finite, which would spoil every average."""
    loaded = load_checkpoint(folder)
    for name, weight in loaded.model.named_parameters():
        if not weight.isfinite().all():
            raise CheckpointError(f"{folder}: {name} is not finite")
    return loaded


def _check_compatible(one: Checkpoint, other: Checkpoint) -> None:
    """Raise CheckpointError if the weights of two checkpoints do not correspond."""
    if found := model_differences(one.config.model, other.config.model):
        raise CheckpointError(f"{one.folder} and {other.folder} are of different models ({found[0]})")
    if one.tokenizer.files() != other.tokenizer.files():
        raise CheckpointError(f"{one.folder} and {other.folder} have different tokenizers: their pieces do not match")
