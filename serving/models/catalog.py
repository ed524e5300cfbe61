"""Which of the served models a request means. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingon.errors import InvalidRequest, SettingsError, UnknownModel
from lingon.serving.models.languages import canonical, distance

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class Entry(Generic[Model]):
    """A served model under the names that find it; languages as the bundle declares them."""

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
        labels = [entry.label for entry in entries]
        for label in labels:
            if labels.count(label) > 1:
                raise SettingsError(f"models: {label} is given {labels.count(label)} times")

    def find(self, model: str, source: str, target: str) -> Model:
        """The model of a request: by name, "name" or "name/version"; else by language pair; else the only one.

        A name without version means the highest. Raises UnknownModel and InvalidRequest.
        """
        named = self._named(model) if model else self._highest()
        fitting = self._fitting(named, source, target)
        if not fitting:
            pair = f"{source or 'any language'} to {target or 'any language'}"
            if model:
                raise InvalidRequest("model", f"model {named[0].label} does not translate from {pair}")
            raise UnknownModel(f"{source}-{target}", f"no model translates from {pair}; served: {self.listing()}")
        if len(fitting) > 1:
            raise InvalidRequest(
                "model", f"several models fit; name one of {', '.join(entry.label for entry in fitting)}"
            )
        return fitting[0].model

    def listing(self) -> str:
        """What is served, for people."""
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

    def _fitting(self, entries: list[Entry[Model]], source: str, target: str) -> list[Entry[Model]]:
        """Those of the languages asked for, the closest only."""
        wanted = (
            canonical(source, "source_language_code") if source else "",
            canonical(target, "target_language_code") if target else "",
        )
        far = [(_far(wanted, entry), entry) for entry in entries]
        reachable = [steps for steps, _ in far if steps is not None]
        return [entry for steps, entry in far if steps is not None and steps == min(reachable)]


def _far(wanted: tuple[str, str], entry: Entry[Model]) -> int | None:
    total = 0
    for asked, served in zip(wanted, (entry.source, entry.target), strict=True):
        steps = distance(asked, canonical(served, "the bundle's language")) if asked else 0
        if steps is None:
            return None
        total += steps
    return total
