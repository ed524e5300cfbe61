"""`lingon bench train`: loops, each in its own process, compared round by round with a plain baseline.

`python -m lingon.bench.train` runs one loop, and reads and writes JSON lines. The first line selects the loop, its
configuration and its folder. The answer is the number of weights, and from the baseline the operations of a target
token. Each later line runs the updates of one round. The answer is the speed and the loss.

The baseline is a straightforward loop on torch.nn.Transformer in float32. Pairs are sorted by length and put into
batches of a fixed number, padded to the longest. Adam, gradient clipping and label smoothing are as in our loop.
Nothing is slow on purpose, and nothing is optimised with the help of a profile.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lingon.bench.device_roofline import DevicePeaks, measure_device_peaks, peaks_of
from lingon.bench.options import check_choice
from lingon.bench.results_file import note, save, terminal
from lingon.bench.worker_process import Worker, send_errors
from lingon.bench.workloads import sample_file
from lingon.bundle.store import is_bundle, open_bundle
from lingon.errors import SettingsError
from lingon.machine import usable_cores
from lingon.text import BOS, EOS, PAD, Tokenizer
from lingon.training.batches import EncodedPairs, encode_pairs
from lingon.training.config import Config, Corpus, TrainingSettings, load_config, parse_config
from lingon.training.interrupt import Interrupt
from lingon.training.model_settings import PRESETS, TransformerSettings
from lingon.training.models.layers import sinusoids
from lingon.training.prepare import training_pairs
from lingon.training.processes import choose_device, multiplies_bf16
from lingon.training.report import Report
from lingon.training.setup import open_run

CUDA_PRESET, CUDA_BATCH_TOKENS = "base", 32_768
"""The model and the batches on CUDA by default, because a configuration has the sizes of a small machine."""

REPEAT = 40  # times: with it an epoch of the 500 sample pairs has as many batches as a round has updates


def settings(path: Path, tokenizer: Path, data: Path | None) -> Config:
    """Return the settings of a configuration, with its text and its tokenizer replaced.

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
    """Return the settings with a device, cpu or cuda, and with the given model and batches, or those for CUDA.

    preset: of the model; batch_tokens: padded tokens of an update on each side
    """
    if device == "cuda":
        preset, batch_tokens = preset or CUDA_PRESET, batch_tokens or CUDA_BATCH_TOKENS
    check_choice("--preset", [preset] if preset else [], PRESETS)
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
    loop: a key of lingon.bench.train.LOOPS
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
    """Return the loops that are measured: ours and the baseline, on CUDA both in bf16.

    On the CPU our loop in bf16, if the configuration and the processor support it, our loop in fp32, and the baseline
    in fp32. The fp32 loop separates the gain of the loop from the gain of bf16.

    config: with the device, cpu or cuda; bf16: whether the processor multiplies in bf16
    """
    if config.training.device == "cuda":
        return [LoopSetting("lingon bf16", "lingon", "bf16"), LoopSetting(BASELINE, "baseline", "bf16")]
    found = [LoopSetting("lingon fp32", "lingon", "fp32"), LoopSetting(BASELINE, "baseline", "fp32")]
    if config.training.precision == "bf16" and bf16:
        found.insert(0, LoopSetting("lingon bf16", "lingon", "bf16"))
    return found


