"""Which languages of a model a bundle serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lingon.bundle import MANY, Language
from lingon.bundle.schema import unmet_rule
from lingon.errors import SettingsError, first_of
from lingon.importers.source import ForeignModel
from lingon.training.config import LanguageSettings

ALL = "all"  # in the place of a language: all others
SHOWN = 30  # languages in a message
Sides = tuple[Sequence[str], Sequence[str]]
"""The languages of the source, and those of the target."""


def choose_languages(
    folder: Path, source: ForeignModel, given: Sides | None, *, every: bool = False
) -> tuple[LanguageSettings | None, tuple[str, str]]:
    """Return the languages to serve, None for a model of one pair, and the pair for the gates.

    folder: of the files, for messages; given: what the user names; every: whether all languages of a model of several
    are served if the user names none. Raises SettingsError.
    """
    _check_tags(given)
    if source.languages is None:
        return None, _pair(folder, source.facts.languages, given)
    known = source.languages
    if given is None and not every:
        offered = _shown([each.language for each in known.targets])
        raise SettingsError(
            f"{folder}: a model of several languages; name those to serve, the pair for the gates first, as in "
            f"--languages en,de:fr,all; it has {offered}; --report lists all"
        )
    if given is None:
        given = [ALL], [ALL]
    elif [each.language for each in known.sources] == [MANY]:  # its files do not name the source
        unnamed = known.sources[0]
        known = known.model_copy(
            update={"sources": tuple(unnamed.model_copy(update={"language": tag}) for tag in given[0])}
        )
    sources = _chosen(folder, given[0], [each.language for each in known.sources])
    targets = _chosen(folder, given[1], [each.language for each in known.targets])
    if len({tag.lower() for tag in (*sources, *targets)}) == 1:
        raise SettingsError(
            f"--languages must have two different languages, such as en:de, got {sources[0]}:{targets[0]}: {folder} is "
            f"a model of several languages"
        )
    by_source = {each.language: each for each in known.sources}
    by_target = {each.language: each for each in known.targets}
    chosen = LanguageSettings(
        sources=tuple(by_source[tag] for tag in sources), targets=tuple(by_target[tag] for tag in targets)
    )
    return chosen, (sources[0], next((tag for tag in targets if tag != sources[0]), targets[0]))


def _check_tags(given: Sides | None) -> None:
    for tag in (*given[0], *given[1]) if given else ():
        if rule := unmet_rule(Language, tag):
            raise SettingsError(f"--languages must be two languages such as en:de, each {rule}, got {tag!r}")


def _pair(folder: Path, said: tuple[str, str], given: Sides | None) -> tuple[str, str]:
    """Return the languages of a model of one pair."""
    if given is not None:
        if len(given[0]) > 1 or len(given[1]) > 1 or ALL in (given[0][0], given[1][0]):
            raise SettingsError(f"--languages must be one pair, such as en:de: {folder} is a model of one pair")
        return given[0][0], given[1][0]
    if not all(said):
        raise SettingsError(f"{folder}: its files do not say the two languages; name them, as in --languages en:de")
    return said


def _chosen(folder: Path, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the given tags as the model has them, each once; ALL is replaced by all others."""
    spelled = {tag.lower(): tag for tag in known}
    found: list[str] = []
    for tag in given:
        if tag == ALL:
            found += known
        elif tag.lower() in spelled:
            found.append(spelled[tag.lower()])
        else:
            raise SettingsError(f"--languages: {folder} has no {tag}; it has {_shown(known)}")
    return list(dict.fromkeys(found))


def _shown(tags: Sequence[str]) -> str:
    return first_of(tags, SHOWN)
