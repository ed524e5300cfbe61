"""The options of the Python client, from the comments beside their declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType

from docs.generators.markdown import code, plain, table
from lingon import ScoreOptions, TranslateOptions


def translate_options() -> str:
    """The table of the options of `translate`."""
    return _table(TranslateOptions)


def score_options() -> str:
    """The table of the options of `score`; those that `translate` has too mean the same."""
    return _table(ScoreOptions, _meanings(TranslateOptions))


def _table(kind: type, known: Mapping[str, str] = MappingProxyType({})) -> str:
    meanings = {**known, **{name: text for name, text in _meanings(kind).items() if text}}
    types = {name: annotation.removesuffix(" | None") for name, annotation, _ in _fields(kind)}
    rows = [(code(name), code(annotation), plain(meanings.get(name, ""))) for name, annotation in types.items()]
    return table(("option", "type", "meaning"), rows)


def _fields(kind: type) -> list[tuple[str, str, str]]:
    """Name, type and comment of each."""
    _, _, declarations = inspect.getsource(kind).split('"""')
    return re.findall(r"(?m)^    (\w+): (.*?)(?:  # (.*))?$", declarations)


def _meanings(kind: type) -> dict[str, str]:
    """The comment of each, and what the docstring says of it."""
    more = dict(re.findall(r"(?ms)^(\w+): (.*?)(?=^\w+: |\Z)", inspect.getdoc(kind) or ""))
    more = {name: f". {text[0].upper()}{text[1:]}" for name, text in more.items()}
    return {name: comment + more.get(name, "") for name, _, comment in _fields(kind)}
