"""A release is built from a tagged commit whose base images have digests, or it is not built."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deploy_files import DEPLOY
from tests.support.repository import ROOT

DIGEST = f"sha256:{'5' * 64}"
DOCKER = f"""#!/bin/sh
echo "$@" >> "$(dirname "$0")/called"
case "$*" in *imagetools*) echo {DIGEST} ;; esac
"""
"""Stands for docker with buildx: notes its arguments, and has a digest for every image."""


class Checkout:
    """A git repository with the files of a release, and a docker that only notes what it is called with."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.tools = folder / "tree", folder / "bin"
        (self.tree / "deploy").mkdir(parents=True)
        self.tools.mkdir()
        for name in ("pin_digests.sh", "release.sh", "Dockerfile", "compose.yaml"):
            shutil.copy2(DEPLOY / name, self.tree / "deploy")
        shutil.copy2(ROOT / "pyproject.toml", self.tree)
        (self.tools / "docker").write_text(DOCKER)
        (self.tools / "docker").chmod(0o755)
        self.git("init", "--quiet")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": f"{self.tools}:/usr/bin:/bin", "HOME": str(self.tools), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(command, cwd=self.tree, env=variables, capture_output=True, text=True, check=False)

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        ran = self.run("git", *who, *arguments)
        assert ran.returncode == 0, ran.stderr

    def commit(self, tag: str | None = None) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a state")
        if tag is not None:
            self.git("tag", tag)

    def release(self) -> subprocess.CompletedProcess[str]:
        return self.run("deploy/release.sh", "registry.example.com/team")

    def builds(self) -> list[str]:
        """The images that docker was told to build."""
        called = self.tools / "called"
        lines = called.read_text().splitlines() if called.exists() else []
        return [re.sub(r".*--tag (\S+).*", r"\1", line) for line in lines if line.startswith("buildx build")]


@pytest.fixture
def version() -> str:
    found = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Without any digest, whatever the repository has now."""
    made = Checkout(tmp_path)
    for name in ("Dockerfile", "compose.yaml"):
        path = made.tree / "deploy" / name
        path.write_text(re.sub(r"@sha256:[0-9a-f]{64}", "", path.read_text()))
    return made


def test_an_image_without_a_digest_stops_a_release(checkout: Checkout, version: str):
    checkout.commit(f"v{version}")
    ran = checkout.release()
    assert (ran.returncode, checkout.builds()) == (1, [])
    named = re.findall(r"^lingon: error: deploy/(\S+): (\S+?):\S+ has no digest; run: ", ran.stderr, re.MULTILINE)
    images = ["nvidia/dcgm-exporter", "prom/prometheus", "grafana/grafana"]
    assert named == [("Dockerfile", "python"), *(("compose.yaml", image) for image in images)]


@pytest.mark.parametrize("digest", ["@sha256:55", f"@{DIGEST}5", f"@md5:{'5' * 64}"])
def test_what_is_no_digest_does_not_count(checkout: Checkout, version: str, digest: str):
    checkout.run("deploy/pin_digests.sh")
    path = checkout.tree / "deploy" / "Dockerfile"
    path.write_text(path.read_text().replace(f"@{DIGEST}", digest))
    checkout.commit(f"v{version}")
    ran = checkout.release()
    assert ran.returncode == 1
    assert re.findall(r"deploy/(\S+): ", ran.stderr) == ["Dockerfile"]
    assert checkout.builds() == []


def test_a_tagged_commit_with_digests_is_built_for_both_targets(checkout: Checkout, version: str):
    assert checkout.run("deploy/pin_digests.sh").returncode == 0
    checkout.commit(f"v{version}")
    ran = checkout.release()
    assert ran.returncode == 0, ran.stderr
    assert checkout.builds() == [f"registry.example.com/team/lingon:{version}-{target}" for target in ("cpu", "gpu")]
    assert ran.stdout.count(DIGEST) == 4
    calls = (checkout.tools / "called").read_text()
    assert calls.count("--sbom=true --provenance=mode=max") == 2


def test_a_commit_without_the_tag_of_the_version_is_not_released(checkout: Checkout):
    checkout.run("deploy/pin_digests.sh")
    checkout.commit("v999.0")
    assert "does not have the tag v" in checkout.release().stderr
    assert checkout.builds() == []


def test_changes_that_are_not_committed_are_not_released(checkout: Checkout, version: str):
    checkout.run("deploy/pin_digests.sh")
    checkout.commit(f"v{version}")
    (checkout.tree / "pyproject.toml").write_text(f'version = "{version}"\n# changed\n')
    assert "not committed" in checkout.release().stderr
    assert checkout.builds() == []
