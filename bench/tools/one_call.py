"""What one blocking call of a model in this process costs, and how much of it is not decoding.

    python -m lingon.bench.tools.one_call models/en-de

One engine on one core runs on the thread of the caller, so that the CPU time of that thread is all of the call. Texts
are translated one at a time. The least of several rounds counts for each text, because other programs of the machine
can only add to it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from lingon import Model
from lingon.bench.options import ToolResults
from lingon.bench.results_file import keep, show
from lingon.errors import SettingsError
from lingon.serving.engine.scheduler import StepPlan
from lingon.serving.engine.worker import Worker

SENTENCES = Path("tests/data/tatoeba.en")
SHORT = 60  # characters; a longer text decodes for longer, and costs the same beside that
TEXTS, ROUNDS = 100, 25
BEAM_SIZES = (1, 4)


class CallCost(NamedTuple):
    """Seconds of a call: on the clock, of the CPU, and of the CPU in steps of the engine."""

    wall: float
    cpu: float
    steps: float

    @property
    def beside(self) -> float:
        """Seconds of the CPU outside of the steps: plans, messages, tokens, queues, judgement, event loop."""
        return self.cpu - self.steps


class StepClock:
    """The CPU seconds of all steps since it was set to 0, of the threads that ran them."""

    seconds = 0.0


@contextmanager
def timed_steps() -> Iterator[StepClock]:
    """Measure the steps of all workers inside the context."""
    clock, original = StepClock(), Worker.step

    def step(worker: Worker, plan: StepPlan) -> None:
        begin = time.thread_time()
        try:
            original(worker, plan)
        finally:
            clock.seconds += time.thread_time() - begin

    Worker.step = step  # type: ignore[method-assign, assignment]
    try:
        yield clock
    finally:
        Worker.step = original  # type: ignore[method-assign]


def measure(model: Model, texts: Sequence[str], beam_size: int, rounds: int) -> list[CallCost]:
    """Return the cost of a call for each text: the round that took the least CPU time beside the steps."""
    best: dict[str, CallCost] = {}
    with timed_steps() as clock:
        for _ in range(rounds + 1):  # the first round fills caches, and rarely is the best
            for text in texts:
                clock.seconds, wall, cpu = 0.0, time.perf_counter(), time.thread_time()
                model.translate(text, beam_size=beam_size)
                cost = CallCost(time.perf_counter() - wall, time.thread_time() - cpu, clock.seconds)
                best[text] = min(best.get(text, cost), cost, key=lambda each: each.beside)
    return list(best.values())


def main(
    model: Annotated[Path, typer.Argument(help="A bundle, or a model of several versions.")] = Path("models/en-de"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all texts.")] = ROUNDS,
    results: ToolResults = None,
) -> None:
    """Print the cost of a call with each beam size, and save it if there is a folder."""
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    texts = [line for line in lines if len(line) < SHORT][:TEXTS]
    if not texts:
        raise SettingsError(f"{SENTENCES} must have a line of fewer than {SHORT} characters, has none")
    rows: list[dict[str, Any]] = []
    with Model(model, engines=1, threads=1) as loaded:
        for beam_size in BEAM_SIZES:
            costs = measure(loaded, texts, beam_size, rounds)
            means = {name: statistics.mean(getattr(each, name) for each in costs) for name in CallCost._fields}
            means["beside"] = means["cpu"] - means["steps"]
            rows.append({"beam": beam_size, **{f"{name}, ms": round(1000 * each, 3) for name, each in means.items()}})
    show(rows)
    keep("one-call", rows, results, model=str(model), texts=len(texts), rounds=rounds)


if __name__ == "__main__":
    typer.run(main)
