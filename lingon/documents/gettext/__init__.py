"""Files of GNU gettext (.po, .pot); imports what is in `documents` beside packages."""

from __future__ import annotations

from lingon.documents.gettext.reading import read_gettext

__all__ = ["read_gettext"]
