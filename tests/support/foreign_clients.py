"""The clients of the tests in tests/foreign, and the browser: their packages, and the installation of missing ones.

`python -m tests.support.foreign_clients` installs what is missing: Debian's packages by apt-get, Playwright by pip, and
the packages of Node into the folder of the Node client, with the versions and digests of its lock file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.support.repository import ROOT

NODE_CLIENT = ROOT / "tests" / "foreign" / "node"
PACKAGES = {
    "node": "nodejs",
    "npm": "npm",
    "h2load": "nghttp2-client",
    "chromium": "chromium",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
"""The Debian package of each command."""


PLAYWRIGHT = "playwright"


class MissingClient(Exception):
    """A client that cannot be installed here. The message is one line for the user."""


def missing(*commands: str) -> str | None:
    """Return why a test that needs these commands cannot run here. With `node`, its packages are needed too."""
    for command in commands:
        if command == PLAYWRIGHT and find_spec(PLAYWRIGHT) is None:
            return "Playwright is not installed; make e2e installs it"
        if command != PLAYWRIGHT and shutil.which(command) is None:
            return f"no {command} command; make e2e installs it"
    if "node" in commands and not has_node_packages(NODE_CLIENT):
        return "the packages of the Node client are not installed; make e2e installs them"
    return None


def has_node_packages(folder: Path) -> bool:
    """Return whether the packages of the lock file are installed: npm writes a copy of their part of it when it is
    done.
    """
    try:
        installed = json.loads((folder / "node_modules" / ".package-lock.json").read_text(encoding="utf-8"))
    except OSError:
        return False
    wanted = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return bool({name: package for name, package in wanted.items() if name} == installed["packages"])


def install() -> None:
    """Install all that is missing; raises MissingClient."""
    absent = [command for command in PACKAGES if shutil.which(command) is None]
    if absent:
        _install_packages(sorted({PACKAGES[command] for command in absent}))
    if absent := [command for command in PACKAGES if shutil.which(command) is None]:
        raise MissingClient(f"the command {absent[0]} is still not there; install it, or add its folder to PATH")
    if find_spec(PLAYWRIGHT) is None:  # 45 MB, and of no use without a browser: not in the lock of the tests
        run([sys.executable, "-m", "pip", "install", "--quiet", "playwright==1.65.2"], "install Playwright")
    if not has_node_packages(NODE_CLIENT):
        run(["npm", "ci"], "install the packages of tests/foreign/node", NODE_CLIENT)


def _install_packages(packages: Sequence[str]) -> None:
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise MissingClient(f"these Debian packages are missing: {', '.join(packages)}; as root: {command}")
    run(["apt-get", "update", "--quiet"], "read the lists of Debian packages")
    run([*command.split(), "--yes", "--quiet"], f"install {', '.join(packages)}")


def run(command: Sequence[str], aim: str, folder: Path = ROOT) -> None:
    """Run a command without its output. Raise MissingClient with the line of its errors that names the cause."""
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=variables, check=False)
    if ran.returncode != 0:
        lines = [line for line in ran.stderr.splitlines() if line.strip()] or [f"exit code {ran.returncode}"]
        causes = [line for line in lines if "failed" in line or line.startswith("E:")]
        raise MissingClient(f"cannot {aim}: {(causes or lines)[0].strip()}")


if __name__ == "__main__":
    try:
        install()
    except MissingClient as error:
        sys.exit(f"lingon: error: {error}")
