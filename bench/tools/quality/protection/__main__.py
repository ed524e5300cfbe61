"""How protected strings and sentences in capitals are translated by a bundle, in this process.

    python -m lingon.bench.tools.quality.protection models/en-de tests/data/tatoeba.en tests/data/tatoeba.de

Prints how many placeholders are not as often in the translation as in the text, the share of each rung of the ladder,
and chrF with placeholders masked on both sides; then chrF of the sentences in capitals.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.results_file import save
from lingon.bench.tools.quality.protection.answers import Answers
from lingon.bench.tools.quality.protection.capitals import measure_capitals, names_in
from lingon.bench.tools.quality.protection.placeholders import POSITIONS, measure_placeholders, usable_pairs
from lingon.bundle import open_bundle
from lingon.errors import SettingsError
from lingon.lines import read_parallel
from lingon.serving.in_process import LocalTranslator

WIDTH = 140  # characters of the tables


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Return a table with a column for each key."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*keys)
    for row in rows:
        table.add_row(*(str(row.get(key, "")) for key in keys))
    return table


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")],
    source: Annotated[Path, typer.Argument(help="Sentences, one a line, plain or .gz.")],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.")],
    words: Annotated[str, typer.Option(help="Words that translate to themselves, with commas; the surest first.")],
    sentences: Annotated[int, typer.Option(min=1, help="Sentences of each measurement.")] = 1000,
    beam_size: Annotated[int, typer.Option(min=1, help="Of the search; as many hypotheses are looked at.")] = 4,
    results: Annotated[Path | None, typer.Option(help="Folder for the results. Default: not written.")] = None,
) -> None:
    """Print, and save if asked for, the figures of all positions of placeholders, and of capitals."""
    pairs = list(read_parallel(source, target))
    listed = words.split(",")
    named = usable_pairs(pairs, listed[0])
    if len(listed) < 2 or not named:
        raise SettingsError(f"--words needs two words, of which the first is once in sentences of {source}: {words}")
    with LocalTranslator(model) as translator:
        answers = Answers(translator, beam_size)
        rows = [
            measure_placeholders(answers, named[:: max(len(named) // sentences, 1)][:sentences], listed, position)
            for position in POSITIONS
        ]
        Console(width=WIDTH).print(table_of(rows))
        some = pairs[:: max(len(pairs) // sentences, 1)][:sentences]
        upper = measure_capitals(answers, some, names_in(open_bundle(model)))
    Console(width=WIDTH).print(table_of([upper]))
    if results is not None:
        path = save("protection", [*rows, upper], results, words=listed, beam_size=beam_size)
        typer.echo(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
