"""Bundles on disk: finds, opens, reads (every byte is checked) and atomically publishes them; which ones are trusted.

An operator may trust bundles by a file of SHA-256 digests of their manifests, as sha256sum prints them:

    (cd models && sha256sum */*/manifest.json) > trusted.sha256

    # each line is DIGEST  NAME/VERSION/manifest.json. Folders before NAME and comments are allowed
    4f0c...  en-de/2/manifest.json

The checksums in a manifest show that the files of a bundle belong together. They do not show who made it, because a
person who can write a bundle can write its manifest too. The digest of the manifest in a file of the operator does:
the manifest has the SHA-256 of every other file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from mmap import MADV_DONTNEED, mmap
from pathlib import Path
from typing import TypeVar

from lingon.bundle.manifest import Manifest
from lingon.bundle.names import MANIFEST, WEIGHTS
from lingon.errors import BundleError, DamagedBundle, SettingsError, first_of
from lingon.files import map_plain_file, publish_folder, read_plain_file, read_setting_text
from lingon.text import Tokenizer

FileContent = bytes | mmap
"""Of a file. One that is mapped into memory takes none until it is read."""

Content = TypeVar("Content", bytes, FileContent)


@contextmanager
def publish_bundle(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to write files in. If the block ends without an error it becomes `folder`.

    After an error nothing stays, not even parent folders that this call made. Raises BundleError if the folder exists
    or if files cannot be written.
    """
    missing = [above for above in folder.parents if not above.exists()]  # innermost first
    inner: BaseException | None = None  # an error of the block is raised unchanged
    try:
        with publish_folder(folder) as part:
            try:
                yield part
            except BaseException as error:
                inner = error
                raise
    except BaseException as error:
        for above in missing:
            with suppress(OSError):  # it is not empty or was not made
                above.rmdir()
        if error is inner:
            raise
        if isinstance(error, FileExistsError) and folder.exists():
            raise BundleError(f"{folder}: is there already; a published version never changes") from None
        if isinstance(error, OSError):
            raise _cannot_write(folder, error) from None
        raise


def write_files(part: Path, files: Mapping[str, FileContent], folder: Path) -> None:
    """Write files by their paths below part, the temporary folder of `folder`. Raises BundleError."""
    try:
        for name, content in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(content)
    except OSError as error:
        raise _cannot_write(folder, error) from None


def _cannot_write(folder: Path, error: OSError) -> BundleError:
    return BundleError(f"{folder}: cannot be written ({error.strerror or error})")


MAX_FILE_BYTES = {MANIFEST: 2**20, f"{WEIGHTS}/": 2**36, "": 2**28}
"""Largest number of bytes of a file, by the beginning of its name; for weights memory is the actual bound."""

