"""Quality and time of bundles of one language pair: a teacher and its students, as a table and a picture.

    python -m lingon.bench.tools.students SOURCE TARGET models/en-de models/en-de-student

SOURCE and TARGET have parallel lines. The first bundle is the teacher. A bundle that has a shortlist is measured with
it too. Each round has all bundles, so that a slow period of the machine affects all of them.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.bench.options import results_folder
from lingon.bench.results_file import load_pyplot, save, save_chart, show
from lingon.bundle.store import open_bundle
from lingon.cli.backend import BackendOptions, ListTranslator, open_translator
from lingon.files import read_parallel
from lingon.scoring import score

BATCHES = (1, 32)  # texts of a request
TIMED = 256  # texts of a round with the largest batch; a quarter of them one by one
ROUNDS = 5

Translators = dict[str, tuple[ListTranslator, dict[str, Any]]]
"""Translators and the options of their requests, by the name in the table."""


def seconds_each(translator: ListTranslator, texts: list[str], batch: int, options: dict[str, Any]) -> float:
    """Return the mean seconds of a text, in requests of this many that follow each other."""
    begin = time.perf_counter()
    for first in range(0, len(texts), batch):
        translator.translate(texts[first : first + batch], **options)
    return (time.perf_counter() - begin) / len(texts)


def measure(translators: Translators, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return BLEU and chrF on all pairs, and the median milliseconds of a text by the size of its request."""
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    rows: list[dict[str, Any]] = []
    for name, (translator, options) in translators.items():
        found = [each.text if each.translations else "" for each in translator.translate(sources, **options)]
        scores = score(found, references)
        rows.append({"bundle": name, "bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2)})
    for batch in BATCHES:
        texts = sources[: TIMED if batch > 1 else TIMED // 4]
        times: dict[str, list[float]] = {name: [] for name in translators}
        for _ in range(ROUNDS):
            for name, (translator, options) in translators.items():
                times[name].append(1000 * seconds_each(translator, texts, batch, options))
        for row in rows:
            row[f"ms_batch_{batch}"] = round(statistics.median(times[row["bundle"]]), 3)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw BLEU over the time of a text, one picture for each size of a request."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(1, len(BATCHES), figsize=(10, 4), layout="constrained")
    for axis, batch in zip(axes, BATCHES, strict=True):
        for row in rows:
            axis.plot(row[f"ms_batch_{batch}"], row["bleu"], "o", label=row["bundle"])
        axis.set(title=f"{batch} at once", xlabel="ms a sentence", ylabel="BLEU", xlim=(0, None))
        axis.margins(0.25)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save_chart(figure, path)


def main(
    source: Annotated[Path, typer.Argument(help="Texts, one a line.")],
    target: Annotated[Path, typer.Argument(help="Their translations by people, line by line.")],
    bundles: Annotated[list[Path], typer.Argument(help="Bundles, the teacher first.")],
    beam_size: Annotated[int, typer.Option(help="Beam size; 1 is greedy search.")] = 1,
    limit: Annotated[int, typer.Option(help="Pairs, from the first on.")] = 2000,
    threads: Annotated[int, typer.Option(help="Cores of the engine of each bundle.")] = 1,
    results: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
) -> None:
    """Measure, print a table, and write results and picture."""
    pairs = list(read_parallel(source, target))[:limit]
    folder = results_folder(results, quick=results is None)
    with ExitStack() as stack:
        translators: Translators = {}
        for path in bundles:
            bundle = open_bundle(path)
            backend = BackendOptions(model=str(path), engines=1, threads=threads)
            opened = stack.enter_context(open_translator(backend))
            translators[bundle.manifest.name] = opened, {"beam_size": beam_size, "shortlist": False}
            if bundle.manifest.shortlist:
                name = f"{bundle.manifest.name}, shortlist"
                translators[name] = opened, {"beam_size": beam_size, "shortlist": True}
        rows = measure(translators, pairs)
    show(rows)
    path = save("students", rows, folder, beam_size=beam_size, pairs=len(pairs), threads=threads)
    draw(rows, path.with_suffix(".svg"))


if __name__ == "__main__":
    typer.run(main)
