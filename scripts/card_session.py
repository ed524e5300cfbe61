"""What `scripts/on_card.sh FOLDER session` does on a machine that is lent for minutes, with an NVIDIA card.

Stages, in this order, each in a process of its own, which is ended at its limit:

    kernels  loads all kernels for the card and runs the tests of tests/kernels/card on it, each kernel beside NumPy,
             also with 1, 16, 17, 32, 33, 64, 65 and 256 rows at different places of a tile
    company  translates 20 sentences alone and among others, in batches of as many rows, greedy and with beam 4, by
             fp16-native: every token and every score must have the same bits
    memory   the same tests of some kernels under compute-sanitizer, if that is there: no access beyond an array
    table    `lingon bench gpu`: fp16-native, fp16 and the loop in PyTorch, split into encoder, steps and host; then a
             profile of a step of each: its kernels, how many and how long
    train    trains a model that ships, for the time that is left

FOLDER/session.json has the result of every stage that is done, and FOLDER/gpu.part.jsonl the cells of the table. Call
the script again with the same folder, and it goes on from there; `--earlier` first copies the files of another folder.

`--rehearse` takes the card of tests/support/card_emulation.py in place of a real one, and tiny sizes.

It needs what on_card.sh says, and the two libraries of operators beside serving/runtime/card.py, which `make kernels`
builds.

Exit codes: 0 all stages are done and passed, 1 a stage failed, 75 the time was over before all were done.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "kernels" / "card"
KERNEL_TESTS = "test_attention.py", "test_choice.py", "test_places.py", "test_products.py", "test_search.py"
PART = "gpu.part.jsonl"
EMULATION = "tests.support.card_emulation"
CUT_OFF = 75
REHEARSED = 10  # times the limits of stages in a rehearsal, because an interpreter runs the kernels

ROWS = 1, 16, 17, 32, 33, 64, 65, 256
SENTENCES = 20  # that are compared
MOST_TOKENS = 30  # of an output


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """The options of a session.

    folder: for results; cache: for models, and for the run of the training
    minutes: until the session ends; train: the config of the training, "" without one
    """

    folder: Path
    cache: Path
    minutes: float
    train: str
    rehearse: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a session.

    seconds: its limit; resumed: whether a process that was ended can go on, which is then no failure
    """

    name: str
    seconds: float
    command: Callable[[Session], list[str]]
    resumed: bool = False


def own_stage(name: str) -> Callable[[Session], list[str]]:
    """Return the command of a stage that this script computes."""

    def command(session: Session) -> list[str]:
        flags = ["--rehearse"] if session.rehearse else []
        return [sys.executable, __file__, str(session.folder), "--cache", str(session.cache), "--stage", name, *flags]

    return command


def memory_command(session: Session) -> list[str]:
    """Return the command of some tests under compute-sanitizer, or one that says that it is not there."""
    if (sanitizer := shutil.which("compute-sanitizer")) is None:
        return [sys.executable, "-c", "print('compute-sanitizer is not there')"]
    return [sanitizer, "--tool", "memcheck", "--error-exitcode", "9", *own_stage("memory")(session)]


def table_command(session: Session) -> list[str]:
    """Return the command of the table."""
    command = [sys.executable, "-m", "lingon", "bench", "gpu", "--results", str(session.folder)]
    command += ["--cache", str(session.cache), "--work", "fixed", "--resume"]
    if session.rehearse:
        command += ["--device", "cpu", "--quick", "--operators", EMULATION, "--batch", "1", "--beam-size", "1"]
        engines = ["lingon-native", "torch-graph"]
    else:
        command += ["--model", "base", "--runs", "3"]
        engines = ["lingon-native", "lingon-cuda-graphs", "torch-graph"]
    return command + [part for engine in engines for part in ("--engine", engine)]


def train_command(session: Session) -> list[str]:
    """Return the command of the training."""
    run = session.cache / "runs" / Path(session.train).stem
    return [sys.executable, "-m", "lingon", "train", session.train, "--output", str(run)]


STAGES = (
    Stage("kernels", 150, own_stage("kernels")),
    Stage("company", 120, own_stage("company")),
    Stage("memory", 60, memory_command),
    Stage("table", 600, table_command, resumed=True),
    Stage("train", 600, train_command, resumed=True),
)


