"""The output of a run: a progress bar or plain lines on standard error, JSON lines, and TensorBoard."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor

from lingon.files import naming, write_text
from lingon.training.config import pair_name
from lingon.training.evaluation import Validation
from lingon.training.learning_curves import CURVES, learning_curves, read_log
from lingon.training.prepare_progress import PrepareProgress
from lingon.training.processes import Processes
from lingon.training.svg import short_number

LOG = "log.jsonl"
DRAWING_PAUSE = 60.0  # seconds between two pictures, apart from those of validations


class Report:
    """Open for the length of a run. Only the leader of the processes enables it."""

    def __init__(self, run: Path, max_steps: int, *, enabled: bool) -> None:
        self._run, self._max_steps, self._enabled = run, max_steps, enabled
        self._console = Console(stderr=True, quiet=not enabled)
        self._preparation = PrepareProgress(self._console)
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            console=self._console,
            disable=not (enabled and self._console.is_terminal),
        )
        self._task = self._bar.add_task("train", total=max_steps, status="")
        self._pace = Pace(max_steps)
        self._named_signatures = ""
        self._drawn, self._cannot_draw = -math.inf, False  # when the curves were drawn, and whether that has failed
        self._log: IO[str] | None = None
        self._curves: Curves | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._preparation.close()
        self._bar.stop()
        if self._log:
            with suppress(OSError):  # every line is on disk, unless writing it has raised this error before
                self._log.close()

    def message(self, text: str) -> None:
        """Print one line on standard error."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def begin_step(self, name: str, pairs: int | None) -> None:
        """Begin a step of the preparation of the text; pairs: how many it takes, if that is known."""
        self._preparation.begin_step(name, pairs)

    def advance(self, pairs: int) -> None:
        """Count pairs of the step that are done."""
        self._preparation.advance(pairs)

    def begin_updates(self) -> None:
        """End the display of the preparation, and show the bar of the updates."""
        self._preparation.close()
        self._bar.start()

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """Log figures of the last updates: loss, learning_rate, tokens_per_second, gradient_norm; and of the whole run:
        epoch, target_tokens, seconds.
        """
        self._record("train", step, figures)
        loss, rate, left = figures["loss"], figures["tokens_per_second"], self._pace.left(step)
        done, remaining = figures["target_tokens"], "" if left is None else f"{left} left"
        tokens = f"{short_number(done)} of {short_number(done / max(step, 1) * self._max_steps)} tokens"
        shown = "  ".join(filter(None, (f"loss {loss:.3f}", f"{rate:,.0f} tokens/s", tokens, remaining)))
        self._bar.update(self._task, completed=step, status=shown)
        if not self._console.is_terminal:
            times = ", ".join(filter(None, (tokens, f"{self._pace.elapsed()} elapsed", remaining)))
            self.message(
                f"step {step:,} of {self._max_steps:,}  epoch {figures['epoch']:.2f}  loss {loss:.4f}  "
                f"{rate:,.0f} target tokens/s  {times}"
            )

    def log_validation(self, step: int, found: Validation) -> None:
        """Log a validation; of several pairs of languages the means, and a line for each pair."""
        self._record("valid", step, found.record)
        shown = "  ".join(f"{name} {value:.2f}" for name, value in found.figures.items())
        self.message(f"step {step}  valid  {shown}")
        for languages, scores in found.scores.items() if len(found.scores) > 1 else ():
            self.message(f"step {step}  valid  {pair_name(languages)}  bleu {scores.bleu:.2f}  chrf {scores.chrf:.2f}")
        if self._named_signatures != found.signatures:  # they hardly ever change: the log has them each time
            self._named_signatures = found.signatures
            self.message(found.signatures)

    def draw_curves(self, best: int, stages: Sequence[int], *, at_once: bool) -> None:
        """Draw the learning curves again. A picture that cannot be made is a message and never ends a run.

        best: the step of the best checkpoint, 0 without one
        stages: their last updates
        at_once: even if the last picture is new
        """
        if not self._enabled or not (at_once or time.monotonic() - self._drawn >= DRAWING_PAUSE):
            return
        self._drawn = time.monotonic()
        path = self._run / CURVES
        try:
            write_text(path, learning_curves(str(self._run), read_log(self._run / LOG), best, stages))
        except Exception as error:
            if not self._cannot_draw:
                self.message(f"{path}: the learning curves cannot be drawn, the run goes on: {error}")
            self._cannot_draw = True

    def _record(self, kind: str, step: int, figures: Mapping[str, float | str]) -> None:
        """Write one line of JSON and one point of every curve. The first call creates the files."""
        if not self._enabled:
            return
        if self._log is None or self._curves is None:
            self._log = _open_log(self._run / LOG)
            self._curves = Curves(self._run / "tensorboard")
        line = {"kind": kind, "step": step, "time": round(time.time(), 1)}
        with naming(self._run / LOG):
            values = {name: _json_value(value) for name, value in figures.items()}
            self._log.write(json.dumps({**line, **values}) + "\n")
            self._log.flush()
        self._curves.add(step, {f"{kind}/{name}": each for name, each in figures.items() if isinstance(each, float)})


