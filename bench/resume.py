"""The resume file: the measurements of a run so far, one JSON object a line, so that a killed run can be continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lingon.errors import SettingsError
from lingon.files import write_text


class ResumeFile:
    """Records by key, written to disk as soon as they are added."""

    def __init__(self, path: Path, head: dict[str, Any], *, resume: bool) -> None:
        """Open the file.

        head: the options and the machine; a run is resumed only if all of them are the same
        resume: keep the records of the last run; otherwise start with an empty file
        """
        self._path = path
        self._records: dict[str, Any] = _read(path, head) if resume else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = (_line(key, record) for key, record in self._records.items())
        write_text(path, "".join([json.dumps({"head": head}) + "\n", *kept]))

    def get(self, key: str) -> Any:
        """The record of a key, or None."""
        return self._records.get(key)

    def add(self, key: str, record: Any) -> None:
        """Add a record and append it to the file."""
        self._records[key] = record
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(key, record))

    def delete(self) -> None:
        """Delete the file, once the results are written."""
        self._path.unlink()


def _line(key: str, record: Any) -> str:
    return json.dumps({"key": key, "record": record}) + "\n"


def _read(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """The records of a killed run, without a half-written last line; empty if there is no file."""
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
    complete = [json.loads(line) for line in lines[:-1]]
    return {line["key"]: line["record"] for line in complete}
