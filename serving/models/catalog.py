"""The selection of the model of a request by name or by language pair. Plain data, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingon.bundle.manifest import Languages, Manifest, Origin, shown_languages
from lingon.errors import InvalidRequest, SettingsError, UnknownModel
from lingon.language_tags import canonical, distance, is_one_language, primary
from lingon.serving.models.routes import best_route

Model = TypeVar("Model")
MAX_CACHED = 1000  # selections in the cache
FIELDS = "source_language_code", "target_language_code"
ANY = "any"  # in place of pivot languages: every language that models translate into and from


@dataclass(frozen=True, slots=True)
class Entry(Generic[Model]):
    """A served model with its name, version and languages in the form of the bundle's manifest.

    languages: None for a model of one pair; otherwise source and target stand for all of them
    origin: what the publisher of an imported model says of it
    """

    name: str
    version: int
    source: str
    target: str
    model: Model
    languages: Languages | None = None
    origin: Origin | None = None

    @classmethod
    def of(cls, manifest: Manifest, model: Model) -> Entry[Model]:
        """Return the entry of a model with this manifest."""
        pair = manifest.source_language, manifest.target_language
        return cls(manifest.name, manifest.version, *pair, model, manifest.languages, manifest.origin)

    @property
    def label(self) -> str:
        """The name and the version, as in "en-de/1"."""
        return f"{self.name}/{self.version}"

    @property
    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The source languages and the target languages."""
        if self.languages is None:
            return (self.source,), (self.target,)
        sources, targets = self.languages.sources, self.languages.targets
        return tuple(each.language for each in sources), tuple(each.language for each in targets)

    def listing(self) -> str:
        """Return the model as text, for messages."""
        named = [side[0] if len(side) == 1 else f"{len(side)} languages" for side in self.sides]
        return f"{self.label} ({named[0]} to {named[1]})"


@dataclass(frozen=True, slots=True)
class Selected(Generic[Model]):
    """The model of a request, and its language pair in the form of the manifest."""

    model: Model
    source: str
    target: str


_Fit = tuple[Entry[Model], tuple[str, str]]
"""A model that fits a request, and its pair of languages."""


