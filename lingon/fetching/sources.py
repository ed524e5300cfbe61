"""What a user names as the source of a model, and its files on this machine.

en-de, en-de-tiny            a model of the catalogue, or of a mirror
Helsinki-NLP/opus-mt-en-de   a repository of the Hugging Face hub; @REVISION may follow
https://host/model.zip       an archive; #sha256=DIGEST may follow, which its bytes must have
downloads/ende               a folder or an archive on this machine
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from lingon.bundle.manifest import Manifest
from lingon.bundle.names import MANIFEST
from lingon.bundle.store import Bundle, publish_bundle
from lingon.errors import BundleError, DownloadError, SettingsError
from lingon.fetching.catalogue import INDEX, MIRROR, Catalogue, Offer, chosen, is_http, mirror
from lingon.fetching.hub import REPOSITORY, fetch_repository, is_repository
from lingon.fetching.transfer import Patience, Progress, RemoteFile, download, sha256_of
from lingon.files import make_folders

ARCHIVES = (".zip", ".argosmodel", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
DOWNLOADS = "LINGON_DOWNLOADS"  # variable with the folder for files that are being downloaded
_DIGEST = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tools:
    """What a download uses: where its lines and its progress go, and how long it goes on in spite of failures."""

    log: Callable[[str], None] = lambda line: None
    progress: Progress = lambda name, done, total: None
    patience: Patience = field(default_factory=Patience)
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Published:
    """What the publisher of a model says of it.

    source: where it was published, with the revision or the digest, empty for files of this machine
    languages: of a model of one pair, None where the files say them
    """

    source: str = ""
    licence: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    languages: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A folder or an archive on this machine with the files of a model of another toolkit."""

    path: Path
    published: Published = field(default_factory=Published)


class Source(Protocol):
    """A place that has the files of a model."""

    @property
    def name(self) -> str:
        """The name of the model here, if the user gives none."""

    def fetched(self, tools: Tools) -> AbstractContextManager[Fetched]:
        """Give the files. Downloads are removed when the block ends without an error. Raises DownloadError."""


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A folder or an archive of this machine."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @contextmanager
    def fetched(self, tools: Tools) -> Iterator[Fetched]:
        yield Fetched(self.path)


@dataclass(frozen=True, slots=True)
class OfferedSource:
    """A model of a catalogue."""

    catalogue: Catalogue
    offer: Offer
    name: str

    @contextmanager
    def fetched(self, tools: Tools) -> Iterator[Fetched]:
        if self.offer.form == "bundle":
            raise SettingsError(
                f"{self.offer.name}: is a finished bundle, which needs no import; get it with: lingon models get "
                f"{self.offer.name}"
            )
        with self.files(tools) as folder:
            offer = self.offer
            yield Fetched(folder, Published(offer.origin, offer.licence, offer.scores, offer.languages))

    @contextmanager
    def files(self, tools: Tools) -> Iterator[Path]:
        """Give the folder with the files, each verified: that of a mirror on this machine, or that of downloads."""
        tools.log(f"{self.offer.name}: {len(self.offer.files)} files, {self.offer.bytes / 1e6:,.1f} MB")
        if self.catalogue.is_folder:
            folder = Path(self.catalogue.place) / self.offer.folder
            for file in self.offer.files:
                _check(folder / file.name, file.bytes, file.sha256)
            yield folder
            return
        with _downloads(_key(*(each.sha256 for each in self.offer.files)), tools) as folder:
            for file in self.offer.files:
                url = self.catalogue.address(self.offer, file)
                wanted = RemoteFile(url, folder / file.name, file.bytes, file.sha256)
                download(wanted, tools.progress, tools.patience, tools.sleep)
            yield folder


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub; text: OWNER/NAME or OWNER/NAME@REVISION."""

    text: str

    @property
    def name(self) -> str:
        found = REPOSITORY.fullmatch(self.text)
        assert found is not None, "the form was checked before"
        return found["name"].partition("/")[2]

    @contextmanager
    def fetched(self, tools: Tools) -> Iterator[Fetched]:
        found = fetch_repository(self.text)
        repository = self.text.partition("@")[0]
        tools.log(f"{repository}: revision {found.revision}, {len(found.names)} files")
        yield Fetched(found.folder, Published(f"{repository}@{found.revision}", found.licence))


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """An archive at a URL, which a digest may follow: https://host/model.zip#sha256=DIGEST."""

    url: str

    @property
    def name(self) -> str:
        name = _file_name(self.url)
        return name.removesuffix(next((end for end in ARCHIVES if name.endswith(end)), ""))

    @contextmanager
    def fetched(self, tools: Tools) -> Iterator[Fetched]:
        address, _, fragment = self.url.partition("#")
        digest = _DIGEST.fullmatch(fragment)
        if fragment and digest is None:
            raise SettingsError(f"{self.url}: after # must be sha256= and 64 digits of a SHA-256 in hexadecimal")
        name = _file_name(self.url)
        if not name.endswith(ARCHIVES):
            raise SettingsError(f"{self.url}: must be an archive ({', '.join(ARCHIVES)}), or a mirror after --from")
        with _downloads(_key(address), tools) as folder:
            path = folder / name
            wanted = RemoteFile(address, path, None, digest and digest[1])
            download(wanted, tools.progress, tools.patience, tools.sleep)
            if not (zipfile.is_zipfile(path) or tarfile.is_tarfile(path)):  # such as the page of a proxy
                path.unlink()
                raise DownloadError(f"{_without_secrets(address)}: what the server sends is no archive")
            yield Fetched(path, Published(f"{_without_secrets(address)}#sha256={sha256_of(path)}"))


