"""Files of API keys for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lingon.serving.auth.api_keys import key_table


def keyfile(folder: Path, keys: dict[str, str], **more: dict[str, Any]) -> Path:
    """A file of these keys by name; more: further fields of each."""
    path = folder / "keys.toml"
    path.write_text("\n".join(key_table(name, key, **more.get(name, {})) for name, key in keys.items()))
    return path


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    """The metadata that sends a key."""
    return (("authorization", f"Bearer {key}"),)
