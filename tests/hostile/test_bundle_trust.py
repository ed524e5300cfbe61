"""A copy of the shipped bundle with other weights and valid checksums: only the file of trusted digests refuses it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lingon.bundle import open_bundle
from tests.support.shipped_model import bundle
from tests.support.tampered_bundles import copy, sign


@pytest.fixture
def tampered(tmp_path):
    folder = copy(tmp_path)
    weights = folder / "weights" / "int8.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    sign(folder)
    return open_bundle(folder)


def test_a_server_refuses_a_tampered_bundle_with_valid_checksums(tampered, tmp_path):
    tampered.verify()
    path = tmp_path / "trusted"
    path.write_text(f"{bundle().manifest_digest}  {bundle().label}/manifest.json\n")
    command = [sys.executable, "-m", "lingon", "serve", tampered.folder, "--trust", path, "--log-level", "error"]
    ran = subprocess.run(
        [*command, "--port", "0", "--metrics-port", "0"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"lingon: error: {tampered.folder}: is not trusted: {path} has the digest {bundle().manifest_digest} of "
        f"{bundle().label}, its manifest.json has {tampered.manifest_digest}\n"
    )
