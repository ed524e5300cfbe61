"""The differences between the settings of two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lingon.training.config.model import ModelSettings, Settings


def setting_differences(old: Settings, new: Settings) -> Iterator[str]:
    """Yield every setting that differs, as `block.key: old -> new`."""
    return _differences(old.model_dump(mode="json"), new.model_dump(mode="json"))


def model_differences(old: ModelSettings, new: ModelSettings) -> list[str]:
    """Return every setting that differs and makes weights of the old model wrong or unusable in the new one."""
    weightless = old.weightless() | new.weightless()  # what makes a key weightless in one of them differs itself
    before, now = (settings.model_dump(mode="json", exclude=weightless) for settings in (old, new))
    return list(_differences(before, now, "model."))


def _differences(old: dict[str, Any], new: dict[str, Any], block: str = "") -> Iterator[str]:
    """Yield the differences of two blocks; two kinds of model differ in their kind, since their keys are others."""
    if old.get("kind") != new.get("kind") and old.keys() != new.keys():
        yield f"{block}kind: {old['kind']} -> {new['kind']}"
        return
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old[key], dict):
            yield from _differences(old[key], value, f"{block}{key}.")
        elif value != old[key]:
            yield f"{block}{key}: {old[key]} -> {value}"
