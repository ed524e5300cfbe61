"""What a large corpus needs: time, CPU, memory and disk to prepare it, and the first updates of a run on it.

    python -m lingon.bench.tools.large_corpus FOLDER WORK --pairs 36000000

FOLDER has parallel sets of real text. WORK gets the corpus and keeps it for the next call. No set at hand is as large
as the corpora that people train on, so that the corpus is made up: a side is two sentences or more of one set, joined
until the source has 90 characters, which gives the length of a sentence of WMT14. They are drawn at random, so that
nearly all pairs differ.

With `--eole PYTHON`, Eole trains on the same text too, with the same pieces, model and sizes of batches, in turns with
`lingon train`. PYTHON is the interpreter of an environment that has Eole 0.6.4 (and aiohttp, which it imports and does
not install). Eole prepares nothing: it tokenises the text while it trains, again in each epoch.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from sentencepiece import SentencePieceProcessor

from lingon.bench.options import ToolResults
from lingon.bench.results_file import keep, note, show
from lingon.bench.worker_process import processes_of
from lingon.errors import LingonError, SettingsError
from lingon.files import read_parallel, write_text
from lingon.machine import read_or_empty

CHARACTERS = 90  # of a source, at least
PAUSE = 1.0  # seconds between two looks at the memory and the disk that a command takes
PAIRS = 20_000, 1_000_000  # the first shows what a run needs besides the corpus
LINGON = sys.executable, "-m", "lingon"

CONFIG = """\
[data]
source_language = "{source}"
target_language = "{target}"
max_tokens = 100
prepared = "prepared"

[[data.train]]
source = "text.{source}.zst"
target = "text.{target}.zst"

[data.valid]
source = "valid.{source}.zst"
target = "valid.{target}.zst"

[tokenizer]
vocab_size = 6000

[model]
preset = "small"
dim = 256
heads = 4
ffn = 1024
encoder_layers = 6
decoder_layers = 2
norm = "pre"
tie = "all"

[training]
batch_tokens = 8000
max_steps = {updates}
learning_rate = 1e-3
warmup_steps = 10
valid_every = {updates}
log_every = 1
device = "cpu"
"""
"""The model that ships, with batches for a small machine."""

EOLE = """\
seed: 1
report_every: 1
overwrite: true
save_data: {folder}/data
skip_empty_level: silent
src_vocab: {folder}/pieces
tgt_vocab: {folder}/pieces
share_vocab: true
src_vocab_size: {size}
tgt_vocab_size: {size}
pad_token: "<pad>"
bos_token: "<s>"
eos_token: "</s>"
unk_token: "<unk>"
decoder_start_token: "<s>"
data:
  corpus: {{path_src: {folder}/source, path_tgt: {folder}/target}}
transforms: [sentencepiece, filtertoolong]
transforms_configs:
  sentencepiece: {{src_subword_model: {tokenizer}, tgt_subword_model: {tokenizer}}}
  filtertoolong: {{src_seq_length: 99, tgt_seq_length: 101}}  # it subtracts 2 from the latter; max_tokens = 100
training:
  model_path: {folder}/model
  train_steps: {updates}
  valid_steps: 1000000
  save_checkpoint_steps: 0
  world_size: 1
  compute_dtype: {precision}
  batch_type: tokens
  batch_size: 8000
  batch_size_multiple: 1
  accum_count: [1]
  accum_steps: [0]
  normalization: tokens
  bucket_size: 65536
  num_workers: 0
  optim: adam
  adam_beta2: 0.998
  learning_rate: 1.0
  decay_method: noam
  warmup_steps: 1500
  max_grad_norm: 1.0
  dropout: [0.1]
  attention_dropout: [0.0]
  dropout_steps: [0]
  label_smoothing: 0.1
  param_init_method: xavier_uniform
  log_attention_entropy: false
model:
  architecture: transformer
  hidden_size: 256
  heads: 4
  transformer_ff: 1024
  mlp_activation_fn: relu
  add_qkvbias: true
  add_final_linear_bias: true
  add_ffnbias: true
  generator_bias: false
  share_embeddings: true
  share_decoder_embeddings: true
  encoder: {{layers: 6}}
  decoder: {{layers: 2}}
  embeddings: {{word_vec_size: 256, position_encoding_type: SinusoidalInterleaved}}
