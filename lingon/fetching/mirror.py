"""A mirror: a folder that any server of static files can serve, or that is read as it is.

    FOLDER/index.json                                  the catalogue of the mirror
    FOLDER/models/tiny/ende/...                        files of a model of the catalogue
    FOLDER/hub/OWNER/NAME/COMMIT/...                   files of a repository of the Hugging Face hub
    FOLDER/bundles/NAME/VERSION/manifest.json ...      a finished bundle, which needs no import

The index is written after each model, so that a mirror that was interrupted can be used and continued.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lingon.bundle.manifest import MANY
from lingon.bundle.store import Bundle, is_bundle, open_bundle
from lingon.errors import SettingsError
from lingon.fetching.catalogue import INDEX, Catalogue, Offer, OfferedFile, chosen, mirror, to_json
from lingon.fetching.hub import fetch_repository, is_repository
from lingon.fetching.sources import Tools, one_at_a_time
from lingon.fetching.transfer import RemoteFile, download, sha256_of
from lingon.files import make_folders, naming, write_bytes


def make_mirror(folder: Path, names: Sequence[str], tools: Tools) -> Catalogue:
    """Add models to a mirror, and return its catalogue. Files that it has already are verified and kept.

    names: of models of the catalogue, repositories OWNER/NAME or OWNER/NAME@REVISION, and paths of bundles such as
        models/en-de; none means the whole catalogue

    Raises SettingsError for a name that there is not, before anything is downloaded, and DownloadError.
    """
    catalogue = chosen()
    adding = [_Addition(folder, catalogue, name, tools) for name in names or [each.name for each in catalogue.models]]
    make_folders(folder)
    with one_at_a_time(str(folder.absolute()), tools):
        for each in adding:
            offer = each.add()
            _write_index(folder, offer)
            tools.log(f"{offer.name}: {len(offer.files)} files, {offer.bytes / 1e6:,.1f} MB")
        return mirror(str(folder))


class _Addition:
    """A model that is added to a mirror."""

    def __init__(self, folder: Path, catalogue: Catalogue, name: str, tools: Tools) -> None:
        self._folder, self._catalogue, self._name, self._tools = folder, catalogue, name, tools
        self._bundle = open_bundle(Path(name)) if is_bundle(Path(name)) else None
        self._offer: Offer | None = None
        if self._bundle is None and not is_repository(name):
            self._offer = catalogue.find(name)
            if self._offer is None:
                raise catalogue.missing(name)

    def add(self) -> Offer:
        """Write the files of the model, and return how the mirror offers it."""
        if self._bundle is not None:
            return self._add_bundle(self._bundle)
        if self._offer is not None:
            return self._add_offer(self._offer)
        return self._add_repository()

    def _add_bundle(self, bundle: Bundle) -> Offer:
        bundle.verify()
        manifest = bundle.manifest
        files = [path for path in sorted(bundle.folder.rglob("*")) if path.is_file()]
        origin = manifest.origin
        return self._copied(
            bundle.folder,
            [path.relative_to(bundle.folder).as_posix() for path in files],
            Offer(
                name=manifest.name,
                source_language=manifest.source_language,
                target_language=manifest.target_language,
                form="bundle",
                size="",
                shape=f"bundle with {', '.join(manifest.precisions)}",
                folder=f"bundles/{manifest.name}/{manifest.version}",
                origin=origin.source if origin else "",
                licence=origin.licence if origin else "",
                scores=dict(origin.scores) if origin else {},
                files=(),
            ),
        )

    def _add_offer(self, offer: Offer) -> Offer:
        if self._catalogue.is_folder:
            here = Path(self._catalogue.place) / offer.folder
            copied = self._copied(here, [each.name for each in offer.files], offer)
            if copied.files != offer.files:
                raise SettingsError(f"{here}: its files are not those that {self._catalogue.place}/{INDEX} lists")
            return offer
        for file in offer.files:
            url, path = self._catalogue.address(offer, file), self._folder / offer.folder / file.name
            wanted = RemoteFile(url, path, file.bytes, file.sha256)
            download(wanted, self._tools.progress, self._tools.patience, self._tools.sleep)
        return offer

    def _add_repository(self) -> Offer:
        found, name = fetch_repository(self._name), self._name.partition("@")[0]
        return self._copied(
            found.folder,
            found.names,
            Offer(
                name=name,
                source_language=MANY,
                target_language=MANY,
                form="toolkit",
                size="",
                shape="",
                folder=f"hub/{name}/{found.revision}",
                origin=f"{name}@{found.revision}",
                licence=found.licence,
                scores={},
                files=(),
            ),
        )

    def _copied(self, folder: Path, names: Iterable[str], offer: Offer) -> Offer:
        """Copy files into the mirror, and return an offer with them. A file is whole under its name, or not there."""
        files = []
        for name in names:
            source, path = folder / name, self._folder / offer.folder / name
            digest = sha256_of(source)
            if not path.exists() or sha256_of(path) != digest:
                make_folders(path.parent)
                part = path.with_name(f".{path.name}.part")
                with naming(path):
                    shutil.copyfile(source, part)
                part.replace(path)
            files.append(OfferedFile(name, path.stat().st_size, digest))
        return replace(offer, files=tuple(files))


def _write_index(folder: Path, offer: Offer) -> None:
    """Write the index of a mirror with one more model. One of the same name is replaced."""
    before = mirror(str(folder)).models if (folder / INDEX).exists() else ()
    kept = tuple(each for each in before if each.name.lower() != offer.name.lower())
    write_bytes(folder / INDEX, to_json(Catalogue("", (*kept, offer))))
