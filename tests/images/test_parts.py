"""The list of the parts of an image (SBOM) is complete, and no Python package in it has a known vulnerability."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from lingon.bundle import open_bundle
from scripts.images import podman, tag
from tests.support.containers import IMAGES
from tests.support.deploy_files import DEPLOY
from tests.support.repository import ROOT

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]
TOOLS = IMAGES / "tools" / "bin"
LOCKS = {"cpu": "serve", "gpu": "gpu"}
TARGETS = pytest.mark.parametrize("target", LOCKS)


def locked(target: str) -> dict[str, str]:
    """The packages that pip installs in an image on Linux, with their versions."""
    text = (DEPLOY / "locks" / f"{LOCKS[target]}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[\S+\])?==(\S+) \\$", text, re.MULTILINE))


@pytest.fixture(scope="module", params=LOCKS)
def listed(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """An image and the list of its parts, which is kept in build/images."""
    target = request.param
    root = podman("image", "mount", tag(target)).stdout.strip()
    try:
        name, version = tag(target).split(":")
        command = [TOOLS / "python", DEPLOY / "sbom.py", "--name", name, "--version", version, root]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    finally:
        podman("image", "umount", tag(target))
    (IMAGES / f"sbom-{target}.json").write_text(text, encoding="utf-8")
    return target, json.loads(text)


def of_kind(values: dict[str, Any], kind: str) -> dict[str, str]:
    parts = (part for part in values["components"] if part.get("purl", "").startswith(f"pkg:{kind}/"))
    return {part["name"]: part["version"] for part in parts}


def test_every_python_package_is_listed_as_locked(listed):
    target, values = listed
    found = of_kind(values, "pypi")
    assert found.pop("lingon")
    assert found == locked(target)


def test_the_system_the_interpreter_and_the_model_are_listed(listed):
    _, values = listed
    assert {"libc6", "openssl", "bash", "dpkg"} <= of_kind(values, "deb").keys()
    assert of_kind(values, "generic").keys() == {"python"}
    (model,) = (part for part in values["components"] if part["type"] == "machine-learning-model")
    bundle = open_bundle(ROOT / "models" / "en-de")
    assert model["name"] == bundle.manifest.name
    assert model["hashes"] == [{"alg": "SHA-256", "content": bundle.manifest_digest}]


@TARGETS
def test_no_python_package_has_a_known_vulnerability(target: str):
    """pip-audit asks the registry. Debian's packages are scanned by none of our tools, but the list has them."""
    lock = DEPLOY / "locks" / f"{LOCKS[target]}.txt"
    command = [TOOLS / "pip-audit", "--require-hashes", "--disable-pip", "--format=json", "--requirement", lock]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ran.stdout:
        pytest.skip(f"images: no vulnerability data: {ran.stderr.strip().splitlines()[-1]}")
    found = json.loads(ran.stdout)["dependencies"]
    scanned = [package for package in found if "skip_reason" not in package]
    if not scanned:
        pytest.skip("images: the registry gives no vulnerability data")
    assert {package["name"]: package.get("skip_reason", "") for package in found if package not in scanned} == {}
    assert [(package["name"], package["vulns"]) for package in scanned if package["vulns"]] == []
