"""`lingon bench train`: loops in turns, each in its own process, compared round by round with the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from lingon.bench.device_roofline import DevicePeaks
from lingon.bench.worker_process import Worker
from lingon.bench.workloads import sample_file
from lingon.bundle.store import is_bundle, open_bundle
from lingon.errors import SettingsError
from lingon.training.config import Config, Corpus, load_config
from lingon.training.model_settings import PRESETS, TransformerSettings

CUDA_PRESET, CUDA_BATCH_TOKENS = "base", 32_768
"""What is measured on CUDA by default, in place of the model and the batches of a configuration for a small machine."""

REPEAT = 40  # times: with it an epoch of the 500 sample pairs has as many batches as a round has updates


def settings(path: Path, tokenizer: Path, data: Path | None) -> Config:
    """The settings of a configuration, with its text and its tokenizer replaced.

    tokenizer: a bundle, or a folder with a sentencepiece model
    data: a folder with tatoeba.SOURCE-TARGET.PART.LANGUAGE.gz, PART being train and valid; by default the sample
        sentences of the repository
    """
    config = load_config(path)
    source, target = config.data.source_language, config.data.target_language
    if data is None:
        train = Corpus(source=sample_file(source), target=sample_file(target), repeat=REPEAT)
        valid = train.model_copy(update={"repeat": 1})
    else:
        train, valid = (
            Corpus(source=data / f"{name}.{source}.gz", target=data / f"{name}.{target}.gz")
            for name in (f"tatoeba.{source}-{target}.{part}" for part in ("train", "valid"))
        )
    folder = open_bundle(tokenizer).folder if is_bundle(tokenizer) else tokenizer
    text = config.data.model_copy(update={"train": (train,), "valid": (valid,)})
    words = config.tokenizer.model_copy(update={"path": folder.resolve()})
    return config.model_copy(update={"data": text, "tokenizer": words})


def on_device(config: Config, device: str, preset: str | None, batch_tokens: int | None) -> Config:
    """The settings with a device, cpu or cuda, and another model or other batches, if they are given or CUDA's.

    preset: of the model; batch_tokens: padded tokens of an update on each side
    """
    if device == "cuda":
        preset, batch_tokens = preset or CUDA_PRESET, batch_tokens or CUDA_BATCH_TOKENS
    if preset is not None and preset not in PRESETS:
        raise SettingsError(f"--preset must be of {', '.join(PRESETS)}, got {preset}")
    training: dict[str, object] = {"device": device}
    if batch_tokens is not None:
        training["batch_tokens"] = batch_tokens
    model = config.model
    if preset is not None:
        kept = model.model_dump(include={"norm", "activation", "positions", "max_positions", "dropout", "tie"})
        model = TransformerSettings.model_validate({**kept, "preset": preset})
    return config.model_copy(update={"model": model, "training": config.training.model_copy(update=training)})


BASELINE = "plain"  # the name of the baseline in the results
TARGET_RATIO = 1.3  # speed of our loop relative to the baseline


@dataclass(frozen=True, slots=True)
class LoopSetting:
    """A training loop and its arithmetic.

    name: the name in the results
    loop: a key of lingon.bench.train_worker.LOOPS
    """

    name: str
    loop: str
    precision: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """The number and the length of the measured rounds."""

    rounds: int = 7
    updates: int = 20  # updates of one loop in a round

    def __post_init__(self) -> None:
        for name in ("rounds", "updates"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")


def loop_settings(config: Config, bf16: bool) -> list[LoopSetting]:
    """The loops that are measured: ours and the baseline, on CUDA both in bf16.

    On the CPU our loop in bf16, if the configuration and the processor support it, our loop in fp32, and the baseline
    in fp32. The fp32 loop separates the gain of the loop from that of bf16.

    config: with the device, cpu or cuda; bf16: whether the processor multiplies in bf16
    """
    if config.training.device == "cuda":
        return [LoopSetting("lingon bf16", "lingon", "bf16"), LoopSetting(BASELINE, "baseline", "bf16")]
    found = [LoopSetting("lingon fp32", "lingon", "fp32"), LoopSetting(BASELINE, "baseline", "fp32")]
    if config.training.precision == "bf16" and bf16:
        found.insert(0, LoopSetting("lingon bf16", "lingon", "bf16"))
    return found


def measure(
    config: Config,
    loops: Sequence[LoopSetting],
    rounds: Rounds,
    threads: int,
    folder: Path,
    peaks: DevicePeaks,
    write: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure the loops in turns; return a row for each. An additional first round is not counted.

    config: with the device, cpu or cuda; peaks: of that device
    folder: for the files of the runs; write: receives a line about each measurement
    """
    variables = {"OMP_NUM_THREADS": str(threads)}
    found: dict[str, list[dict[str, float]]] = {each.name: [] for each in loops}
    with ExitStack() as stack:
        workers = {
            each.name: stack.enter_context(Worker("lingon.bench.train_worker", environment=variables)) for each in loops
        }
        models = {
            each.name: workers[each.name].ask(
                loop=each.loop, config=prepared(config, each, rounds), folder=str(folder / each.name)
            )
            for each in loops
        }
        for number in range(rounds.rounds + 1):
            for name, worker in workers.items():
                figures = worker.ask(updates=rounds.updates)
                write(
                    f"round {number}: {name} {figures['tokens_per_s']:,.0f} target tokens/s, loss {figures['loss']:.3f}"
                )
                found[name].append(figures)
    device, operations = config.training.device, models[BASELINE]["flops_per_token"]
    rows = [{**_row(each, models[each.name]["weights"], threads, found), "device": device} for each in loops]
    return [with_share_of_peak(row, operations, peaks) for row in rows]


