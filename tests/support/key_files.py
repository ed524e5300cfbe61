"""Files of API keys for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lingon.serving.auth.api_keys import hash_of


def keyfile(folder: Path, keys: dict[str, str], **more: dict[str, Any]) -> Path:
    """A file of these keys by name; more: what else is said of each."""
    path = folder / "keys.toml"
    path.write_text("\n".join(table(name, key, **more.get(name, {})) for name, key in keys.items()))
    return path


def table(name: str, key: str, **more: Any) -> str:
    lines = ["[[key]]", f'name = "{name}"', f'hash = "{hash_of(key)}"']
    return "\n".join([*lines, *(f"{field} = {str(value).lower()}" for field, value in more.items())]) + "\n"


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    """The metadata that shows a key."""
    return (("authorization", f"Bearer {key}"),)
