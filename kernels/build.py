"""Compiles the operators of this folder into the libraries that the server loads: `python kernels/build.py`.

One library has the operators for the CPU, the other one those for cards. They are two files, so that a server on the
CPU never loads the second one.

It needs Python and a C++ compiler, GCC 11 or Clang 14 or later: $CXX, otherwise the first of c++, g++ and clang++. $CXX
can be a cross compiler: the instruction sets are those of its target.

Exit codes: 0 the libraries are there and newer than the sources; 1 one does not compile; 3 there is no compiler, which
`--optional` turns into 0. One line says so.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
CARD = FOLDER / "card"
LIBRARY = FOLDER.parent / "lingon" / "serving" / "runtime" / "lingon_kernels.so"
CARD_LIBRARY = LIBRARY.with_name("lingon_card.so")
COMPILERS = ("c++", "g++", "clang++")
NO_COMPILER = 3  # exit code

# Products and sums are fused only where the code says so, so that all instruction sets round alike.
FLAGS = ("-std=c++17", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi")
OPTIMISED = ("-O3",)
SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
LINK = ("-shared", "-pthread", "-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,--gc-sections")

WRAPPED = (
    *("pthread_create", "pthread_detach", "pthread_sigmask", "pthread_setaffinity_np", "pthread_setname_np"),
    *("dlopen", "dlsym", "dlerror"),
)
"""The functions that glibc.cpp calls in old versions, so that a library loads on systems older than its builder's."""

