"""What a run has measured so far, a JSON object a line, so that a killed run can go on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lingon.errors import SettingsError
from lingon.files import write_text


class Scratch:
    """Records by key, on disk as soon as they are added.

    head: what was asked for; a run goes on only where all of it is the same
    """

    def __init__(self, path: Path, head: dict[str, Any], *, resume: bool) -> None:
        self._path = path
        self._records: dict[str, Any] = _read(path, head) if resume else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = (_line(key, record) for key, record in self._records.items())
        write_text(path, "".join([json.dumps({"head": head}) + "\n", *kept]))

    def get(self, key: str) -> Any:
        """The record of a key, or None."""
        return self._records.get(key)

    def add(self, key: str, record: Any) -> None:
        """Keep a record."""
        self._records[key] = record
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(key, record))

    def done(self) -> None:
        """The result is where it belongs: forget."""
        self._path.unlink()


def _line(key: str, record: Any) -> str:
    return json.dumps({"key": key, "record": record}) + "\n"


def _read(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """The records of a run that was killed, perhaps within its last line; of no run, none."""
    if not path.is_file():
        return {}
    first, *lines = path.read_text(encoding="utf-8").split("\n")
    begun = json.loads(first)["head"]
    changed = [name for name in head if begun.get(name) != head[name]]
    if changed:
        name = changed[0]
        raise SettingsError(
            f"--resume: {path} was begun with {name} {begun.get(name)!r}, this is {head[name]!r}; run without --resume"
        )
    whole = [json.loads(line) for line in lines[:-1]]
    return {line["key"]: line["record"] for line in whole}
