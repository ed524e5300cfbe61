"""Checkpoints: folders with settings (JSON), tokenizer, weights (safetensors) and the progress of the run (JSON)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lingon.bundle.schema import SchemaError, parse_dataclass
from lingon.errors import BundleError, CheckpointError, SettingsError, first_of
from lingon.files import publish_folder, remove_partial_files, write_json
from lingon.text import Tokenizer
from lingon.training.config import Config, load_config, model_differences
from lingon.training.models.build import build_unset
from lingon.training.models.interface import AnyModel

CONFIG, STATE, BEST = "config.json", "state.json", "best.json"
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
TRAINED = "weight"  # the key in the file of the optimizer

LOSS_GAIN = 1e-4
"""Nats a token: the loss must be lower by more than this to be better. It is above the error of its rounding."""


@dataclass(slots=True)
class TrainingProgress:
    """The progress of a run. A resumed run needs it, the weights, the optimizer and the same text.

    There is no other state: the seed of dropout is (seed, step, micro-batch), that of the data order (seed, epoch).
    """

    step: int = 0  # updates done
    epoch: int = 0
    block: int = 0  # of this epoch, which large corpora have several of
    batch: int = 0  # micro-batches of this block done
    seconds: float = 0.0  # time spent in updates
    target_tokens: int = 0  # target tokens of all updates
    best_bleu: float = -1.0
    best_chrf: float = -1.0
    best_loss: float = 0.0
    best_step: int = 0
    stale: int = 0  # validations since the best one
    validated: int = 0  # the step of the last validation
    loss_scale: float = 65536.0  # of fp16 autocast
    scale_growth: int = 0  # updates since loss_scale last changed
    text: str = ""  # digest of the pairs of an epoch
    validation: str = ""  # digest of what a validation measures, likewise

    def is_better(self, bleu: float, chrf: float, loss: float) -> bool:
        """Return whether a validation is the best one so far: by BLEU, with equal BLEU by chrF, then by the lower loss.

        BLEU is 0 while a model gets no four words in a row right, and chrF may be 0 too. The loss falls even then.
        """
        if (bleu, chrf) == (self.best_bleu, self.best_chrf):
            return loss < self.best_loss - LOSS_GAIN
        return (bleu, chrf) > (self.best_bleu, self.best_chrf)

    def forget_best(self) -> None:
        """Let the next validation be the best one: scores of another text or search cannot be compared with its own."""
        first = TrainingProgress()
        self.best_bleu, self.best_chrf, self.best_loss = first.best_bleu, first.best_chrf, first.best_loss
        self.stale = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint, to translate, evaluate, average or export."""

    config: Config
    tokenizer: Tokenizer
    model: AnyModel
    progress: TrainingProgress
    folder: Path


def save_checkpoint(
    folder: Path,
    config: Config,
    tokenizer: Tokenizer,
    model: AnyModel,
    progress: TrainingProgress,
    optimizer: torch.optim.Optimizer | None = None,
    trained: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint, whole or not at all. A run can resume from it only if it has the optimizer.

    trained: the weights that the next update changes, by name, if the model has their average
    """
    try:
        with publish_folder(folder) as part:
            (part / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
            for name, content in tokenizer.files().items():
                (part / name).write_bytes(content)
            save_file(_weights(model), part / MODEL)
            if optimizer is not None:
                kept = {f"{name}:{TRAINED}": weight for name, weight in (trained or {}).items()}
                save_file({**_optimizer_tensors(model, optimizer), **kept}, part / OPTIMIZER)
            write_json(part / STATE, asdict(progress))
            for path in part.glob("*.safetensors"):  # safetensors creates files for their owner only
                path.chmod((part / CONFIG).stat().st_mode)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from None


def load_checkpoint(path: Path) -> Checkpoint:
    """Load the checkpoint at path; for the folder of a run, its best one, or its last if none was validated."""
    folder = resolve_checkpoint(path)
    config, tokenizer = _read_settings(folder)
    model = build_unset(config.model, tokenizer.source_vocab, tokenizer.target_vocab)
    model.load_state_dict(_matching_weights(model, folder), strict=False)  # not strict: tied weights are saved once
    return Checkpoint(config, tokenizer, model.eval(), load_progress(folder), folder)


def load_weights(model: AnyModel, folder: Path) -> None:
    """Load the weights of a checkpoint into a model of the same settings."""
    config, _ = _read_settings(folder)
    if other := model_differences(config.model, model.settings):
        raise CheckpointError(f"{folder} was trained with another model ({other[0]})")
    model.load_state_dict(_matching_weights(model, folder), strict=False)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Restore the optimizer from a checkpoint, and the weights that updates change if the checkpoint has an average."""
    saved: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _read_tensors(folder / OPTIMIZER).items():
        weight, _, key = name.rpartition(":")
        saved.setdefault(weight, {})[key] = tensor
    for name, parameter in model.named_parameters():
        if name not in saved:
            raise CheckpointError(f"{folder / OPTIMIZER}: has no state of {name}")
        trained = saved[name].pop(TRAINED, None)
        if trained is not None:
            with torch.no_grad():
                parameter.copy_(trained)
        # The fused Adam keeps its whole state on the device of the weights, the step count too.
        optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in saved[name].items()}


def resolve_checkpoint(path: Path) -> Path:
    """Return the folder of the checkpoint that path means. See `load_checkpoint`."""
    if (path / MODEL).is_file():
        return path
    if (path / BEST).is_file():
        name = _name_of_best(path)
        if not isinstance(name, str) or not (path / "checkpoints" / name / MODEL).is_file():
            raise CheckpointError(f"{path / BEST}: must name a checkpoint of this run, got {name!r}")
        return path / "checkpoints" / name
    steps = saved_steps(path)
    if not steps:
        raise CheckpointError(f"{path}: neither a checkpoint (no {MODEL}) nor a run with a checkpoint")
    return steps[-1]


