"""The models that a publisher or a mirror has: their names, files with SHA-256, licences and published scores.

A catalogue is one JSON file. That of the package lists the students of Firefox, and a mirror has one as INDEX beside
the files. Both have the same form, class Catalogue. The files of a model are below the place of its catalogue:

    index.json
    models/tiny/ende/model.ende.intgemm.alphas.bin.gz      PLACE / folder / name of the file
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from lingon.bundle.manifest import MANY, FilePath, Language, ScoreName, Sha256, TextLine
from lingon.bundle.schema import MaxLength, Pattern, Range, SchemaError, parse_dataclass
from lingon.errors import DownloadError, SettingsError, first_of
from lingon.fetching.transfer import read_small

INDEX = "index.json"
MIRROR = "LINGON_MIRROR"  # variable with the URL or the folder of a mirror
MOST_INDEX_BYTES = 2**26
MOST_NAMED = 8  # models in a message
HUB_OF_PAIRS = "en"  # the language that nearly all pairs have
QUALITY = "flores-comet"  # the score by which the models of a pair are ordered

Name = Annotated[str, Pattern(r"(?:[\w.-]{1,96}/)?\w[\w.+-]{0,127}", "NAME or OWNER/NAME")]
Form = Literal["toolkit", "bundle"]


@dataclass(frozen=True, slots=True)
class OfferedFile:
    """A file of a model: its path below the folder of the model, its bytes, and its SHA-256."""

    name: FilePath
    bytes: Annotated[int, Range(0, 2**40)]
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be had.

    name: of this model alone, as en-de-tiny
    source_language, target_language: of its pair, MANY for a side of several
    form: of its files: those of another toolkit, which are imported, or a finished bundle of Lingon
    size: what tells it from other models of its pair, such as tiny, empty for one without others
    shape: for people, such as "256 wide, 6+2 layers, 32,000 pieces"
    folder: of its files, below the place of the catalogue
    origin: where it was published, with the revision
    scores: as Origin.scores of a manifest
    """

    name: Name
    source_language: Language
    target_language: Language
    form: Form
    size: TextLine
    shape: TextLine
    folder: FilePath
    origin: TextLine
    licence: TextLine
    scores: Annotated[dict[ScoreName, float], MaxLength(100)]
    files: Annotated[tuple[OfferedFile, ...], MaxLength(1000)]

    @property
    def pair(self) -> str:
        """The languages, as en-de."""
        return f"{self.source_language}-{self.target_language}"

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(each.bytes for each in self.files)

    @property
    def languages(self) -> tuple[str, str] | None:
        """The languages of a model of one pair, None for one of several."""
        pair = self.source_language, self.target_language
        return None if MANY in pair else pair


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The models at one place.

    place: an http or https URL, or a folder, without a slash at the end
    """

    place: str
    models: Annotated[tuple[Offer, ...], MaxLength(100_000)]
    format: Annotated[int, Range(1, 1)] = 1

    @property
    def is_folder(self) -> bool:
        """Whether the files are in a folder of this machine."""
        return not is_http(self.place)

    def address(self, offer: Offer, file: OfferedFile) -> str:
        """Return the URL or the path of a file."""
        name = f"{offer.folder}/{file.name}"
        return f"{self.place}/{name if self.is_folder else quote(name)}"

    def find(self, name: str, size: str | None = None) -> Offer | None:
        """Return the model of a name, or the best one of a pair such as en-de, or None if there is none.

        size: of the model, among those of a pair; None takes the model with the highest published score
        """
        wanted = name.replace("_", "-").lower()
        if size is None and (exact := next((each for each in self.models if each.name.lower() == name.lower()), None)):
            return exact
        of_pair = [each for each in self.models if each.form == "toolkit" and each.pair.lower() == wanted]
        fitting = [each for each in of_pair if size in (None, each.size)]
        if of_pair and not fitting:
            raise SettingsError(
                f"--size must be one of {', '.join(each.size for each in of_pair)} for {name}, got {size!r}"
            )
        return max(fitting, key=lambda each: each.scores.get(QUALITY, 0.0), default=None)

    def missing(self, name: str) -> SettingsError:
        """Return the error for a name that is not here, with the names that are like it."""
        parts = set(name.lower().split("-")) - {HUB_OF_PAIRS}
        similar = [each.name for each in self.models if parts & set(each.pair.lower().split("-"))]
        known = f"; it has {first_of(similar, MOST_NAMED)}" if similar else ""
        where = "the catalogue" if self.place == packaged().place else self.place
        return SettingsError(
            f"{name}: {where} has no such model{known}; `lingon models available` lists all, and OWNER/NAME is one of "
            f"the Hugging Face hub"
        )


def is_http(text: str) -> bool:
    """Return whether a text is an http or https URL."""
    return text.lower().startswith(("http://", "https://"))


@cache
def packaged() -> Catalogue:
    """Return the catalogue of this package."""
    return parse((files("lingon.fetching") / "catalogue.json").read_bytes(), "the catalogue of this package")


def chosen(place: str | None = None) -> Catalogue:
    """Return the catalogue of a mirror: of this place, else of LINGON_MIRROR, else that of the package.

    Raises DownloadError if the mirror cannot be read, SettingsError if its index is none.
    """
    place = place or os.environ.get(MIRROR)
    return mirror(place) if place else packaged()


def mirror(place: str) -> Catalogue:
    """Return the catalogue of a mirror.

    place: its URL or folder. Where the catalogue of this package has the same model, its digests hold, so that a
        mirror cannot give other files for it
    """
    place = place.rstrip("/")
    found = parse(_index(place), f"{place}/{INDEX}")
    known = {each.name: each for each in packaged().models}
    for each in found.models:
        ours = known.get(each.name)
        if ours is not None and each.origin == ours.origin and each.files != ours.files:
            raise SettingsError(f"{place}/{INDEX}: the files of {each.name} are not those of {ours.origin}")
    return replace(found, place=place)


def _index(place: str) -> bytes:
    if is_http(place):
        return read_small(f"{place}/{INDEX}", MOST_INDEX_BYTES)
    path = Path(place) / INDEX
    try:
        return path.read_bytes()
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}; a mirror has this file, see lingon models mirror") from None


def parse(content: bytes, origin: str) -> Catalogue:
    """Parse a catalogue. Raises SettingsError, which names origin."""
    try:
        found = parse_dataclass(Catalogue, json.loads(content))
    except SchemaError as error:
        raise SettingsError(f"{origin}: {error}") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"{origin}: not JSON") from None
    names = [each.name.lower() for each in found.models]
    if len(set(names)) < len(names):
        raise SettingsError(f"{origin}: two models have the same name")
    return found


def to_json(catalogue: Catalogue) -> bytes:
    """Return the bytes of a catalogue, one model a line, so that versions of it can be compared."""
    models = sorted(catalogue.models, key=lambda each: each.name)
    lines = ",\n".join(json.dumps(asdict(each), ensure_ascii=False) for each in models)
    head = f'{{"format": {catalogue.format}, "place": {json.dumps(catalogue.place)}, "models": [\n'
    return f"{head}{lines}\n]}}\n".encode()


def by_pair(models: Iterable[Offer]) -> list[Offer]:
    """Return models ordered by their pair, the best one of each first."""
    return sorted(models, key=lambda each: (each.pair, -each.scores.get(QUALITY, 0.0), each.name))
