"""Localisation files that are keys and texts; imports what is in `documents` beside packages."""

from __future__ import annotations

from lingon.documents.document import Document
from lingon.documents.localisation.apple_strings import read_apple_strings
from lingon.documents.localisation.catalogues import read_catalogue
from lingon.documents.localisation.json_files import is_json, read_arb, read_json
from lingon.documents.localisation.properties import read_properties
from lingon.documents.localisation.stringsdict import read_stringsdict
from lingon.documents.localisation.tables import read_table

__all__ = [
    "is_json",
    "read_apple_strings",
    "read_arb",
    "read_catalogue",
    "read_fluent",
    "read_json",
    "read_properties",
    "read_stringsdict",
    "read_table",
    "read_yaml",
]


def read_yaml(content: bytes, target: str = "") -> Document:
    """Return a YAML file; see `yaml_files`."""
    from lingon.documents.localisation.yaml_files import read_yaml  # 50 ms, which other files do not need

    return read_yaml(content, target)


def read_fluent(content: bytes, target: str = "") -> Document:
    """Return a Fluent file; see `fluent_files`."""
    from lingon.documents.localisation.fluent_files import read_fluent  # 15 ms, which other files do not need

    return read_fluent(content, target)
