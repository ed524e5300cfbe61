"""Keys of the API, for clients that are told apart."""

from __future__ import annotations

from pathlib import Path

from lingon.serving.auth.api_keys import hash_of, new_key


def keys_file(path: Path, *names: str) -> dict[str, str]:
    """Write a server's file of keys, each new; returns the keys by their names."""
    keys = {name: new_key() for name in names}
    tables = [f'[[key]]\nname = "{name}"\nhash = "{hash_of(key)}"\n' for name, key in keys.items()]
    path.write_text("\n".join(tables), encoding="utf-8")
    return keys
