"""The script that compiles the native operators: which compiler, which flags, when, and what it says if it cannot.

It makes two libraries, one for the CPU and one for cards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.build import CARD_LIBRARY, FLAGS, INSTRUCTION_SETS, build, find_compiler, units
from tests.support.repository import ROOT

FAKE = """#!/bin/sh
[ "$1" = -dumpmachine ] && {{ echo {machine}-linux-gnu; exit; }}
echo "$@" >> "{log}"
case "$*" in *{broken}*) echo "an error of the compiler" >&2; exit 1 ;; esac
while [ "$1" != -o ]; do shift; done
printf '\\177ELF\\2\\1\\1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\3\\0\\{number:o}\\0' > "$2"
"""
"""A compiler that notes its arguments and writes the header of a library."""

MACHINES = {"x86_64": 62, "aarch64": 183}
SOURCES = {path.stem for path in (ROOT / "kernels").glob("*.cpp")} - {"isa"}
FOR_CARDS = {f"card/{path.stem}" for path in (ROOT / "kernels" / "card").glob("*.cpp")}
TWICE = {"registration", "glibc"}  # they are compiled for either library


def objects(machine: str) -> set[str]:
    """The objects of both libraries: one for each source, and one for each instruction set of the processor."""
    return SOURCES | set(INSTRUCTION_SETS[machine]) | FOR_CARDS


class Checkout:
    """A copy of the sources, with a compiler that compiles nothing."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.log, self.bin = folder / "tree", folder / "log", folder / "bin"
        self.library = self.tree / "lingon" / "serving" / "runtime" / "lingon_kernels.so"
        self.card_library = self.library.with_name("lingon_card.so")
        shutil.copytree(ROOT / "kernels", self.tree / "kernels")
        self.bin.mkdir()
        self.compiler("c++")

    def compiler(self, name: str, machine: str = "x86_64", broken: str = "nothing-is-broken") -> None:
        path = self.bin / name
        path.write_text(FAKE.format(machine=machine, log=self.log, broken=broken, number=MACHINES[machine]))
        path.chmod(0o755)

    def build(self, *options: object, cxx: str = "") -> subprocess.CompletedProcess[str]:
        variables = {"PATH": f"{self.bin}:/nonexistent", "CXX": cxx}
        script = self.tree / "kernels" / "build.py"
        # The shell of the fake compiler needs no PATH, but its `[` and `printf` are parts of it.
        command = [sys.executable, script, *map(str, options)]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def commands(self) -> list[str]:
        """The arguments of each call of a compiler since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def flags(self) -> dict[str, set[str]]:
        """The flags of each object that was compiled since the last time, and its source."""
        compiled = [re.search(r"(.*) -c (\S+) -o \S+/(\w+)\.o$", line) for line in self.commands()]
        return {
            ("card/" if Path(found[2]).parent.name == "card" else "") + found[3]: {
                *found[1].split(),
                Path(found[2]).name,
            }
            for found in compiled
            if found
        }


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_without_a_compiler_it_says_so_in_one_line_and_by_its_exit_code(checkout: Checkout):
    (checkout.bin / "c++").unlink()
    ran = checkout.build()
    line = "lingon: error: no C++ compiler is installed: install g++ or clang++, or name one in CXX\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", line)
    ran = checkout.build("--optional")
    line = line.replace("error: ", "the native operators are left out: ")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", line)
    assert not checkout.library.exists()


def test_a_compiler_that_is_named_but_missing_is_not_replaced_by_another(checkout: Checkout):
    ran = checkout.build(cxx="clang++-99 -O0")
    line = "lingon: error: CXX names the C++ compiler clang++-99, which is not installed\n"
    assert (ran.returncode, ran.stderr, checkout.commands()) == (3, line, [])


def test_a_program_that_is_no_compiler_is_refused(checkout: Checkout):
    ran = checkout.build(cxx=shutil.which("true") or "true")
    assert ran.returncode == 1
    assert re.fullmatch(r"lingon: error: \S+ is no C\+\+ compiler: it does not answer -dumpmachine\n", ran.stderr)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_instruction_set_is_compiled_with_its_flags_and_the_rest_without(checkout: Checkout, machine: str):
    checkout.compiler("c++", machine)
    ran = checkout.build()
    assert (ran.returncode, ran.stderr) == (0, "")
    found = checkout.flags()
    assert set(found) == objects(machine)
    for name, flags in found.items():
        wanted = INSTRUCTION_SETS[machine].get(name)
        assert {*FLAGS, "-O3", f"{Path(name).name}.cpp" if wanted is None else "isa.cpp"} <= flags
        assert {flag for flag in flags if flag.startswith("-m")} == set(wanted or ())
        own = {f"-DLINGON_ISA={name}", f"-DLINGON_{name.upper()}"}
        assert {flag for flag in flags if flag.startswith("-D")} == (set() if wanted is None else own)


def test_it_compiles_again_only_if_a_source_is_newer_or_the_processor_another(checkout: Checkout):
    assert checkout.build().stdout.startswith("lingon: compiled the native operators in ")
    assert len(checkout.commands()) == len(objects("x86_64")) + len(TWICE) + 2
    ran = checkout.build()
    assert (ran.returncode, ran.stdout, checkout.commands()) == (0, "", [])
    newer = checkout.library.stat().st_mtime + 1
    os.utime(checkout.tree / "kernels" / "tiles.h", (newer, newer))
    checkout.build()
    assert set(checkout.flags()) == objects("x86_64")
    for library in (checkout.library, checkout.card_library):
        os.utime(library, (newer + 1, newer + 1))
    checkout.compiler("cross", "aarch64")
    checkout.build(cxx="cross")
    assert set(checkout.flags()) == objects("aarch64")
    assert checkout.library.read_bytes()[18] == MACHINES["aarch64"]
    assert checkout.card_library.read_bytes()[18] == MACHINES["aarch64"]


def test_a_change_of_the_operators_for_cards_compiles_those_for_the_cpu_no_second_time(checkout: Checkout):
    checkout.build()
    checkout.commands()
    newer = checkout.card_library.stat().st_mtime + 1
    os.utime(checkout.tree / "kernels" / "card" / "launch.h", (newer, newer))
    checkout.build()
    assert set(checkout.flags()) == FOR_CARDS | TWICE


def test_a_source_that_does_not_compile_is_named_and_the_library_stays(checkout: Checkout):
    checkout.build()
    before = checkout.library.read_bytes()
    (checkout.tree / "kernels" / "isa.cpp").touch()
    checkout.compiler("c++", broken="-DLINGON_AVX2")
    ran = checkout.build("--optional")
    assert ran.returncode == 1
    flags = "-DLINGON_ISA=avx2 -DLINGON_AVX2 -mavx2 -mf16c -mfma"
    last = f"lingon: error: kernels/isa.cpp does not compile with c++ {flags}"
    assert ran.stderr.splitlines() == ["an error of the compiler", last]
    assert checkout.library.read_bytes() == before
    left = sorted(path.name for path in checkout.library.parent.iterdir())
    assert left == [checkout.card_library.name, checkout.library.name]


def test_the_c_plus_plus_library_is_linked_in_if_its_archive_is_there(checkout: Checkout):
    checkout.build()
    assert sum(line.endswith(" -static-libstdc++") for line in checkout.commands()) == 2
    checkout.library.unlink()
    checkout.card_library.unlink()
    checkout.compiler("c++", broken="-static-libstdc++")
    ran = checkout.build()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not checkout.commands()[-1].endswith("-static-libstdc++")
    assert checkout.library.exists()
    assert checkout.card_library.exists()


def test_a_library_with_sanitizers_is_another_file(checkout: Checkout):
    output = checkout.tree / "sanitized" / "library.so"
    assert checkout.build("--sanitize", "address,undefined", "--output", output).returncode == 0
    commands = checkout.commands()
    assert all("-fsanitize=address,undefined" in line and "-O3" not in line for line in commands)
    assert output.exists()
    assert output.with_name(checkout.card_library.name).exists()
    assert not checkout.library.exists()


def symbols(*arguments: object) -> list[str]:
    """The names of the symbols that a file defines."""
    command = ["nm", "--defined-only", "--format=just-symbols", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.native
def test_a_library_shows_its_entries_alone(native_library: Path):
    """Templates of the C++ library that it contains could else take the place of those of another library."""
    entries = ["lingon_kernels_add_mapped", "lingon_kernels_name", "lingon_kernels_use_helpers"]
    expected = ["RegisterCustomOps", *entries]
    assert sorted(symbols("--dynamic", native_library)) == expected
    build(CARD_LIBRARY, card=True)
    entries = ["lingon_card_add_kernel", "lingon_card_clear", "lingon_card_error"]
    expected = ["RegisterCardOpsOnCpu", "RegisterCustomOps", *entries]
    assert sorted(symbols("--dynamic", CARD_LIBRARY)) == expected


@pytest.mark.native
def test_a_library_is_linked_in_a_folder_of_any_name(tmp_path: Path):
    tree = Checkout(tmp_path / "a, b").tree
    code = (
        "import subprocess; from kernels.build import FOLDER, LINK, exports, find_compiler\n"
        "flags = [*LINK, *exports(FOLDER / 'exports.map')]\n"
        "subprocess.run([*find_compiler(), *flags, '-x', 'c++', '/dev/null', '-o', 'made.so'], check=True)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True)
    assert (tree / "made.so").is_file()


@pytest.mark.native
@pytest.mark.parametrize("name", INSTRUCTION_SETS[os.uname().machine])
def test_code_for_one_instruction_set_cannot_be_linked_into_other_code(name: str, tmp_path: Path):
    """A function that several objects define is linked once, which may be the one of a processor that is not there.

    All that the object of an instruction set defines is therefore in its namespace, and other objects are compiled
    without flags of a processor. With little optimisation few functions disappear into another one.
    """
    unit = next(each for each in units(os.uname().machine) if each.name == name)
    made = tmp_path / "made.o"
    subprocess.run([*find_compiler(), *FLAGS, "-O1", *unit.flags, "-c", unit.source, "-o", made], check=True)
    own = f"_ZN6lingon{len(name)}{name}"
    found = symbols("--extern-only", made)
    assert f"{own}5tableEv" in found
    assert [symbol for symbol in found if not symbol.startswith(own)] == []
