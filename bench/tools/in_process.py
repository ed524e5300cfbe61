"""A student in this process: what a line costs in lingon.Model and in fxtranslate, from text to text.

    python -m lingon.bench.tools.in_process models/en-de FILES texts.en

FILES is the folder with the files of Firefox from which the bundle was imported. Lines are translated one at a time,
where each engine has one thread, and all in one call, where each has two. fxtranslate has no call for several lines:
two threads with a translator each translate half of them. The rounds of the engines alternate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lingon import Model
from lingon.bench.engines.fxtranslate import StudentFiles, TranslatorThread, unavailable_reason
from lingon.bench.options import ToolResults
from lingon.bench.results_file import Row, keep, show
from lingon.errors import SettingsError
from lingon.files import read_lines

THREADS = 2  # of each engine for all lines in one call
ONE_AT_A_TIME, IN_ONE_CALL = "one at a time", "all in one call"
LINGON, FXTRANSLATE = "lingon", "fxtranslate"

Translate = Callable[[Sequence[str]], list[str]]
Case = tuple[str, str]
"""How lines are given, and the engine."""


class Round(NamedTuple):
    """What the lines took: milliseconds of the wall clock and of CPU time, and their translations."""

    ms: float
    cpu_ms: float
    texts: list[str]


def student_files(folder: Path) -> StudentFiles:
    """Find the files of a student in its folder: one model.*.bin, one or two *.spm, and a lex.*.bin if there is one."""
    models, pieces, lists = (sorted(folder.glob(pattern)) for pattern in ("model.*.bin", "*.spm", "lex.*.bin"))
    if len(models) != 1 or len(pieces) not in (1, 2):
        raise SettingsError(f"{folder}: must have one model.*.bin and one or two *.spm, not compressed")
    return StudentFiles(models[0], pieces[0], pieces[-1], lists[0] if lists else None)


def cases_of(bundle: Path, files: StudentFiles, stack: ExitStack) -> dict[Case, Translate]:
    """Load the engines, and return the function of each case. The stack closes the engines."""
    one = stack.enter_context(Model(bundle, device="cpu", engines=1, threads=1))
    all_at_once = stack.enter_context(Model(bundle, device="cpu", engines=THREADS, threads=1))
    threads = [TranslatorThread(files) for _ in range(THREADS)]
    listed = files.shortlist is not None

    def alone(lines: Sequence[str]) -> list[str]:
        return threads[0].translate(lines, shortlist=listed).result()

    def divided(lines: Sequence[str]) -> list[str]:
        parts = [each.translate(lines[first::THREADS], shortlist=listed) for first, each in enumerate(threads)]
        found = [part.result() for part in parts]
        return [found[number % THREADS][number // THREADS] for number in range(len(lines))]

    return {
        (ONE_AT_A_TIME, LINGON): lambda lines: [one.translate(line, beam_size=1).text for line in lines],
        (ONE_AT_A_TIME, FXTRANSLATE): alone,
        (IN_ONE_CALL, LINGON): lambda lines: [each.text for each in all_at_once.translate(list(lines), beam_size=1)],
        (IN_ONE_CALL, FXTRANSLATE): divided,
    }


def measure(cases: Mapping[Case, Translate], lines: Sequence[str], rounds: int) -> list[Row]:
    """Run all cases in each round, after one that is not counted. Return a row for each case."""
    found: dict[Case, list[Round]] = {case: [] for case in cases}
    for _ in range(rounds + 1):
        for case, translate in cases.items():
            found[case].append(_timed(translate, lines))
    return [_row(case, found, len(lines)) for case in cases]


def _timed(translate: Translate, lines: Sequence[str]) -> Round:
    wall, cpu = time.perf_counter(), time.process_time()
    texts = translate(lines)
    return Round(1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu), texts)


def _row(case: Case, found: Mapping[Case, Sequence[Round]], lines: int) -> Row:
    """Return the columns of a case: milliseconds of a line, and the ratio to fxtranslate in the same rounds."""
    how, engine = case
    own, other = found[case][1:], found[how, FXTRANSLATE][1:]
    ratio = statistics.median(slow.ms / quick.ms for slow, quick in zip(other, own, strict=True))
    same = sum(mine == theirs for mine, theirs in zip(own[-1].texts, other[-1].texts, strict=True))
    return {
        "lines": how,
        "engine": engine,
        "ms": round(statistics.median(each.ms for each in own) / lines, 4),
        "cpu_ms": round(statistics.median(each.cpu_ms for each in own) / lines, 4),
        "ratio_to_fxtranslate": round(ratio, 3),
        "same_text": round(same / lines, 4),
    }


def main(
    bundle: Annotated[Path, typer.Argument(help="Bundle of the student: models/NAME or models/NAME/VERSION.")],
    files: Annotated[Path, typer.Argument(help="Folder with the files of Firefox from which it was imported.")],
    texts: Annotated[Path, typer.Argument(help="Lines to translate.")],
    lines: Annotated[int, typer.Option(min=1, help="Lines of the file that are translated, at most.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 9,
    results: ToolResults = None,
) -> None:
    """Print what a line costs, and save it if there is a folder."""
    if reason := unavailable_reason():
        raise SettingsError(reason)
    chosen = list(islice(read_lines(texts), lines))
    if not chosen:
        raise SettingsError(f"{texts}: has no lines")
    with ExitStack() as stack:
        rows = measure(cases_of(bundle, student_files(files), stack), chosen, rounds)
    show(rows)
    keep("in-process", rows, results, lines=len(chosen))


if __name__ == "__main__":
    typer.run(main)