def run_session(session: Session, stages: Sequence[Stage] = STAGES) -> int:
    """Run the stages that are not done yet. Returns the exit code."""
    deadline = time.monotonic() + 60 * session.minutes
    path = session.folder / "session.json"
    done: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    over = False
    for stage in stages:
        if stage.name in done or (stage.name == "train" and not session.train):
            continue
        limit = stage.seconds * (REHEARSED if session.rehearse else 1)
        left = min(limit, deadline - time.monotonic())
        if left <= 0:
            over = True
            break
        print(f"== {stage.name}, at most {left:.0f} s", flush=True)
        found = run_stage(stage, session, left)
        if found["ended"] and stage.resumed:
            over = True
            continue
        done[stage.name] = found
        path.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    for name, found in done.items():
        print(f"{name}: {'passed' if found['passed'] else 'FAILED'} in {found['seconds']:.0f} s", flush=True)
    if not all(found["passed"] for found in done.values()):
        return 1
    return CUT_OFF if over else 0


def run_stage(stage: Stage, session: Session, seconds: float) -> dict[str, Any]:
    """Run a stage for so many seconds at most, and print its output.

    Returns passed, ended (at its limit), seconds, the last lines, and what it printed as `result: {...}`.
    """
    copy_part(session, to_cache=True)
    start, lines, result = time.monotonic(), [""], {}
    with subprocess.Popen(
        stage.command(session),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(seconds, os.killpg, [process.pid, signal.SIGKILL])
        timer.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            lines = [*lines[-9:], line.rstrip()]
            if line.startswith("result: "):
                result = json.loads(line.removeprefix("result: "))
            copy_part(session)
        process.wait()
        timer.cancel()
    copy_part(session)
    taken = time.monotonic() - start
    ended = process.returncode == -signal.SIGKILL and taken >= seconds
    passed = process.returncode == 0
    found = {"passed": passed, "ended": ended, "seconds": round(taken, 1), "result": result}
    return found if passed else found | {"last lines": lines}


def copy_part(session: Session, *, to_cache: bool = False) -> None:
    """Copy the measured cells of the table to the folder, or from there to the cache of a fresh machine."""
    ours, cached = session.folder / PART, session.cache / PART
    source, target = (ours, cached) if to_cache else (cached, ours)
    if source.is_file() and not (to_cache and target.is_file()):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def check_kernels(session: Session) -> dict[str, Any]:
    """Load all kernels, and run their tests on the card."""
    from lingon.serving.runtime.device import FP16_NATIVE, cuda_missing, operators_missing

    missing = None if session.rehearse else cuda_missing() or operators_missing(FP16_NATIVE)
    print(f"fp16-native lacks: {missing or 'nothing'}", flush=True)
    os.environ["LINGON_TEST_KERNELS"] = "emulated" if session.rehearse else "card"
    from tests.support.card_launcher import chosen_card

    start = time.monotonic()
    with chosen_card() as card:
        assert card is not None
        for name in card.names:
            card.load(name)
        found: dict[str, Any] = {"missing": missing, "architecture": card.architecture, "kernels": len(card.names)}
    found["load_s"] = round(time.monotonic() - start, 2)
    print(f"loaded {found}", flush=True)
    passed = run_tests(["test_places.py"] if session.rehearse else KERNEL_TESTS)
    return found | {"passed": passed and missing is None}


def check_memory(session: Session) -> dict[str, Any]:
    """Run tests of which each takes few launches."""
    os.environ["LINGON_TEST_KERNELS"] = "emulated" if session.rehearse else "card"
    few = "float64 or placed or embedding or past or memory or likeliest or greedy"
    return {"passed": run_tests(KERNEL_TESTS, "-k", few)}


def run_tests(names: Sequence[str], *options: str) -> bool:
    """Return whether files of tests of kernels pass."""
    import pytest

    files = [str(TESTS / name) for name in names]
    return pytest.main(["-q", "-rf", "-p", "no:cacheprovider", *options, *files]) == 0


def check_company(session: Session) -> dict[str, Any]:
    """Compare sentences alone and among others."""
    from lingon.bench.synthetic import EMULATED_SHAPES, SHAPES, forced_workloads
    from lingon.bundle.store import open_bundle
    from lingon.machine import usable_cores
    from lingon.serving.runtime.device import CPU, CUDA, FP16_NATIVE
    from lingon.serving.runtime.onnx_runner import load_runner

    rows: Sequence[int] = ROWS
    count, tokens, register = SENTENCES, MOST_TOKENS, None
    if session.rehearse:
        rows, count, tokens = (8,), 2, 5
        register = importlib.import_module(EMULATION).register_emulated_operators
    name, shape = ("tiny", EMULATED_SHAPES["tiny"]) if session.rehearse else ("base", SHAPES["base"])
    provider = CPU if session.rehearse else CUDA
    fixed, mixed = forced_workloads(session.cache, name, shape, provider, max(rows))
    runner = load_runner(
        open_bundle(fixed.bundle), FP16_NATIVE, threads=usable_cores(), cuda_graphs=True, register=register
    )
    others = 2 if session.rehearse else max(*rows, 2 * count)
    pool = [source[-28:] for source in (*mixed.sources, *fixed.sources)][: count + others]
    differences = []
    for beams in (1, 4):
        alone = [found for source in pool[:count] for found in translated(runner, [(source, tokens)], beams, beams)]
        for most in rows:
            for shift in (0, 5 % len(pool)) if most > 1 else (0,):
                order = list(range(shift, len(pool))) + list(range(shift))
                wanted = {at: tokens if at < count else 4 + at % (tokens - 3) for at in order}
                found = translated(runner, [(pool[at], wanted[at]) for at in order], beams, max(most, beams))
                for at, each in zip(order, found, strict=True):
                    if at < count and each != alone[at]:
                        differences.append({"beams": beams, "rows": most, "shift": shift, "sentence": at})
                print(f"beam {beams}, {most} rows: {len(differences)} differences so far", flush=True)
    return {"passed": not differences, "differences": differences[:50], "sentences": count, "rows": rows}


def translated(runner: Any, jobs: Sequence[tuple[Sequence[int], int]], beams: int, rows: int) -> list[Any]:
    """Return the outcomes of sources with a number of target tokens each, in an engine for so many rows."""
    from lingon.serving.decoding.job import DecodeJob, Options
    from lingon.serving.engine.engine import Engine
    from lingon.serving.engine.limits import EngineLimits

    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def put(at: int, outcome: Any) -> None:
        done.put((at, outcome))

    engine = Engine(runner, EngineLimits(max_rows=rows, max_queue_texts=10_000, max_queue_tokens=1_000_000), workers=1)
    engine.start()
    try:
        engine.submit(
            [
                DecodeJob(
                    source_ids=tuple(source),
                    options=Options(beam_size=beams, num_hypotheses=beams, max_output_tokens=most),
                    on_done=functools.partial(put, at),
                )
                for at, (source, most) in enumerate(jobs)
            ]
        )
        found = dict(done.get(timeout=100) for _ in jobs)
    finally:
        engine.stop(timeout=5)
    for outcome in found.values():
        if isinstance(outcome, Exception):
            raise outcome
    return [found[at] for at in range(len(jobs))]


OWN: Mapping[str, Callable[[Session], dict[str, Any]]] = {
    "kernels": check_kernels,
    "company": check_company,
    "memory": check_memory,
}


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the results")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/lingon-card"), help="folder for models and runs")
    parser.add_argument("--earlier", type=Path, help="folder of an earlier session, to go on from")
    parser.add_argument("--minutes", type=float, default=8.5, help="minutes until the session ends (default: 8.5)")
    parser.add_argument("--train", default="configs/en-de.toml", help="config of the training; empty: none")
    parser.add_argument("--rehearse", action="store_true", help="take an emulated card and tiny sizes")
    parser.add_argument("--stage", choices=tuple(OWN), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def earlier_files(folder: Path) -> Iterator[Path]:
    """Yield the files to go on from."""
    yield from (path for name in ("session.json", PART) if (path := folder / name).is_file())


def main() -> int:
    """Run a session, or one of its stages."""
    options = parsed(sys.argv[1:])
    session = Session(
        folder=options.folder.resolve(),
        cache=options.cache.resolve(),
        minutes=options.minutes,
        train=options.train,
        rehearse=options.rehearse,
    )
    if options.stage:
        sys.path.insert(0, str(ROOT))  # for `tests`
        found = OWN[options.stage](session)
        print("result: " + json.dumps(found), flush=True)
        return 0 if found["passed"] else 1
    session.folder.mkdir(parents=True, exist_ok=True)
    if options.earlier:
        for path in earlier_files(options.earlier):
            shutil.copyfile(path, session.folder / path.name)
    return run_session(session)


if __name__ == "__main__":
    sys.exit(main())