"""
"""The same for Eole 0.6.4. Without workers it is fastest on two cores; its bucket is a middle between speed, for which
larger ones are better, and the time to the first update and the memory, for which smaller ones are.
"""

EOLE_STEP = r"Step +(\d+)/.*bsz: +\d+/ *(\d+)/"  # update and its target tokens, padding not counted, as Lingon counts

Pairs = Sequence[tuple[str, str]]


def real_sets(folder: Path, source: str, target: str) -> list[Pairs]:
    """Return the training sets of a folder: SET.SOURCE-TARGET.train.LANGUAGE.gz. Raise SettingsError without any."""
    files = sorted(folder.glob(f"*.{source}-{target}.train.{source}.gz"))
    if not files:
        raise SettingsError(f"{folder}: there is no SET.{source}-{target}.train.{source}.gz")
    return [list(read_parallel(file, file.with_suffix("").with_suffix(f".{target}.gz"))) for file in files]


def made_up(sets: Sequence[Pairs], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield `count` pairs that are made of two or more pairs of one set; a set is drawn by its size."""
    draw = random.Random(seed)
    sizes = list(itertools.accumulate(map(len, sets)))
    for _ in range(count):
        (pairs,) = draw.choices(sets, cum_weights=sizes)
        chosen = [draw.choice(pairs), draw.choice(pairs)]
        while sum(len(source) for source, _ in chosen) < CHARACTERS:
            chosen.append(draw.choice(pairs))
        yield " ".join(source for source, _ in chosen), " ".join(target for _, target in chosen)


def write_corpus(pairs: Iterator[tuple[str, str]], source: Path, target: Path) -> None:
    """Write both sides of pairs as lines, compressed. The files have their names once they are complete."""
    parts = [path.with_name(path.name + ".part") for path in (source, target)]
    with ExitStack() as stack:
        files = [
            stack.enter_context(io.TextIOWrapper(pa.CompressedOutputStream(part, "zstd"), encoding="utf-8"))
            for part in parts
        ]
        for pair in pairs:
            for text, file in zip(pair, files, strict=True):
                file.write(text + "\n")
    for part, path in zip(parts, (source, target), strict=True):
        part.rename(path)


@dataclass
class Needs:
    """What a command took, all its processes together.

    lines: what it printed, each with the seconds since the start
    peak_mb: the largest anonymous memory; mapped files are not in it
    disk_mb: the largest size of its folder
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list)
    peak_mb: float = 0.0
    disk_mb: float = 0.0

    def row(self) -> dict[str, Any]:
        """Return the figures for the results."""
        return {
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "peak_memory_mb": round(self.peak_mb),
        }

    def last_line(self) -> str:
        """Return the last line that the command printed."""
        return self.lines[-1][1] if self.lines else "(none)"

    def until(self, pattern: str) -> float:
        """Return the seconds until a line that has a pattern. Raise LingonError without one."""
        for seconds, line in self.lines:
            if re.search(pattern, line):
                return seconds
        raise LingonError(f"the command printed no line like {pattern!r}; its last one: {self.last_line()}")


def anonymous_mb(pid: int) -> float:
    """Return the anonymous memory of a process and its descendants, shared pages counted once for each process."""
    total = 0
    for each in processes_of(pid):
        text = read_or_empty(Path(f"/proc/{each}/smaps_rollup"))
        total += sum(map(int, re.findall(r"^Anonymous:\s+(\d+)", text, re.MULTILINE)))
    return total * 1024 / 1e6


def folder_mb(folder: Path) -> float:
    """Return the size of the files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # a file that is gone meanwhile
            total += path.stat().st_size
    return total / 1e6


def run(command: Sequence[str | Path], folder: Path) -> Needs:
    """Run a command and return what it took. Raise LingonError with its last line if it fails."""
    needs, ended, begin = Needs(), threading.Event(), time.monotonic()
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def look() -> None:
        while not ended.wait(PAUSE):
            needs.peak_mb = max(needs.peak_mb, anonymous_mb(process.pid))
            needs.disk_mb = max(needs.disk_mb, folder_mb(folder))

    looking = threading.Thread(target=look)
    looking.start()
    assert process.stdout is not None
    try:
        with process.stdout as printed:
            needs.lines.extend((time.monotonic() - begin, line.rstrip()) for line in printed)
    finally:
        ended.set()
        looking.join()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    needs.seconds, needs.cpu_seconds = time.monotonic() - begin, used.ru_utime + used.ru_stime
    if process.returncode:
        raise LingonError(f"`{' '.join(words)}` ended with {process.returncode}: {needs.last_line()}")
    return needs


def preparing(config: Path, prepared: Path) -> dict[str, Any]:
    """Return what `lingon prepare` took."""
    needs = run([*LINGON, "prepare", config], prepared)
    note(needs.last_line())
    disk = {"peak_disk_mb": round(needs.disk_mb), "disk_mb": round(folder_mb(prepared))}
    return {"command": "lingon prepare", **needs.row(), **disk}


