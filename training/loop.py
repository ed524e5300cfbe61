"""The training loop: one update after another, exactly resumable, the same on one process or several."""

from __future__ import annotations

import contextlib
import ctypes
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from lingon.errors import CheckpointError, CorpusError, SettingsError
from lingon.files import write_text
from lingon.text import Tokenizer
from training import checkpoint as checkpoints
from training.batches import Batch, EncodedPairs, drop_long, encode_pairs, plan_batches
from training.checkpoint import Progress
from training.config import Config, TrainingSettings
from training.corpus import Pair, read_pairs, read_training_pairs, sides
from training.distributed import Processes
from training.evaluation import perplexity, score, smoothed_loss, translate_texts
from training.model import Transformer
from training.report import Report
from training.search import SearchSettings
from training.vocabulary import train_tokenizer


@dataclass(slots=True)
class Interrupt:
    """Whether a person or the system asked the run to stop; it then saves and ends."""

    asked: bool = False

    def listen(self) -> None:
        """Ask on SIGINT and SIGTERM; a second signal ends the process at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """The rate of update `step`, counted from 1: linear warm-up, then inverse square root (section 5.3).

    With cooldown_steps it falls in a straight line to 0 over the last of them.
    """
    warm = min(step / settings.warmup_steps, math.sqrt(settings.warmup_steps / step))
    left = settings.max_steps + 1 - step
    return settings.learning_rate * warm * min(1.0, left / (settings.cooldown_steps + 1))


@dataclass(slots=True)
class Trainer:
    """One run: the model and where it stands. `prepare` makes it, `run` trains."""

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

    def run(self) -> Progress:
        """Train to max_steps, to the end of patience or to an interrupt; returns where it ended."""
        settings = self.config.training
        forward = self._wrapped()
        scaler = torch.amp.GradScaler(
            self.processes.device.type, init_scale=self.progress.loss_scale, enabled=settings.precision == "fp16"
        )
        meter = Meter()
        for group in self._groups():
            loss, norm = self._update(forward, scaler, group)
            meter.add(loss, norm, group.tokens, self.processes)
            self.progress.target_tokens += group.tokens
            if self.progress.step % settings.log_every == 0:
                self.progress.seconds += meter.seconds()
                self._tell(meter)
                meter = Meter()
            if self._due():
                self.progress.loss_scale = scaler.get_scale() if scaler.is_enabled() else self.progress.loss_scale
                self.progress.seconds += meter.seconds()
                self._validate_and_save(scores=not self.interrupt.asked)
                meter = Meter()
            if self._done():
                break
        return self.progress

    def _wrapped(self) -> nn.Module:
        model: nn.Module = self.model
        if self.config.training.compile:
            model = torch.compile(model, dynamic=True)  # type: ignore[assignment]
        return DistributedDataParallel(model) if self.processes.world > 1 else model

    def _groups(self) -> Iterator[Group]:
        """Micro-batches of one update each, from where the run stands, epoch after epoch."""
        settings = self.config.training
        while True:
            seed = (settings.seed, self.progress.epoch)
            encoded = encode_pairs(
                self.pairs, self.tokenizer, self.config.tokenizer.sampling_alpha, seed=settings.seed + self.progress.epoch
            )
            plan = plan_batches(encoded.lengths(), settings.batch_tokens, seed)
            if len(plan) < settings.accumulate:
                raise SettingsError(
                    f"training.accumulate must be at most the {len(plan)} batches of an epoch, got {settings.accumulate}"
                )
            while self.progress.batch + settings.accumulate <= len(plan):
                rows = plan[self.progress.batch : self.progress.batch + settings.accumulate]
                self.progress.batch += settings.accumulate
                self.progress.step += 1
                yield Group(encoded, [row.tolist() for row in rows], self.progress.epoch + self.progress.batch / len(plan))
            self.progress.epoch += 1
            self.progress.batch = 0

    def _update(self, forward: nn.Module, scaler: torch.amp.GradScaler, group: Group) -> tuple[Tensor, Tensor]:
        """Learn from one group; returns the sum of this process' losses and the norm of the gradient."""
        settings, processes = self.config.training, self.processes
        mine = range(processes.rank, len(group.rows), processes.world)
        total = torch.zeros((), device=processes.device)
        for index in mine:
            # A seed for every micro-batch makes dropout independent of who computes it and of what came before.
            torch.manual_seed(hash((settings.seed, self.progress.step, index)) % 2**63)
            batch = group.batch(index).to(processes.device)
            with contextlib.ExitStack() as stack:
                if processes.world > 1 and index != mine[-1]:
                    assert isinstance(forward, DistributedDataParallel)
                    stack.enter_context(forward.no_sync())
                stack.enter_context(_autocast(settings.precision, processes.device))
                loss = smoothed_loss(forward(*batch[:3]), batch.labels, settings.label_smoothing)
                # DDP takes the mean over processes: times their number it is the mean over the group's tokens.
                scaler.scale(loss * (processes.world / group.tokens)).backward()
            total += loss.detach()
        return total, self._apply(scaler)

    def _apply(self, scaler: torch.amp.GradScaler) -> Tensor:
        settings = self.config.training
        for block in self.optimizer.param_groups:
            block["lr"] = learning_rate(self.progress.step, settings)
        scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _tell(self, meter: Meter) -> None:
        figures = meter.figures()
        figures["learning_rate"] = learning_rate(self.progress.step, self.config.training)
        figures["epoch"] = float(self.progress.epoch)
        self.report.training(self.progress.step, figures)

    def _due(self) -> bool:
        step, settings = self.progress.step, self.config.training
        self.interrupt.asked = self.processes.any(self.interrupt.asked)
        return step % settings.valid_every == 0 or step == settings.max_steps or self.interrupt.asked

    def _done(self) -> bool:
        settings = self.config.training
        impatient = 0 < settings.patience <= self.progress.stale
        return self.progress.step >= settings.max_steps or impatient or self.interrupt.asked

    def _validate_and_save(self, *, scores: bool) -> None:
        figures = self._validate() if scores else None
        if self.processes.leads:
            folder = checkpoints.step_folder(self.folder, self.progress.step)
            if not folder.exists():
                checkpoints.save_checkpoint(
                    folder, self.config, self.tokenizer, self.model, self.progress, self.optimizer
                )
            if figures and self.progress.stale == 0:
                checkpoints.mark_best(self.folder, folder, figures)
            checkpoints.forget_old(self.folder, self.config.training.keep_checkpoints)
        self.processes.wait()

    def _validate(self) -> dict[str, float]:
        """Score the model; every process does the same work, so that all know when to stop."""
        settings, device = self.config.training, self.processes.device
        self.model.eval()
        encoded = encode_pairs(self.valid, self.tokenizer)
        sources, references = sides(self.valid[: settings.valid_sentences])
        search = SearchSettings(beam_size=settings.valid_beam_size)
        scores = score(translate_texts(self.model, self.tokenizer, sources, search), references)
        figures = {
            "perplexity": perplexity(self.model, encoded, settings.batch_tokens, device),
            "bleu": scores.bleu,
            "chrf": scores.chrf,
        }
        self.model.train()
        self.progress.stale += 1
        if scores.bleu > self.progress.best_bleu:
            self.progress.best_bleu, self.progress.best_step, self.progress.stale = scores.bleu, self.progress.step, 0
        self.report.validation(self.progress.step, figures, scores.bleu_signature)
        return figures