def with_share_of_peak(row: dict[str, Any], operations: float, peaks: DevicePeaks) -> dict[str, Any]:
    """Add the share of the device's peak rate that a loop reaches. operations: of the model, for a target token."""
    share = row["tokens_per_s"] * operations / peaks.gemm[row["precision"]]
    return {**row, "flops_per_token": round(operations), "fraction_of_peak": round(share, 4)}


def prepared(config: Config, loop: LoopSetting, rounds: Rounds) -> dict[str, Any]:
    """The configuration of one loop: it logs after the updates of each round, and neither validates nor saves."""
    never = (rounds.rounds + 2) * rounds.updates
    training = {
        "precision": loop.precision,
        "log_every": rounds.updates,
        "valid_every": never,
        "max_steps": max(config.training.max_steps, never),
    }
    values = config.model_dump(mode="json")
    return {**values, "training": {**values["training"], **training}}


def _row(
    loop: LoopSetting, weights: int, threads: int, found: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, Any]:
    speeds = {name: [figures["tokens_per_s"] for figures in each[1:]] for name, each in found.items()}
    own = speeds[loop.name]
    return {
        "loop": loop.name,
        "precision": loop.precision,
        "threads": threads,
        "weights": weights,
        "runs_tokens_per_s": [round(speed, 1) for speed in own],
        "tokens_per_s": round(statistics.median(own), 1),
        "ratio_to_plain": round(paired_ratio(own, speeds[BASELINE]), 3),
        "first_loss": round(found[loop.name][0]["loss"], 3),
        "last_loss": round(found[loop.name][-1]["loss"], 3),
    }


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each round: a disturbance of the machine in a round affects both loops."""
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The table of results for the terminal."""
    shown = Table(
        "loop", "target tokens/s", f"relative to plain (target {TARGET_RATIO})", "share of peak", "weights", "loss"
    )
    for row in rows:
        shown.add_row(
            row["loop"],
            f"{row['tokens_per_s']:,.0f}",
            f"{row['ratio_to_plain']:.2f}x",
            f"{row['fraction_of_peak']:.1%} of {row['device']} {row['precision']}",
            f"{row['weights']:,}",
            f"{row['first_loss']:.2f} to {row['last_loss']:.2f}",
        )
    return shown
