"""`lingon bench live`: starts the server, and measures quality against lag, CPU time, and many speakers at once."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lingon.bench.live import quality
from lingon.bench.live.load import AGAIN, AGAIN_GREEDY, LIVE, MODES, LiveLoad, to_json
from lingon.bench.live.picture import draw
from lingon.bench.live.quality import MOST_BLEU_LOST, MOST_LAG_MS, SpokenSet, best_within_lag
from lingon.bench.live.speaker import POLICIES, Languages, Policy, connected
from lingon.bench.live.word_times import WORDS_A_SECOND, speeches
from lingon.bench.options import check_choice
from lingon.bench.results_file import Row, note, save, show
from lingon.bench.serve.run import Server as Running
from lingon.bench.serve.run import lingon_command, serving
from lingon.bench.worker_process import Worker
from lingon.bench.workloads import set_files
from lingon.bundle.store import Bundle
from lingon.errors import SettingsError
from lingon.files import read_parallel
from lingon.machine import usable_cores
from lingon.text import normalise

QUALITY, COST, LOAD = "quality", "cost", "load"
PARTS = (QUALITY, COST, LOAD)
MOST_P99_MS = 300.0
MOST_COST_SHARE = 1 / 3
"""The bars: from a word to its translation, and the CPU time of a speaker against translating all again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LivePlan:
    """All settings of a run.

    data: folder with the test sets; None is the sample sentences of the repository
    policies: measured for quality; the first one is that of cost and load
    at_once: speakers of the quality part that speak at the same time
    speakers, seconds: of the load
    cost_speakers, cost_seconds, rounds: of the comparison of CPU times
    settings: of the server, by the names of its flags
    logs: folder for the talks in the form of SimulEval
    """

    bundle: Bundle
    data: Path | None
    test_sets: tuple[str, ...] = ("tatoeba", "ntrex")
    texts: int = 1000
    parts: tuple[str, ...] = PARTS
    policies: tuple[Policy, ...] = quality.WAYS
    load_policy: Policy = quality.WAYS[0]
    at_once: int = 2
    speakers: int = 200
    seconds: float = 30.0
    cost_speakers: int = 50
    cost_seconds: float = 10.0
    rounds: int = 5
    settings: Mapping[str, Any] | None = None
    logs: Path | None = None

    def __post_init__(self) -> None:
        check_choice("--part", self.parts, PARTS)

    @property
    def languages(self) -> Languages:
        """The languages of the model."""
        return Languages(self.bundle.manifest.source_language, self.bundle.manifest.target_language)


def parsed(text: str) -> Policy:
    """Return the policy of NAME or NAME:LAG, such as wait_k:5. Raise SettingsError if it is none."""
    name, colon, lag = text.partition(":")
    name = name.replace("-", "_")
    check_choice("--policy", [name], POLICIES)
    if colon and not lag.isdecimal():
        raise SettingsError(f"--policy {text}: the lag must be a number of words, got {lag!r}")
    return Policy(name, int(lag or 0))


def server_settings(given: Sequence[str]) -> dict[str, str]:
    """Return the settings of NAME=VALUE, by name. Raise SettingsError for one without a value."""
    pairs = [each.partition("=") for each in given]
    if broken := [name for name, sign, value in pairs if not (name and sign and value)]:
        raise SettingsError(f"--setting must be NAME=VALUE, got {broken[0]!r}")
    return {name: value for name, _, value in pairs}


