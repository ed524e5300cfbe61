"""Keys of menus in texts of programs: the sign & before a letter, as in `&Open`, which the program underlines.

The text is translated without the sign. In the translation it comes before the same letter, if that begins a word or is
in one, else before the first letter that begins a word. A translation without letters of the Latin, Greek or Cyrillic
script gets the key in brackets at its end, as programs in Chinese, Japanese and Korean have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from lingon.documents.inline import Around, Node, Piece, pieces
from lingon.documents.marks import TAG

_KEY = re.compile(r"(?<!&)&(?=[^\W_])(?!#|[A-Za-z]\w{1,10};)")
_BETWEEN_CAPITALS = re.compile(r"[A-Z]&[A-Z]")  # no key, as in R&D
_LETTER = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u04ff]")
_TAIL = re.compile(r"(?:\.\.\.|\u2026|[:\uff1a])?+\s*+\Z")
TAIL_CHARACTERS = 16  # in which the end of a text is looked for
_FILLED_IN = re.compile(  # by a program, and addresses: their letters are no places for a key
    r"%L?\d{0,2}[A-Za-z]?|\{[^{}]{0,100}+\}|\$\w{1,50}+|&\w{1,10};|https?://\S++|<[^<>]{0,1000}+>|\S{0,64}@\S{0,64}"
)


def without_key(text: str) -> tuple[str, str]:
    """Return a text without its key, and the key; empty if the text has none, or several."""
    plain = TAG.sub(_masked, text)
    found = [each for each in _KEY.finditer(plain) if not _BETWEEN_CAPITALS.match(plain, max(each.start() - 1, 0))]
    if len(found) != 1:
        return text, ""
    at = found[0].start()
    return text[:at] + text[at + 1 :], text[at + 1]


def _masked(found: re.Match[str]) -> str:
    """Return as many characters as were found, none of which is a letter or the sign of a key."""
    return "\0" * len(found[0])


def with_key(nodes: Sequence[Node[bytes]], key: str) -> list[Node[bytes]]:
    """Return the nodes of a translation with a key of the text; key: empty if the text has none."""
    texts = [each.text for each in pieces(nodes)]
    if not key or not texts:
        return list(nodes)
    number, text = _marked(texts, key)
    count = 0

    def marked(node: Node[bytes]) -> Node[bytes]:
        nonlocal count
        if isinstance(node, Around):
            return replace(node, nodes=[marked(each) for each in node.nodes])
        if isinstance(node, Piece):
            count += 1
            return replace(node, text=text) if count - 1 == number else node
        return node

    return [marked(node) for node in nodes]


def _marked(texts: Sequence[str], key: str) -> tuple[int, str]:
    """Return the number of the text with the key, and that text."""
    best: tuple[int, int, int] | None = None
    for number, text in enumerate(texts):
        plain = _FILLED_IN.sub(_masked, text)
        for found in _LETTER.finditer(plain):
            begins = not plain[max(found.start() - 1, 0) : found.start()].isalnum()
            same = found[0].lower() == key.lower()
            if same or begins:
                rank = (0 if same and begins else 1 if same else 2, number, found.start())
                best = min(best or rank, rank)
    if best is None:
        last = len(texts) - 1
        begin = max(len(texts[last]) - TAIL_CHARACTERS, 0)
        tail = _TAIL.search(texts[last], begin)
        place = tail.start() if tail else len(texts[last])
        return last, f"{texts[last][:place]}(&{key.upper()}){texts[last][place:]}"
    _, number, place = best
    return number, f"{texts[number][:place]}&{texts[number][place:]}"
