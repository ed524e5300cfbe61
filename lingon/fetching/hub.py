"""Repositories of the Hugging Face hub: which files of them Lingon reads, in a pinned revision, verified.

The package huggingface_hub downloads. It honours HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingon.errors import DownloadError
from lingon.extras import name_missing_extra
from lingon.fetching.transfer import sha256_of

REPOSITORY = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@(?P<revision>[\w./-]{1,100}))?")
CARD = "README.md"
SMALL = (".json", ".model", ".spm", ".txt", ".yml", ".bpe", ".SRC", ".TRG")  # vocabularies, merges, configurations
WEIGHTS = ((".safetensors",), (".bin", ".pt"), (".npz",), (".onnx", ".onnx_data"))
"""The endings of the files of weights. The first of these that a repository has are read, and no others."""

UNREAD = ("rust_model", "tf_model", "flax_model", "training_args", "optimizer", "scheduler")  # beginnings of names
OFFLINE = ("1", "true", "yes", "on")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFiles:
    """The files of a repository on this machine.

    revision: the commit; licence: as the card of the repository states it, empty if it does not
    names: of the files that were asked for
    """

    folder: Path
    revision: str
    licence: str
    names: Sequence[str] = field(default_factory=tuple)


def is_repository(text: str) -> bool:
    """Return whether a text has the form OWNER/NAME or OWNER/NAME@REVISION, and is no path that begins here.

    `models/en-de` in a folder with `models` is a path that may be mistyped: no host is called for it.
    """
    return REPOSITORY.fullmatch(text) is not None and not Path(text.partition("/")[0]).is_dir()


def wanted(names: Iterable[str]) -> list[str]:
    """Return the files of a repository that Lingon reads, by their names. Those in folders are of other formats."""
    known = [name for name in names if "/" not in name and not name.startswith(UNREAD)]
    weights = next((found for ends in WEIGHTS if (found := [name for name in known if name.endswith(ends)])), [])
    return sorted({*(name for name in known if name.endswith(SMALL) or name == CARD), *weights})


def fetch_repository(text: str) -> HubFiles:
    """Download what Lingon reads of a repository into the cache of huggingface_hub, and verify its digests.

    text: OWNER/NAME, or OWNER/NAME@REVISION with a branch, a tag or a commit

    Offline, the cache has what an earlier download left. Raises DownloadError, in one line.
    """
    found = REPOSITORY.fullmatch(text)
    assert found is not None, "the caller has checked the form"
    name, revision = found["name"], found["revision"]
    with name_missing_extra(f"to read {name} of the Hugging Face hub, Lingon", ["import"]), _one_line(text):
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").lower() in OFFLINE:
            return _cached(name, revision)
        return _downloaded(name, revision)


def _downloaded(name: str, revision: str | None) -> HubFiles:
    from huggingface_hub import HfApi, snapshot_download

    endpoint = os.environ.get("HF_ENDPOINT") or None
    info = HfApi(endpoint=endpoint).model_info(name, revision=revision, files_metadata=True)
    digests = {each.rfilename: _digest(each) for each in info.siblings or ()}
    names = wanted(digests)
    if not names:
        raise DownloadError(f"{name}: the repository has no file that Lingon reads")
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit):
        raise DownloadError(f"{name}: the hub does not say the commit of the revision {revision or 'main'}")
    cache = os.environ.get("HF_HUB_CACHE")
    # By the name of the revision, so that the cache knows its commit when it is offline.
    folder = Path(snapshot_download(name, revision=revision, allow_patterns=names, endpoint=endpoint, cache_dir=cache))
    if folder.name != commit:
        raise DownloadError(f"{name}: its revision {revision or 'main'} has changed meanwhile; run the command again")
    _verify(folder, {each: digests[each] for each in names}, name)
    return HubFiles(folder, commit, _licence(folder), names)


def _cached(name: str, revision: str | None) -> HubFiles:
    from huggingface_hub import snapshot_download

    cache = os.environ.get("HF_HUB_CACHE")
    folder = Path(snapshot_download(name, revision=revision, local_files_only=True, cache_dir=cache))
    names = wanted(path.name for path in folder.iterdir())
    _verify(folder, {each: (folder / each).resolve().name for each in names}, name)  # the cache names blobs so
    return HubFiles(folder, folder.name, _licence(folder), names)


def _digest(sibling: Any) -> str:
    """Return the SHA-256 of a large file, the SHA-1 of git of a small one, or "" if the hub says neither."""
    large = sibling.lfs.sha256 if sibling.lfs is not None else None
    return str(large or sibling.blob_id or "")


def _verify(folder: Path, digests: Mapping[str, str], name: str) -> None:
    """Raise DownloadError for the first file with another digest, which leaves the cache."""
    for file, digest in digests.items():
        path = folder / file
        if _SHA256.fullmatch(digest):
            found = sha256_of(path)
        elif _COMMIT.fullmatch(digest):
            found = _git_digest(path)
        else:
            continue
        if found != digest:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise DownloadError(
                f"{name}: {file} is not the file that the hub names: has the digest {found}, must have {digest}; it "
                f"was removed, so that the next attempt downloads it again"
            )


def _git_digest(path: Path) -> str:
    """Return the SHA-1 under which git stores a file, which has its size in front."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _licence(folder: Path) -> str:
    from huggingface_hub import ModelCard

    card = folder / CARD
    if not card.is_file():
        return ""
    stated = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()
    licence = stated.get("license_name") or stated.get("license") or ""
    return ", ".join(map(str, licence)) if isinstance(licence, list) else str(licence)


@contextmanager
def _one_line(text: str) -> Iterator[None]:
    """Turn the errors of huggingface_hub and of the disk into one line."""
    try:
        yield
    except DownloadError:
        raise
    except (ModuleNotFoundError, MemoryError):
        raise
    except Exception as error:
        # The classes of these errors differ between the versions 0 and 1, which use other HTTP libraries.
        raise DownloadError(f"{text}: {_explained(error)}") from None


def _explained(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return "the repository asks for a permission that this token does not have; set HF_TOKEN"
    if kind == "RepositoryNotFoundError":
        return "the hub has no such repository, or it is private and HF_TOKEN does not permit it"
    if kind == "RevisionNotFoundError":
        return "the repository has no such revision"
    if kind == "LocalEntryNotFoundError" or kind == "OfflineModeIsEnabled":
        return "is not in the cache, and HF_HUB_OFFLINE forbids to download it, or the hub cannot be reached"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return f"{error.filename or 'the cache'}: {error.strerror}"
    return f"cannot be downloaded ({' '.join(str(error).split())[:300] or kind})"
