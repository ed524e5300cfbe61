"""The command `lingon bench multi30k`; it imports heavy modules only when it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lingon.bench.options import multi30k as options
from lingon.bench.options import shared
from lingon.cli.options.decoding import OwnDeviceOption


def multi30k(
    pair: options.Pair = None,
    configs: options.Configs = Path("configs/multi30k"),
    work: options.Work = None,
    train: shared.Train = True,
    device: OwnDeviceOption = "auto",
    results: shared.Results = None,
    quick: options.Quick = False,
) -> None:
    """Train the tiny Transformer of Wu et al. (2021) on Multi30k, and measure it as they did, next to their figures.

    Ctrl-C saves a checkpoint and exits with code 130; the same command goes on. The scores are BLEU over Moses tokens,
    and BLEU and chrF of sacreBLEU; with the mean of the last checkpoints and the last one, beam search and greedy.
    """
    from rich.console import Console

    from lingon.bench.multi30k.measure import Row, measure, signatures
    from lingon.bench.multi30k.plan import PAIRS, PUBLISHED
    from lingon.bench.multi30k.quick import PARTS, overrides
    from lingon.bench.multi30k.report import WIDTH, table, training_lines
    from lingon.bench.results_file import results_folder, save
    from lingon.bench.trained_runs import train as train_run
    from lingon.bench.workloads.sample_corpus import write_sample_corpus
    from lingon.errors import SettingsError
    from lingon.training.config import load_config

    pairs = tuple(pair or (PAIRS[:1] if quick else PAIRS))
    if unknown := [each for each in pairs if each not in PAIRS]:
        raise SettingsError(f"--pair must be one of {', '.join(PAIRS)}, got {unknown[0]!r}")
    console, rows = Console(), list[Row]()
    console.width = max(console.width, WIDTH)
    write = partial(console.print, style="dim", highlight=False)
    folder = work or Path("build/bench") / ("multi30k-quick" if quick else "multi30k")
    for each in pairs:
        changed = [f"training.device={device}"]
        if quick:
            write_sample_corpus(folder / "corpus", f"multi30k.{each}", PARTS)
            changed += overrides(each, (folder / "corpus").resolve())
        config = load_config(configs / f"{each}.toml", changed)
        if train:
            train_run(config, folder / each)
        published = {} if quick else PUBLISHED[each]  # Sample sentences are no captions.
        rows += measure(config, each, folder / each, folder, device, published, write)
    console.print(table(rows))
    for line in (*training_lines(rows), *signatures(rows)):
        print(line)
    print(f"written: {save('multi30k', rows, results_folder(results, quick=quick), device=device)}")
