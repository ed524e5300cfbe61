"""Twins of characters: other ways to write the same, of which a model may know one.

Most are the compatibility forms of Unicode (NFKC). A form that says less than its character is none: m² is not m2, ½ is
not 1/2 after another figure, and ① is a mark that comes back as it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from lingon.text import to_nfc

_PLAIN = {
    **dict.fromkeys("\u2010\u2011\u2012\u2212\ufe58\ufe63", ("-",)),  # hyphens and the minus
    "\u2014": ("\u2013", "-"),
    "\u2015": ("\u2014", "\u2013", "-"),
    **dict.fromkeys("\u2018\u2019\u201b\u02bb\u02bc\u02bd\u02b9\u2032\u2035\u00b4", ("\u2019", "'")),
    "\u201a": ("\u2018", "'"),
    "'": ("\u2019",),
    **dict.fromkeys("\u201c\u201e\u201f\u301d", ("\u201c", '"')),
    **dict.fromkeys("\u201d\u301e\u301f\u2033\u2036\u02ba", ("\u201d", '"')),
    '"': ("\u201d",),
    "\u2044": ("/",),
    "\u2215": ("/",),
    "\u2236": (":",),
    "\u2217": ("*",),
}
"""Twins that Unicode does not name, the best first; the character itself is not read if they are asked for."""

_STRAIGHT = {"\u2032": "'", "\u2033": '"'}  # of feet and inches, minutes and seconds: rather straight than curved
_BY_NEIGHBOURS = frozenset("\u2013`\u00aa\u00ba«»‹›「」『』")  # quotation marks of a pair have others
_SAYS_MORE = ("<super>", "<circle>", "<fraction>")  # kinds of compatibility that lose what the character says
_EXPONENTS = "\u2071\u207f"  # letters that Unicode calls modifiers
_PREPENDED = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2\U000110bd\U000110cd")  # visible formats


def twins_of(unit: str, before: str, after: str) -> Iterator[str]:
    """Yield the twins of a character with its marks, the best first; "" for what is not seen.

    before, after: the characters beside it, or figures after a blank; empty at an end of the text
    """
    seen = "".join(each for each in unit if not is_unseen(each))
    if seen != unit:
        yield seen
    if not seen:
        return
    if seen == "\u2013":  # within a range, or between parts of a sentence
        yield from ("-",) if before.isalnum() and after.isalnum() else ("\u2014", "-")
    if seen == "`" and before.isalpha() and after.isalpha():
        yield from ("'", "\u2019")
    if seen in _STRAIGHT:
        yield _STRAIGHT[seen]
    yield from _PLAIN.get(seen, ())
    if all(_says_the_same(each, before) for each in seen):
        compatible = unicodedata.normalize("NFKC", seen)
        if compatible != to_nfc(seen) and not any(map(str.isspace, compatible)):
            yield compatible
    if seen.isupper():
        yield seen.lower()


def depends_on_neighbours(character: str) -> bool:
    """Whether a character has other twins beside other characters."""
    return character in _BY_NEIGHBOURS


def is_unseen(character: str) -> bool:
    """Whether a character only tells how its neighbours are drawn: joiners, marks of direction, variation selectors."""
    if character < "\u034f":
        return False
    if unicodedata.category(character) == "Cf":
        return character not in _PREPENDED
    return character == "\u034f" or "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def says_more(character: str) -> bool:
    """Whether a character has a compatibility form that says less, which a tokenizer may read in its place."""
    return unicodedata.decomposition(character).startswith("<") and not _says_the_same(character, "a")


def _says_the_same(character: str, before: str) -> bool:
    """Whether the compatibility form of a character loses nothing."""
    kind, *parts = unicodedata.decomposition(character).split() or [""]
    if kind == "<super>" and unicodedata.category(character) == "Lm":
        return character not in _EXPONENTS
    if kind == "<super>" and character in "\u00aa\u00ba":  # as in Nº, but not in 1º
        return before.isalpha()
    if character == "\u2116" or (kind == "<compat>" and unicodedata.category(character) == "No"):
        return False  # № is not No, which is a word besides; ⒈ is a mark as ① is
    if parts[:1] == ["0028"] and len(parts) > 1:  # and so are ⑴ and ⒜
        return False
    if kind in _SAYS_MORE:
        return False
    return not any(unicodedata.decomposition(chr(int(each, 16))).startswith("<super>") for each in parts)