class Catalog(Generic[Model]):
    """The served models."""

    def __init__(
        self, entries: Sequence[Entry[Model]], pivots: Sequence[str] = (), preferred: Sequence[str] = ()
    ) -> None:
        """pivots: languages for pairs without a model, or ANY; empty to refuse such pairs.

        preferred: names of the models to select where several fit, the most preferred first
        """
        self.entries, self._pivots, self._preferred = tuple(entries), tuple(pivots), tuple(preferred)
        self.pivots = _languages_between(entries) if ANY in pivots else tuple(pivots)
        self._found: dict[tuple[str, str, str], Selected[Model]] = {}
        self._routes: dict[tuple[str, str], tuple[Selected[Model], ...]] = {}
        labels = [entry.label for entry in entries]
        for label in labels:
            if labels.count(label) > 1:
                raise SettingsError(f"models: {label} is given {labels.count(label)} times; give each version once")

    def find(self, model: str, source: str, target: str) -> Selected[Model]:
        """Return the model of a request: by model ("name" or "name/version"), else by language pair, else the only one.

        A name without a version selects the highest version. Raises UnknownModel or InvalidRequest.
        """
        key = model, source, target
        found = self._found.get(key)
        if found is None:
            found = self._find(model, source, target)
            if len(self._found) < MAX_CACHED:
                self._found[key] = found
        return found

    def replaced(self, entries: Sequence[Entry[Model]]) -> Catalog[Model]:
        """Return a catalog of other models with the same settings."""
        return Catalog(entries, self._pivots, self._preferred)

    def route(self, model: str, source: str, target: str) -> tuple[Selected[Model], ...]:
        """Return the model of a request, as `find`, or for a pair without a model those into and out of a pivot.

        Of several routes it is the best one, see lingon.serving.models.routes.
        """
        try:
            return (self.find(model, source, target),)
        except UnknownModel:
            found = () if model else self._through_pivots(source, target)
            if not found:
                raise
            return found

    def language_codes(self) -> dict[str, str]:
        """Return the code of each language of the models, such as de for de-AT, by its tag."""
        tags = (tag for entry in self.entries for side in entry.sides for tag in side)
        return {tag: primary(canonical(tag, "the bundle's language")) for tag in tags}

    def sources_of(self, target: str) -> list[str]:
        """Return the languages that are translated into this one, also through a pivot."""
        direct = self._sources_of(target)
        found = list(direct)
        for pivot in self.pivots:
            if any(_best(pivot, [tag]) for tag in direct):
                found += [tag for tag in self._sources_of(pivot) if not is_one_language(tag, target)]
        return list(dict.fromkeys(found))

    def _sources_of(self, target: str) -> list[str]:
        return [tag for entry in self.entries if _best(target, entry.sides[1]) for tag in entry.sides[0]]

    def _through_pivots(self, source: str, target: str) -> tuple[Selected[Model], ...]:
        """Return the two models of the best route, or none without one."""
        if not (source and target) or is_one_language(source, target):
            return ()
        if (source, target) not in self._routes:
            if len(self._routes) >= MAX_CACHED:
                self._routes.clear()
            self._routes[source, target] = self._best_route(source, target)
        return self._routes[source, target]

    def _best_route(self, source: str, target: str) -> tuple[Selected[Model], ...]:
        routes = [
            (first, second)
            for pivot in self.pivots
            if not is_one_language(source, pivot) and not is_one_language(pivot, target)
            for first in self._fitting(source, pivot)
            for second in self._fitting(pivot, target)
        ]
        if not routes:
            return ()
        best = routes[best_route([[entry.origin for entry, _ in route] for route in routes])]
        return tuple(Selected(entry.model, *pair) for entry, pair in best)

    def _fitting(self, source: str, target: str) -> list[_Fit[Model]]:
        """Return the models that translate a pair, only the preferred one if there is one."""
        closest = [fit for fit in _closest(self._highest(), source, target) if all(fit[1])]
        return self._preferred_of(closest) or closest

    def _preferred_of(self, fits: Sequence[_Fit[Model]]) -> list[_Fit[Model]]:
        """Return the most preferred of several models that fit, or none if no preferred one does."""
        found = ([fit for fit in fits if fit[0].name == name] for name in self._preferred)
        return next(filter(None, found), [])

    def _find(self, model: str, source: str, target: str) -> Selected[Model]:
        named = self._named(model) if model else self._highest()
        closest = _closest(named, source, target)
        if not closest:
            pair = f"{source or 'any language'} to {target or 'any language'}"
            if model:
                raise InvalidRequest("model", f"model {named[0].label} does not translate from {pair}")
            raise UnknownModel(f"{source}-{target}", f"no model translates from {pair}; served: {self.listing()}")
        if len(closest) > 1:
            closest = self._most_preferred(closest)
        ((entry, pair_found),) = closest
        for tag, side, field in zip(pair_found, entry.sides, FIELDS, strict=True):
            if not tag:
                raise InvalidRequest(
                    field, f"{field} must name a language of {entry.label}: {shown_languages(side)}; see ListModels"
                )
        return Selected(entry.model, *pair_found)

    def _most_preferred(self, closest: Sequence[_Fit[Model]]) -> list[_Fit[Model]]:
        """Return the preferred one of several models that fit. Raises InvalidRequest."""
        if preferred := self._preferred_of(closest):
            return preferred
        labels = ", ".join(entry.label for entry, _ in closest)
        more = "give both languages or " if len({pair for _, pair in closest}) > 1 else ""
        raise InvalidRequest("model", f"several models fit; {more}name one of {labels}")

    def listing(self) -> str:
        """Return the served models as text, for messages."""
        return ", ".join(entry.listing() for entry in self.entries)

    def _named(self, model: str) -> list[Entry[Model]]:
        found = [entry for entry in self.entries if entry.label == model]
        found = found or [entry for entry in self._highest() if entry.name == model]
        if not found:
            raise UnknownModel(model[:128], f"model {model[:128]!r} is not served; served: {self.listing()}")
        return found

    def _highest(self) -> list[Entry[Model]]:
        best: dict[str, Entry[Model]] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.version):
            best[entry.name] = entry
        return list(best.values())


def _languages_between(entries: Sequence[Entry[Model]]) -> tuple[str, ...]:
    """Return the languages that one model translates into and another one from, English first."""
    targets = {tag: entry for entry in entries for tag in entry.sides[1]}
    both = {tag for entry in entries for tag in entry.sides[0] if tag in targets}
    return tuple(sorted(both, key=lambda tag: (primary(tag) != "en", tag)))


def _closest(entries: Sequence[Entry[Model]], source: str, target: str) -> list[_Fit[Model]]:
    """Return the entries with the best matching languages, each with its pair, or none without a match."""
    for tag, field in zip((source, target), FIELDS, strict=True):
        if tag:
            canonical(tag, field)
    found = []
    for entry in entries:
        best = [_best(tag, side) for tag, side in zip((source, target), entry.sides, strict=True)]
        if None in best:
            continue
        (one, first), (other, second) = filter(None, best)
        if entry.languages is None or not first or first != second:
            found.append((one + other, entry, (first, second)))
    nearest = min((steps for steps, _, _ in found), default=0)
    return [(entry, pair) for steps, entry, pair in found if steps == nearest]


def _best(wanted: str, served: Sequence[str]) -> tuple[int, str] | None:
    """Return the served language that is nearest to a wanted one, and the subtags to drop for it, or None without one.

    Several tags may have one canonical form, such as ar and arb. A tag that equals the wanted one is then nearest, and
    the canonical tag is next, because a model may have both.

    wanted: "" means any language; the result is "" if there are several
    """
    if not wanted:
        return 0, served[0] if len(served) == 1 else ""
    asked, written = canonical(wanted, "the language"), primary(wanted)
    found: list[tuple[int, int, str]] = []
    for tag in served:
        known = canonical(tag, "the bundle's language")
        steps = distance(asked, known)
        if steps is not None:
            found.append((steps, 0 if primary(tag) == written else 1 if primary(tag) == primary(known) else 2, tag))
    steps, _, tag = min(found, default=(0, 0, ""))
    return (steps, tag) if found else None
