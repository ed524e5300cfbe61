"""Labels in cells of a terminal: wide and combining characters, text from right to left, labels that are too long."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from rich.cells import cell_len

LEFT_TO_RIGHT = "\N{LEFT-TO-RIGHT MARK}"
"""After a word from right to left, so that a terminal that reorders text leaves what follows in its place."""


def is_right_to_left(text: str) -> bool:
    """Whether a text has letters of a script that is written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


def clusters(text: str) -> list[str]:
    """The characters of a text, each with the combining marks after it."""
    found: list[str] = []
    for character in text:
        if found and unicodedata.category(character) in ("Mn", "Me", "Cf"):
            found[-1] += character
        else:
            found.append(character)
    return found


def shortened(text: str, most: int) -> str:
    """A text of at most so many cells, which ends in an ellipsis if it is cut."""
    if cell_len(text) <= most:
        return text
    kept = ""
    for each in clusters(text):
        if cell_len(kept + each) > most - 1:
            break
        kept += each
    return f"{kept}…"


def right_aligned(text: str, cells: int) -> str:
    """A text with spaces before it, so that it takes so many cells."""
    cut = shortened(text, cells)
    mark = LEFT_TO_RIGHT if is_right_to_left(cut) else ""
    return f"{' ' * (cells - cell_len(cut))}{cut}{mark}"


def centred(text: str, cells: int) -> str:
    """A character with spaces around it, so that it takes so many cells."""
    missing = cells - cell_len(text)
    return f"{' ' * (missing // 2)}{text}{' ' * (missing - missing // 2)}"


def upright(labels: list[str], cells: int, most: int) -> Iterator[str]:
    """The lines of a head in which each label runs from top to bottom, over a column of so many cells.

    most: lines; a label with more characters is cut
    """
    columns = [_cut_clusters(label, most) for label in labels]
    height = max(map(len, columns), default=0)
    for line in range(height):
        shown = [column[line - height + len(column)] if line >= height - len(column) else " " for column in columns]
        yield "".join(centred(each, cells) for each in shown).rstrip()


def _cut_clusters(text: str, most: int) -> list[str]:
    found = clusters(text)
    return found if len(found) <= most else [*found[: most - 1], "…"]
