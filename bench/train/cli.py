"""The command `lingon bench train`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="Configuration of the training run to measure.")] = Path(
        "configs/en-de.toml"
    ),
    tokenizer: Annotated[Path, typer.Option(help="Bundle or folder with the sentencepiece model.")] = Path(
        "models/en-de"
    ),
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with tatoeba.en-de.train.{en,de}.gz (default: the repository's 500 test pairs, repeated)."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds; each round runs --updates of every loop.")] = 7,
    updates: Annotated[int, typer.Option(min=1, help="Updates of a loop in a round.")] = 20,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of every loop (default: the number of cores).")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda. On cuda both loops compute in bf16. (default: auto)")
    ] = "auto",
    preset: Annotated[
        str | None, typer.Option(help="Preset of the model (default: that of CONFIG, on cuda base).")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Padded tokens of an update, on each side (default: of CONFIG, on cuda 32768)."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Measure target tokens a second of Lingon's training loop and of a plain loop on torch.nn.Transformer.

    The share of peak is that of the rate at which the device multiplies large matrices, measured in the same run.
    """
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.roofline.device_peaks import measure_device_peaks, peaks_of
    from lingon.bench.train.data import on_device, settings
    from lingon.bench.train.run import Rounds, loop_settings, measure, table
    from lingon.machine import usable_cores
    from lingon.training.device import choose_device, multiplies_bf16

    console, chosen = Console(), choose_device(device).type
    loaded = on_device(settings(config, tokenizer, data), chosen, preset, batch_tokens)
    peaks = measure_device_peaks(chosen, rounds)
    loops = loop_settings(loaded, multiplies_bf16(Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(
            loaded,
            loops,
            Rounds(rounds=rounds, updates=updates),
            threads or usable_cores(),
            Path(folder),
            peaks_of(peaks),
            lambda line: console.print(line, style="dim", highlight=False),
        )
    console.print(table(rows))
    print(f"written: {save('train', rows, results, peaks=peaks)}")
