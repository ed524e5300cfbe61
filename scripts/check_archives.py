"""Check the wheels and the source archive of a release: `python -m scripts.check_archives dist/*`.

It needs auditwheel and twine, which `make release` installs from deploy/locks/release.txt. --install also installs each
wheel that this machine can run into a bare environment, from package indexes, with no compiler in the path, and
translates with it.

Exit codes: 0 all are fit for an index; 1 one is not, and a line says why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST_GLIBC = 28  # of glibc 2.N; what ONNX Runtime's wheels need, so that Lingon's ask for no newer system
OPERATORS = {"lingon/serving/runtime/lingon_kernels.so", "lingon/serving/runtime/lingon_card.so"}
EVERYWHERE = {"lingon/py.typed", "lingon/__init__.py", "lingon/gateway/page/index.html", "lingon/serving/server.py"}
"""Files that every wheel has; each one is of another kind: the mark of types, a module, data, and a linked folder."""

PLATFORM = re.compile(r"lingon-[^-]+-py3-none-(?:(any)|manylinux_2_(\d+)_(x86_64|aarch64))\.whl")
TEXT, MODEL = "Tom lives in Boston.", ROOT / "models" / "en-de"


class ArchiveError(Exception):
    """An archive is not fit for a release. The message is one line."""


def version() -> str:
    """Return the version of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def check(archives: Sequence[Path]) -> None:
    """Check archives without installing them. Raises ArchiveError."""
    for archive in archives:
        if not archive.name.startswith(f"lingon-{version()}"):
            raise ArchiveError(f"{archive.name}: is not of version {version()}, which pyproject.toml has")
        if archive.suffix == ".whl":
            check_wheel(archive)
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)], "twine refuses an archive")


def check_wheel(wheel: Path) -> None:
    """Check the files of a wheel, and its platform against what its libraries need. Raises ArchiveError."""
    named = PLATFORM.fullmatch(wheel.name)
    if named is None:
        raise ArchiveError(f"{wheel.name}: its platform must be any, or manylinux_2_N on x86_64 or aarch64")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = EVERYWHERE if named[1] else EVERYWHERE | OPERATORS
    if absent := sorted(wanted - names):
        raise ArchiveError(f"{wheel.name}: lacks {', '.join(absent)}")
    if named[1] and (libraries := sorted(name for name in names if name.endswith(".so"))):
        raise ArchiveError(f"{wheel.name}: is for all platforms, and holds {', '.join(libraries)}")
    if not named[1]:
        check_libraries(wheel, int(named[2]))


def check_libraries(wheel: Path, glibc: int) -> None:
    """Check that auditwheel finds no newer glibc than 2.N in a wheel, and no other library. Raises ArchiveError.

    glibc: N, which the name of the wheel promises
    """
    if glibc > NEWEST_GLIBC:
        raise ArchiveError(f"{wheel.name}: glibc must be 2.{NEWEST_GLIBC} at most, as for ONNX Runtime, got 2.{glibc}")
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    found = json.loads(run(command, f"auditwheel cannot read {wheel.name}"))
    if found["external_libs"] or found["unsupported_isa"]:
        others = ", ".join(found["external_libs"]) or "an extended instruction set everywhere"
        raise ArchiveError(f"{wheel.name}: needs {others}, which not every system has")
    versions = [name for names in found["versioned_symbols"].values() for name in names]
    needed = max((int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", " ".join(versions))), default=0)
    if needed > glibc:
        raise ArchiveError(f"{wheel.name}: needs glibc 2.{needed}, and its name promises 2.{glibc}")
    if not found["overall_tag"].startswith("manylinux_"):
        raise ArchiveError(f"{wheel.name}: auditwheel finds it fit for {found['overall_tag']} alone")


def runs_here(wheel: Path) -> bool:
    """Return whether a wheel is for the processor of this machine, or for all."""
    return wheel.stem.endswith(("-any", f"_{os.uname().machine}"))


def check_installed(wheel: Path) -> None:
    """Install a wheel with the extra `serve` into a bare environment, and translate with it. Raises ArchiveError.

    No program of the system is in the path, so that nothing is compiled.
    """
    with tempfile.TemporaryDirectory(prefix="lingon-release-") as name:
        folder = Path(name)
        venv.create(folder, with_pip=True)
        bare = {"PATH": f"{folder}/bin", "HOME": name, **dict(_of_pip(os.environ))}
        pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        wanted = f"lingon[serve] @ {wheel.resolve().as_uri()}"
        run([*pip, "--only-binary", ":all:", wanted], f"{wheel.name} cannot be installed", bare, folder)
        command = f"{folder}/bin/lingon"
        said = run([command, "--version"], f"{wheel.name}: lingon --version fails", bare, folder)
        if said.split() != ["lingon", version()]:
            raise ArchiveError(f"{wheel.name}: lingon --version says {said.strip()!r}")
        report = run([command, "doctor", str(MODEL)], f"{wheel.name}: lingon doctor fails", bare, folder)
        if ("\nnative operators: not usable: this package is without " in report) != wheel.stem.endswith("-any"):
            raise ArchiveError(f"{wheel.name}: lingon doctor reports other native operators than the wheel has")
        translate = [command, "translate", "--model", str(MODEL), TEXT]
        if "Boston" not in run(translate, f"{wheel.name}: lingon translate fails", bare, folder):
            raise ArchiveError(f"{wheel.name}: lingon translate does not translate {TEXT!r}")


def _of_pip(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that say where pip finds packages, without the versions that a Makefile asks for: a user has
    the newest ones.
    """
    return ((name, value) for name, value in variables.items() if name.startswith("PIP_") and "CONSTRAINT" not in name)


def run(command: Sequence[str], failure: str, variables: Mapping[str, str] | None = None, folder: Path = ROOT) -> str:
    """Return what a command prints. Raises ArchiveError with the last line of its output if it fails."""
    ran = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        raise ArchiveError(f"{failure}: {lines[-1] if lines else f'exit code {ran.returncode}'}")
    return ran.stdout


def main() -> int:
    """Check the archives that the arguments name."""
    parser = argparse.ArgumentParser(description="Check the wheels and the source archive of a release.")
    parser.add_argument("archives", type=Path, nargs="+", help="Paths of wheels and source archives.")
    parser.add_argument("--install", action="store_true", help="Install each wheel for this machine and translate.")
    arguments = parser.parse_args()
    archives = [path.resolve() for path in arguments.archives]
    try:
        check(archives)
        for wheel in archives:
            if arguments.install and wheel.suffix == ".whl" and runs_here(wheel):
                check_installed(wheel)
    except ArchiveError as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    print(f"checked: {', '.join(path.name for path in archives)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
