"""Selects the model of a request by name or by language pair. Plain data, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingon.errors import InvalidRequest, SettingsError, UnknownModel
from lingon.serving.models.languages import canonical, distance

Model = TypeVar("Model")
MAX_CACHED = 1000  # different selections that are found once


@dataclass(frozen=True, slots=True)
class Entry(Generic[Model]):
    """A served model with its name, version and languages; the languages are those of the bundle's manifest."""

    name: str
    version: int
    source: str
    target: str
    model: Model

    @property
    def label(self) -> str:
        """Name and version, as in "en-de/1"."""
        return f"{self.name}/{self.version}"


class Catalog(Generic[Model]):
    """The served models."""

    def __init__(self, entries: Sequence[Entry[Model]]) -> None:
        self.entries = tuple(entries)
        self._found: dict[tuple[str, str, str], Model] = {}
        labels = [entry.label for entry in entries]
        for label in labels:
            if labels.count(label) > 1:
                raise SettingsError(f"models: {label} is given {labels.count(label)} times; give each version once")

    def find(self, model: str, source: str, target: str) -> Model:
        """The model of a request: by model ("name" or "name/version"), else by language pair, else the only one.

        A name without a version selects the highest version. Raises UnknownModel or InvalidRequest.
        """
        key = model, source, target
        found = self._found.get(key)
        if found is None:
            found = self._find(model, source, target)
            if len(self._found) < MAX_CACHED:
                self._found[key] = found
        return found

    def _find(self, model: str, source: str, target: str) -> Model:
        named = self._named(model) if model else self._highest()
        closest = self._closest(named, source, target)
        if not closest:
            pair = f"{source or 'any language'} to {target or 'any language'}"
            if model:
                raise InvalidRequest("model", f"model {named[0].label} does not translate from {pair}")
            raise UnknownModel(f"{source}-{target}", f"no model translates from {pair}; served: {self.listing()}")
        if len(closest) > 1:
            raise InvalidRequest(
                "model", f"several models fit; name one of {', '.join(entry.label for entry in closest)}"
            )
        return closest[0].model

    def listing(self) -> str:
        """The served models as text, for messages."""
        return ", ".join(f"{entry.label} ({entry.source} to {entry.target})" for entry in self.entries)

    def _named(self, model: str) -> list[Entry[Model]]:
        found = [entry for entry in self.entries if entry.label == model]
        found = found or [entry for entry in self._highest() if entry.name == model]
        if not found:
            raise UnknownModel(model[:128], f"model {model[:128]!r} is not served; served: {self.listing()}")
        return found

    def _highest(self) -> list[Entry[Model]]:
        """The highest version of each name."""
        best: dict[str, Entry[Model]] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.version):
            best[entry.name] = entry
        return list(best.values())

    def _closest(self, entries: list[Entry[Model]], source: str, target: str) -> list[Entry[Model]]:
        """The entries whose languages match the request best; empty without a match."""
        wanted = (
            canonical(source, "source_language_code") if source else "",
            canonical(target, "target_language_code") if target else "",
        )
        distances = [(_distance(wanted, entry), entry) for entry in entries]
        matching = [steps for steps, _ in distances if steps is not None]
        return [entry for steps, entry in distances if steps is not None and steps == min(matching)]


def _distance(wanted: tuple[str, str], entry: Entry[Model]) -> int | None:
    """Subtags to drop from the wanted languages (source, target) to match an entry; None if it does not match."""
    total = 0
    for requested, served in zip(wanted, (entry.source, entry.target), strict=True):
        steps = distance(requested, canonical(served, "the bundle's language")) if requested else 0
        if steps is None:
            return None
        total += steps
    return total
