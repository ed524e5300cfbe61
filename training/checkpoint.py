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

from lingon.errors import CheckpointError
from lingon.files import published, write_json, write_text
from lingon.text import Tokenizer
from training.config import Config, load_config
from training.model import Transformer

CONFIG, MODEL, OPTIMIZER, STATE, BEST = (
    "config.json",
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "best.json",
)


@dataclass(slots=True)
class Progress:
    """Where a run stands; with the weights and the optimizer, all that a resumed run needs.

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
    loss_scale: float = 65536.0  # of fp16 autocast


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
    with published(folder) as part:
        write_text(part / CONFIG, config.model_dump_json(indent=2) + "\n")
        for name, content in tokenizer.files().items():
            (part / name).write_bytes(content)
        save_file(_weights(model), part / MODEL)
        if optimizer is not None:
            save_file(_optimizer_tensors(model, optimizer), part / OPTIMIZER)
        write_json(part / STATE, asdict(progress))


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at path; of a run's folder, its best one, or its last where none was validated."""
    folder = resolve(path)
    config = load_config(folder / CONFIG)
    tokenizer = Tokenizer.read(folder)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab)
    load_weights(model, folder)
    progress = Progress(**_read_json(folder / STATE))
    return Checkpoint(config, tokenizer, model.eval(), progress, folder)


def load_weights(model: Transformer, folder: Path) -> None:
    """Put the weights of a checkpoint into a model of the same shape."""
    tensors = _read_tensors(folder / MODEL)
    missing, unexpected = model.load_state_dict(tensors, strict=False) if _fits(model, tensors, folder) else ([], [])
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - set(_weights(model))
    lacking = sorted(set(missing) - tied)
    if lacking or unexpected:
        raise CheckpointError(f"{folder / MODEL}: lacks {lacking}, has besides {sorted(unexpected)}")


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Put the optimizer back where it was when folder was saved."""
    tensors = _read_tensors(folder / OPTIMIZER)
    for name, parameter in model.named_parameters():
        state = {key.removeprefix(f"{name}:"): value for key, value in tensors.items() if key.startswith(f"{name}:")}
        if not state:
            raise CheckpointError(f"{folder / OPTIMIZER}: holds nothing for {name}")
        # Adam keeps its step count on the CPU, all else beside the weights.
        moved = {key: value if key == "step" else value.to(parameter.device) for key, value in state.items()}
        optimizer.state[parameter] = moved


def resolve(path: Path) -> Path:
    """The folder of the checkpoint that path means."""
    if (path / MODEL).is_file():
        return path
    best = path / BEST
    if best.is_file():
        return path / "checkpoints" / str(_read_json(best)["checkpoint"])
    steps = saved_steps(path)
    if not steps:
        raise CheckpointError(f"{path}: neither a checkpoint (no {MODEL}) nor a run that has one")
    return steps[-1]


def saved_steps(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", path.name))


def step_folder(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def mark_best(run: Path, folder: Path, scores: dict[str, Any]) -> None:
    """Make a checkpoint the one that the run's folder stands for."""
    write_json(run / BEST, {"checkpoint": folder.name, **scores})


def forget_old(run: Path, keep: int) -> None:
    """Remove all but the last `keep` checkpoints and the best one."""
    best = resolve(run)
    for folder in saved_steps(run)[:-keep]:
        if folder != best:
            shutil.rmtree(folder)


def average(folders: list[Path]) -> Checkpoint:
    """The checkpoint whose weights are the mean of those of folders; all else is the last one's."""
    if not folders:
        raise CheckpointError("nothing to average")
    last = load_checkpoint(folders[-1])
    total = {name: tensor.double() for name, tensor in _weights(last.model).items()}
    for folder in folders[:-1]:
        tensors = _read_tensors(folder / MODEL)
        _fits(last.model, tensors, folder)
        for name in total:
            total[name] += tensors[name].double()
    last.model.load_state_dict({name: (tensor / len(folders)).float() for name, tensor in total.items()}, strict=False)
    return last


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, by its first name: tied ones are one tensor."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}:{key}": value.contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _fits(model: nn.Module, tensors: dict[str, Tensor], folder: Path) -> bool:
    shapes = {name: parameter.shape for name, parameter in model.named_parameters(remove_duplicate=False)}
    for name, tensor in tensors.items():
        if name in shapes and tensor.shape != shapes[name]:
            raise CheckpointError(
                f"{folder / MODEL}: {name} is {tuple(tensor.shape)}, the model wants {tuple(shapes[name])}"
            )
    return True


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None