class Pace:
    """How long the steps of a run take: the mean since the run began or resumed, validations included."""

    def __init__(self, max_steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns seconds."""
        self._max_steps, self._clock, self._begin = max_steps, clock, clock()
        self._first: tuple[int, float] | None = None  # step and time of the first line: the setup took time, too

    def elapsed(self) -> timedelta:
        """Return the time since the run began or resumed, in whole seconds."""
        return timedelta(seconds=round(self._clock() - self._begin))

    def left(self, step: int) -> timedelta | None:
        """Return the time that the remaining steps will take, in whole seconds; None at the first line, which has no
        pace.
        """
        now = self._clock()
        if self._first is None:
            self._first = step, now
        first, begin = self._first
        if step <= first:
            return None
        return timedelta(seconds=round((now - begin) / (step - first) * max(self._max_steps - step, 0)))


def _open_log(path: Path) -> IO[str]:
    """Open a log for appending, without the partial line that a kill may have left at its end."""
    written = path.read_bytes() if path.exists() else b""
    whole = written.rfind(b"\n") + 1
    if whole < len(written):
        os.truncate(path, whole)
    return path.open("a", encoding="utf-8")


def _json_value(value: float | str) -> float | str | None:
    """Return a value that JSON can hold. The norm of a gradient is infinite if the loss scale of fp16 is too large."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Curves:
    """A file of events in a folder of TensorBoard, on disk after each call.

    The writer of TensorBoard itself writes in a thread. On a full disk that prints a traceback.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folder and a file. TensorBoard reads the files of a folder in the order of their names."""
        folder.mkdir(exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}"
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Add a point to each curve. Raises OSError with the name of the file."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        with naming(self._path), self._path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())


class Meter:
    """A collection of losses and norms on the device, read only for a log line, because reading waits for the
    device.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self.tokens = 0

    def add(self, loss: Tensor, norm: Tensor, tokens: int) -> None:
        """Count an update: the loss of this process, the norm of the gradient, the target tokens of all processes."""
        self._losses.append(loss)
        self._norms.append(norm)
        self.tokens += tokens

    def seconds(self) -> float:
        """Return seconds since the meter was made."""
        return time.perf_counter() - self._start

    def losses(self, processes: Processes) -> Tensor:
        """Return the loss of every update (updates), summed over all processes."""
        return processes.sum(torch.stack(self._losses).double().cpu())

    def first_nonfinite(self, losses: Tensor, last: int, *, norms: bool) -> str:
        """Describe the first value that is NaN or infinite and return an empty string if all are finite.

        losses: (updates), from `losses`
        last: the step of the last update
        norms: whether the norms of the gradient must be finite too
        """
        values = {"loss": losses.tolist()}
        if norms:
            values["gradient's norm"] = torch.stack(self._norms).tolist()
        for index in range(len(losses)):
            for name, series in values.items():
                if not math.isfinite(series[index]):
                    return f"the {name} at step {last + 1 - len(losses) + index} is {series[index]}"
        return ""

    def figures(self, losses: Tensor) -> dict[str, float]:
        """Return the smoothed loss per target token, the speed, and the norm of the last gradient."""
        return {
            "loss": float(losses.sum()) / self.tokens,
            "tokens_per_second": self.tokens / self.seconds(),
            "gradient_norm": float(self._norms[-1]),
        }
