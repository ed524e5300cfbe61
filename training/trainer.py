"""The training loop: updates, checkpoints and validations of a run, on one process or several.

A run that is stopped at any step and resumed ends with the same bits as a run that was never stopped, if one process
computes on a CPU with the same number of threads. On CUDA, or with another number of processes or threads, sums are
computed in another order, and the last bits differ.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lingon.errors import Interrupted, LingonError
from lingon.text import Tokenizer
from lingon.training import checkpoint as checkpoints
from lingon.training.batches import Batch, BatchMaker, derive_seed
from lingon.training.checkpoint import MovingAverage, TrainingProgress
from lingon.training.config import Config, LanguagePair, TrainingSettings
from lingon.training.corpus import Pair
from lingon.training.evaluation import validate
from lingon.training.feed import Feed, UpdateGroup
from lingon.training.interrupt import Interrupt
from lingon.training.models.interface import AnyModel, AttentionModel, WithAttention
from lingon.training.models.loss import AttentionLoss, smoothed_loss
from lingon.training.prepared import PreparedCorpus
from lingon.training.processes import Processes
from lingon.training.report import Meter, Report


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """Return the learning rate of update `step`, counted from 1: linear warm-up, then inverse square root.

    Vaswani et al. (2017), equation 3, scaled so that learning_rate is the peak. Over the last cooldown_steps updates
    the rate is also multiplied by a factor that falls linearly towards 0.
    """
    warm = min(step / settings.warmup_steps, math.sqrt(settings.warmup_steps / step))
    left = settings.max_steps + 1 - step
    return settings.learning_rate * warm * min(1.0, left / (settings.cooldown_steps + 1))


@dataclass(slots=True)
class Trainer:
    """A run: its model, its text and its progress. `lingon.training.setup.build_trainer` makes it, `run` trains."""

    config: Config
    folder: Path
    processes: Processes
    report: Report
    tokenizer: Tokenizer
    others: Mapping[LanguagePair, Tokenizer]  # of other pairs of languages, see `encode_pairs`
    corpus: PreparedCorpus
    valid: list[Pair]
    model: AnyModel
    optimizer: torch.optim.Optimizer
    interrupt: Interrupt
    average: MovingAverage | None = None  # of the weights, if one is kept
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    interrupted: bool = False  # whether a signal stopped any process; the same in all of them

    def run(self) -> TrainingProgress:
        """Train until max_steps, until patience has run out, or until a signal, and return the progress."""
        forward, scaler = self._training_module(), self._scaler()
        updates = self.feed().updates(self.progress)
        if self._validation_pending():
            with self._averaged():
                self._validate()
        self._remove_old_checkpoints()  # a kill after the last checkpoint may have left more than are kept
        meter = Meter()
        self.report.begin_updates()
        while not self._done():
            group, batches = next(updates)
            self._count(group)
            tokens = self._tokens(group, batches)
            meter.add(*self._update(forward, scaler, group, batches, tokens), tokens)
            if self.average is not None:
                self.average.add(self.model, self.progress.step)
            self.interrupted = self.processes.any(self.interrupt.requested)
            due = self._checkpoint_due() or self.interrupted
            if due or self.progress.step % self.config.training.log_every == 0:
                self._log(meter, group)
                if due:
                    self._save(scaler)
                meter = Meter()
        return self.progress

    def feed(self) -> Feed:
        """Return what makes the batches of the run."""
        maker = BatchMaker(self.corpus, self.config, self.tokenizer)
        return Feed(self.corpus, self.config, maker, self.processes)

    def _training_module(self) -> nn.Module:
        model: nn.Module = self.model
        if self.config.training.attention_terms:
            assert isinstance(self.model, AttentionModel), "the settings are refused for other models"
            model = WithAttention(self.model)
        if self.config.training.compile:
            model = torch.compile(model, dynamic=True)  # type: ignore[assignment]
        if self.processes.world_size > 1:
            model = DistributedDataParallel(model)
        return model

    def _scaler(self) -> torch.amp.GradScaler:
        enabled = self.config.training.precision == "fp16"
        scaler = torch.amp.GradScaler(self.processes.device.type, enabled=enabled)
        if enabled:
            state = {"scale": self.progress.loss_scale, "_growth_tracker": self.progress.scale_growth}
            scaler.load_state_dict({**scaler.state_dict(), **state})
        return scaler

    def _count(self, group: UpdateGroup) -> None:
        progress = self.progress
        progress.step += 1
        progress.epoch, progress.block, progress.batch = group.epoch, group.block, group.batch

    def _tokens(self, group: UpdateGroup, batches: list[Batch]) -> int:
        """Return the target tokens of an update, over all processes."""
        if not self.config.tokenizer.sampling_alpha:
            return group.tokens
        own = sum(batch.tokens for batch in batches) if self.processes.rank < len(group.requests) else 0
        return int(self.processes.sum(torch.tensor(own)))

    def _update(
        self, forward: nn.Module, scaler: torch.amp.GradScaler, group: UpdateGroup, batches: list[Batch], tokens: int
    ) -> tuple[Tensor, Tensor]:
        """Do one update and return the sum of the losses of this process and the norm of the gradient.

        batches: of this process; tokens: target tokens of all processes
        """
        settings, processes = self.config.training, self.processes
        mine = group.mine(processes.rank, processes.world_size)
        # a process without a batch adds nothing, but must take part
        share = 1.0 if processes.rank < len(group.requests) else 0.0
        total = torch.zeros((), device=processes.device)
        for index, made in zip(mine, batches, strict=True):
            # Every micro-batch has its own seed, so that dropout does not depend on the process or on earlier batches.
            torch.manual_seed(derive_seed(settings.seed, self.progress.step, index))
            batch = made.to(processes.device)
            with contextlib.ExitStack() as stack:
                if isinstance(forward, DistributedDataParallel) and index != mine[-1]:
                    stack.enter_context(forward.no_sync())
                with _autocast(settings.precision, processes.device):
                    loss = self._loss(forward, batch) * share
                # DDP takes the mean over processes. With the factor world_size it is the mean over the group's tokens.
                scaler.scale(loss * (processes.world_size / tokens)).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total, self._step_optimizer(scaler)

    def _loss(self, forward: nn.Module, batch: Batch) -> Tensor:
        """Return the sum over the target tokens of a batch."""
        settings = self.config.training
        if not settings.attention_terms:
            return smoothed_loss(forward(*batch[:3]), batch.labels, settings.label_smoothing)
        logits, weights = forward(*batch[:3])
        loss = smoothed_loss(logits, batch.labels, settings.label_smoothing)
        of_attention = AttentionLoss(settings.diagonal_penalty, settings.guided_alignment, *self.config.guided)
        return loss + of_attention(weights, batch.source_lengths, batch.labels, batch.alignment)

    def _step_optimizer(self, scaler: torch.amp.GradScaler) -> Tensor:
        settings = self.config.training
        for block in self.optimizer.param_groups:
            block["lr"] = learning_rate(self.progress.step, settings)
        scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _log(self, meter: Meter, group: UpdateGroup) -> None:
        """Log the updates since the last log line. A NaN or infinite figure ends the run before it is saved."""
        step, losses = self.progress.step, meter.losses(self.processes)
        # With the loss scale of fp16 a norm may be infinite: the scaler then skips the update and lowers the scale.
        if problem := meter.first_nonfinite(losses, step, norms=self.config.training.precision != "fp16"):
            self._fail(problem)
        figures = meter.figures(losses)
        self.progress.seconds += meter.seconds()
        self.progress.target_tokens += meter.tokens
        rate = learning_rate(step, self.config.training)
        done = {"target_tokens": float(self.progress.target_tokens), "seconds": self.progress.seconds}
        figures |= {"learning_rate": rate, "epoch": group.epoch + group.share, **done}
        self.report.log_training(step, figures)
        self._draw_curves(at_once=False)

    def _draw_curves(self, *, at_once: bool) -> None:
        best = self.progress.best_step if self.progress.best_bleu >= 0 else 0  # none after it was forgotten
        stages = [stage.until for stage in self.config.training.stage if stage.until is not None]
        self.report.draw_curves(best, stages, at_once=at_once)

    def _checkpoint_due(self) -> bool:
        """Return whether this step has a checkpoint and a validation by the settings."""
        return self.progress.step % self.config.training.valid_every == 0 or self._complete()

    def _complete(self) -> bool:
        return self.progress.step >= self.config.training.max_steps

    def _done(self) -> bool:
        out_of_patience = 0 < self.config.training.patience <= self.progress.stale
        return self._complete() or out_of_patience or self.interrupted

    def _validation_pending(self) -> bool:
        """Return whether the run stopped between a checkpoint and the validation of that checkpoint."""
        return 0 < self.progress.step != self.progress.validated and self._checkpoint_due()

    def _save(self, scaler: torch.amp.GradScaler) -> None:
        """Write the checkpoint, then validate it, so that a kill during the validation loses no update."""
        for name, weight in self.model.named_parameters():
            if not weight.isfinite().all():
                self._fail(f"{name} after step {self.progress.step} has a value that is not finite")
        if scaler.is_enabled():
            state = scaler.state_dict()
            self.progress.loss_scale, self.progress.scale_growth = state["scale"], state["_growth_tracker"]
        with self._averaged() as trained:
            if self.processes.is_leader:
                folder = checkpoints.step_folder(self.folder, self.progress.step)
                checkpoints.save_checkpoint(
                    folder, self.config, self.tokenizer, self.model, self.progress, self.optimizer, trained
                )
            if self._checkpoint_due() and not self.interrupted:
                self._validate()
        self._remove_old_checkpoints()

    def _averaged(self) -> contextlib.AbstractContextManager[dict[str, Tensor] | None]:
        """Give the model the moving average, if there is one, and yield the weights that updates change."""
        return contextlib.nullcontext() if self.average is None else self.average.shown(self.model)

    def _remove_old_checkpoints(self) -> None:
        if self.processes.is_leader:
            checkpoints.remove_old_checkpoints(self.folder, self.config.training.keep_checkpoints)
        self.processes.barrier()

    def _fail(self, problem: str) -> NoReturn:
        """Raise LingonError because the model has diverged. Nothing more is saved."""
        saved = checkpoints.saved_steps(self.folder)
        resume = f"the run resumes from {saved[-1]}; remove it if it has diverged too" if saved else "nothing was saved"
        raise LingonError(f"{problem}; lower training.learning_rate; {resume}")

    def _validate(self) -> None:
        """Validate the last checkpoint on the leader. Every process gets the scores, which decide when to stop.

        A checkpoint whose loss is NaN or infinite is removed, and the run ends.
        """
        progress, found = self.progress, None
        figures = {"bleu": 0.0, "chrf": 0.0, "loss": 0.0}
        if self.processes.is_leader:
            found = validate(self.model, self.tokenizer, self.others, self.valid, self.config)
            figures = found.figures
            self.report.log_validation(progress.step, found)
        bleu, chrf, loss = (self.processes.broadcast(figures[name]) for name in ("bleu", "chrf", "loss"))
        if not math.isfinite(loss):
            if self.processes.is_leader:
                checkpoints.remove_checkpoint(checkpoints.step_folder(self.folder, progress.step))
            self.processes.barrier()
            self._fail(f"the validation loss at step {progress.step} is {loss}")
        progress.validated, progress.stale = progress.step, progress.stale + 1
        if progress.is_better(bleu, chrf, loss):
            progress.best_bleu, progress.best_chrf, progress.best_loss = bleu, chrf, loss
            progress.best_step, progress.stale = progress.step, 0
        if found is not None:
            folder = checkpoints.step_folder(self.folder, progress.step)
            if progress.stale == 0:
                checkpoints.mark_best(self.folder, folder, found.numbers)
            checkpoints.save_progress(folder, progress)
        self._draw_curves(at_once=True)


def outcome(trainer: Trainer) -> str:
    """Return the last message of a run. Raises Interrupted if a signal stopped it.

    That is also so after the last update, because its validation is still missing.
    """
    progress = trainer.progress
    if trainer.interrupted:
        message = f"stopped by a signal after step {progress.step}; run the same command again to resume"
        raise Interrupted(message, trainer.interrupt.signal_number)
    if progress.best_bleu < 0:  # it was forgotten, and no update has followed
        return f"ended after step {progress.step}; not validated since a change of what validations measure"
    score = "mean BLEU" if trainer.others else "BLEU"  # over the pairs of languages
    return f"ended after step {progress.step}; best {score} {progress.best_bleu:.2f} at {progress.best_step}"


def _autocast(precision: str, device: torch.device) -> torch.autocast:
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return torch.autocast(device.type, kind, enabled=precision != "fp32")