def resolve(given: str, catalogue: Callable[[], Catalogue] = chosen, size: str | None = None) -> Source:
    """Return the source that a user names. A path of this machine comes before a name.

    catalogue: where names are looked up; it is read if it is needed
    size: of the models of a pair; None takes the best one
    """
    if Path(given).exists():
        return LocalSource(Path(given))
    return _elsewhere(given, catalogue, size) or LocalSource(Path(given))


def source_to_get(name: str, origin: str | None, size: str | None) -> Source:
    """Return the source of a model to get.

    name: of a model of the catalogue or of a mirror, a repository or an archive; with an origin, the name of the model
        here
    origin: a mirror, by its URL or folder, which has the name; or any other source. None takes the mirror of
        LINGON_MIRROR or the catalogue

    Raises SettingsError if there is none.
    """
    if origin is None:
        found = _elsewhere(name, chosen, size)
    elif is_mirror(origin):
        found = _offered(name, mirror(origin), size)
    else:
        found = resolve(origin, size=size)
    if found is None:
        raise SettingsError(f"{name}: must be a name such as en-de, OWNER/NAME of the Hugging Face hub, or a URL")
    if not isinstance(found, OfferedSource) and size is not None:
        raise SettingsError(f"--size chooses among the models of a catalogue, got {size!r} for {origin or name}")
    return found


def is_mirror(origin: str) -> bool:
    """Return whether a source is a mirror: a folder with an index, or a URL that names no archive."""
    if is_http(origin):
        return not _file_name(origin).endswith(ARCHIVES)
    return (Path(origin) / INDEX).is_file()


def _elsewhere(given: str, catalogue: Callable[[], Catalogue], size: str | None) -> Source | None:
    """Return the source that is not a path of this machine, or None if the text has the form of none."""
    if is_http(given):
        return ArchiveSource(given)
    if is_repository(given):
        # A mirror may have repositories too. The catalogue of the package has none, and is not looked into.
        mirrored = catalogue() if os.environ.get(MIRROR) else None
        offer = mirrored.find(given) if mirrored else None
        return OfferedSource(mirrored, offer, HubSource(given).name) if mirrored and offer else HubSource(given)
    if re.fullmatch(r"[A-Za-z][\w+-]*", given):
        return _offered(given, catalogue(), size)
    return None


def _offered(name: str, catalogue: Catalogue, size: str | None) -> OfferedSource:
    offer = catalogue.find(name, size)
    if offer is None:
        raise catalogue.missing(name)
    return OfferedSource(catalogue, offer, name.rpartition("/")[2])


def fetch_bundle(source: OfferedSource, folder: Path, tools: Tools) -> Bundle:
    """Write a finished bundle of a mirror as its version below folder (models/NAME), verified, whole or not at all.

    Raises BundleError if the version is there already or the files are not a bundle, and DownloadError.
    """
    with source.files(tools) as files:
        path = files / MANIFEST
        if not path.is_file():
            raise BundleError(f"{source.offer.name}: the mirror has no {MANIFEST} of it")
        manifest = Manifest.from_bytes(path.read_bytes(), path)
        target = folder / str(manifest.version)
        with publish_bundle(target) as part:
            for file in source.offer.files:
                (part / file.name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(files / file.name, part / file.name)
            Bundle(part, manifest).verify()
    return Bundle(target, manifest)


@contextmanager
def one_at_a_time(what: str, tools: Tools) -> Iterator[None]:
    """Hold the lock of a name. Another process that wants it waits, and a line says for what.

    The lock ends with the block or with the process. Its empty file stays: to remove it would let a third process lock
    a new file while the second one holds the old one.
    """
    import fcntl  # Windows, where clients run too, does not have it

    folder = downloads_folder()
    make_folders(folder)
    with (folder / f"{_key(what)}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tools.log(f"{what}: another process downloads it; waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def downloads_folder() -> Path:
    """Return the folder for files that are being downloaded: LINGON_DOWNLOADS, else lingon in the user's cache."""
    given = os.environ.get(DOWNLOADS)
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "lingon" / "downloads"


@contextmanager
def _downloads(key: str, tools: Tools) -> Iterator[Path]:
    """Give the folder for the files of a model, for one process at a time.

    It is removed when the block ends without an error. Else it stays, so that the next attempt goes on.
    """
    with one_at_a_time(key, tools):
        folder = downloads_folder() / key
        make_folders(folder)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _check(path: Path, size: int, digest: str) -> None:
    """Raise DownloadError unless a file of a mirror on this machine is the one that its index lists."""
    try:
        found = path.stat().st_size
        right = found == size and sha256_of(path) == digest
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}") from None
    if not right:
        raise DownloadError(
            f"{path}: is not the file of the index: must have {size:,} bytes with the SHA-256 {digest}, has {found:,} "
            f"bytes with {sha256_of(path)}"
        )


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _file_name(url: str) -> str:
    """Return the name of the file of a URL as a name that can be written here, "" if it names none."""
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    return name if re.fullmatch(r"\w[\w.+ -]{0,127}", name) else ""


def _without_secrets(url: str) -> str:
    """Return a URL without a user, a password and a query, for a model card that others read."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
