"""The verb `lingon bench train`. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="Settings of the run that is measured.")] = Path("configs/en-de.toml"),
    tokenizer: Annotated[
        Path, typer.Option(help="A bundle or a folder whose sentencepiece model cuts the text.")
    ] = Path("models/en-de"),
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with tatoeba.en-de.train.{en,de}.gz (default: the tests' 500 pairs, again and again)."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Each has some updates of every loop.")] = 7,
    updates: Annotated[int, typer.Option(min=1, help="Of one loop in a round.")] = 20,
    threads: Annotated[int | None, typer.Option(min=1, help="Of every loop (default: the cores).")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Target tokens a second of our training loop, beside a plain loop on torch.nn.Transformer."""
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.train.data import settings
    from lingon.bench.train.run import Rounds, contestants, measure, multiplies_bf16, table
    from lingon.serving.system.cpu import usable_cores

    console, loaded = Console(), settings(config, tokenizer, data)
    wanted = contestants(loaded, multiplies_bf16(Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(
            loaded,
            wanted,
            Rounds(rounds=rounds, updates=updates),
            threads or usable_cores(),
            Path(scratch),
            lambda line: console.print(line, style="dim", highlight=False),
        )
    console.print(table(rows))
    print(f"written: {save('train', rows, results)}")