@dataclass(frozen=True, slots=True)
class Group:
    """The micro-batches of one update."""

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


class Meter:
    """Loss and speed since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._losses: list[Tensor] = []
        self._norm = torch.zeros(())
        self._tokens = 0

    def add(self, loss: Tensor, norm: Tensor, tokens: int, processes: Processes) -> None:
        """Count an update; nothing waits for the device until the figures are asked for."""
        self._losses.append(processes.total(loss))
        self._norm, self._tokens = norm, self._tokens + tokens

    def seconds(self) -> float:
        """Since the meter was made."""
        return time.perf_counter() - self._start

    def figures(self) -> dict[str, float]:
        """Smoothed loss per target token, speed, and the norm of the last gradient."""
        loss = float(torch.stack(self._losses).sum()) / self._tokens
        return {
            "loss": loss,
            "tokens_per_second": self._tokens / self.seconds(),
            "gradient_norm": float(self._norm),
        }


def prepare(
    config: Config, folder: Path, processes: Processes, report: Report, interrupt: Interrupt, start: Path | None = None
) -> Trainer:
    """A run ready to go on: from its last checkpoint where it has one, else from its beginning.

    start: a checkpoint whose weights and tokenizer a new run begins with (fine-tuning)
    """
    pairs, counts = read_training_pairs(config.data)
    valid = list(read_pairs(config.data.valid))
    if not valid:
        raise CorpusError(f"{config.data.valid.files()[0]}: the validation set is empty")
    steps = checkpoints.saved_steps(folder)
    tokenizer = _tokenizer(config, pairs, steps[-1] if steps else start, folder, processes)
    fitting = drop_long(pairs, tokenizer, config.data.max_tokens)
    counts.dropped["length"] = len(pairs) - len(fitting)
    report.say(f"training text: {counts}")
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab).to(processes.device)
    weights = sum(parameter.numel() for parameter in model.parameters())
    report.say(f"model: {weights:,} weights on {processes.device}, {processes.world} process(es)")
    trainer = Trainer(
        config, folder, processes, report, tokenizer, fitting, valid, model, _optimizer(model, config.training), interrupt
    )
    if steps:
        _resume(trainer, steps[-1])
    elif start is not None:
        checkpoints.load_weights(model, checkpoints.resolve(start))
        report.say(f"starts from the weights of {start}")
    model.train()
    return trainer


def _tokenizer(config: Config, pairs: list[Pair], source: Path | None, run: Path, processes: Processes) -> Tokenizer:
    """The tokenizer of a checkpoint, of the settings' folder, or one trained now and kept in the run's folder."""
    if source is not None:
        return Tokenizer.read(checkpoints.resolve(source))
    if config.tokenizer.path is not None:
        return Tokenizer.read(config.tokenizer.path)
    if processes.leads:
        for name, content in train_tokenizer(pairs, config.tokenizer).files().items():
            (run / name).write_bytes(content)
    processes.wait()
    return Tokenizer.read(run)


def _resume(trainer: Trainer, folder: Path) -> None:
    saved = checkpoints.load_checkpoint(folder)
    if saved.config.model != trainer.config.model:
        raise CheckpointError(f"{folder}: was trained with another [model]; give the run another --output")
    checkpoints.load_weights(trainer.model, folder)
    checkpoints.load_optimizer(trainer.model, trainer.optimizer, folder)
    trainer.progress = saved.progress
    trainer.report.say(f"resumes after step {saved.progress.step}")


def _optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Adam with the paper's constants (section 5.3); decoupled weight decay where it is asked for."""
    kind = torch.optim.AdamW if settings.weight_decay else torch.optim.Adam
    return kind(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _autocast(precision: str, device: torch.device) -> torch.autocast:
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return torch.autocast(device.type, kind, enabled=precision != "fp32")


@contextlib.contextmanager
def fast_kernels(device: torch.device) -> Iterator[None]:
    """What measured faster on a CPU for the short sequences of a sentence; nothing changes elsewhere.

    Plain attention: at 10 to 30 tokens the backward pass of the fused kernel took a fifth of a step. Freed memory
    kept by the process: giving every large tensor back to the system and taking it anew cost another fifth.
    """
    if device.type != "cpu":
        yield
        return
    _keep_freed_memory()
    with sdpa_kernel(SDPBackend.MATH):
        yield


def _keep_freed_memory() -> None:
    """glibc's mallopt: never a separate mapping for a block, never trim; other C libraries are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_max = -1, -4
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)


def start_folder(config: Config, folder: Path, processes: Processes) -> None:
    """Make the run's folder and save the resolved settings in it."""
    if processes.world > 1 and config.training.accumulate % processes.world:
        raise SettingsError(
            f"training.accumulate must be a multiple of the {processes.world} processes, got {config.training.accumulate}"
        )
    if processes.leads:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / checkpoints.CONFIG, config.model_dump_json(indent=2) + "\n")
    processes.wait()