def run(config: Config, rounds: Rounds, threads: int | None, results: Path) -> None:
    """Measure, show the table, and write the results. threads: of every loop; by default the number of cores."""
    peaks = measure_device_peaks(config.training.device, rounds.rounds)
    loops = loop_settings(config, multiplies_bf16(Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(config, loops, rounds, threads or usable_cores(), Path(folder), peaks_of(peaks), note)
    terminal().print(table(rows))
    save("train", rows, results, peaks=peaks)


def measure(
    config: Config,
    loops: Sequence[LoopSetting],
    rounds: Rounds,
    threads: int,
    folder: Path,
    peaks: DevicePeaks,
    write: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure all loops in each round, and return a row for each. An additional first round is not counted.

    config: with the device, cpu or cuda; peaks: of that device
    folder: for the files of the runs; write: receives a line about each measurement
    """
    variables = {"OMP_NUM_THREADS": str(threads)}
    found: dict[str, list[dict[str, float]]] = {each.name: [] for each in loops}
    with ExitStack() as stack:
        workers = {
            each.name: stack.enter_context(Worker("lingon.bench.train", environment=variables)) for each in loops
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
    """Return the configuration of one loop, which logs after each round, and neither validates nor saves."""
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
    """Return the median ratio of the rounds, because a disturbance of the machine affects both loops of a round."""
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of results for the terminal."""
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


class BaselineTransformer(nn.Module):
    """torch.nn.Transformer with one embedding matrix for encoder, decoder and output layer."""

    positions: Tensor  # (max_positions, dim)

    def __init__(self, settings: TransformerSettings, vocab: int) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.dim)
        self.pieces = nn.Embedding(vocab, settings.dim, padding_idx=PAD)
        nn.init.normal_(self.pieces.weight, std=settings.dim**-0.5)
        self.register_buffer("positions", sinusoids(settings.max_positions, settings.dim))
        self.dropout = nn.Dropout(settings.dropout)
        with warnings.catch_warnings():
            # The warning is about a shortcut for inference that a pre-norm encoder does not have.
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                d_model=settings.dim,
                nhead=settings.heads,
                num_encoder_layers=settings.encoder_layers,
                num_decoder_layers=settings.decoder_layers,
                dim_feedforward=settings.ffn,
                dropout=settings.dropout,
                batch_first=True,
                norm_first=settings.norm == "pre",
            )
        self.output = nn.Linear(settings.dim, vocab, bias=False)
        self.output.weight = self.pieces.weight

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Return the logits (batch, target_length, vocab) of the token after each of target_ids.

        source_ids: (batch, source_length), target_ids: (batch, target_length)
        """
        source_padding = source_ids == PAD
        hidden = self.transformer(
            self._embed(source_ids),
            self._embed(target_ids),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                target_ids.size(1), dtype=torch.bool, device=target_ids.device
            ),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_ids == PAD,
            memory_key_padding_mask=source_padding,
            tgt_is_causal=True,
        )
        return self.output(hidden)  # type: ignore[no-any-return]

    def _embed(self, ids: Tensor) -> Tensor:
        hidden = self.pieces(ids) * self.scale + self.positions[: ids.size(1)]
        return self.dropout(hidden)  # type: ignore[no-any-return]


def batches(pairs: EncodedPairs, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of `count` pairs of similar length in random order, without an end.

    A batch is (batch, source_length) sources, and (batch, target_length + 1) targets with BOS and EOS, padded.
    """
    order = sorted(range(len(pairs.sources)), key=lambda row: (len(pairs.targets[row]), len(pairs.sources[row])))
    groups = [order[first : first + count] for first in range(0, len(order), count)]
    draw = random.Random(seed)
    while True:
        draw.shuffle(groups)
        for rows in groups:
            yield (
                _padded([[*pairs.sources[row], EOS] for row in rows]),
                _padded([[BOS, *pairs.targets[row], EOS] for row in rows]),
            )


class BaselineLoop:
    """One training run."""

    def __init__(self, model: TransformerSettings, settings: TrainingSettings, pairs: EncodedPairs, vocab: int) -> None:
        torch.manual_seed(settings.seed)
        self._device = choose_device(settings.device)
        self.model = BaselineTransformer(model, vocab).to(self._device)
        self._settings = settings
        self._batches = batches(pairs, batch_size(pairs, settings.batch_tokens), settings.seed)
        self._loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=settings.label_smoothing)
        self._optimizer = torch.optim.Adam(
            self.model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), eps=1e-9
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, self._rate)
        self.model.train()

    def run(self, updates: int) -> tuple[int, float]:
        """Train on this number of batches, and return their target tokens, without padding, and the mean loss."""
        tokens, loss_sum = 0, torch.zeros((), device=self._device)
        for _ in range(updates):
            source_ids, target_ids = next(self._batches)
            labels = target_ids[:, 1:]
            count = int((labels != PAD).sum())
            loss = self._loss_of(*(ids.to(self._device) for ids in (source_ids, target_ids[:, :-1], labels)))
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.clip_norm)
            self._optimizer.step()
            self._schedule.step()
            tokens += count
            loss_sum += loss.detach() * count
        return tokens, loss_sum.item() / tokens

    def _loss_of(self, source_ids: Tensor, target_ids: Tensor, labels: Tensor) -> Tensor:
        bf16 = self._settings.precision == "bf16"
        with torch.autocast(self._device.type, torch.bfloat16, enabled=bf16):
            logits = self.model(source_ids, target_ids)
        return self._loss(logits.flatten(0, 1).float(), labels.flatten())  # type: ignore[no-any-return]

    def _rate(self, step: int) -> float:
        """Return the learning rate as a share of its maximum: linear warm-up, then inverse square root."""
        warm = self._settings.warmup_steps
        return min((step + 1) / warm, math.sqrt(warm / (step + 1)))