def training(config: Path, folder: Path, precision: str) -> dict[str, Any]:
    """Return what the updates of a run took. The speed is that after the first tenth of the updates."""
    shutil.rmtree(folder, ignore_errors=True)
    setting = f"training.precision={precision}"
    needs = run([*LINGON, "train", config, "--output", folder, "--set", setting], folder)
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [record for line in lines if (record := json.loads(line))["kind"] == "train"]
    begin, end = logged[len(logged) // 10], logged[-1]
    speed = (end["target_tokens"] - begin["target_tokens"]) / (end["seconds"] - begin["seconds"])
    return {
        "command": f"lingon train, {precision}",
        **needs.row(),
        "updates": len(logged),
        "first_update_s": round(needs.until("^step 1 of "), 1),
        "target_tokens_per_s": round(speed),
    }


def write_for_eole(folder: Path, work: Path, languages: tuple[str, str]) -> None:
    """Write the text as plain files, and the pieces of the prepared corpus in the order of their ids."""
    folder.mkdir(exist_ok=True)
    for name, language in zip(("source", "target"), languages, strict=True):
        with pa.input_stream(str(work / f"text.{language}.zst")) as packed, (folder / name).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    model = SentencePieceProcessor(model_file=str(work / "prepared" / "tokenizer.model"))
    write_text(folder / "pieces", "".join(f"{model.id_to_piece(each)}\n" for each in range(len(model))))


def training_by_eole(python: Path, folder: Path, work: Path, updates: int, precision: str) -> dict[str, Any]:
    """Return what the updates of a run of Eole took, see `training`."""
    tokenizer, config = work / "prepared" / "tokenizer.model", folder / "config.yaml"
    size = len(SentencePieceProcessor(model_file=str(tokenizer)))
    values = {"folder": folder, "tokenizer": tokenizer, "size": size, "updates": updates, "precision": precision}
    write_text(config, EOLE.format(**values))
    needs = run([python, "-m", "eole.bin.main", "train", "-config", config], folder)
    logged = [(seconds, int(found[2])) for seconds, line in needs.lines if (found := re.search(EOLE_STEP, line))]
    begin = len(logged) // 10
    speed = sum(tokens for _, tokens in logged[begin + 1 :]) / (logged[-1][0] - logged[begin][0])
    return {
        "command": f"eole train, {precision}",
        **needs.row(),
        "updates": len(logged),
        "first_update_s": round(logged[0][0], 1),
        "target_tokens_per_s": round(speed),
    }


def main(
    data: Annotated[Path, typer.Argument(help="Folder with SET.SOURCE-TARGET.train.LANGUAGE.gz.")],
    work: Annotated[Path, typer.Argument(help="Folder for the corpora and the runs. A corpus that it has is kept.")],
    pairs: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Pairs of a corpus; may be repeated. (default: 20,000 and 1,000,000)"),
    ] = None,
    updates: Annotated[int, typer.Option(min=2, help="Updates of the run.")] = 100,
    precision: Annotated[
        list[str] | None, typer.Option(help="Precision of a run, fp32 or bf16; may be repeated. (default: bf16)")
    ] = None,
    languages: Annotated[tuple[str, str], typer.Option(help="Languages of source and target.")] = ("en", "de"),
    eole: Annotated[Path | None, typer.Option(help="Interpreter of an environment with Eole, to compare with.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each kind, in turns.")] = 1,
    results: ToolResults = None,
) -> None:
    """Make each corpus, prepare it, begin runs, show the table, and write the results."""
    sets, rows = real_sets(data, *languages), []
    for count in pairs or PAIRS:
        folder = work / str(count)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / f"text.{languages[1]}.zst").exists():
            for name, size, seed in (("valid", 500, 0), ("text", count, 1)):
                write_corpus(made_up(sets, size, seed), *(folder / f"{name}.{language}.zst" for language in languages))
            note(f"{folder}: {folder_mb(folder):,.0f} MB of compressed text")
        config, prepared = folder / "config.toml", folder / "prepared"
        write_text(config, CONFIG.format(source=languages[0], target=languages[1], updates=updates))
        shutil.rmtree(prepared, ignore_errors=True)
        found = [preparing(config, prepared)]
        if eole is not None:
            write_for_eole(folder / "eole", folder, languages)
        for _, each in itertools.product(range(rounds), precision or ("bf16",)):
            found.append(training(config, folder / "run", each))
            note(str(found[-1]))
            if eole is not None:
                found.append(training_by_eole(eole, folder / "eole", folder, updates, each))
                note(str(found[-1]))
        rows += [{"pairs": count, **row} for row in found]
    show(rows)
    keep("large-corpus", rows, results, config=CONFIG, eole=EOLE if eole else None)


if __name__ == "__main__":
    typer.run(main)
