"""Names of elements of HTML."""

from __future__ import annotations

_VOID = """
    area base basefont bgsound br col command embed frame hr img input keygen link meta param source track wbr
"""
VOID = frozenset(_VOID.split())
"""Elements without content and without an end tag."""
