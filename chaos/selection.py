"""All cases, and those that a run selects by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection

from chaos.case import CASES, Case
from lingon.errors import SettingsError


def all_cases() -> list[Case]:
    """Return all cases, file by file."""
    import chaos.cases

    for module in pkgutil.walk_packages(chaos.cases.__path__, "chaos.cases."):
        importlib.import_module(module.name)
    return list(CASES.values())


def chosen(cases: Collection[Case], names: Collection[str]) -> list[Case]:
    """Return the cases with these names; without names, all but those that run alone.

    Raises SettingsError for an unknown name.
    """
    if unknown := sorted(set(names) - {each.name for each in cases}):
        raise SettingsError(f"no case is named {unknown[0]}; there are {', '.join(each.name for each in cases)}")
    return [each for each in cases if (each.name in names if names else not each.alone)]
