"""Checkpoints: a folder with the settings, the tokenizer, the weights (safetensors) and where the run stood (JSON)."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lingon.bundle.schema import SchemaError, parse_dataclass
from lingon.errors import BundleError, CheckpointError, SettingsError
from lingon.files import publish_folder, remove_partial_files, write_json
from lingon.text import Tokenizer
from lingon.training.config import Config, load_config, model_differences
from lingon.training.models.transformer import Transformer

CONFIG, MODEL, OPTIMIZER, STATE, BEST = (
    "config.json",
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "best.json",
)


@dataclass(slots=True)
class Progress:
    """Where a run stands; with the weights, the optimizer and the same text, all that a resumed run needs.

    Dropout draws from (seed, step, micro-batch) and the data order from (seed, epoch), so there is no other state.
    """

    step: int = 0  # updates done
    epoch: int = 0
    batch: int = 0  # micro-batches of this epoch that are done
    seconds: float = 0.0  # spent in training so far
    target_tokens: int = 0  # learned from so far
    best_bleu: float = -1.0
    best_step: int = 0
    stale: int = 0  # validations since the best one
    validated: int = 0  # the step of the last validation
    loss_scale: float = 65536.0  # of fp16 autocast
    scale_growth: int = 0  # updates since loss_scale last changed
    text: str = ""  # digest of the pairs of an epoch; empty where none was kept


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is needed to translate, evaluate, average or export."""

    config: Config
    tokenizer: Tokenizer
    model: Transformer
    progress: Progress
    folder: Path


def save_checkpoint(
    folder: Path,
    config: Config,
    tokenizer: Tokenizer,
    model: Transformer,
    progress: Progress,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Write a checkpoint whole or not at all; without an optimizer it cannot be resumed from."""
    try:
        with publish_folder(folder) as part:
            (part / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
            for name, content in tokenizer.files().items():
                (part / name).write_bytes(content)
            save_file(_weights(model), part / MODEL)
            if optimizer is not None:
                save_file(_optimizer_tensors(model, optimizer), part / OPTIMIZER)
            write_json(part / STATE, asdict(progress))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} was not written: {getattr(error, 'strerror', None) or error}") from None


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at path; of a run's folder, its best one, or its last where none was validated."""
    folder = resolve_checkpoint(path)
    config, tokenizer = _read_settings(folder)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab)
    model.load_state_dict(_matching_weights(model, folder), strict=False)  # strict: tied weights are there once
    return Checkpoint(config, tokenizer, model.eval(), _read_progress(folder), folder)


def load_weights(model: Transformer, folder: Path) -> None:
    """Put the weights of a checkpoint into a model of the same settings."""
    config, _ = _read_settings(folder)
    if other := model_differences(config.model, model.settings):
        raise CheckpointError(f"{folder} was trained with another model ({other[0]})")
    model.load_state_dict(_matching_weights(model, folder), strict=False)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Put the optimizer back where it was when folder was saved."""
    saved: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _read_tensors(folder / OPTIMIZER).items():
        of, _, key = name.rpartition(":")
        saved.setdefault(of, {})[key] = tensor
    for name, parameter in model.named_parameters():
        if name not in saved:
            raise CheckpointError(f"{folder / OPTIMIZER}: holds nothing for {name}")
        # The fused Adam keeps all of its state beside the weights, its step count too.
        optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in saved[name].items()}


def resolve_checkpoint(path: Path) -> Path:
    """The folder of the checkpoint that path means."""
    if (path / MODEL).is_file():
        return path
    if (path / BEST).is_file():
        return _best(path)
    steps = saved_steps(path)
    if not steps:
        raise CheckpointError(f"{path}: neither a checkpoint (no {MODEL}) nor a run that has one")
    return steps[-1]


def _best(run: Path) -> Path:
    name = _read_json(run / BEST).get("checkpoint")
    if not isinstance(name, str) or not (run / "checkpoints" / name / MODEL).is_file():
        raise CheckpointError(f"{run / BEST}: names no checkpoint of this run, but {name!r}")
    return run / "checkpoints" / name


def save_progress(folder: Path, progress: Progress) -> None:
    """Replace what a checkpoint says of where the run stood, once its validation is done."""
    write_json(folder / STATE, asdict(progress))


def saved_steps(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", path.name))


def step_folder(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def mark_best(run: Path, folder: Path, scores: dict[str, Any]) -> None:
    """Make a checkpoint the one that the run's folder stands for."""
    write_json(run / BEST, {"checkpoint": folder.name, **scores})


def remove_old_checkpoints(run: Path, keep: int) -> None:
    """Remove all but the last `keep` checkpoints and the best one."""
    best = _read_json(run / BEST).get("checkpoint") if (run / BEST).is_file() else None
    for folder in saved_steps(run)[:-keep]:
        if folder.name != best:
            remove_checkpoint(folder)


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint of a run."""
    # Renamed first: a kill in the middle leaves no half checkpoint by a name that is looked for.
    folder.rename(folder.with_name(f".{folder.name}.old"))
    _remove_leftover_checkpoints(folder.parent)


def remove_leftovers(run: Path) -> None:
    """Remove what a kill left of checkpoints that were being written or removed, and the name of a best that is gone.

    A person may have removed it: a checkpoint whose model was harmed.
    """
    if (run / BEST).is_file():
        name = _read_json(run / BEST).get("checkpoint")
        if isinstance(name, str) and not (run / "checkpoints" / name).exists():
            (run / BEST).unlink()
    _remove_leftover_checkpoints(run / "checkpoints")
    remove_partial_files(run)


def _remove_leftover_checkpoints(checkpoints: Path) -> None:
    for old in checkpoints.glob(".step-*.old"):
        shutil.rmtree(old)
    if checkpoints.is_dir():
        remove_partial_files(checkpoints)


def _read_settings(folder: Path) -> tuple[Config, Tokenizer]:
    try:
        return load_config(folder / CONFIG), Tokenizer.read(folder)
    except (SettingsError, BundleError) as error:
        raise CheckpointError(f"{folder} is not a whole checkpoint: {error}") from None


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, by its first name: tied ones are one tensor."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}:{key}": value.contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _matching_weights(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, exactly those that the model has."""
    tensors, own = _read_tensors(folder / MODEL), _weights(model)
    missing, unexpected = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or unexpected:
        raise CheckpointError(
            f"{folder / MODEL} does not fit the model: "
            f"missing weights: {_shortened(missing)}; unexpected weights: {_shortened(unexpected)}"
        )
    for name, weight in own.items():
        if tensors[name].shape != weight.shape:
            has, expected = tuple(tensors[name].shape), tuple(weight.shape)
            raise CheckpointError(f"{folder / MODEL}: {name} has shape {has}, the model expects {expected}")
    return tensors


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more or "none"


def _read_progress(folder: Path) -> Progress:
    try:
        return parse_dataclass(Progress, {"text": "", **_read_json(folder / STATE)})
    except SchemaError as error:
        raise CheckpointError(f"{folder / STATE}: {error}") from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None
