"""All cases, and those that a run selects by number."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection

from chaos.case import CASES, Case
from lingon.errors import SettingsError


def all_cases() -> list[Case]:
    """All cases, in order of their numbers."""
    import chaos.cases

    for module in pkgutil.walk_packages(chaos.cases.__path__, "chaos.cases."):
        importlib.import_module(module.name)
    return [CASES[number] for number in sorted(CASES)]


def chosen(cases: Collection[Case], numbers: Collection[int]) -> list[Case]:
    """The cases with these numbers; without numbers, all but those that run alone.

    Raises SettingsError for an unknown number.
    """
    if unknown := sorted(set(numbers) - {each.number for each in cases}):
        raise SettingsError(f"no case has the number {unknown[0]}; there are {', '.join(str(c.number) for c in cases)}")
    return [each for each in cases if (each.number in numbers if numbers else not each.alone)]
