"""`lingon bench train`: loops by turns, each in a process of its own, and ours against the plain one round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from lingon.bench.worker_process import Worker
from lingon.errors import SettingsError
from lingon.training.config import Config

PLAIN, BAR = "plain", 1.3


@dataclass(frozen=True, slots=True)
class Contestant:
    """A loop and its arithmetic.

    loop: of lingon.bench.train.worker
    """

    name: str
    loop: str
    precision: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """How often is measured, and how long."""

    rounds: int = 7
    updates: int = 20  # of one loop in a round

    def __post_init__(self) -> None:
        for name in ("rounds", "updates"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")


def contestants(config: Config, bf16: bool) -> list[Contestant]:
    """Ours as its settings say, where the processor can; ours in fp32, so that the gain is split; the plain loop.

    bf16: whether the processor multiplies in bf16
    """
    found = [Contestant("lingon fp32", "ours", "fp32"), Contestant(PLAIN, "plain", "fp32")]
    if config.training.precision == "bf16" and bf16:
        found.insert(0, Contestant("lingon bf16", "ours", "bf16"))
    return found


def multiplies_bf16(cpuinfo: str) -> bool:
    """Whether a processor has products in bf16, from /proc/cpuinfo."""
    return bool({"avx512_bf16", "amx_bf16"}.intersection(cpuinfo.split()))


def measure(
    config: Config,
    wanted: Sequence[Contestant],
    rounds: Rounds,
    threads: int,
    scratch: Path,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A row for each loop: target tokens a second of every round; one round more, the first, is not counted."""
    variables = {"OMP_NUM_THREADS": str(threads)}
    found: dict[str, list[dict[str, float]]] = {each.name: [] for each in wanted}
    with ExitStack() as stack:
        workers = {
            each.name: stack.enter_context(Worker("lingon.bench.train.worker", environment=variables))
            for each in wanted
        }
        weights = {
            each.name: workers[each.name].ask(
                loop=each.loop, config=prepared(config, each, rounds), folder=str(scratch / each.name)
            )["weights"]
            for each in wanted
        }
        for number in range(rounds.rounds + 1):
            for name, worker in workers.items():
                figures = worker.ask(updates=rounds.updates)
                say(
                    f"round {number}: {name} {figures['tokens_per_s']:,.0f} target tokens/s, loss {figures['loss']:.3f}"
                )
                found[name].append(figures)
    return [_row(each, weights[each.name], threads, found) for each in wanted]


def prepared(config: Config, contestant: Contestant, rounds: Rounds) -> dict[str, Any]:
    """The settings of one loop: a log line after each round's updates; no validation and no checkpoint in between."""
    never = (rounds.rounds + 2) * rounds.updates
    training = {
        "precision": contestant.precision,
        "device": "cpu",
        "log_every": rounds.updates,
        "valid_every": never,
        "max_steps": max(config.training.max_steps, never),
    }
    values = config.model_dump(mode="json")
    return {**values, "training": {**values["training"], **training}}


def _row(
    contestant: Contestant, weights: int, threads: int, found: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, Any]:
    speeds = {name: [figures["tokens_per_s"] for figures in each[1:]] for name, each in found.items()}
    own = speeds[contestant.name]
    return {
        "loop": contestant.name,
        "precision": contestant.precision,
        "threads": threads,
        "weights": weights,
        "runs_tokens_per_s": [round(speed, 1) for speed in own],
        "tokens_per_s": round(statistics.median(own), 1),
        "ratio_to_plain": round(paired_ratio(own, speeds[PLAIN]), 3),
        "first_loss": round(found[contestant.name][0]["loss"], 3),
        "last_loss": round(found[contestant.name][-1]["loss"], 3),
    }


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios round by round: what disturbs a round disturbs both."""
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The results for the terminal."""
    shown = Table("loop", "target tokens/s", f"to plain (bar {BAR})", "weights", "loss")
    for row in rows:
        shown.add_row(
            row["loop"],
            f"{row['tokens_per_s']:,.0f}",
            f"{row['ratio_to_plain']:.2f}x",
            f"{row['weights']:,}",
            f"{row['first_loss']:.2f} to {row['last_loss']:.2f}",
        )
    return shown
