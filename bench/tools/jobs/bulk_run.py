"""What a bulk run adds to the time of its engine, what sorting gains, and whether all engines write the same bytes.

    python -m lingon.bench.tools.jobs.bulk_run models/en-de LINES --rows 2000000 --files 40 --engines local,ray

The input is Parquet. Its rows are drawn from LINES and have an id each. Every engine has a process of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from lingon.bench.results_file import results_folder, save
from lingon.bulk import Translate
from lingon.bulk.shards import MANIFEST
from lingon.bulk.storage import digest
from lingon.bulk.translating import BATCH, IN_FLIGHT
from lingon.cli.backend import Translator, open_translator
from lingon.cli.lines.batching import in_order
from lingon.cli.options.backend import BackendOptions
from lingon.errors import LingonError
from lingon.lines import read_lines

SEED = 1
SORTED_TEXTS = 4000  # for the comparison of orders
SORTED_ROUNDS = 5
PAUSE = 0.5  # seconds between two readings of memory


def write_input(folder: Path, lines: Sequence[str], rows: int, files: int) -> None:
    """Write files of rows that are drawn from lines, each with an id that counts through all files."""
    draw, each = random.Random(SEED), rows // files
    folder.mkdir(parents=True)
    for number in range(files):
        ids = range(number * each, (number + 1) * each)
        pq.write_table(pa.table({"id": ids, "text": draw.choices(lines, k=each)}), folder / f"{number:03d}.parquet")


def check_rows(source: Path, output: Path, into: str) -> None:
    """Raise LingonError unless the output has the rows of the input, in order, with a translation each."""
    before = pq.ParquetDataset(source).read()
    after = pa.concat_tables(pq.read_table(path) for path in sorted(output.glob("part-*")))
    if not after.select(before.column_names).equals(before) or after[into].null_count:
        raise LingonError(f"{output}: the rows are not those of {source}")


def resident_mib(process: int) -> float:
    """The memory of a process, in MiB; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / 2**20
    except (OSError, IndexError):
        return 0.0


def children_of(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(path.parent.name))
    return found


@contextmanager
def memory_of(process: subprocess.Popen[str]) -> Iterator[list[float]]:
    """The memory of a process and those that it has started, in MiB, as it is read while the block runs."""
    found: list[float] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(PAUSE):
            found.append(sum(map(resident_mib, [process.pid, *children_of(process.pid)])))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def run_engine(engine: str, source: Path, output: Path, options: list[str]) -> dict[str, Any]:
    """Run the verb; returns its time, what it counted, and its memory after each tenth of the run."""
    command = [sys.executable, "-m", "lingon", "bulk", str(source), str(output), "--engine", engine, *options]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, memory_of(process) as memory:
        assert process.stdout is not None
        process.stdout.read()
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise LingonError(f"{' '.join(command)}: exit code {process.returncode}")
    manifest = json.loads((output / MANIFEST).read_bytes())
    counted = {name: manifest[name] for name in ("rows", "errors", "shards", "target_tokens")}
    tenths = [round(memory[len(memory) * tenth // 10]) for tenth in range(1, 10)] if memory else []
    return {"engine": engine, "seconds": seconds, **counted, "memory_mib": tenths}


def translate_in_order(translator: Translator, texts: Sequence[str], options: dict[str, Any]) -> float:
    """The seconds that requests of texts in their order take, as many at once as bulk translation sends."""
    batches = iter([list(texts[first : first + BATCH]) for first in range(0, len(texts), BATCH)])
    begin = time.perf_counter()
    with closing(in_order(batches, lambda batch: translator.translate(batch, **options), IN_FLIGHT)) as answers:
        for _ in answers:
            pass
    return time.perf_counter() - begin


def gain_of_sorting(model: Path, lines: Sequence[str], options: dict[str, Any]) -> list[float]:
    """How many times as long texts in their order take as the same texts with the longest first, in each round."""
    texts = random.Random(SEED).sample(list(lines), min(SORTED_TEXTS, len(lines)))
    longest_first = sorted(texts, key=len, reverse=True)
    with open_translator(BackendOptions(model=str(model))) as translator:
        translate_in_order(translator, texts[:BATCH], options)
        return [
            translate_in_order(translator, texts, options) / translate_in_order(translator, longest_first, options)
            for _ in range(SORTED_ROUNDS)
        ]


def engine_seconds(model: Path, source: Path, options: dict[str, Any]) -> tuple[float, int]:
    """The seconds and the target tokens of the first file, if nothing but the engine has work to do."""
    texts = sorted(set(pq.read_table(min(source.iterdir()))["text"].to_pylist()), key=len, reverse=True)
    with Translate(model=str(model), into="out", **options) as translate:
        translate.cells(texts[:BATCH])
        begin = time.perf_counter()
        _, counts = translate.cells(texts)
        return time.perf_counter() - begin, counts.target_tokens


def main(
    model: Annotated[Path, typer.Argument(help="Bundle.")],
    lines: Annotated[Path, typer.Argument(help="File of lines that rows are drawn from.")],
    rows: Annotated[int, typer.Option(help="Rows of the input.")] = 2_000_000,
    files: Annotated[int, typer.Option(help="Files of the input.")] = 40,
    shard_rows: Annotated[int, typer.Option(help="Rows of a shard.")] = 50_000,
    engines: Annotated[str, typer.Option(help="Engines, separated by commas; empty for none.")] = "local,ray",
    sorting: Annotated[Path | None, typer.Option(help="File of lines for the comparison of orders.")] = None,
    sorting_model: Annotated[Path | None, typer.Option(help="Bundle for the comparison of orders.")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
) -> None:
    """Measure."""
    options, texts = {"beam_size": 1}, list(dict.fromkeys(filter(str.strip, read_lines(lines))))
    flags = ["--model", str(model.resolve()), "--into", "out", "--beam-size", "1", "--shard-rows", str(shard_rows)]
    found, digests = [], {}
    with TemporaryDirectory() as folder:
        source = Path(folder, "in")
        write_input(source, texts, rows, files)
        alone, tokens = engine_seconds(model, source, options)
        for engine in filter(None, engines.split(",")):
            output = Path(folder, engine)
            more = ["--workers", "2"] if engine == "ray" else []
            row = run_engine(engine, source, output, [*flags, *more])
            check_rows(source, output, "out")
            digests[engine] = digest(b"".join(path.read_bytes() for path in sorted(output.glob("part-*"))))
            rate = row["target_tokens"] / row["seconds"]
            row |= {"tokens_per_second": rate, "of_engine_alone": rate / (tokens / alone), "sha256": digests[engine]}
            found.append(row)
            print(row)
    print("the same bytes:", len(set(digests.values())) == 1)
    gains = gain_of_sorting(sorting_model or model, list(read_lines(sorting)), options) if sorting else []
    print("sorted texts are", [round(each, 2) for each in gains], "times as fast")
    distinct = {"distinct_lines": len(texts), "engine_alone_tokens_per_second": tokens / alone}
    same = {"same_bytes": len(set(digests.values())) == 1, "gain_of_sorting": gains}
    print(save("bulk", found, results_folder(results, quick=results is None), **distinct, **same))


if __name__ == "__main__":
    typer.run(main)