MOST_NAMED = 5  # models in the message about a folder of them

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. `read`, `map` and `verify_weights` refuse altered files."""

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
        """Return the bytes of a file, whose checksum is verified on these bytes. Raises DamagedBundle."""
        content = self._listed(name, read_plain_file)
        self._verify(name, content)
        return content

    def map(self, name: str) -> FileContent:
        """Return the content of a file mapped into memory, see `read`.

        The file must not change while the mapping is in use. A file that gets shorter ends the process (SIGBUS).
        Published bundles never change.
        """
        content = self._listed(name, map_plain_file)
        self._verify(name, content)
        return content

    def _listed(self, name: str, read: Callable[[Path, str, int], Content]) -> Content:
        """Return the content of a listed file. Raises DamagedBundle."""
        if name not in self.manifest.checksums:
            raise DamagedBundle(f"{self.folder / name}: the manifest does not list it")
        return _read(self.folder, name, read)

    def _verify(self, name: str, content: FileContent) -> None:
        """Raise DamagedBundle if the checksum of a listed file is not that of its content."""
        if _digest(content) != self.manifest.checksums[name]:
            raise DamagedBundle(f"{self.folder / name}: was altered (its SHA-256 is not the one in {MANIFEST})")

    def size(self, name: str) -> int:
        """Return the number of bytes of a file. Raises DamagedBundle if it is missing."""
        try:
            return (self.folder / name).lstat().st_size
        except OSError as error:
            raise DamagedBundle(f"{self.folder / name}: {error.strerror}") from None

    def graphs(
        self, precision: str, *names: str, verify: bool = True
    ) -> tuple[dict[str, bytes], dict[str, FileContent]]:
        """Return the graph files of these names in a precision, and the weight files that they read; both by name.

        The weight files are mapped into memory, see `map`.

        verify: whether their checksums are verified here; otherwise by `verify_weights`
        """
        if precision not in self.manifest.precisions:
            known = ", ".join(self.manifest.precisions)
            raise BundleError(f"{self.folder}: has no precision {precision!r}; it has {known}")
        graphs = {name: self.read(f"{precision}/{name}") for name in names}
        weights = {
            name: self._listed(f"{WEIGHTS}/{name}", map_plain_file)
            for name in self.manifest.precisions[precision].weights
        }
        if verify:
            self.verify_weights(weights)
        return graphs, weights

    def verify_weights(self, weights: Mapping[str, FileContent]) -> None:
        """Verify the checksums of mapped weight files, see `graphs`. Raises DamagedBundle for the first altered one."""
        for name, content in weights.items():
            self._verify(f"{WEIGHTS}/{name}", content)

    def tokenizer_files(self) -> list[bytes]:
        """Return the sentencepiece models: one for both languages, or those of source and target."""
        found = tuple(sorted(name for name in self.manifest.checksums if re.fullmatch(r"\w+\.model", name)))
        if found not in (Tokenizer.JOINT, Tokenizer.SEPARATE):
            raise BundleError(f"{self.folder}: has no tokenizer, or several: {', '.join(found) or 'no .model file'}")
        return [self.read(name) for name in found]

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of these models, which frames a source as the model reads it."""
        return Tokenizer(*self.tokenizer_files(), source_end=self.manifest.source_end)

    def verify(self) -> None:
        """Read every file once. Raises DamagedBundle for the first that is not listed, missing or altered."""
        self.check_listed()
        for name in self.manifest.checksums:
            self.map(name)

    def check_listed(self) -> None:
        """Read the names of all files. Raises DamagedBundle for the first that is not listed, a link or missing."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_symlink():
                raise DamagedBundle(f"{path}: is a link; a bundle holds none")
            if not path.is_dir() and name != MANIFEST and name not in self.manifest.checksums:
                raise DamagedBundle(f"{path}: the manifest does not list it")
        for name in self.manifest.checksums:
            self.size(name)


MODELS_FOLDER = "LINGON_MODELS_FOLDER"  # variable with the folder that has the models of this machine
BUNDLE_NAME = r"\w[\w.+-]{0,127}"
NEAR = 0.8  # likeness of a name to a mistyped one, from 0 to 1; en-de is no mistyped en-fr
_PAIR = re.compile(r"(?:^|[-_])[A-Za-z]{2,3}[-_][A-Za-z]{2,3}(?:$|[-_.])")  # in the name of a model
_MODEL_NAME = re.compile(rf"(?:[\w.-]+/)?{BUNDLE_NAME}")  # of a model, or OWNER/NAME of a repository it came from


def models_folder() -> Path:
    """Return the folder that has the models of this machine: that of LINGON_MODELS_FOLDER, else `models` here."""
    return Path(os.environ.get(MODELS_FOLDER) or "models")


def find_model(given: str | Path) -> Path:
    """Return the path of the bundle, of the model, or of the folder of models that a user names.

    given: such a path; or the name of a model in the folder of models, as en-de; or the repository that a model there
        was imported from, as Helsinki-NLP/opus-mt-en-de. A path of a bundle comes before a name

    Raises BundleError if there is neither; it names the command that gets a model.
    """
    path, name = Path(given), str(given)
    if is_bundle(path):
        return path
    if not path.is_absolute() and _MODEL_NAME.fullmatch(name):
        folder = models_folder()
        if is_bundle(folder / name):
            return folder / name
        if "/" in name and _is_from(folder / path.name, name):
            return folder / path.name
    if not path.exists():
        raise _no_bundle(path)
    return path


def _is_from(path: Path, repository: str) -> bool:
    """Return whether there is a model at path that was imported from a repository, in any revision."""
    if not is_bundle(path):
        return False
    origin = use_highest_whole(path, lambda bundle: bundle.manifest.origin)
    return origin is not None and origin.source.partition("@")[0] == repository


def _how_to_get(path: Path) -> str:
    """Return what to do about a missing path: the folder that it nearly names, or the command that gets a model."""
    beside = [path.parent] if path.parent.name else [path.parent, models_folder()]
    with suppress(OSError):
        folders = {
            each.name: each for folder in beside if folder.is_dir() for each in folder.iterdir() if each.is_dir()
        }
        if near := get_close_matches(path.name, folders, n=1, cutoff=NEAR):
            return f"did you mean {folders[near[0]]}?"
    name = path.parent.name if path.name.isdigit() else path.name
    get = f"lingon models get {name if _PAIR.search(name) else 'en-de'}"
    return f"give models/NAME or models/NAME/VERSION, or get a model: {get}"


def is_bundle(path: Path) -> bool:
    """Return whether path is a bundle or the folder of a model's versions."""
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
    """Return the versions in the folder of a model that have a manifest, in ascending order."""
    return [number for number in all_versions(path) if _has_manifest(path / str(number))]


