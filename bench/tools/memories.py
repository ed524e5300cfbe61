"""The look-up in a large translation memory: time, memory, and what the index misses.

    python -m lingon.bench.tools.memories --pairs train.en,train.de --pairs train.de,train.en --count 1000000

The memory has the first `count` different sources of the pairs. A process of its own, which has it open and nothing
else, looks up sources of it (exact), and texts of which half are random words of it and half are sources with one word
in six changed, left out or added (fuzzy). Each time is the median over rounds. The recall is that of the index: for how
many of such texts with a match of 70 or more, found by the distance to every source, the score of the best match is
found.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rapidfuzz.distance import Levenshtein

from lingon.bench.options import ToolResults
from lingon.bench.results_file import Row, keep, show
from lingon.files import read_parallel
from lingon.machine import resident_bytes
from lingon.memories.building import build
from lingon.memories.keys import comparable
from lingon.memories.memory import Memory
from lingon.memories.segment import MOST_TEXT, Segment

TEXTS = 1000  # of each kind
ROUNDS = 3
MIB = 2**20
GOOD = 70  # score


def segments(files: Sequence[tuple[Path, Path]], count: int) -> Iterator[Segment]:
    """Yield the first `count` pairs with different sources."""
    seen = set[int]()
    for source, target in files:
        for first, second in read_parallel(source, target):
            if len(seen) == count:
                return
            key = hash(first)
            if key not in seen and first.strip() and second.strip() and max(len(first), len(second)) <= MOST_TEXT:
                seen.add(key)
                yield Segment(first, second, origin=source.name)


def built(files: Sequence[tuple[Path, Path]], folder: Path, count: int) -> list[Row]:
    """Build a memory. Returns what that takes."""
    begin = time.process_time()
    build(folder, segments(files, count))
    seconds = time.process_time() - begin
    memory = Memory.open(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [
        {"measure": "segments", "value": len(memory)},
        {"measure": "characters of a source, mean", "value": len(memory.tables.sources) / len(memory)},
        {"measure": "CPU seconds to build", "value": seconds},
        {"measure": "MiB of a process that builds, peak", "value": peak / MIB},
        {"measure": "MiB of files", "value": memory.size_bytes / MIB},
    ]


def looked_up(folder: Path) -> list[Row]:
    """Return times of look-ups and the memory of this process, which should have done nothing else before."""
    memory, draw = Memory.open(folder), random.Random(1)
    exact = [memory.source(draw.randrange(len(memory))) for _ in range(TEXTS)]
    fuzzy = [similar(memory, draw) if place % 2 else drawn(memory, draw) for place in range(TEXTS)]
    rows: list[Row] = []
    for name, texts in (("exact", exact), ("fuzzy", fuzzy)):
        rounds = [timed(lambda text: memory.find(text), texts) for _ in range(ROUNDS)]
        for clock, column in (("CPU", 0), ("wall", 1)):
            for percent in (50, 99):
                values = [np.percentile(times[:, column], percent) for times in rounds]
                measure = f"{name}, {clock} ms, p{percent}"
                rows.append({"measure": measure, "value": float(np.median(values)) * 1000})
    rows.append({"measure": "MiB resident after it", "value": resident_bytes() / MIB})
    return rows


def timed(find: Callable[[str], object], texts: Sequence[str]) -> np.ndarray:
    """Return (texts, 2) seconds of CPU and wall time."""
    found = []
    for text in texts:
        wall, cpu = time.perf_counter(), time.thread_time()
        find(text)
        found.append((time.thread_time() - cpu, time.perf_counter() - wall))
    return np.array(found)


def drawn(memory: Memory, draw: random.Random) -> str:
    """Return 2 to 24 words of a memory."""
    return " ".join(word(memory, draw) for _ in range(draw.randint(2, 24)))


def word(memory: Memory, draw: random.Random) -> str:
    """Return a word of a memory."""
    return draw.choice(memory.source(draw.randrange(len(memory))).split(" "))


def similar(memory: Memory, draw: random.Random) -> str:
    """Return a source with one word in six changed, left out or added, at least one."""
    words = memory.source(draw.randrange(len(memory))).split(" ")
    for _ in range(max(1, len(words) // 6)):
        place = draw.randrange(len(words))
        match draw.randrange(3):
            case 0:
                words[place] = word(memory, draw)
            case 1:
                words.insert(place, word(memory, draw))
            case _ if len(words) > 1:
                del words[place]
    return " ".join(words)


def recall(folder: Path, texts: int) -> list[Row]:
    """Return how often the index finds the best score.

    texts: number of those for which it is computed by the distance to every source
    """
    memory, draw = Memory.open(folder), random.Random(2)
    forms = [comparable(each.source) for each in memory]
    lengths = np.array([len(form) for form in forms])
    good = found = 0
    for _ in range(texts):
        text = similar(memory, draw)
        form, best = comparable(text), 0
        near = np.flatnonzero((lengths * 100 >= len(form) * GOOD) & (lengths * GOOD <= len(form) * 100))
        for other in (forms[place] for place in near.tolist()):
            longer = max(len(form), len(other))
            distance = Levenshtein.distance(form, other, score_cutoff=longer * (100 - max(best, GOOD)) // 100)
            best = max(best, 100 * (longer - distance) // longer)
        if best >= GOOD:
            good += 1
            found += [match.score for match in memory.find(text)][:1] in ([best], [101])
    return [
        {"measure": f"texts with a match of {GOOD} or more", "value": good},
        {"measure": "best score found, %", "value": 100 * found / max(good, 1)},
    ]


def main(
    pairs: Annotated[list[str], typer.Option(help="SOURCE,TARGET: two parallel files, plain or packed; repeatable.")],
    count: Annotated[int, typer.Option(min=1000, help="Segments.")] = 1_000_000,
    texts: Annotated[int, typer.Option(min=0, help="Texts of the recall, which takes a second each.")] = 100,
    results: ToolResults = None,
) -> None:
    """Print what the look-up in a large memory takes, and save it if there is a folder for it."""
    files = [(Path(source), Path(target)) for source, _, target in (each.partition(",") for each in pairs)]
    with TemporaryDirectory() as temporary:
        folder, rows = Path(temporary) / "memory", list[Row]()
        steps = (built, files, folder, count), (looked_up, folder), (recall, folder, texts)
        for step, *arguments in steps:
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # each in a process that has done nothing else
                rows += fresh.submit(step, *arguments).result()
    show(rows)
    keep("memories", rows, results)


if __name__ == "__main__":
    typer.run(main)
