"""Bundles on disk: finds, opens, reads (every byte is checked) and atomically publishes them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from lingon.bundle.manifest import Manifest
from lingon.bundle.names import MANIFEST, WEIGHTS
from lingon.bundle.publish import Content, publish_bundle, write_files
from lingon.errors import BundleError, DamagedBundle, first_of
from lingon.files import read_plain_file
from lingon.text import Tokenizer

MAX_FILE_BYTES = {MANIFEST: 2**20, f"{WEIGHTS}/": 2**36, "": 2**28}
"""Largest number of bytes of a file, by the beginning of its name; for weights memory is the actual bound."""

MOST_NAMED = 5  # models in the message about a folder of them

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. Every file is read by `read`, which refuses altered files."""

    folder: Path
    manifest: Manifest

    @property
    def label(self) -> str:
        """Name and version, as in "en-de/1"."""
        return f"{self.manifest.name}/{self.manifest.version}"

    @property
    def manifest_digest(self) -> str:
        """The SHA-256 of manifest.json in hexadecimal, as sha256sum prints it."""
        return hashlib.sha256(self.manifest.to_bytes()).hexdigest()

    def read(self, name: str) -> bytes:
        """The bytes of a file, whose checksum is verified on these bytes. Raises DamagedBundle."""
        path = self.folder / name
        if name not in self.manifest.checksums:
            raise DamagedBundle(f"{path}: the manifest does not list it")
        content = _read(self.folder, name)
        if hashlib.sha256(content).hexdigest() != self.manifest.checksums[name]:
            raise DamagedBundle(f"{path}: was altered (its SHA-256 is not the one in {MANIFEST})")
        return content

    def graphs(self, precision: str, *names: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The graph files of these names in a precision, and the weight files that they read; both by name."""
        if precision not in self.manifest.precisions:
            known = ", ".join(self.manifest.precisions)
            raise BundleError(f"{self.folder}: has no precision {precision!r}; it has {known}")
        graphs = {name: self.read(f"{precision}/{name}") for name in names}
        return graphs, {name: self.read(f"{WEIGHTS}/{name}") for name in self.manifest.precisions[precision].weights}

    def tokenizer_files(self) -> list[bytes]:
        """The sentencepiece models: one for both languages, or those of source and target."""
        found = tuple(sorted(name for name in self.manifest.checksums if re.fullmatch(r"\w+\.model", name)))
        if found not in (Tokenizer.JOINT, Tokenizer.SEPARATE):
            raise BundleError(f"{self.folder}: has no tokenizer, or several: {', '.join(found) or 'no .model file'}")
        return [self.read(name) for name in found]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of these models, which frames a source as the model reads it."""
        return Tokenizer(*self.tokenizer_files(), source_end=self.manifest.source_end)

    def verify(self) -> None:
        """Read every file once. Raises DamagedBundle for the first that is not listed, missing or altered."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_symlink():
                raise DamagedBundle(f"{path}: is a link; a bundle holds none")
            if not path.is_dir() and name != MANIFEST and name not in self.manifest.checksums:
                raise DamagedBundle(f"{path}: the manifest does not list it")
        for name in self.manifest.checksums:
            self.read(name)


def is_bundle(path: Path) -> bool:
    """Whether path is a bundle or the folder of a model's versions."""
    return _has_manifest(path) or bool(versions(path))


def bundles_below(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the bundles and folders of versions one folder below, and the folders that cannot be read."""
    found, unreadable = list[Path](), list[Path]()
    for child in sorted(each for each in path.iterdir() if each.is_dir()):
        try:
            if is_bundle(child):
                found.append(child)
        except PermissionError:
            unreadable.append(child)
    return found, unreadable


def versions(path: Path) -> list[int]:
    """The versions in the folder of a model that have a manifest, in ascending order."""
    return [number for number in all_versions(path) if _has_manifest(path / str(number))]


def all_versions(path: Path) -> list[int]:
    """The versions in the folder of a model, also those that are being copied or cannot be read; in ascending order."""
    if not path.is_dir():
        return []
    return sorted(int(each.name) for each in path.iterdir() if re.fullmatch(r"[1-9]\d*", each.name) and each.is_dir())


def open_bundle(path: Path) -> Bundle:
    """Open the bundle at path, or the highest version below it; only the manifest is read."""
    if _has_manifest(path):
        return Bundle(path, Manifest.from_bytes(_read(path, MANIFEST), path / MANIFEST))
    found = versions(path)
    if not found:
        raise _no_bundle(path)
    return open_version(path / str(found[-1]), found[-1])


def use_highest_whole(
    path: Path, use: Callable[[Bundle], Result], left_out: Callable[[DamagedBundle], None] = lambda error: None
) -> Result:
    """Return what `use` returns for the bundle at path, or for the highest version below it that is whole.

    A version is not whole while it is being copied, and must not keep a server from starting with a lower one.

    use: raises DamagedBundle if it finds that a bundle is not whole; then the next lower version takes its place
    left_out: called with the error of each version that is not whole

    Raises BundleError, that of the highest version if none is whole. A path of a bundle means this bundle alone.
    """
    if _has_manifest(path):
        return use(open_bundle(path))
    first: DamagedBundle | None = None
    for number in reversed(all_versions(path)):
        try:
            return use(open_version(path / str(number), number))
        except DamagedBundle as error:
            first = first or error
            left_out(error)
    raise first or _no_bundle(path)


def open_version(folder: Path, version: int) -> Bundle:
    """Open the bundle of a version. Raises BundleError if its manifest has another version, as in a copied folder."""
    try:
        (folder / MANIFEST).lstat()
    except OSError as error:
        raise DamagedBundle(f"{folder / MANIFEST}: {error.strerror}") from None
    bundle = open_bundle(folder)
    if bundle.manifest.version != version:
        raise BundleError(
            f"{folder / MANIFEST}: declares version {bundle.manifest.version} in the folder of version {version}"
        )
    return bundle


def write_bundle(folder: Path, manifest: Manifest, files: Mapping[str, Content]) -> Bundle:
    """Publish a bundle atomically; the checksums of files are added to the manifest."""
    complete = with_checksums(folder, manifest, files)
    with publish_bundle(folder) as part:
        write_files(part, {**files, MANIFEST: complete.to_bytes()}, folder)
    return Bundle(folder, complete)


def with_checksums(folder: Path, manifest: Manifest, files: Mapping[str, Content]) -> Manifest:
    """The manifest with the checksums of files. Raises BundleError if a reader of the bundle would refuse it."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    complete = replace(manifest, checksums=sums)
    Manifest.from_bytes(complete.to_bytes(), folder / MANIFEST)
    return complete


def _no_bundle(path: Path) -> BundleError:
    if not path.exists():
        return BundleError(f"{path}: no such folder; give models/NAME or models/NAME/VERSION")
    if path.is_dir() and (models := bundles_below(path)[0]):
        shown = first_of([str(model) for model in models], MOST_NAMED)
        return BundleError(f"{path}: a folder of models, not one of them; name one of {shown}")
    return BundleError(f"{path}: no bundle (no {MANIFEST}) and no version of one")


def _has_manifest(folder: Path) -> bool:
    """Whether a path with the name of the manifest exists; one that is not a file is refused when it is read."""
    return os.path.lexists(folder / MANIFEST)


def _read(folder: Path, name: str) -> bytes:
    """The bytes of a regular file of a bundle within MAX_FILE_BYTES. Raises DamagedBundle."""
    most = next(most for begin, most in MAX_FILE_BYTES.items() if name.startswith(begin))
    try:
        return read_plain_file(folder, name, most)
    except OSError as error:
        raise DamagedBundle(f"{folder / name}: {error.strerror}") from None