def _name_of_best(run: Path) -> object:
    """Return what the mark of the best checkpoint names, or None if there is no mark."""
    return _read_json(run / BEST).get("checkpoint") if (run / BEST).is_file() else None


def save_progress(folder: Path, progress: TrainingProgress) -> None:
    """Replace the progress in a checkpoint after its validation."""
    write_json(folder / STATE, asdict(progress))


def saved_steps(run: Path) -> list[Path]:
    """Return the checkpoints of a run, the oldest first."""
    return sorted(path for path in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", path.name))


def validated_steps(run: Path) -> list[Path]:
    """Return the checkpoints of a run that have a validation, the oldest first.

    One that a signal saved has none, and lies anywhere between two others: it is there to resume from.
    """
    return [folder for folder in saved_steps(run) if folder == step_folder(run, load_progress(folder).validated)]


def step_folder(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def mark_best(run: Path, folder: Path, scores: dict[str, Any]) -> None:
    """Mark a checkpoint as the best of its run."""
    write_json(run / BEST, {"checkpoint": folder.name, **scores})


def remove_old_checkpoints(run: Path, keep: int) -> None:
    """Remove all but the last `keep` checkpoints with a validation, the best one, and the last of all."""
    best = _name_of_best(run)
    saved, kept = saved_steps(run), validated_steps(run)[-keep:]
    for folder in saved[:-1]:
        if folder not in kept and folder.name != best:
            remove_checkpoint(folder)


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint of a run."""
    # Rename it first, so that a kill while files are removed leaves no partial checkpoint under a valid name.
    folder.rename(folder.with_name(f".{folder.name}.old"))
    _remove_leftover_checkpoints(folder.parent)


def remove_leftovers(run: Path) -> None:
    """Remove what a killed run has left: partial checkpoints, and the mark of a best checkpoint that does not exist.

    A user may have removed that checkpoint because its model has diverged.
    """
    name = _name_of_best(run)
    if isinstance(name, str) and not (run / "checkpoints" / name).exists():
        (run / BEST).unlink()
    _remove_leftover_checkpoints(run / "checkpoints")
    remove_partial_files(run)


def _remove_leftover_checkpoints(checkpoints: Path) -> None:
    for old in checkpoints.glob(".step-*.old"):
        shutil.rmtree(old)
    if checkpoints.is_dir():
        remove_partial_files(checkpoints)


def read_config(folder: Path) -> Config:
    """Return the settings of a checkpoint or of the best one of a run. Raise SettingsError or CheckpointError."""
    return load_config(resolve_checkpoint(folder) / CONFIG)


def _read_settings(folder: Path) -> tuple[Config, Tokenizer]:
    try:
        config = load_config(folder / CONFIG)
        return config, config.tokenizer_of_pair(Tokenizer.read(folder))
    except (SettingsError, BundleError) as error:
        raise CheckpointError(f"{folder} is not a complete checkpoint: {error}") from None


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return every weight under its first name. Tied weights are one tensor."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}:{key}": value.contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _matching_weights(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    """Read the weights of a checkpoint. Raise CheckpointError unless names and shapes are those of the model."""
    tensors, own = _read_tensors(folder / MODEL), _weights(model)
    missing, unexpected = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or unexpected:
        raise CheckpointError(
            f"{folder / MODEL} does not fit the model: "
            f"missing weights: {first_of(missing, 3) or 'none'}; "
            f"unexpected weights: {first_of(unexpected, 3) or 'none'}"
        )
    for name, weight in own.items():
        if tensors[name].shape != weight.shape:
            has, expected = tuple(tensors[name].shape), tuple(weight.shape)
            raise CheckpointError(f"{folder / MODEL}: {name} has shape {has}, the model expects {expected}")
    return tensors


def load_progress(folder: Path) -> TrainingProgress:
    """Return the progress that a checkpoint has saved."""
    try:
        return parse_dataclass(TrainingProgress, _read_json(folder / STATE))
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
    except RecursionError:
        raise CheckpointError(f"{path}: its values are nested too deeply") from None


# Averages of checkpoints, the moving average of a run, and weights rounded to fp16 values.


class MovingAverage:
    """The exponential moving average of the weights of a run (Polyak and Juditsky, 1992; Tarvainen and Valpola, 2017).

    The first updates count more: the decay of update t is at most (1 + t) / (10 + t).
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._average: dict[str, Tensor] = {}

    def begin(self, model: nn.Module) -> None:
        """Take the weights of a model as the average."""
        self._average = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    @torch.no_grad()
    def add(self, model: nn.Module, step: int) -> None:
        """Count the weights after an update; step: its number, from 1."""
        share = 1 - min(self._decay, (1 + step) / (10 + step))
        weights = dict(model.named_parameters())
        torch._foreach_lerp_([*self._average.values()], [weights[name].detach() for name in self._average], share)

    @contextmanager
    def shown(self, model: nn.Module) -> Iterator[dict[str, Tensor]]:
        """Give the model the average for the length of the block, and yield the weights that updates change."""
        trained = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        _set_weights(model, self._average)
        try:
            yield trained
        finally:
            _set_weights(model, trained)


@torch.no_grad()
def _set_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        weight.copy_(weights[name])


@torch.no_grad()
def average_checkpoints(folders: list[Path]) -> Checkpoint:
    """Average the weights of checkpoints. Settings, tokenizer and progress are those of the last one.

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
    """Load a checkpoint. Raises CheckpointError for a weight that is not finite, which would spoil every average."""
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
