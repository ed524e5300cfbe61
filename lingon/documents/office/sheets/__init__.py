"""Spreadsheets; imports the files of `office` that know no kind of archive."""

from __future__ import annotations

from lingon.documents.office.sheets.open_sheets import open_workbook
from lingon.documents.office.sheets.workbooks import FILES, Workbook, tags_of_workbook

__all__ = ["FILES", "Workbook", "open_workbook", "tags_of_workbook"]
