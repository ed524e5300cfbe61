"""The operators on random nodes under sanitizers: `python kernels/tests/run.py`, or `make kernels-test`.

It compiles the driver of this folder with every source of the operators, once with AddressSanitizer and the sanitizer
of undefined behaviour, once with ThreadSanitizer, and runs both with every instruction set that the processor has. It
fails on any report, and if two instruction sets give different bits.

I8MM and NEON on a machine without them, as a comparison with the portable code that takes some minutes:

    apt-get install g++-aarch64-linux-gnu qemu-user
    CXX=aarch64-linux-gnu-g++ python kernels/tests/run.py --plain --emulator "qemu-aarch64 -cpu max"

With `-cpu neoverse-n1`, which has no I8MM, it runs what such a processor does.

QEMU has neither AVX-512 nor AMX, so amx, avx512_vnni and avx_vnni are only compiled where the processor does not have
them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels import build  # after the path of it

FOLDER = Path(__file__).resolve().parent
NAMES = ("amx", "avx512_vnni", "avx_vnni", "avx2", "i8mm", "neon", "portable")
DRIVER = ("cases.cpp", "driver.cpp")
SANITIZERS = ("address,undefined", "thread")
COMMON = tuple(flag for flag in build.FLAGS if flag != "-fvisibility=hidden")


class ReportError(Exception):
    """A sanitizer or the driver reports an error. The message is one line."""


def compile_driver(folder: Path, sanitize: str, sources: Sequence[str] = DRIVER) -> Path:
    """Return a program of sources in this folder, with the sanitizers or, if there are none, optimised and static."""
    compiler = build.find_compiler()
    machine = build.target(compiler)
    flags = [*COMMON, *(("-O1", "-g", f"-fsanitize={sanitize}") if sanitize else (*build.OPTIMISED, "-static"))]
    if "undefined" in sanitize:
        flags.append("-fno-sanitize-recover=all")
    units = [*build.units(machine), *(build.Unit(Path(name).stem, FOLDER / name) for name in sources)]
    # The names of old versions in glibc.cpp are those of a shared library, and only the library calls them.
    objects = {unit: folder / f"{unit.name}.o" for unit in units if unit.name != "glibc"}
    commands = [
        [*compiler, *flags, *unit.flags, "-c", str(unit.source), "-o", str(made)] for unit, made in objects.items()
    ]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(run, commands))
    run([*compiler, *flags, *map(str, objects.values()), "-o", str(folder / "driver"), "-pthread"])
    return folder / "driver"


def run(command: Sequence[str], **environment: str) -> str:
    """Return what a command prints. Raises ReportError if it fails."""
    variables = {**os.environ, **environment, "TSAN_OPTIONS": "halt_on_error=1"}
    ran = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        raise ReportError(f"{shlex.join(command)} fails with exit code {ran.returncode}")
    return ran.stdout.strip()


def check(driver: Sequence[str], seed: int, cases: int) -> None:
    """Run the driver with every instruction set. Raises ReportError if it fails, or if they differ."""
    digests = {}
    for name in NAMES:
        variables = {**os.environ, "LINGON_KERNELS": name}
        if subprocess.run([*driver, "1", "0"], env=variables, capture_output=True, check=False).returncode:
            print(f"{name}: not on this processor")
            continue
        printed = run([*driver, str(seed), str(cases)], LINGON_KERNELS=name)
        print(printed)
        digests[name] = printed.rpartition("digest ")[2]
    if "portable" not in digests or len(set(digests.values())) > 1:
        raise ReportError(f"the instruction sets differ: {digests}")


def main() -> int:
    """Compile and run the drivers that the arguments describe."""
    parser = argparse.ArgumentParser(description="Run the operators on random nodes under sanitizers.")
    parser.add_argument("--cases", type=int, default=5500, help="Nodes for each instruction set. Default: 5500.")
    parser.add_argument("--seed", type=int, default=1, help="Of the random numbers. Default: 1.")
    parser.add_argument("--plain", action="store_true", help="Compile without sanitizers.")
    parser.add_argument("--emulator", default="", help="Command that runs the driver. Default: none.")
    arguments = parser.parse_args()
    try:
        for sanitize in ("",) if arguments.plain else SANITIZERS:
            with tempfile.TemporaryDirectory() as folder:
                print(f"sanitizers: {sanitize or 'none'}", flush=True)
                driver = compile_driver(Path(folder), sanitize)
                check([*shlex.split(arguments.emulator), str(driver)], arguments.seed, arguments.cases)
    except (ReportError, build.BuildError) as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
