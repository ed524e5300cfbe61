"""The bundle format, from the declarations in lingon/bundle."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from docs.generators.markdown import code, plain, table
from lingon.bundle import Confidence, LengthRange, ReliabilityBin, TextData, names
from lingon.bundle.manifest import Alignment, Defaults, Limits, Manifest, Precision, State

DECLARED = (
    Manifest,
    Limits,
    Defaults,
    State,
    Precision,
    Alignment,
    TextData,
    LengthRange,
    Confidence,
    ReliabilityBin,
)


def layout() -> str:
    """The table of a bundle's files, which the module's docstring lists: a name, two spaces or more, its meaning."""
    listed = re.findall(r"(?m)^    +(\S.*?)(?:  +(\S.*))?$", names.__doc__ or "")
    assert listed, "the docstring of lingon/bundle/names.py lists the files"
    return table(("file", "content"), [(code(name), plain(meaning)) for name, meaning in listed])


def declarations() -> str:
    """A section for the manifest and for each of its parts: fields, types, bounds, meanings."""
    return "\n\n".join(_declared_section(kind) for kind in DECLARED)


def tensors() -> str:
    """The table of the graphs' inputs and outputs: the comments beside their names."""
    rows = []
    for line in inspect.getsource(names).splitlines():
        found = re.match(r'([A-Z_, ]+) = ("[a-z_", ]+)  # (\(.*)', line)
        if found:
            tensors_named = re.findall(r'"(\w+)"', found[2])
            rows.append((", ".join(map(code, tensors_named)), plain(found[3])))
    return table(("tensor", "shape and meaning"), rows)


def _declared_section(kind: type) -> str:
    types = get_type_hints(kind, include_extras=True)
    meanings, prose = _documented(kind)
    rows = []
    for field in dataclasses.fields(kind):
        default = "" if field.default is dataclasses.MISSING else code(str(field.default))
        rows.append((code(field.name), _type(types[field.name]), default, plain(meanings.get(field.name, ""))))
    return f"### {kind.__name__}\n\n{plain(prose)}\n\n{table(('field', 'type and bounds', 'default', 'meaning'), rows)}"


def _documented(kind: type) -> tuple[dict[str, str], str]:
    """What a class says of its fields, in lines `name: meaning` or comments, and its first paragraph."""
    prose, _, rest = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")
    meanings = {}
    for found in re.finditer(r"(?ms)^(\w+(?:, \w+)*):[ \n](.*?)(?=^\w+(?:, \w+)*:[ \n]|\Z)", rest):
        meaning = re.sub(r"\n?    (\w+)  +", r"; `\1`: ", found[2]).removeprefix("; ")
        meanings |= dict.fromkeys(found[1].split(", "), meaning)
    for found in re.finditer(r"(?m)^    (\w+): .*  # (.*)$", inspect.getsource(kind)):
        meanings.setdefault(found[1], found[2])
    return meanings, prose


def _type(kind: Any) -> str:
    """A declared type in words, with its bounds."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = "; ".join(_bound(each) for each in arguments[1:])
        return f"{_type(arguments[0])}, {bounds}"
    if origin is Literal:
        return ", ".join(code(str(each)) for each in arguments)
    if origin is tuple:
        return f"list of ({_type(arguments[0])})"
    if origin is dict:
        return f"map from ({_type(arguments[0])}) to ({_type(arguments[1])})"
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in arguments)
    return code({"Any": "any JSON", "NoneType": "null"}.get(kind.__name__, kind.__name__))


def _bound(bound: Any) -> str:
    """The limits of a value, as its declaration has them."""
    values = [getattr(bound, field.name) for field in dataclasses.fields(bound)]
    match type(bound).__name__:
        case "Range":
            return f"{values[0]:,} to {values[1]:,}"
        case "MaxLength":
            return f"at most {values[0]:,} entries"
        case _:
            return plain(str(values[-1]))
