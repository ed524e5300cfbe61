"""The settings of a server."""

from __future__ import annotations

from typing import Any

from docs.generators.cli import commands
from docs.generators.markdown import code, plain, table
from lingon.serving.settings import PREFIX, Settings


def settings() -> str:
    """The table of all settings: name, variable, default, meaning."""
    rows = [
        (code(name), code(_flag(name)), _default(field), plain(field.description or "")) for name, field in _fields()
    ]
    return table(("setting", "flag", "default", "meaning"), rows)


def variables() -> set[str]:
    """The environment variables of the settings."""
    return {PREFIX + name.upper() for name, _ in _fields()}


def _fields() -> list[tuple[str, Any]]:
    return list(Settings.model_fields.items())


def _flag(name: str) -> str:
    parameters = {parameter.name: parameter for parameter in commands()["lingon serve"].params}
    if name not in parameters:
        return ""
    flags = [*parameters[name].opts, *parameters[name].secondary_opts]
    return " ".join(flags) if flags[0].startswith("-") else "MODELS..."


def _default(field: Any) -> str:
    value = field.get_default()
    if value is None or value == "":
        return "not set"
    return code(",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower())
