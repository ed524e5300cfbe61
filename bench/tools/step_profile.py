"""Where the time of a step goes, outside onnxruntime: medians over the steps in which nobody joins or leaves.

    python -m lingon.bench.tools.step_profile --bundle models/en-de

It drives a worker by hand, turn by turn, on sentences of a file, batch after batch, each until the first one ends.
A turn is:
    dispatcher   asking what to do next
    onnxruntime  the step's graph
    buffers      handing inputs in and results out
    copies       pasts copied between beams
    figures      telling the metrics
    search       the rest: choosing tokens, keeping hypotheses, finding out who is done
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bundle import Bundle, open_bundle
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.scheduler import Scheduler
from lingon.serving.engine.worker import Worker
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.device import choose_device
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape
from lingon.serving.runtime.sessions import ActiveThreads, SessionPair
from lingon.text import Tokenizer, normalise

PARTS = ("dispatcher", "onnxruntime", "buffers", "copies", "figures", "search")
WARM = 2  # first steps of a batch, not counted: places are bound and memory is touched for the first time
CELLS = [(rows, beam_size) for beam_size in (1, 4) for rows in (1, 8, 32, 64, 128) if rows >= beam_size]


class Clock:
    """Seconds spent in each part since it was last read; a part's own, without the parts inside of it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted."""

        def run(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            self._inside.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                whole = time.perf_counter() - start
                self._seconds[part] += whole - self._inside.pop()
                if self._inside:
                    self._inside[-1] += whole

        return run

    def read(self) -> dict[str, float]:
        """The seconds of each part; begins anew."""
        found, self._seconds = self._seconds, defaultdict(float)
        return found


class Timed:
    """Stands before an object and times some of its methods."""

    def __init__(self, target: Any, clock: Clock, **parts: str) -> None:
        self._target, self._clock, self._parts = target, clock, parts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._clock.timed(self._parts[name], found) if name in self._parts else found


class TimedRunner:
    """A runner whose decoder and buffers are timed."""

    def __init__(self, runner: OnnxRunner, clock: Clock) -> None:
        timed: Any = Timed(runner.decoder.all_cores, clock, run_with_iobinding="onnxruntime")
        decoder = SessionPair(timed, timed, ActiveThreads())
        self._runner = OnnxRunner(runner.manifest, runner.encoder, decoder, runner.scorer)
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Any:
        """See lingon.serving.runtime.runner.Runner."""
        buffers = self._runner.open(shape, shortlist=shortlist)
        return Timed(buffers, self._clock, step="buffers", copy_rows="copies", move="copies")


def figures(clock: Clock, bundle: Bundle) -> Any:
    """The metrics of a server, timed."""
    told = ("queue_changed", "admitted", "encoded", "stepped", "first_token", "ended", "running_changed")
    return Timed(Metrics().model(bundle.manifest.name, 1), clock, **dict.fromkeys(told, "figures"))


def jobs_of(bundle: Bundle, lines: list[str], beam_size: int) -> list[DecodeJob]:
    """A job for each line, the longest first."""
    tokenizer, limits = Tokenizer(*bundle.tokenizer_files()), bundle.manifest.limits
    sources = sorted((tuple(tokenizer.encode_source(normalise(line))) for line in lines), key=len, reverse=True)
    return [
        DecodeJob(
            source_ids=source,
            options=Options(beam_size=beam_size, length_penalty=1.0, max_output_tokens=limits.max_output(len(source))),
            on_done=lambda outcome: None,
        )
        for source in sources
        if len(source) <= limits.max_source_tokens
    ]


def profile(runner: OnnxRunner, bundle: Bundle, lines: list[str], rows: int, beam_size: int) -> dict[str, Any]:
    """Medians of the parts, in microseconds, over the quiet steps of batches of sentences of like length."""
    clock, limits = Clock(), EngineLimits(max_rows=rows)
    told = figures(clock, bundle)
    dispatcher = Scheduler(limits, 1, told)
    timed: Any = TimedRunner(runner, clock)
    worker = Worker(0, timed, dispatcher, limits, told)
    ask, turn = clock.timed("dispatcher", dispatcher.next), clock.timed("search", worker.turn)
    jobs = jobs_of(bundle, lines, beam_size)
    steps: list[dict[str, float]] = []
    for begin in range(0, len(jobs) - rows // beam_size, rows // beam_size):
        batch = jobs[begin : begin + rows // beam_size]
        dispatcher.submit(batch)
        spent: list[dict[str, float]] = []
        while dispatcher.running in (0, len(batch)) and not (spent and dispatcher.idle):
            turn(ask(0))
            spent.append(clock.read())
        steps += spent[WARM:-1]
        dispatcher.cancel(batch)
        while not dispatcher.idle:
            turn(ask(0))
        clock.read()
    return summary(steps) | {"rows": rows, "beam_size": beam_size, "steps": len(steps)}


def summary(steps: list[dict[str, float]]) -> dict[str, Any]:
    """Medians in microseconds: of every part, of the whole step, and of all that is not onnxruntime."""
    parts = {part: 1e6 * statistics.median(step.get(part, 0.0) for step in steps) for part in PARTS}
    whole = 1e6 * statistics.median(sum(step.values()) for step in steps)
    python = 1e6 * statistics.median(sum(step.values()) - step["onnxruntime"] for step in steps)
    return {**parts, "step": whole, "python": python}


def main(
    model: Annotated[Path, typer.Option("--bundle", help="A bundle.")] = Path("models/en-de"),
    precision: Annotated[str | None, typer.Option(help="One that the bundle has.")] = None,
    source: Annotated[Path, typer.Option(help="Sentences, one a line.")] = Path("tests/data/tatoeba.en"),
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Print the table."""
    bundle, lines = open_bundle(model), source.read_text(encoding="utf-8").splitlines()
    runner = load_runner(bundle, choose_device(bundle, "cpu", precision).precision, threads)
    table = Table("rows", "beam", "steps", "step us", "python us", *(f"{part} us" for part in PARTS))
    for rows, beam_size in CELLS:
        found = profile(runner, bundle, lines, rows, beam_size)
        values = [found[name] for name in ("step", "python", *PARTS)]
        table.add_row(str(rows), str(beam_size), str(found["steps"]), *(f"{value:.0f}" for value in values))
    Console(width=160).print(table)


if __name__ == "__main__":
    typer.run(main)