def spoken_sets(plan: LivePlan) -> list[SpokenSet]:
    """Read the test sets: texts from all of a file that the model reads whole, with the times of their words."""
    tokenizer, most = plan.bundle.tokenizer(), plan.bundle.manifest.limits.max_source_tokens
    sets = []
    for name, files in set_files(plan.bundle, plan.data, plan.test_sets).items():
        pairs = [(normalise(source), normalise(target)) for source, target in read_parallel(*files)]
        pairs = [pair for pair in pairs if len(tokenizer.encode_source(pair[0])) <= most]
        taken = pairs[:: max(len(pairs) // plan.texts, 1)][: plan.texts]  # a set may be sorted
        sets.append(SpokenSet(name, speeches(taken, plan.languages.source)))
    return sets


def run(plan: LivePlan, results: Path) -> None:
    """Measure, print tables, and write the results and the picture."""
    sets = spoken_sets(plan)
    facts: dict[str, Any] = {
        "model": plan.bundle.label,
        "cores": usable_cores(),
        "settings": dict(plan.settings or {}),
        "words_a_second": WORDS_A_SECOND,
        "sets": [each.facts() for each in sets],
    }
    command = lingon_command(plan.bundle.folder, plan.settings or {})
    measures: dict[str, Callable[[LivePlan, Sequence[SpokenSet], Running], list[Row]]] = {
        QUALITY: measure_quality,
        COST: measure_cost,
        LOAD: measure_load,
    }
    for part in plan.parts:
        with serving(command, frozenset(os.sched_getaffinity(0))) as server:
            rows = measures[part](plan, sets, server)
        show(rows, title=f"{part}, {plan.bundle.label}")
        path = save(f"live-{part}", rows, results, **facts)
        if part == QUALITY:
            draw(rows, path.with_suffix(".svg"), facts["sets"])
        for line in verdicts(part, rows):
            note(line)


def measure_quality(plan: LivePlan, sets: Sequence[SpokenSet], server: Running) -> list[Row]:
    """Return the rows of all test sets, see `quality.measure`."""

    async def measured() -> list[Row]:
        rows: list[Row] = []
        async with connected(server.address) as connection:
            for each in sets:
                rows += await quality.measure(
                    connection, each, plan.policies, plan.languages, plan.at_once, note, plan.logs
                )
        return rows

    return asyncio.run(measured())


def measure_cost(plan: LivePlan, sets: Sequence[SpokenSet], server: Running) -> list[Row]:
    """Return a row for each set: CPU time of a word in each of MODES, which alternate in each round."""
    rows = []
    with Worker("lingon.bench.live.load", label="load generator") as generator:
        for each in sets:
            found: dict[str, list[float]] = {mode: [] for mode in MODES}
            for number in range(plan.rounds):
                for mode, costs in found.items():
                    job = replace(
                        _load(plan, server, plan.cost_speakers, plan.cost_seconds), mode=mode, seed=number, warm_up=1.0
                    )
                    answer = generator.ask(**to_json(job, each.speeches))
                    if answer["errors"]:
                        note(f"{each.name}, {mode}: {answer['errors']}")
                    costs.append(answer["server_cpu_ms_per_word"])
            rows.append(
                {
                    "set": each.name,
                    "policy": plan.load_policy.label,
                    "speakers": plan.cost_speakers,
                    **{f"{mode}, CPU ms a word": round(statistics.median(costs), 3) for mode, costs in found.items()},
                    "share": _share(found[LIVE], found[AGAIN]),
                    "share of greedy": _share(found[LIVE], found[AGAIN_GREEDY]),
                    "rounds": found,
                }
            )
    return rows


def _share(live: Sequence[float], again: Sequence[float]) -> float:
    """Return the median of the shares of the rounds."""
    return round(statistics.median(own / other for own, other in zip(live, again, strict=True)), 3)


def measure_load(plan: LivePlan, sets: Sequence[SpokenSet], server: Running) -> list[Row]:
    """Return a row for each set: its speeches by so many speakers in real time."""
    with Worker("lingon.bench.live.load", label="load generator") as generator:
        return [
            {
                "set": each.name,
                **generator.ask(**to_json(_load(plan, server, plan.speakers, plan.seconds), each.speeches)),
            }
            for each in sets
        ]


def _load(plan: LivePlan, server: Running, speakers: int, seconds: float) -> LiveLoad:
    return LiveLoad(
        address=server.address,
        pid=server.pid,
        speakers=speakers,
        seconds=seconds,
        languages=plan.languages,
        policy=plan.load_policy,
    )


def verdicts(part: str, rows: Sequence[Row]) -> list[str]:
    """Return a line for each bar: whether it is met, and by what."""
    if part == QUALITY:
        return [line for name in dict.fromkeys(row["set"] for row in rows) for line in _quality_verdicts(rows, name)]
    if part == COST:
        return [
            f"{_met(row[name] <= MOST_COST_SHARE)}: {row['set']}: {row[name]:.2f} of the CPU time of {how}, bar "
            f"{MOST_COST_SHARE:.2f}"
            for row in rows
            for name, how in (
                ("share", "Translate at every word"),
                ("share of greedy", "greedy Translate at every word"),
            )
        ]
    return [
        f"{_met(row['p99_ms'] is not None and row['p99_ms'] <= MOST_P99_MS and not row['errors'])}: {row['set']}: "
        f"p99 {row['p99_ms']} ms from a word to its translation, bar {MOST_P99_MS:g} ms"
        for row in rows
    ]


def _quality_verdicts(rows: Sequence[Row], name: str) -> list[str]:
    best = best_within_lag(rows, name)
    if best is None:
        return [f"missed: {name}: no policy is at most {MOST_LAG_MS:g} ms behind"]
    lost = {key.removeprefix("lost, "): value for key, value in best.items() if key.startswith("lost, ")}
    return [
        f"{_met(value <= MOST_BLEU_LOST)}: {name}: {best['policy']} {best['lag_words']} at {best['laal_ms']} ms loses "
        f"{value} BLEU against {whole}, bar {MOST_BLEU_LOST:g}"
        for whole, value in lost.items()
    ]


def _met(value: bool) -> str:
    return "met" if value else "missed"
