"""The fields of a JSON file, checked as they are read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lingon.errors import SourceModelError

MOST_JSON_BYTES = 64 * 2**20  # of a vocabulary or a configuration; the largest one in use has 17
MOST_RATIO, FREE_BYTES = 100, 2**26  # a packed file may become so many times as long, and 64 MiB longer
Choice = TypeVar("Choice")


class JsonFields:
    """The fields of a JSON object in a file. A message names file and field."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values

    @classmethod
    def read(cls, path: Path, most: int = MOST_JSON_BYTES) -> JsonFields:
        """Read a file of so many bytes at most. Raises SourceModelError."""
        try:
            size = path.stat().st_size
            if size > most:
                raise SourceModelError(f"{path}: must have at most {most:,} bytes, has {size:,}")
            found = parse_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SourceModelError(f"{path}: {error.strerror}") from None
        except ValueError:
            raise SourceModelError(f"{path}: not JSON") from None
        if not isinstance(found, dict):
            raise SourceModelError(f"{path}: must be a JSON object, is a {type(found).__name__}")
        return cls(path, found)

    @classmethod
    def read_if_there(cls, path: Path) -> JsonFields:
        """Read a file. Without it there are no fields."""
        return cls.read(path) if path.exists() else cls(path, {})

    def integer(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """Return a whole number from least to most."""
        value = self._value(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.error(name, f"must be {least} to {most:,}")
        return value

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float:
        """Return a number from least to most."""
        value = self._value(name, default)
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.error(name, f"must be {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, "must be a text")
        return value

    def choice(self, name: str, choices: Mapping[str, Choice]) -> Choice:
        """Return what a text stands for."""
        value = self._value(name, None)
        if not isinstance(value, str) or value not in choices:
            raise self.error(name, f"must be {' or '.join(choices)}")
        return choices[value]

    def error(self, name: str, rule: str) -> SourceModelError:
        """Return the error for a field that breaks a rule."""
        return SourceModelError(f"{self.path}: {name} {rule}, got {shown(self.values.get(name))}")

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise SourceModelError(f"{self.path}: has no {name}")
        return value


def parse_json(text: str) -> Any:
    """Return a JSON value that can be written again: not nested too deeply, all texts Unicode. Raises ValueError."""
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def shown(value: Any) -> str:
    """Return a JSON value for a message. Of a list and an object the name alone, for they may be nested deeply."""
    return json.dumps(value)[:60] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that comes twice, or None if each comes once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def most_unpacked(path: Path) -> int:
    """Return the bytes that a packed file may become: weights get hardly shorter, zeros a thousandfold."""
    return MOST_RATIO * path.stat().st_size + FREE_BYTES


POINTER = b"version https://git-lfs.github.com/spec/"
"""How a pointer begins."""


def explained(error: SourceModelError, folder: Path) -> SourceModelError:
    """Return the error of a file in a folder, or a plainer one if that file is a pointer."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if str(error).startswith(f"{path}: ") and _is_pointer(path):
            return SourceModelError(f"{path}: is a pointer of Git LFS in the place of the file; run git lfs pull")
    return error


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(POINTER)) == POINTER
