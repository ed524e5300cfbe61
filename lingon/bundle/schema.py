"""Dataclasses from JSON: every field there, of the type and within the bounds that it is declared with, none besides.

    @dataclass
    class Limits:
        max_beam_size: Annotated[int, Range(1, 128)]

The base install is light, so this is the little of a validation library that a bundle's manifest needs.
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
SHOWN = 60  # characters of a value that an error repeats


class SchemaError(ValueError):
    """A value is not what was declared; its text names the field, the bound and the value."""


class Rule(Protocol):
    """What is demanded of a value beyond its type; stands in Annotated."""

    def unmet(self, value: Any) -> str:
        """What the value must be, as in "must be ..."; empty where it is."""


def unmet_rule(kind: Any, value: Any) -> str:
    """What the rules of an Annotated type demand of a value, as in "must be ..."; empty where it is so."""
    return next(filter(None, (rule.unmet(value) for rule in get_args(kind)[1:])), "")


@dataclass(frozen=True, slots=True)
class Range:
    """A number from least to most."""

    least: float
    most: float

    def unmet(self, value: Any) -> str:
        """See Rule; what is not a number is nowhere."""
        return "" if self.least <= value <= self.most else f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text that matches a pattern as a whole.

    said: what such a text is, for people
    """

    pattern: str
    said: str

    def unmet(self, value: Any) -> str:
        """See Rule."""
        return "" if re.fullmatch(self.pattern, value) else self.said


@dataclass(frozen=True, slots=True)
class MaxLength:
    """At most so many entries."""

    most: int

    def unmet(self, value: Any) -> str:
        """See Rule."""
        return "" if len(value) <= self.most else f"of at most {self.most:,} entries"


def parse_dataclass(kind: type[Parsed], value: object) -> Parsed:
    """The dataclass `kind` that a JSON value stands for. Raises SchemaError."""
    found: Parsed = _parsed(kind, value, "")
    return found


def _parsed(kind: Any, value: Any, at: str) -> Any:
    """A JSON value as `kind`: a type as it stands in an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        return _ruled(_parsed(inner[0], value, at), inner[1:], at)
    if origin in (Union, types.UnionType):
        return _one_of(inner, value, at)
    if origin is Literal:
        return value if value in inner else _refuse(at, f"one of {', '.join(map(str, inner))}", value)
    if origin is tuple:
        items = value if isinstance(value, list) else _refuse(at, "a list", value)
        return tuple(_parsed(inner[0], item, f"{at}[{place}]") for place, item in enumerate(items))
    if origin is dict:
        entries = value if isinstance(value, dict) else _refuse(at, "an object", value)
        return {
            _parsed(inner[0], key, f"a key of {at}"): _parsed(inner[1], entries[key], f"{at}.{key[:SHOWN]}")
            for key in entries
        }
    if is_dataclass(kind):
        return _dataclass(kind, value, at)
    if kind is float:
        finite = type(value) in (int, float) and abs(value) < math.inf
        return value if finite else _refuse(at, "a finite number", value)
    fits = type(value) is kind  # to isinstance a bool is an int
    return value if fits else _refuse(at, f"of type {kind.__name__}", value)


def _dataclass(kind: Any, value: Any, at: str) -> Any:
    given: Mapping[str, Any] = value if isinstance(value, dict) else _refuse(at, "an object", value)
    kinds, prefix = _kinds(kind), f"{at}." if at else ""
    for name in kinds:
        if name not in given:
            raise SchemaError(f"{prefix}{name} is missing")
    for name in given:
        if name not in kinds:
            raise SchemaError(f"{prefix}{name[:SHOWN]} is not a field")
    return kind(**{name: _parsed(each, given[name], f"{prefix}{name}") for name, each in kinds.items()})


@functools.cache
def _kinds(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass and what each is declared as."""
    hints = get_type_hints(kind, include_extras=True)
    return {entry.name: hints[entry.name] for entry in fields(kind)}


def _ruled(value: Any, rules: tuple[Rule, ...], at: str) -> Any:
    for rule in rules:
        if wanted := rule.unmet(value):
            _refuse(at, wanted, value)
    return value


def _one_of(kinds: tuple[Any, ...], value: Any, at: str) -> Any:
    """As the first of several kinds that the value fits; where none does, what the last one says that is not None."""
    if value is None and types.NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not types.NoneType)
    for kind in others:
        try:
            return _parsed(kind, value, at)
        except SchemaError:
            continue
    return _parsed(last, value, at)


def _refuse(at: str, wanted: str, value: object) -> Any:
    shown = repr(value)
    raise SchemaError(f"{at or 'it'} must be {wanted}, got {shown if len(shown) <= SHOWN else shown[:SHOWN] + '...'}")
