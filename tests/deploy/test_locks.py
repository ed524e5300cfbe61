"""The locks: every package that is installed has a version and hashes; `make serve` and the images install by them."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement

from deploy import lock
from tests.support.deploy_files import DEPLOY
from tests.support.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DEPLOY / "locks").glob("*.txt"))}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
NOT_SERVED = {"torch", "onnx", "safetensors", "tensorboard"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PINS = {
    normal(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
}


def locked(text: str) -> dict[str, str]:
    """The names and versions in a lock."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def test_every_lock_has_a_purpose():
    assert set(LOCKS) == set(lock.PURPOSES)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_hashes_for_every_package(name: str):
    blocks = re.split(r"\n(?=[\w.-]+==)", LOCKS[name])[1:]
    assert len(blocks) == len(locked(LOCKS[name])) > 0
    assert [block for block in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}", block)] == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_all_requirements_at_the_tested_versions(name: str):
    """If this fails after a change of pyproject.toml or constraints.txt, run `make locks`."""
    versions = locked(LOCKS[name])
    assert {pin for pin in versions.keys() & PINS.keys() if versions[pin] != PINS[pin]} == set()
    wanted = {normal(Requirement(line).name) for line in lock.requirements(name)}
    assert {each for each in wanted - versions.keys() if not lock.OF_TORCH.match(f"{each}==")} == set()
    if name in (
        "build",
        "serve",
        "dev",
    ):  # constraints.txt pins neither NVIDIA's libraries nor the tool of make audit
        assert versions.keys() - PINS.keys() - {"colorama", "pywin32"} == set()


def test_a_lock_is_valid_on_all_platforms():
    """A version has files for several systems; a lock with the hashes of one alone would fail on the others."""
    for name in ("serve", "gpu", "dev"):
        grpcio = re.search(r"^grpcio==.*\n((?: +--hash.*\n)+)", LOCKS[name], re.MULTILINE)
        assert grpcio
        assert grpcio[1].count("--hash") > 10


@pytest.mark.parametrize("name", ["serve", "gpu"])
def test_a_server_gets_no_library_of_training(name: str):
    assert NOT_SERVED & locked(LOCKS[name]).keys() == set()


def test_make_installs_by_hash_all_but_torch():
    installs = re.findall(r"^\t\$\(BIN\)/python -m pip install (.*)$", MAKEFILE, re.MULTILINE)
    of_the_clone = [line for line in installs if "--no-build-isolation --editable" in line]
    assert len(of_the_clone) == 2
    assert [line for line in installs if "--require-hashes" not in line] == of_the_clone
    assert not any(lock.OF_TORCH.match(f"{name}==") for name in locked(LOCKS["dev"]))


def test_make_audit_looks_at_every_lock_with_a_tool_that_is_locked_itself():
    ran = subprocess.run(["make", "--dry-run", "audit"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install --quiet --require-hashes -r deploy/locks/audit.txt" in ran.stdout
    assert "for lock in deploy/locks/*.txt" in ran.stdout
    assert "pip-audit" in locked(LOCKS["audit"])
    assert "pip-audit" not in locked(LOCKS["dev"])
    assert ".venv" not in ran.stdout
