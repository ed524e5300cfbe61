"""How long a translation may be, as XLIFF says it.

Version 1.2 has `maxwidth`, of which characters and bytes can be counted and pixels cannot, and `maxbytes`. Version 2
has the module for restrictions of size, of which the profiles of the standard count code points and bytes of UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

_CHARACTERS = frozenset(["char", "glyph"])  # values of size-unit; without one it is pixel
NO_BOUND = -1


@dataclass(frozen=True, slots=True)
class Limit:
    """The most characters and bytes of a text; NO_BOUND: any number."""

    characters: int = NO_BOUND
    bytes: int = NO_BOUND

    def passed_by(self, text: str) -> str:
        """Return what passes the limit, in words; empty if nothing does."""
        size = len(text.encode(errors="surrogatepass"))
        if NO_BOUND < self.characters < len(text):
            return f"{len(text):,} characters, at most {self.characters:,}"
        return f"{size:,} bytes, at most {self.bytes:,}" if NO_BOUND < self.bytes < size else ""


NO_LIMIT = Limit()


def limit_of(attributes: Mapping[str, str], around: Limit) -> Limit:
    """Return the limit of an element with these attributes; around: that of the element around it."""
    found = around
    width, unit = _number(attributes.get("maxwidth", "")), attributes.get("size-unit", "pixel")
    if width != NO_BOUND and unit in _CHARACTERS:
        found = replace(found, characters=width)
    if width != NO_BOUND and unit == "byte":
        found = replace(found, bytes=width)
    if (size := _number(attributes.get("maxbytes", ""))) != NO_BOUND:
        found = replace(found, bytes=size)
    if (size := _number(attributes.get("slr:sizeRestriction", "").rpartition(",")[2])) != NO_BOUND:
        found = replace(found, characters=size)
    if (size := _number(attributes.get("slr:storageRestriction", "").rpartition(",")[2])) != NO_BOUND:
        found = replace(found, bytes=size)
    return found


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else NO_BOUND


def note_of_limits(passed: Sequence[str]) -> list[str]:
    """Return the line about translations that are too long; passed: what each has, in words."""
    if not passed:
        return []
    count = "1 translation is" if len(passed) == 1 else f"{len(passed):,} translations are"
    return [f"{count} longer than the file allows, and marked in it: {passed[0]}"]
