"""Spreadsheets of OpenDocument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lingon.documents.office.parts import OfficePart, Parts
from lingon.documents.office.sheets.named_texts import named_open_texts
from lingon.documents.office.vocabularies import OPEN_OBJECT, OPEN_SPREADSHEET, Vocabulary


def open_workbook(contents: Mapping[str, bytes]) -> Parts:
    """Return the texts of the files of a spreadsheet, by their names; raises UnreadableDocument."""

    def vocabulary(name: str, content: bytes) -> Vocabulary:
        return OPEN_OBJECT if "/" in name else replace(OPEN_SPREADSHEET, named=frozenset(named_open_texts(content)))

    return Parts({name: OfficePart(content, vocabulary(name, content)) for name, content in contents.items()})
