"""The time of a decoder step by part: medians over the turns in which no sentence is admitted or removed.

    python -m lingon.bench.tools.engine.step_profile --bundle models/en-de

It calls a worker turn by turn on the sentences of a file, batch after batch, each until its first sentence ends. A turn
of a greedy search has several steps, which share what is done once in a turn. The parts of a step are:
    scheduler    planning the turn
    onnxruntime  the graph of the step
    buffers      binding inputs and reading outputs
    copies       copying pasts between beams
    metrics      updating the metrics
    search       the rest: choosing tokens, updating hypotheses, finding finished sentences
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bundle import Bundle, open_bundle
from lingon.lines import read_lines
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.scheduler import Scheduler
from lingon.serving.engine.worker import Worker
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.device import choose_device
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape
from lingon.text import normalise

PARTS = ("scheduler", "onnxruntime", "buffers", "copies", "metrics", "search")
WARM_UP = 2  # first turns of a batch, not counted: they bind buffers and touch memory for the first time
CELLS = [(rows, beam_size) for beam_size in (1, 4) for rows in (1, 8, 32, 64, 128) if rows >= beam_size]


class Clock:
    """Seconds spent in each part since the last `read_steps`, without those of nested parts, and the calls of each."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._calls: dict[str, int] = defaultdict(int)
        self._nested: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added to a part."""

        def run(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            self._nested.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                whole = time.perf_counter() - start
                self._seconds[part] += whole - self._nested.pop()
                self._calls[part] += 1
                if self._nested:
                    self._nested[-1] += whole

        return run

    def read_steps(self) -> tuple[dict[str, float], int]:
        """Return the seconds of each part for each step of the decoder, and the steps; then forget both."""
        seconds, calls = self._seconds, self._calls["onnxruntime"]
        self._seconds, self._calls = defaultdict(float), defaultdict(int)
        return {part: spent / max(calls, 1) for part, spent in seconds.items()}, calls


class TimedProxy:
    """A proxy of an object that times some of its methods."""

    def __init__(self, target: Any, clock: Clock, **parts: str) -> None:
        self._target, self._clock, self._parts = target, clock, parts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._clock.timed(self._parts[name], found) if name in self._parts else found


class TimedRunner:
    """A runner with timed decoder and buffers."""

    def __init__(self, runner: OnnxRunner, clock: Clock) -> None:
        timed: Any = TimedProxy(runner.decoder.all_cores, clock, run_with_iobinding="onnxruntime")
        decoder = runner.decoder.around(timed)
        self._runner = replace(runner, decoder=decoder)
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Any:
        """See lingon.serving.runtime.runner.Runner."""
        buffers = self._runner.open(shape, shortlist=shortlist)
        return TimedProxy(
            buffers, self._clock, step="buffers", greedy_steps="buffers", copy_rows="copies", move="copies"
        )


def timed_metrics(clock: Clock, bundle: Bundle) -> Any:
    """The metrics of a server, with timed methods."""
    methods = ("admitted", "encoded", "stepped", "first_token", "ended")
    return TimedProxy(Metrics().model(bundle.manifest.name, 1), clock, **dict.fromkeys(methods, "metrics"))


def jobs_of(bundle: Bundle, lines: list[str], beam_size: int) -> list[DecodeJob]:
    """A job for each line, the longest source first."""
    tokenizer, limits = bundle.tokenizer(), bundle.manifest.limits
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
    """Medians of the parts in microseconds, over steps of batches with sentences of similar length."""
    clock, limits = Clock(), EngineLimits(max_rows=rows)
    metrics = timed_metrics(clock, bundle)
    scheduler = Scheduler(limits, 1, metrics)
    timed: Any = TimedRunner(runner, clock)
    worker = Worker(0, timed, scheduler, limits, metrics)
    next_step, turn = clock.timed("scheduler", scheduler.next), clock.timed("search", worker.step)
    jobs = jobs_of(bundle, lines, beam_size)
    turns: list[tuple[dict[str, float], int]] = []
    for begin in range(0, len(jobs) - rows // beam_size, rows // beam_size):
        batch = jobs[begin : begin + rows // beam_size]
        scheduler.submit(batch)
        spent: list[tuple[dict[str, float], int]] = []
        while scheduler.load().running in (0, len(batch)) and not (spent and scheduler.idle):
            turn(next_step(0))
            spent.append(clock.read_steps())
        turns += spent[WARM_UP:-1]
        scheduler.cancel(batch)
        while not scheduler.idle:
            turn(next_step(0))
        clock.read_steps()
    steps = sum(count for _, count in turns)
    return summary([spent for spent, _ in turns]) | {"rows": rows, "beam_size": beam_size, "steps": steps}


def summary(steps: list[dict[str, float]]) -> dict[str, Any]:
    """Medians in microseconds of each part, of the whole step, and of the time outside ONNX Runtime (python)."""
    parts = {part: 1e6 * statistics.median(step.get(part, 0.0) for step in steps) for part in PARTS}
    whole = 1e6 * statistics.median(sum(step.values()) for step in steps)
    python = 1e6 * statistics.median(sum(step.values()) - step["onnxruntime"] for step in steps)
    return {**parts, "step": whole, "python": python}


def main(
    model: Annotated[Path, typer.Option("--bundle", help="Bundle.")] = Path("models/en-de"),
    precision: Annotated[
        str | None, typer.Option(help="Precision of the bundle (default: the preferred one for the CPU).")
    ] = None,
    source: Annotated[Path, typer.Option(help="File with sentences, one a line.")] = Path("tests/data/tatoeba.en"),
    threads: Annotated[int, typer.Option(min=1, help="Threads of ONNX Runtime.")] = 1,
) -> None:
    """Print the table of times."""
    bundle, lines = open_bundle(model), list(read_lines(source))
    runner = load_runner(bundle, choose_device(bundle, "cpu", precision).precision, threads)
    table = Table("rows", "beam", "steps", "step us", "python us", *(f"{part} us" for part in PARTS))
    for rows, beam_size in CELLS:
        found = profile(runner, bundle, lines, rows, beam_size)
        values = [found[name] for name in ("step", "python", *PARTS)]
        table.add_row(str(rows), str(beam_size), str(found["steps"]), *(f"{value:.0f}" for value in values))
    Console(width=160).print(table)


if __name__ == "__main__":
    typer.run(main)
