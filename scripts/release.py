"""Build, check and tag a release of the package: `make release`, or `python -m scripts.release`.

It builds the source archive from the commit, and from that archive the wheels: with native operators for Linux on
x86-64 and on 64-bit ARM, and one without them for macOS, Windows and other systems. scripts/check_archives.py checks
each, also in a bare environment. Then the commit gets the tag of the version, and the command that uploads is printed.

    --rehearse    build and check what is committed, whatever its state, and set no tag
    --platform    build the wheels of these platforms alone, where a compiler is missing
    --upload      upload the archives too, with twine, which asks for the token of the index

It refuses what could not be built again: changes that are not committed, a version without a dated section in
CHANGELOG.md, and a version whose tag is on another commit. Images come after it, with deploy/release.sh.

It needs a network and both compilers, on Debian g++ and g++-aarch64-linux-gnu, or on ARM g++-x86-64-linux-gnu.
Exit codes: 0 released; 1 refused, and a line says why.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.check_archives import ROOT, ArchiveError, check, check_installed, run, runs_here, version


class Target(NamedTuple):
    """A kind of wheel; compiler: that of its native operators, empty for the wheel without them."""

    platform: str
    compiler: str = ""

    @property
    def package(self) -> str:
        """Debian's package of the compiler."""
        return f"g++-{self.platform.replace('_', '-')}-linux-gnu"


PROCESSORS = ("x86_64", "aarch64")
TARGETS = (*(Target(name, f"{name}-linux-gnu-g++") for name in PROCESSORS), Target("any"))
PLATFORMS = [target.platform for target in TARGETS]


def check_state(tag: str) -> None:
    """Raise ArchiveError if the commit may not be released."""
    if git("status", "--porcelain"):
        raise ArchiveError("there are changes that are not committed; a release is built from a commit")
    heading = re.escape(f"## {version()} (")
    if not re.search(rf"^{heading}\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        raise ArchiveError(f"CHANGELOG.md must have the line '## {version()} (YEAR-MONTH-DAY)' for this release")
    tagged = git("tag", "--list", tag)
    if tagged and tag not in git("tag", "--points-at", "HEAD").split():
        raise ArchiveError(f"the tag {tag} is on another commit; raise the version in pyproject.toml")


def check_compilers(targets: Sequence[Target]) -> None:
    """Raise ArchiveError if a compiler is missing, before minutes are spent."""
    for target in targets:
        if target.compiler and shutil.which(target.compiler) is None:
            raise ArchiveError(f"{target.compiler} is not installed, on Debian: apt-get install {target.package}")


def build(output: Path, targets: Sequence[Target]) -> list[Path]:
    """Return the archives of the commit: the source archive, and a wheel for each target. Raises ArchiveError."""
    date = git("log", "-1", "--format=%ct")  # so that a later build of the commit has the same dates in it
    with tempfile.TemporaryDirectory(prefix="lingon-release-") as name:
        tree = Path(name, "commit")
        packed = Path(name, "commit.tar")
        git("archive", "--output", str(packed), "HEAD")
        _unpack(packed, tree)
        archives = [_hatch(tree, output, "sdist", SOURCE_DATE_EPOCH=date)]
        for target in targets:
            unpacked = Path(name, target.platform)
            _unpack(archives[0], unpacked)
            (source,) = unpacked.iterdir()
            native = "required" if target.compiler else "none"
            variables = {"CXX": target.compiler, "LINGON_NATIVE_OPERATORS": native, "SOURCE_DATE_EPOCH": date}
            archives.append(_hatch(source, output, "wheel", **variables))
            if not archives[-1].stem.endswith(target.platform):
                raise ArchiveError(f"{archives[-1].name}: was to be for {target.platform}")
            print(f"built {archives[-1].name}", flush=True)
    return archives


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="tar")  # the links of lingon/ lead out of that folder, and not out of ours


def _hatch(source: Path, output: Path, kind: str, **variables: str) -> Path:
    """Return the archive that hatchling builds from a tree."""
    with tempfile.TemporaryDirectory(prefix="lingon-release-") as folder:
        command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", folder]
        run(command, f"the {kind} cannot be built", {**os.environ, **variables}, source)
        (made,) = Path(folder).iterdir()
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(made, output / made.name))


def git(*arguments: str) -> str:
    """Return what git prints about this repository."""
    return run(["git", *arguments], f"git {arguments[0]}").strip()


def release(arguments: argparse.Namespace) -> None:
    """Build, check, tag, and upload if asked to. Raises ArchiveError."""
    tag = f"v{version()}"
    if not arguments.rehearse:
        check_state(tag)
    targets = [target for target in TARGETS if target.platform in (arguments.platform or PLATFORMS)]
    check_compilers(targets)
    if arguments.output.exists() and any(arguments.output.iterdir()):
        raise ArchiveError(f"{arguments.output}: must be empty or not there; it is to hold this release alone")
    archives = build(arguments.output.resolve(), targets)
    check(archives)
    for wheel in archives[1:]:
        if runs_here(wheel):
            check_installed(wheel)
            print(f"installed {wheel.name} and translated with it", flush=True)
    upload = [sys.executable, "-m", "twine", "upload", *map(str, archives)]
    if arguments.rehearse:
        print(f"rehearsed: {len(archives)} archives in {arguments.output}, no tag is set")
        return
    if tag not in git("tag", "--points-at", "HEAD").split():
        git("tag", "--annotate", "--message", f"Lingon {version()}", tag)
    if left_out := [name for name in PLATFORMS if name not in (arguments.platform or PLATFORMS)]:
        print(f"left out: the wheels for {', '.join(left_out)}; there pip takes another one, or the source archive")
    print(f"tagged {tag}; publish the tag with: git push origin {tag}", flush=True)
    if not arguments.upload:
        print(f"nothing is uploaded; to do that: {shlex.join(upload)}")
    elif subprocess.run(upload, check=False).returncode:
        raise ArchiveError("twine did not upload all archives; the tag is set, and the same command goes on")


def main() -> int:
    """Release what the arguments say."""
    parser = argparse.ArgumentParser(description="Build, check and tag a release of the package.")
    parser.add_argument("--rehearse", action="store_true", help="Build and check the commit, and set no tag.")
    parser.add_argument("--upload", action="store_true", help="Upload the archives after the checks.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="Folder of the archives. Default: dist.")
    parser.add_argument(
        "--platform", action="append", choices=PLATFORMS, help="A wheel to build; may be repeated. Default: all."
    )
    arguments = parser.parse_args()
    if arguments.upload and arguments.rehearse:
        parser.error("--upload does not go with --rehearse")
    try:
        release(arguments)
    except ArchiveError as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