AVX2 = ("-mavx2", "-mf16c", "-mfma")
AVX512_VNNI = ("-mf16c", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni")
INSTRUCTION_SETS = {
    "x86_64": {
        "amx": (*AVX512_VNNI, "-mamx-tile", "-mamx-int8"),
        "avx512_vnni": AVX512_VNNI,
        "avx_vnni": (*AVX2, "-mavxvnni"),
        "avx2": AVX2,
        "portable": (),
    },
    "aarch64": {"i8mm": ("-march=armv8.2-a+dotprod+i8mm",), "neon": ("-march=armv8.2-a+dotprod",), "portable": ()},
}
"""By processor, the instruction sets that isa.cpp is compiled for, and the flags that turn each on."""

MACHINES = {62: "x86_64", 183: "aarch64"}
"""The processors by their numbers in the header of a library (ELF)."""


class BuildError(Exception):
    """The library cannot be built. The message is one line."""


class NoCompilerError(BuildError):
    """The error for a missing C++ compiler."""


def find_compiler(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the C++ compiler. Raises NoCompilerError."""
    if named := shlex.split(environment.get("CXX", "")):
        if shutil.which(named[0], path=environment.get("PATH")):
            return named
        raise NoCompilerError(f"CXX names the C++ compiler {named[0]}, which is not installed")
    for name in COMPILERS:
        if shutil.which(name, path=environment.get("PATH")):
            return [name]
    raise NoCompilerError("no C++ compiler is installed: install g++ or clang++, or name one in CXX")


class Unit(NamedTuple):
    """An object of the library: a source and the flags of its own."""

    name: str
    source: Path
    flags: Sequence[str] = ()


def units(machine: str) -> list[Unit]:
    """Return what is compiled for a processor, what takes longest first."""
    sets = INSTRUCTION_SETS.get(machine, {"portable": ()})
    compiled = [
        Unit(name, FOLDER / "isa.cpp", (f"-DLINGON_ISA={name}", f"-DLINGON_{name.upper()}", *flags))
        for name, flags in sets.items()
    ]
    others = sorted(path for path in FOLDER.glob("*.cpp") if path.name != "isa.cpp")
    return [*compiled, *(Unit(path.stem, path) for path in others)]


def card_units() -> list[Unit]:
    """Return what is compiled for cards: its sources, and what both libraries have. It has no instruction sets."""
    shared = (FOLDER / "registration.cpp", FOLDER / "glibc.cpp")
    return [Unit(path.stem, path) for path in (*sorted(CARD.glob("*.cpp")), *shared)]


def machine_of(library: Path) -> str:
    """Return the processor that a library is for, empty if it is none of those in MACHINES."""
    with library.open("rb") as file:
        header = file.read(20)
    return MACHINES.get(int.from_bytes(header[18:20], "little"), "") if header[:4] == b"\x7fELF" else ""


def is_current(library: Path, machine: str, *, card: bool) -> bool:
    """Return whether a library is for this processor and newer than all files that it is made of."""
    if not library.is_file() or machine_of(library) != machine:
        return False
    folders = (FOLDER, CARD) if card else (FOLDER,)
    parts = [path for folder in folders for path in folder.iterdir() if path.suffix in (".cpp", ".h", ".map")]
    parts.append(FOLDER / "build.py")
    return library.stat().st_mtime > max(path.stat().st_mtime for path in parts)


def build_all(library: Path = LIBRARY, sanitize: str = "", environment: Mapping[str, str] = os.environ) -> bool:
    """Compile both libraries, that for cards beside the other one, and return whether any was compiled. See build."""
    compiled = build(library, sanitize, environment)
    return build(library.with_name(CARD_LIBRARY.name), sanitize, environment, card=True) or compiled


def build(
    library: Path = LIBRARY, sanitize: str = "", environment: Mapping[str, str] = os.environ, *, card: bool = False
) -> bool:
    """Compile a library unless it is current and return whether it was compiled.

    sanitize: sanitizers of the compiler, such as `address,undefined`. A library with other ones needs another path,
        because only the dates of files are compared.
    card: whether it has the operators for cards, and not those for the CPU.

    Raises NoCompilerError, or BuildError after the compiler has printed why.
    """
    compiler = find_compiler(environment)
    machine = target(compiler)
    if is_current(library, machine, card=card):
        return False
    flags = [*FLAGS, *(SANITIZED if sanitize else OPTIMISED)]
    common = [f"-fsanitize={sanitize}"] if sanitize else []
    library.parent.mkdir(parents=True, exist_ok=True)
    # Objects and library appear in a folder of this process: several may build at the same time.
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".kernels-") as folder:
        parts = card_units() if card else units(machine)
        objects = {unit: Path(folder, f"{unit.name}.o") for unit in parts}
        commands = [
            [*compiler, *flags, *common, *unit.flags, "-c", str(unit.source), "-o", str(made)]
            for unit, made in objects.items()
        ]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for unit, worked in zip(objects, pool.map(_run, commands), strict=True):
                if not worked:
                    source = unit.source.relative_to(FOLDER.parent)
                    raise BuildError(f"{source} does not compile with {compiler[0]} {shlex.join(unit.flags)}".rstrip())
        made = Path(folder, library.name)
        exported = (CARD if card else FOLDER) / "exports.map"
        link = [*compiler, *common, *LINK, *exports(exported), *map(str, objects.values()), "-o", str(made)]
        if not sanitize and machine in INSTRUCTION_SETS:  # sanitizers have functions of these names themselves
            link += [f"-Wl,--wrap={name}" for name in WRAPPED]
        link.append("-ldl")  # after the objects; with the glibc of today it is empty
        _link(link, static=not sanitize)
        os.replace(made, library)
    return True


def exports(names: Path) -> list[str]:
    """Return the flags with which a library shows only what a file names."""
    return ["-Xlinker", f"--version-script={names}"]  # -Wl would end the path at a comma


def _link(command: list[str], *, static: bool) -> None:
    """Link the library; static: with the C++ library in it, so that no version of another one is needed.

    Some systems have the archive in a package of its own, which may be missing.
    """
    if static and subprocess.run([*command, "-static-libstdc++"], capture_output=True, check=False).returncode == 0:
        return
    if not _run(command):
        raise BuildError(f"{command[0]} does not link the library")


def _run(command: list[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def target(compiler: list[str]) -> str:
    """Return the processor that a compiler compiles for."""
    ran = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
    if ran.returncode or not ran.stdout.strip():
        raise BuildError(f"{compiler[0]} is no C++ compiler: it does not answer -dumpmachine")
    return ran.stdout.partition("-")[0].strip()


def main() -> int:
    """Build the libraries that the arguments describe."""
    parser = argparse.ArgumentParser(description="Compile the native operators.")
    parser.add_argument(
        "--output",
        type=Path,
        default=LIBRARY,
        help="Path of the library for the CPU, beside which is that for cards. Default: where the server loads them.",
    )
    parser.add_argument("--sanitize", default="", help="Sanitizers: address,undefined or thread. Default: none.")
    parser.add_argument("--optional", action="store_true", help="Without a compiler, end with exit code 0.")
    arguments = parser.parse_args()
    start = time.monotonic()
    try:
        if build_all(arguments.output, arguments.sanitize):
            print(f"lingon: compiled the native operators in {time.monotonic() - start:.0f} s")
    except NoCompilerError as error:
        if arguments.optional:
            print(f"lingon: the native operators are left out: {error}", file=sys.stderr)
            return 0
        print(f"lingon: error: {error}", file=sys.stderr)
        return NO_COMPILER
    except BuildError as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
