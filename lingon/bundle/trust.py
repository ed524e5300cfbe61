"""The bundles that an operator trusts: a file of SHA-256 digests of their manifests, as sha256sum prints them.

    (cd models && sha256sum */*/manifest.json) > trusted.sha256

    # each line is DIGEST  NAME/VERSION/manifest.json; folders before NAME and comments are allowed
    4f0c...  en-de/2/manifest.json

The checksums in a manifest show that the files of a bundle belong together. They do not show who made it, because a
person who can write a bundle can write its manifest too. The digest of the manifest in a file of the operator does:
the manifest has the SHA-256 of every other file.
"""

from __future__ import annotations

import re
from pathlib import Path

from lingon.bundle.names import MANIFEST
from lingon.bundle.store import Bundle
from lingon.errors import BundleError, SettingsError
from lingon.files import read_setting_text

_LINE = re.compile(
    rf"(?P<digest>[0-9a-f]{{64}}) [ *](?:.*/)?(?P<label>\w[\w.+-]{{0,127}}/[1-9]\d*)/{re.escape(MANIFEST)}"
)


def read_trusted(path: Path) -> dict[str, str]:
    """The digests of the manifests by label, such as "en-de/2". Raises SettingsError, which names the line."""
    trusted: dict[str, str] = {}
    for number, line in enumerate(read_setting_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise SettingsError(
                f"{path}: line {number} must be a SHA-256, two spaces and NAME/VERSION/{MANIFEST}, as sha256sum prints "
                f"them, got {line[:128]!r}"
            )
        label, digest = found["label"], found["digest"]
        if trusted.setdefault(label, digest) != digest:
            raise SettingsError(f"{path}: line {number} has a second digest of {label}; a version has one")
    return trusted


def trusted_line(bundle: Bundle) -> str:
    """The line with which a file trusts a bundle."""
    return f"{bundle.manifest_digest}  {bundle.label}/{MANIFEST}"


def check_trusted(bundle: Bundle, path: Path) -> None:
    """Raise BundleError unless the file at path has the digest of the bundle's manifest.

    The file is read at every call, so that a change applies to the next bundle. A file that cannot be read or parsed
    trusts no bundle: SettingsError.
    """
    wanted = read_trusted(path).get(bundle.label)
    if wanted is None:
        raise BundleError(f"{bundle.folder}: is not trusted: {path} has no digest of {bundle.label}")
    if bundle.manifest_digest != wanted:
        raise BundleError(
            f"{bundle.folder}: is not trusted: {path} has the digest {wanted} of {bundle.label}, its {MANIFEST} has "
            f"{bundle.manifest_digest}"
        )
