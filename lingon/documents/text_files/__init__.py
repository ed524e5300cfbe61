"""Documents that are files of text; imports what is in `documents` beside packages."""

from __future__ import annotations

from lingon.documents.text_files.plain import charset_of, read_page, read_text
from lingon.documents.text_files.substation import read_substation
from lingon.documents.text_files.subtitles import read_subtitles

__all__ = [
    "charset_of",
    "read_page",
    "read_substation",
    "read_subtitles",
    "read_text",
]
