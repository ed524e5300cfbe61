"""Files of API keys for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lingon.serving.auth.api_keys import key_table


def write_key_file(folder: Path, keys: dict[str, str], **more: dict[str, Any]) -> Path:
    """Write a file with these keys, by name; more: further fields of each key."""
    path = folder / "keys.toml"
    path.write_text("\n".join(key_table(name, key, **more.get(name, {})) for name, key in keys.items()))
    return path


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that sends a key."""
    return (("authorization", f"Bearer {key}"),)
