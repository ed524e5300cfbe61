"""Files of XML that hold the texts of programs, and the pairs of translators."""

from __future__ import annotations

from lingon.documents.localisation_xml.xliff import read_xliff

__all__ = ["read_xliff"]
