"""Parses JSON into dataclasses: every field must be present, of its declared type and within its declared bounds.

    @dataclass
    class Limits:
        max_beam_size: Annotated[int, Range(1, 128)]

Unknown fields are errors. The base install has no validation library. This is what a bundle's manifest needs of one.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

Parsed = TypeVar("Parsed")
MAX_SHOWN = 60  # characters of a value that an error message repeats


class SchemaError(ValueError):
    """A value does not fit its declaration. The message names the field, the bound and the value."""


class Rule(Protocol):
    """A condition on a value beyond its type, given in Annotated."""

    def unmet(self, value: Any) -> str:
        """Return what the value must be, as in "must be ...", empty if the value is valid."""


def unmet_rule(kind: Any, value: Any) -> str:
    """Return what an Annotated type requires of a value, as in "must be ...", empty if the value meets all its
    rules.
    """
    return next(filter(None, (rule.unmet(value) for rule in get_args(kind)[1:])), "")


@dataclass(frozen=True, slots=True)
class Range:
    """A number from minimum to maximum, both included."""

    minimum: float
    maximum: float

    def unmet(self, value: Any) -> str:
        """See Rule. NaN is never in range."""
        return "" if self.minimum <= value <= self.maximum else f"{self.minimum:,} to {self.maximum:,}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text that matches a pattern from begin to end.

    description: what such a text is, for the error message
    """

    pattern: str
    description: str

    def unmet(self, value: Any) -> str:
        """See Rule."""
        return "" if re.fullmatch(self.pattern, value) else self.description


@dataclass(frozen=True, slots=True)
class MaxLength:
    """At most this many entries."""

    maximum: int

    def unmet(self, value: Any) -> str:
        """See Rule."""
        return "" if len(value) <= self.maximum else f"of at most {self.maximum:,} entries"


def parse_dataclass(kind: type[Parsed], value: object) -> Parsed:
    """Parse a JSON value as the dataclass `kind`. Raises SchemaError."""
    found: Parsed = _parse(kind, value, "")
    return found


def _parse(kind: Any, value: Any, at: str) -> Any:
    """Parse a JSON value as `kind`, a type annotation; at: the path of the value."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        return _check_rules(_parse(inner[0], value, at), inner[1:], at)
    if origin in (Union, types.UnionType):
        return _parse_union(inner, value, at)
    if origin is Literal:
        return value if value in inner else _refuse(at, f"one of {', '.join(map(str, inner))}", value)
    if origin is tuple:
        items = value if isinstance(value, list) else _refuse(at, "a list", value)
        return tuple(_parse(inner[0], item, f"{at}[{position}]") for position, item in enumerate(items))
    if origin is dict:
        entries = value if isinstance(value, dict) else _refuse(at, "an object", value)
        return {
            _parse(inner[0], key, f"a key of {at}"): _parse(inner[1], entries[key], f"{at}.{key[:MAX_SHOWN]}")
            for key in entries
        }
    if is_dataclass(kind):
        return _parse_fields(kind, value, at)
    if kind is float:
        finite = type(value) in (int, float) and abs(value) < math.inf
        return value if finite else _refuse(at, "a finite number", value)
    fits = type(value) is kind  # not isinstance, for which a bool is an int
    return value if fits else _refuse(at, f"of type {kind.__name__}", value)


def _parse_fields(kind: Any, value: Any, at: str) -> Any:
    given: Mapping[str, Any] = value if isinstance(value, dict) else _refuse(at, "an object", value)
    kinds, prefix = _field_types(kind), f"{at}." if at else ""
    for name in kinds:
        if name not in given:
            raise SchemaError(f"{prefix}{name} is missing")
    for name in given:
        if name not in kinds:
            raise SchemaError(f"{prefix}{name[:MAX_SHOWN]} is not a field")
    return kind(**{name: _parse(each, given[name], f"{prefix}{name}") for name, each in kinds.items()})


@functools.cache
def _field_types(kind: Any) -> dict[str, Any]:
    """Return the fields of a dataclass and the declared type of each."""
    hints = get_type_hints(kind, include_extras=True)
    return {entry.name: hints[entry.name] for entry in fields(kind)}


def _check_rules(value: Any, rules: tuple[Rule, ...], at: str) -> Any:
    for rule in rules:
        if wanted := rule.unmet(value):
            _refuse(at, wanted, value)
    return value


def _parse_union(kinds: tuple[Any, ...], value: Any, at: str) -> Any:
    """Parse as the first kind that fits. If none does, raise the error of the last kind other than None."""
    if value is None and types.NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not types.NoneType)
    for kind in others:
        try:
            return _parse(kind, value, at)
        except SchemaError:
            continue
    return _parse(last, value, at)


def _refuse(at: str, wanted: str, value: object) -> Any:
    shown = repr(value)
    raise SchemaError(
        f"{at or 'it'} must be {wanted}, got {shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + '...'}"
    )
