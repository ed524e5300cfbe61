"""Instructions of a product of 8-bit integers on 64-bit ARM: `python kernels/tests/count.py`.

    apt-get install g++-aarch64-linux-gnu qemu-user
    CXX=aarch64-linux-gnu-g++ python kernels/tests/count.py

QEMU executes a product of these kernels one instruction at a time and notes each. An emulator has no speed of its own
to measure, and processors differ in what an instruction takes: the counts say how much work there is, not how long it
takes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels import build  # after the path of it
from kernels.tests.run import ReportError, compile_driver

EMULATOR = ("qemu-aarch64", "-cpu", "max", "-singlestep", "-d", "exec,nochain")
NAMES = ("i8mm", "neon")
ROWS = (1, 2, 4, 6, 8, 32)


def executed(program: Path, name: str, sizes: tuple[int, int, int], repetitions: int) -> int:
    """Return how many instructions the program executes. sizes: rows, inputs and outputs. Raises ReportError."""
    command = [*EMULATOR, str(program), *map(str, (*sizes, repetitions))]
    environment = {**os.environ, "LINGON_KERNELS": name}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        found = sum(line.startswith(b"Trace ") for line in process.stderr)
    if process.returncode:
        raise ReportError(f"the product with {name} fails with exit code {process.returncode}")
    return found


def check_tools() -> None:
    """Raise ReportError if the compiler is none for 64-bit ARM, or if there is no emulator."""
    compiler = build.find_compiler()
    if (machine := build.target(compiler)) != "aarch64":
        raise ReportError(f"{compiler[0]} compiles for {machine}: name a compiler for aarch64 in CXX")
    if shutil.which(EMULATOR[0]) is None:
        raise ReportError(f"{EMULATOR[0]} is not installed")


def count(inputs: int, outputs: int) -> None:
    """Print the instructions of a product for each number of rows and instruction set."""
    check_tools()
    with tempfile.TemporaryDirectory() as folder:
        program = compile_driver(Path(folder), "", ["count.cpp"])
        for rows in ROWS:
            sizes = (rows, inputs, outputs)
            counts = {name: executed(program, name, sizes, 2) - executed(program, name, sizes, 1) for name in NAMES}
            print(f"rows {rows}:", ", ".join(f"{name} {found:,}" for name, found in counts.items()), flush=True)


def main() -> int:
    """Count for the sizes that the arguments give."""
    parser = argparse.ArgumentParser(description="Count the instructions of a product of 8-bit integers on ARM.")
    parser.add_argument("--inputs", type=int, default=512, help="Of the product. Default: 512.")
    parser.add_argument("--outputs", type=int, default=64, help="Of the product. Default: 64.")
    arguments = parser.parse_args()
    try:
        count(arguments.inputs, arguments.outputs)
    except (ReportError, build.BuildError) as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
