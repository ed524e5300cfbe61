"""The packages of `lingon`, their layers and which of them import which: read from the code and from pyproject.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

import grimp

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
GENERATED = {"translation", "admin"}  # the gRPC code in `lingon`
Edges = set[tuple[str, str]]


def layers(container: str) -> list[list[str]]:
    """The layers of a package, highest first, as the import rules declare them."""
    rules = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rule = next(rule for rule in rules if container in rule.get("containers", ()))
    found = [re.split(r" [|:] ", layer) for layer in rule["layers"]]
    hidden = GENERATED if container == "lingon" else set()
    return [kept for layer in found if (kept := [name for name in layer if name not in hidden])]


@functools.cache
def imports(container: str) -> frozenset[tuple[str, str]]:
    """Which children of a package import which, as (importer, imported)."""
    graph, names = _graph(), [name for layer in layers(container) for name in layer]
    found: Edges = set()
    for importer in names:
        for imported in names:
            ends = f"{container}.{importer}", f"{container}.{imported}"
            if importer != imported and graph.direct_import_exists(
                importer=ends[0], imported=ends[1], as_packages=True
            ):
                found.add((importer, imported))
    return frozenset(found)


def reduced(edges: frozenset[tuple[str, str]]) -> Edges:
    """The edges without those that a longer path implies."""
    return {(start, end) for start, end in edges if not _reaches(start, end, edges - {(start, end)})}


def _reaches(start: str, end: str, edges: frozenset[tuple[str, str]]) -> bool:
    seen, queue = set[str](), [start]
    while queue:
        here = queue.pop()
        following = {there for begin, there in edges if begin == here} - seen
        seen |= following
        queue.extend(following)
    return end in seen


@functools.cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("lingon", exclude_type_checking_imports=False, cache_dir=None)
