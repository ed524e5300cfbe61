"""A file of trusted bundles: digests as sha256sum prints them; any other bundle is refused in one line."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle.store import Bundle, check_trusted, open_bundle, read_trusted
from lingon.errors import BundleError, LingonError, SettingsError
from tests.support.bundles import MANIFEST, sign, write_small_bundle

DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return write_small_bundle(tmp_path / "models" / "en-de" / "1")


def trusted(bundle: Bundle, *paths: str) -> Path:
    """A file that sha256sum writes in the folder of the models."""
    models = bundle.folder.parents[1]
    names = paths or ("en-de/1/manifest.json",)
    printed = subprocess.run(["sha256sum", *names], cwd=models, capture_output=True, check=True).stdout
    path = models.parent / "trusted.sha256"
    path.write_bytes(printed)
    return path


@pytest.mark.parametrize("where", ["", "./", "../models/"])
def test_a_bundle_is_trusted_by_what_sha256sum_prints(bundle: Bundle, where: str) -> None:
    path = trusted(bundle, f"{where}en-de/1/manifest.json")
    assert read_trusted(path) == {"en-de/1": bundle.manifest_digest}
    check_trusted(bundle, path)


def test_a_bundle_whose_own_checksums_are_consistent_is_refused_if_its_manifest_is_another(bundle: Bundle) -> None:
    path, wanted = trusted(bundle), bundle.manifest_digest
    (bundle.folder / "fp32" / "encoder.onnx").write_bytes(b"another")
    sign(bundle.folder)
    tampered = open_bundle(bundle.folder)
    tampered.verify()  # by itself it is whole
    with pytest.raises(BundleError) as refusal:
        check_trusted(tampered, path)
    assert str(refusal.value) == (
        f"{bundle.folder}: is not trusted: {path} has the digest {wanted} of en-de/1, its manifest.json has "
        f"{tampered.manifest_digest}"
    )
    assert wanted != tampered.manifest_digest


def test_a_bundle_that_the_file_does_not_name_is_refused(bundle: Bundle) -> None:
    path = trusted(bundle)
    other = Bundle(bundle.folder, replace(MANIFEST, version=2))
    with pytest.raises(BundleError, match=r"is not trusted: .* has no digest of en-de/2$"):
        check_trusted(other, path)


def test_the_digest_of_another_model_does_not_count(bundle: Bundle) -> None:
    """A trusted manifest in the folder of another name is trusted as what it declares, and nothing else."""
    copy = bundle.folder.parents[1] / "de-en" / "7"
    shutil.copytree(bundle.folder, copy)
    path = trusted(bundle, "de-en/7/manifest.json")
    assert list(read_trusted(path)) == ["de-en/7"]
    with pytest.raises(BundleError, match="has no digest of en-de/1"):
        check_trusted(open_bundle(copy), path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("en-de/1/manifest.json", "line 2 must be a SHA-256"),
        (f"{DIGEST}  en-de/1", "line 2 must be a SHA-256"),
        (f"{DIGEST}  en-de/one/manifest.json", "line 2 must be a SHA-256"),
        (f"{DIGEST[:-1]}  en-de/1/manifest.json", "line 2 must be a SHA-256"),
        (f"{DIGEST.upper()}  en-de/1/manifest.json", "line 2 must be a SHA-256"),
        (f"{DIGEST}  en-de/2/manifest.json\n{DIGEST[::-1]}  en-de/2/manifest.json", "line 3 has a second digest"),
    ],
)
def test_a_line_that_is_not_understood_trusts_nothing(bundle: Bundle, line: str, reason: str) -> None:
    path = trusted(bundle)
    path.write_text(f"# ours\n{line}\n{path.read_text()}")
    with pytest.raises(SettingsError, match=reason):
        check_trusted(bundle, path)


def test_without_its_file_no_bundle_is_trusted(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere: No such file or directory$"):
        check_trusted(bundle, tmp_path / "nowhere")


def test_comments_empty_lines_and_equal_lines_are_allowed(bundle: Bundle) -> None:
    path = trusted(bundle)
    path.write_text(f"# ours\n\n{path.read_text()}{path.read_text()}")
    check_trusted(bundle, path)


def test_a_refusal_is_one_line(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("")
    with pytest.raises(LingonError) as refusal:
        check_trusted(bundle, path)
    assert "\n" not in str(refusal.value)
