"""The fields of a request, whether they come as JSON, as a form or in the query: clients use all three."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request

from lingon.gateway.requests.body import has_json, media_type, parse_json
from lingon.gateway.requests.forms import MULTIPART, URLENCODED, read_form, read_query
from lingon.gateway.requests.problem import Problem

MOST_DIGITS = 9  # of a number; Python takes quadratic time to read many


class Fields:
    """The fields of a request by name; a name may occur several times.

    file: the uploaded file and its name; None without one
    """

    def __init__(self, pairs: Iterable[tuple[str, Any]], file: tuple[str, bytes] | None = None) -> None:
        self._values: dict[str, list[Any]] = {}
        self._lists: set[str] = set()
        for name, value in pairs:
            self._values.setdefault(name, []).extend(value if isinstance(value, list) else [value])
            if isinstance(value, list):
                self._lists.add(name)
        self.file = file

    def __contains__(self, name: str) -> bool:
        return any(value is not None for value in self._values.get(name, ()))

    def text(self, name: str, default: str = "") -> str:
        """Return a field as text; the default if it is missing or null."""
        found = [value for value in self._values.get(name, ()) if value is not None]
        if not found:
            return default
        return _text(name, found[-1])

    def texts(self, name: str) -> list[str]:
        """Return all values of a field; raises Problem for a null in a list: it would shift the results."""
        values = self._values.get(name, ())
        if name in self._lists and None in values:
            raise Problem(400, f"{name}[{values.index(None)}] must be text, got null", field=name)
        return [_text(name, value) for value in values if value is not None]

    def is_list(self, name: str) -> bool:
        """Whether a field is a list, or is repeated."""
        return name in self._lists or len(self._values.get(name, ())) > 1

    def names(self, name: str) -> list[str]:
        """Return the values of a field that is a list, repeated, or separated by commas."""
        return [part.strip() for text in self.texts(name) for part in text.split(",") if part.strip()]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a field that is a whole number within bounds."""
        text = self.text(name, str(default))
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else -1
        if not least <= value <= most:
            raise Problem(400, f"{name} must be {least} to {most}, got {text[:40]!r}", field=name)
        return value

    def choice(self, name: str, values: Iterable[str], default: str) -> str:
        """Return a field that is one of several values, in any case."""
        text, known = self.text(name, default).lower(), list(values)
        if text not in known:
            raise Problem(400, f"{name} must be one of {', '.join(known)}, got {text[:40]!r}", field=name)
        return text


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise Problem(400, f"{name} must be text, got {type(value).__name__}", field=name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(400, f"{name} has half of a surrogate pair, which is no character", field=name) from None
    return value


def query_fields(request: Request) -> list[tuple[str, Any]]:
    """Return the fields of the query of a request."""
    return list(read_query(request.scope["query_string"]))


def fields_of(request: Request, body: bytes) -> Fields:
    """Return the fields of the query and of the body.

    A GET may have a form as its body too: an official client sends one.
    """
    pairs, kind, file = query_fields(request), media_type(request), None
    if not body:
        return Fields(pairs)
    if has_json(request, body):
        pairs += parse_json(body).items()
    elif kind in (URLENCODED, MULTIPART):
        fields, file = read_form(request.headers["content-type"], body)
        pairs += fields
    else:
        raise Problem(415, f"a body of type {kind[:60] or 'unknown'} is not accepted; send JSON or a form")
    return Fields(pairs, file)
