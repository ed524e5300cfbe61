"""Documents that are ZIP archives, of office programs and books; imports what is in `documents` beside packages."""

from __future__ import annotations

from lingon.documents.office.packages import SUFFIXES, read_archive, suffix_of_archive

__all__ = ["SUFFIXES", "read_archive", "suffix_of_archive"]
