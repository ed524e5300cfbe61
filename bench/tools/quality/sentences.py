"""What splitting texts into sentences gains in BLEU, and what it costs where each text is one sentence.

    python -m lingon.bench.tools.quality.sentences models/en-de test.en test.de

Groups of consecutive sentences are joined by spaces to one text each. BLEU and chrF compare the translation of these
texts with the joined references, whole and split. The cost is the time of single sentences without strings that are
kept, with some requests in flight: given to the model as they are, with the default options but for the guard, which
also look for strings to keep and for capitals, and with all of them, in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.results_file import save
from lingon.lines import read_parallel
from lingon.scoring import score
from lingon.segments.capitals import is_in_capitals
from lingon.segments.protection.find import find_protected
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.planning.text_options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb

TEXTS = 64  # in one request
IN_FLIGHT = 4  # requests
WAYS = {
    "whole": WHOLE,
    "split": pb.TextOptions(guard=pb.GUARD_POLICY_OFF),
    "split and judged": pb.TextOptions(),
}


def translate(translator: LocalTranslator, texts: Sequence[str], way: str, beam_size: int) -> list[str]:
    """Return the best translation of each text; way: of `WAYS`."""
    found: list[str] = []
    for begin in range(0, len(texts), TEXTS):
        request = pb.TranslateRequest(
            texts=texts[begin : begin + TEXTS],
            options=pb.DecodingOptions(beam_size=beam_size, long_text=pb.LONG_TEXT_POLICY_SPLIT),
            text=WAYS[way],
        )
        found += [result.hypotheses[0].text for result in translator.translate(request).results]
    return found


def groups(lines: Sequence[str], size: int, count: int) -> list[str]:
    """Return the first `count` texts of `size` lines each, joined by spaces."""
    return [" ".join(lines[begin : begin + size]) for begin in range(0, size * count, size)]


def quality(
    translator: LocalTranslator, pairs: Sequence[tuple[str, str]], size: int, count: int, beam_size: int
) -> list[dict[str, Any]]:
    """Return BLEU and chrF of the joined texts, a row for each way."""
    sources, references = (groups(side, size, count) for side in zip(*pairs, strict=True))
    rows = []
    for way in WAYS:
        scores = score(translate(translator, sources, way, beam_size), references)
        rows.append({"texts": count, "sentences_each": size, "way": way, "bleu": scores.bleu, "chrf": scores.chrf})
    return rows


def cost(translator: LocalTranslator, texts: Sequence[str], rounds: int, beam_size: int) -> list[dict[str, Any]]:
    """Return the seconds of the single sentences, median of interleaved rounds, a row for each way."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    parts = [texts[begin : begin + TEXTS] for begin in range(0, len(texts), TEXTS)]
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        for number in range(rounds):
            for way in WAYS if number % 2 else reversed(WAYS):
                begin = time.perf_counter()
                list(threads.map(partial(translate, translator, way=way, beam_size=beam_size), parts))
                seconds[way].append(time.perf_counter() - begin)
    medians = {way: statistics.median(found) for way, found in seconds.items()}
    return [
        {"texts": len(texts), "sentences_each": 1, "way": way, "seconds": value, "ratio": value / medians["whole"]}
        for way, value in medians.items()
    ]


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the rows as a table with a column for each key of the first one."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")],
    source: Annotated[Path, typer.Argument(help="Sentences, one a line, plain or .gz.")],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.")],
    size: Annotated[int, typer.Option(min=1, help="Sentences of a text.")] = 3,
    count: Annotated[int, typer.Option(min=1, help="Texts.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds of the cost.")] = 5,
    beam_size: Annotated[int, typer.Option(min=1, help="Of the search.")] = 4,
    results: Annotated[Path | None, typer.Option(help="Folder for the results. Default: not written.")] = None,
) -> None:
    """Print, and save if asked for, quality and cost of splitting."""
    pairs = list(read_parallel(source, target))[: size * count]
    with LocalTranslator(model) as translator:
        rows = quality(translator, pairs, size, count, beam_size)
        Console(width=100).print(table_of(rows))
        plain = [text for text, _ in pairs if not find_protected(text) and not is_in_capitals(text)]
        times = cost(translator, plain, rounds, beam_size)
        Console(width=100).print(table_of(times))
    if results is not None:
        typer.echo(f"written: {save('sentences', [*rows, *times], results, beam_size=beam_size)}")


if __name__ == "__main__":
    typer.run(main)
