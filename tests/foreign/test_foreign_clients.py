"""What `make e2e` installs: an error is one line that names what is missing and the remedy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.foreign_clients import NODE_CLIENT, has_node_packages, missing
from tests.support.repository import ROOT


def test_without_a_package_manager_the_error_names_the_packages_and_the_command():
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.foreign_clients"],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = ["chromium", "nghttp2-client", "nodejs", "npm", "prometheus"]
    assert ran.returncode == 1
    assert ran.stderr == (
        f"lingon: error: these Debian packages are missing: {', '.join(names)}; "
        f"as root: apt-get install --no-install-recommends {' '.join(names)}\n"
    )


def test_a_missing_command_is_named():
    assert missing("sh") is None
    assert missing("sh", "no-such-command") == "no no-such-command command; make e2e installs it"


def test_packages_of_another_lock_file_are_not_taken_for_installed(tmp_path: Path):
    shutil.copy(NODE_CLIENT / "package-lock.json", tmp_path)
    lock = json.loads((tmp_path / "package-lock.json").read_text(encoding="utf-8"))
    assert not has_node_packages(tmp_path)
    packages = {name: package for name, package in lock["packages"].items() if name}
    (tmp_path / "node_modules").mkdir()
    installed = tmp_path / "node_modules" / ".package-lock.json"
    installed.write_text(json.dumps({"packages": packages}), encoding="utf-8")
    assert has_node_packages(tmp_path)
    packages["node_modules/@grpc/grpc-js"]["version"] = "0.0.1"
    installed.write_text(json.dumps({"packages": packages}), encoding="utf-8")
    assert not has_node_packages(tmp_path)


def test_the_lock_file_has_a_digest_of_every_package_and_no_address():
    lock = json.loads((NODE_CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    assert [name for name, package in packages.items() if not package["integrity"].startswith("sha512-")] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