def batch_size(pairs: EncodedPairs, batch_tokens: int) -> int:
    """Return the number of pairs in a batch with batch_tokens on average, counted on the longer side of each pair."""
    longest = pairs.lengths().max(axis=1)
    return max(round(batch_tokens / float(longest.mean())), 1)


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


PASSES = 3
"""Forward, and twice as much backward: gradients of the inputs and of the weights of each product."""


def flops_per_target_token(settings: TransformerSettings, vocab: int, lengths: NDArray[np.int64]) -> float:
    """Return the floating point operations of training for each target token, two for each multiply-add.

    vocab: target pieces
    lengths: tokens of sources and targets with the end token, (pairs, 2)
    """
    dim, source, target = settings.dim, lengths[:, 0].astype(np.float64), lengths[:, 1].astype(np.float64)
    feed_forward = 2 * dim * settings.ffn
    encoder = settings.encoder_layers * (source * (4 * dim**2 + feed_forward) + 2 * source**2 * dim)
    by_source = source * 2 * dim**2  # keys and values of the cross-attention
    by_target = target * (6 * dim**2 + feed_forward)
    # A target position sees itself and all earlier positions, which is half of the square.
    attention = dim * target * (target + 1) + 2 * dim * target * source
    decoder = settings.decoder_layers * (by_source + by_target + attention)
    total = encoder.sum() + decoder.sum() + target.sum() * dim * vocab
    return float(2 * PASSES * total / target.sum())


Figures = dict[str, float]


class PacedReport(Report):
    """The report of a training run. It sends the figures of each log line, then blocks the run until the next round.

    The trainer restarts its clock after each log line, so that the wait is not part of the measured time.
    """

    def __init__(
        self,
        send: Callable[[Figures], None],
        next_round: Callable[[], bool],
        run: Path,
        max_steps: int,
        *,
        enabled: bool,
    ) -> None:
        """next_round: waits for the next round; False if there is none."""
        super().__init__(run, max_steps, enabled=False)
        self._send, self._next_round = send, next_round

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """See lingon.training.report.Report."""
        self._send({"tokens_per_s": figures["tokens_per_second"], "loss": figures["loss"]})
        if not self._next_round():
            raise RunEnded


class RunEnded(Exception):
    """The signal that there is no next round, which ends the run of the trainer."""


def run_lingon(config: Config, folder: Path, send: Callable[[Figures], None], next_round: Callable[[], bool]) -> None:
    """Run `lingon train`, which logs every log_every updates."""
    report = partial(PacedReport, send, next_round)
    with contextlib.suppress(RunEnded), open_run(config, folder, Interrupt(), report=report) as trainer:
        send({"weights": sum(parameter.numel() for parameter in trainer.model.parameters())})
        if next_round():
            trainer.run()


def run_baseline(config: Config, folder: Path, send: Callable[[Figures], None], next_round: Callable[[], bool]) -> None:
    """Run the loop of lingon.bench.train on the same pairs."""
    assert config.tokenizer.path is not None
    if not isinstance(config.model, TransformerSettings):
        raise SettingsError(f"the baseline has model.kind = 'transformer' only, got '{config.model.kind}'")
    tokenizer = Tokenizer.read(config.tokenizer.path)
    pairs = encode_pairs(training_pairs(config, tokenizer), tokenizer)
    loop = BaselineLoop(config.model, config.training, pairs, tokenizer.target_vocab)
    operations = flops_per_target_token(config.model, tokenizer.target_vocab, pairs.lengths())
    send({"weights": sum(parameter.numel() for parameter in loop.model.parameters()), "flops_per_token": operations})
    while next_round():
        start = time.perf_counter()
        tokens, loss = loop.run(config.training.log_every)
        send({"tokens_per_s": tokens / (time.perf_counter() - start), "loss": loss})


LOOPS = {"lingon": run_lingon, "baseline": run_baseline}


def main() -> None:
    """Run rounds until standard input ends."""
    first: dict[str, Any] = json.loads(sys.stdin.readline())
    lines: Iterator[str] = iter(sys.stdin)

    def send(figures: Figures) -> None:
        print(json.dumps(figures), flush=True)

    def next_round() -> bool:
        return next(lines, None) is not None

    with send_errors():
        LOOPS[first["loop"]](parse_config(first["config"], "worker"), Path(first["folder"]), send, next_round)


if __name__ == "__main__":
    main()
