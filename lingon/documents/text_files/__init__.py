"""Documents that are files of text; imports what is in `documents` beside packages."""

from __future__ import annotations

from lingon.documents.text_files.gettext import read_gettext
from lingon.documents.text_files.plain import read_page, read_text
from lingon.documents.text_files.subtitles import read_subtitles

__all__ = [
    "read_gettext",
    "read_page",
    "read_subtitles",
    "read_text",
]
