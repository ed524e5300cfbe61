"""The training loop: one update after another, exactly resumable, the same on one process or several.

Cut at any step and resumed, a run has the bits of one never cut where one process computes on a CPU, with as many
threads as before. On CUDA, or among other processes or threads, sums are taken in another order: the last bits differ.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lingon.errors import LingonError, SettingsError
from lingon.scoring import score
from lingon.text import Tokenizer
from lingon.training import checkpoint as checkpoints
from lingon.training.checkpoint import Progress
from lingon.training.config import Config, TrainingSettings
from lingon.training.data.batches import Batch, EncodedPairs, EpochEncoder, derive_seed, encode_pairs, plan_batches
from lingon.training.data.corpus import Pair, sides
from lingon.training.evaluation import held_out_loss, translate_texts
from lingon.training.models.loss import smoothed_loss
from lingon.training.models.transformer import Transformer
from lingon.training.run.distributed import Processes
from lingon.training.run.interrupt import Interrupt
from lingon.training.run.meter import Meter
from lingon.training.run.report import Report
from lingon.training.search import SearchSettings


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """The rate of update `step`, counted from 1: linear warm-up, then inverse square root (section 5.3).

    With cooldown_steps it falls in a straight line to 0 over the last of them.
    """
    warm = min(step / settings.warmup_steps, math.sqrt(settings.warmup_steps / step))
    left = settings.max_steps + 1 - step
    return settings.learning_rate * warm * min(1.0, left / (settings.cooldown_steps + 1))


@dataclass(slots=True)
class Trainer:
    """One run: the model and where it stands. `lingon.training.run.setup.build_trainer` makes it, `run` trains."""

    config: Config
    folder: Path
    processes: Processes
    report: Report
    tokenizer: Tokenizer
    pairs: list[Pair]
    valid: list[Pair]
    model: Transformer
    optimizer: torch.optim.Optimizer
    interrupt: Interrupt
    progress: Progress = field(default_factory=Progress)
    interrupted: bool = False  # in any process; all of them know

    def run(self) -> Progress:
        """Train to max_steps, to the end of patience or to an interrupt; returns where it ended."""
        forward, scaler, groups = self._training_module(), self._scaler(), self._update_groups()
        if self._validation_pending():
            self._validate()
        meter = Meter()
        while not self._done():
            group = next(groups)
            meter.add(*self._update(forward, scaler, group), group.tokens)
            self.interrupted = self.processes.any(self.interrupt.requested)
            due = self._checkpoint_due() or self.interrupted
            if due or self.progress.step % self.config.training.log_every == 0:
                self._log(meter, group)
                if due:
                    self._save(scaler)
                meter = Meter()
        return self.progress

    def _training_module(self) -> nn.Module:
        model: nn.Module = self.model
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

    def _update_groups(self) -> Iterator[Group]:
        """Micro-batches of one update each, from where the run stands, epoch after epoch."""
        settings, progress = self.config.training, self.progress
        alpha, max_tokens = self.config.tokenizer.sampling_alpha, self.config.data.max_tokens
        encoder = EpochEncoder(self.pairs, self.tokenizer, alpha, max_tokens)
        while True:
            seed = (settings.seed, progress.epoch)
            encoded = encoder.encode(seed)
            plan = plan_batches(encoded.lengths(), settings.batch_tokens, seed)
            if len(plan) < settings.accumulate:
                raise SettingsError(
                    f"training.accumulate must be at most {len(plan)}, the batches of an epoch, "
                    f"got {settings.accumulate}"
                )
            while progress.batch + settings.accumulate <= len(plan):
                rows = plan[progress.batch : progress.batch + settings.accumulate]
                progress.batch += settings.accumulate
                progress.step += 1
                yield Group(encoded, [row.tolist() for row in rows], progress.epoch + progress.batch / len(plan))
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _update(self, forward: nn.Module, scaler: torch.amp.GradScaler, group: Group) -> tuple[Tensor, Tensor]:
        """Learn from one group; returns the sum of this process' losses and the norm of the gradient."""
        settings, processes = self.config.training, self.processes
        mine = range(processes.rank, len(group.rows), processes.world_size)
        total = torch.zeros((), device=processes.device)
        for index in mine:
            # A seed for every micro-batch makes dropout independent of who computes it and of what came before.
            torch.manual_seed(derive_seed(settings.seed, self.progress.step, index))
            batch = group.batch(index).to(processes.device)
            with contextlib.ExitStack() as stack:
                if isinstance(forward, DistributedDataParallel) and index != mine[-1]:
                    stack.enter_context(forward.no_sync())
                with _autocast(settings.precision, processes.device):
                    loss = smoothed_loss(forward(*batch[:3]), batch.labels, settings.label_smoothing)
                # DDP takes the mean over processes: times their number it is the mean over the group's tokens.
                scaler.scale(loss * (processes.world_size / group.tokens)).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total, self._step_optimizer(scaler)

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

    def _log(self, meter: Meter, group: Group) -> None:
        """Log the updates since the last time; a figure that is no number ends the run before it is saved."""
        step, losses = self.progress.step, meter.losses(self.processes)
        # Under the loss scale of fp16 a norm may be infinite: that update is left out and the scale lowered.
        if problem := meter.first_nonfinite(losses, step, norms=self.config.training.precision != "fp16"):
            self._fail(problem)
        figures = meter.figures(losses)
        self.progress.seconds += meter.seconds()
        self.progress.target_tokens += meter.tokens
        rate = learning_rate(step, self.config.training)
        self.report.log_training(step, {**figures, "learning_rate": rate, "epoch": group.epoch})

    def _checkpoint_due(self) -> bool:
        """Whether the settings want a validation and a checkpoint at this step."""
        return self.progress.step % self.config.training.valid_every == 0 or self._complete()

    def _complete(self) -> bool:
        return self.progress.step >= self.config.training.max_steps

    def _done(self) -> bool:
        impatient = 0 < self.config.training.patience <= self.progress.stale
        return self._complete() or impatient or self.interrupted

    def _validation_pending(self) -> bool:
        """Whether the run was cut between a checkpoint and the validation that belonged to it."""
        return 0 < self.progress.step != self.progress.validated and self._checkpoint_due()

    def _save(self, scaler: torch.amp.GradScaler) -> None:
        """Write the checkpoint, then score it: a kill during the validation loses none of the training."""
        for name, weight in self.model.named_parameters():
            if not weight.isfinite().all():
                self._fail(f"{name} after step {self.progress.step} holds what is no number")
        if scaler.is_enabled():
            state = scaler.state_dict()
            self.progress.loss_scale, self.progress.scale_growth = state["scale"], state["_growth_tracker"]
        if self.processes.is_leader:
            folder = checkpoints.step_folder(self.folder, self.progress.step)
            checkpoints.save_checkpoint(folder, self.config, self.tokenizer, self.model, self.progress, self.optimizer)
        if self._checkpoint_due() and not self.interrupted:
            self._validate()
        if self.processes.is_leader:
            checkpoints.remove_old_checkpoints(self.folder, self.config.training.keep_checkpoints)
        self.processes.barrier()

    def _fail(self, problem: str) -> NoReturn:
        """End the run for what has become of the model, before more of it is saved."""
        saved = checkpoints.saved_steps(self.folder)
        back = f"the run goes on from {saved[-1]}; remove it if it is harmed too" if saved else "nothing was saved"
        raise LingonError(f"{problem}; lower training.learning_rate; {back}")

    def _validate(self) -> None:
        """Score the last checkpoint; one process does the work, and all learn what decides when to stop.

        A checkpoint whose loss is no number is removed.
        """
        progress, figures = self.progress, {"bleu": 0.0, "loss": 0.0}
        if self.processes.is_leader:
            figures = self._score_validation_set()
        bleu, loss = self.processes.broadcast(figures["bleu"]), self.processes.broadcast(figures["loss"])
        if not math.isfinite(loss):
            if self.processes.is_leader:
                checkpoints.remove_checkpoint(checkpoints.step_folder(self.folder, progress.step))
            self.processes.barrier()
            self._fail(f"the validation loss at step {progress.step} is {loss}")
        progress.validated, progress.stale = progress.step, progress.stale + 1
        if bleu > progress.best_bleu:
            progress.best_bleu, progress.best_step, progress.stale = bleu, progress.step, 0
        if self.processes.is_leader:
            folder = checkpoints.step_folder(self.folder, progress.step)
            if progress.stale == 0:
                checkpoints.mark_best(self.folder, folder, figures)
            checkpoints.save_progress(folder, progress)

    def _score_validation_set(self) -> dict[str, float]:
        """Loss, perplexity, BLEU and chrF on the validation set, which are also reported."""
        settings = self.config.training
        self.model.eval()
        sources, references = sides(self.valid[: settings.valid_sentences])
        search = SearchSettings(beam_size=settings.valid_beam_size)
        scores = score(translate_texts(self.model, self.tokenizer, sources, search), references)
        loss = held_out_loss(self.model, encode_pairs(self.valid, self.tokenizer), settings.batch_tokens)
        self.model.train()
        perplexity = math.exp(min(loss, 700.0))  # beyond it a float ends
        figures = {"loss": loss, "perplexity": perplexity, "bleu": scores.bleu, "chrf": scores.chrf}
        self.report.log_validation(self.progress.step, figures, scores)
        return figures


def outcome(trainer: Trainer) -> str:
    """What a run says of itself in the end. Raises LingonError where a signal stopped it."""
    progress = trainer.progress
    if trainer.interrupted:  # after its last update too: the validation is still to come
        raise LingonError(f"stopped by a signal after step {progress.step}; the same command goes on from there")
    return f"ended after step {progress.step}; best BLEU {progress.best_bleu:.2f} at {progress.best_step}"


@dataclass(frozen=True, slots=True)
class Group:
    """The micro-batches of one update.

    rows: of every micro-batch, the pairs of `encoded` that it holds
    epoch: how many epochs are done with this group
    """

    encoded: EncodedPairs
    rows: list[list[int]]
    epoch: float

    @property
    def tokens(self) -> int:
        """Target tokens of the whole group, over all processes."""
        return sum(len(self.encoded.targets[row]) + 1 for rows in self.rows for row in rows)

    def batch(self, index: int) -> Batch:
        """One micro-batch."""
        return self.encoded.batch(self.rows[index])


def _autocast(precision: str, device: torch.device) -> torch.autocast:
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return torch.autocast(device.type, kind, enabled=precision != "fp32")
