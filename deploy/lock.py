"""Write deploy/locks: version and SHA-256 of every file that may be installed, resolved with constraints.txt.

python deploy/lock.py asks uv for one resolution that is valid for every Python from 3.11 on and every platform. Markers
limit packages to platforms. A lock has the hashes of all files of a version, so that pip finds the right file.
Run it after a change of pyproject.toml or constraints.txt. Versions that constraints.txt does not pin stay as they are
in the lock.

torch is in no lock, and neither are the libraries that it needs on Linux: the build for CPUs, which most machines want,
has other hashes than the build for CUDA.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = "# Written by deploy/lock.py: {purpose}; every platform, Python {python} or later. Do not edit.\n"
PURPOSES = {
    "build": "what builds the package",
    "serve": "what `make serve` and the image for CPUs install",
    "gpu": "what the image for GPUs installs",
    "dev": "what `make test` installs, without torch",
    "ray": "what `make e2e` adds for the tests of Ray",
    "audit": "what `make audit` installs",
    "release": "what `make release` installs",
}
OF_TORCH = re.compile(r"(torch|triton|(nvidia|cuda)-[a-z0-9-]+)==")  # torch, and what it needs on Linux
OWN = "lingon"
OLDEST = {"dev": "3.11.5"}  # the Python that a lock needs, where it is not PYTHON: soupsieve, of the documentation
PYTHON = "3.11"


def requirements(name: str) -> list[str]:
    """Return the requirements of a lock, with the extras of this package expanded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    base, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]

    def expanded(wanted: Iterable[str]) -> list[str]:
        found = []
        for line in wanted:
            if line.startswith(f"{OWN}["):
                for extra in line.removeprefix(f"{OWN}[").rstrip("]").split(","):
                    found += expanded(extras[extra])
            else:
                found.append(line)
        return found

    match name:
        case "build":
            return [
                *project["build-system"]["requires"],
                "editables",
            ]  # hatchling needs it for `pip install --editable`
        case "audit":
            return ["pip-audit"]
        case "release":
            return [*project["build-system"]["requires"], "auditwheel", "twine"]
        case "ray":
            return base + expanded([f"{OWN}[ray]"])
        case "serve" | "gpu":
            return base + expanded([*extras[name], *extras["http"], *extras["detect"], *extras["second"]])
        case "dev":
            return base + expanded([*extras["serve"], *extras["export"], *extras["dev"]])
    raise ValueError(f"no lock is called {name}")


def lock(name: str) -> None:
    """Write one lock."""
    path, python = ROOT / "deploy" / "locks" / f"{name}.txt", OLDEST.get(name, PYTHON)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, path.name)
        if path.exists():  # uv keeps the versions that it finds here, but takes all hashes from the registry again
            pins = re.findall(r"^[a-z0-9].*?(?= \\$|$)", path.read_text(encoding="utf-8"), re.MULTILINE)
            output.write_text("\n".join(pins), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--output-file", str(output), "--quiet"]
        command += ["--universal", "--python-version", python, "--constraint", str(ROOT / "constraints.txt")]
        command += ["--generate-hashes", "--no-header", "--no-annotate"]
        subprocess.run(command, input="\n".join(requirements(name)), stdout=subprocess.DEVNULL, text=True, check=True)
        packages = re.split(r"\n(?=[a-z0-9])", output.read_text(encoding="utf-8").rstrip("\n"))
    kept = [text for text in packages if name == "gpu" or not OF_TORCH.match(text)]
    head = HEAD.format(purpose=PURPOSES[name], python=python)
    path.write_text("\n".join([head.rstrip("\n"), *kept]) + "\n", encoding="utf-8")


def main() -> None:
    """Write all locks, or those named as arguments."""
    for name in sys.argv[1:] or PURPOSES:
        lock(name)


if __name__ == "__main__":
    main()
