"""Writes deploy/locks: version and SHA-256 of every file that an image installs, resolved with constraints.txt.

python deploy/lock.py asks pip what it would install for the Python of the image, on each platform that images are built
for. pip resolves and reports; nothing is installed. Run it after a change of pyproject.toml or constraints.txt.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLATFORMS = {"x86_64": "2_28", "aarch64": "2_28"}
"""The machines, and the highest glibc version that wheels may require; bookworm has 2.36."""
HEAD = "# Written by deploy/lock.py: what an image installs, for Python {python} on {machines}. Do not edit.\n"


def image_python() -> str:
    """The version of Python in the image, such as 3.11."""
    found = re.search(r"^FROM python:(\d+\.\d+)\.", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    return found[1]


def resolve(requirements: Iterable[str], python: str, machine: str) -> dict[str, tuple[str, str]]:
    """The packages that pip would install: name to version and hash."""
    glibc = [f"manylinux_2_{minor}_{machine}" for minor in range(int(PLATFORMS[machine].partition("_")[2]), 16, -1)]
    platforms = [option for tag in [*glibc, f"manylinux2014_{machine}"] for option in ("--platform", tag)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), "--target", folder, "--only-binary", ":all:", "--python-version", python]
        command += ["--implementation", "cp", "--constraint", str(ROOT / "constraints.txt"), *platforms, *requirements]
        subprocess.run(command, check=True)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = {}
    for item in items:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        found[name] = (item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def lock(requirements: list[str], python: str, machines: list[str]) -> str:
    """The content of a lock file: one requirement for each package, with its hashes on all machines."""
    versions: dict[str, set[str]] = defaultdict(set)
    hashes: dict[str, dict[str, str]] = defaultdict(dict)
    for machine in machines:
        for name, (version, digest) in resolve(requirements, python, machine).items():
            versions[name].add(version)
            hashes[name][machine] = digest
    lines = [HEAD.format(python=python, machines=" and ".join(machines))]
    for name in sorted(versions):
        (version,) = versions[name]  # fails if constraints.txt allows different versions on different machines
        only = next(iter(hashes[name])) if len(hashes[name]) < len(machines) else None
        marker = f' ; platform_machine == "{only}"' if only else ""
        digests = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(set(hashes[name].values())))
        lines.append(f"{name}=={version}{marker}{digests}\n")
    return "".join(lines)


def main() -> None:
    """Write all lock files, or those named as arguments."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    base, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]
    wanted = {
        "build": (project["build-system"]["requires"], list(PLATFORMS)),
        "serve": (base + extras["serve"], list(PLATFORMS)),
        "gpu": (base + extras["gpu"], ["x86_64"]),
    }
    folder, python = ROOT / "deploy" / "locks", image_python()
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or wanted:
        requirements, machines = wanted[name]
        (folder / f"{name}.txt").write_text(lock(requirements, python, machines), encoding="utf-8")


if __name__ == "__main__":
    main()