def all_versions(path: Path) -> list[int]:
    """Return the versions in the folder of a model, also those that are being copied or cannot be read; in ascending
    order.
    """
    if not path.is_dir():
        return []
    return sorted(int(each.name) for each in path.iterdir() if re.fullmatch(r"[1-9]\d*", each.name) and each.is_dir())


def open_bundle(path: Path) -> Bundle:
    """Open the bundle at path, or the highest version below it. Only the manifest is read."""
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

    use: raises DamagedBundle if it finds that a bundle is not whole. Then the next lower version replaces it
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


def write_bundle(folder: Path, manifest: Manifest, files: Mapping[str, FileContent]) -> Bundle:
    """Publish a bundle atomically. The checksums of files are added to the manifest."""
    complete = with_checksums(folder, manifest, files)
    with publish_bundle(folder) as part:
        write_files(part, {**files, MANIFEST: complete.to_bytes()}, folder)
    return Bundle(folder, complete)


def with_checksums(folder: Path, manifest: Manifest, files: Mapping[str, FileContent]) -> Manifest:
    """Return the manifest with the checksums of files. Raises BundleError if a reader of the bundle would refuse it."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    complete = replace(manifest, checksums=sums)
    Manifest.from_bytes(complete.to_bytes(), folder / MANIFEST)
    return complete


def _no_bundle(path: Path) -> BundleError:
    if not path.exists():
        return BundleError(f"{path}: no such folder; {_how_to_get(path)}")
    if path.is_dir() and (models := bundles_below(path)[0]):
        shown = first_of([str(model) for model in models], MOST_NAMED)
        return BundleError(f"{path}: a folder of models, not one of them; name one of {shown}")
    return BundleError(f"{path}: no bundle (no {MANIFEST}) and no version of one")


def _has_manifest(folder: Path) -> bool:
    """Return whether a path with the name of the manifest exists. One that is not a file is refused when it is read."""
    return os.path.lexists(folder / MANIFEST)


HASHED = 2**24  # bytes of a mapped file that are in memory while its checksum is computed


def _digest(content: FileContent) -> str:
    """Return the SHA-256 in hexadecimal. The memory of a mapped file is given back."""
    digest = hashlib.sha256()
    with memoryview(content) as view:
        for begin in range(0, len(view), HASHED):
            digest.update(view[begin : begin + HASHED])
            if isinstance(content, mmap):
                content.madvise(MADV_DONTNEED, begin, min(HASHED, len(view) - begin))
    return digest.hexdigest()


def _read(folder: Path, name: str, read: Callable[[Path, str, int], Content] = read_plain_file) -> Content:
    """Return the content of a regular file of a bundle within MAX_FILE_BYTES. Raises DamagedBundle."""
    most = next(most for begin, most in MAX_FILE_BYTES.items() if name.startswith(begin))
    try:
        return read(folder, name, most)
    except OSError as error:
        raise DamagedBundle(f"{folder / name}: {error.strerror}") from None


_LINE = re.compile(
    rf"(?P<digest>[0-9a-f]{{64}}) [ *](?:.*/)?(?P<label>\w[\w.+-]{{0,127}}/[1-9]\d*)/{re.escape(MANIFEST)}"
)


def read_trusted(path: Path) -> dict[str, str]:
    """Return the digests of the manifests by label, such as "en-de/2". Raises SettingsError, which names the line."""
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
    """Return the line with which a file trusts a bundle."""
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
