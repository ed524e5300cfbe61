"""What is wrong with a translation of a case: strings that are lost or broken, and tags that are in another place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from lingon.bench.tools.quality.arrangements.cases import CLOSING, OPENING, Case, without_tags

Contexts = Mapping[str, Sequence[tuple[bool, ...]]]
"""By the elements that a string is in, the outermost first: for each time, whether each of them is right around it."""


class Fault(StrEnum):
    """The worst that is wrong with a translation."""

    LOST = "lost"  # a string is not as often in the translation as in the text
    BROKEN = "broken"  # a tag is in a string
    MOVED = "moved"  # a string is in other elements, or an element right around it is not
    TAGS = "tags"  # a tag is lost, doubled, or not nested
    MARKS = "marks"  # a quotation mark or bracket is on the other side of a tag


def fault_of(case: Case, translation: str, *, exact: bool = True) -> Fault | None:
    """Return what is wrong with a translation, with tags as the case has them; None if nothing is.

    exact: whether each tag is once in the translation; else a format may be in several parts, blanks have one too, and
        an element without text is left out
    """
    if not exact:
        translation = re.sub(f"([{OPENING}]+)( +)", r"\2\1", re.sub(f"( +)([{CLOSING}]+)", r"\2\1", translation))
    plain, source = without_tags(translation), without_tags(case.text)
    if any(plain.count(string) != source.count(string) for string in case.strings):
        return Fault.LOST
    if not _is_nested(translation):
        return Fault.TAGS
    if exact and Counter(filter(_is_tag, translation)) != Counter(filter(_is_tag, case.text)):
        return Fault.TAGS
    for string in case.strings:
        wanted, found = _contexts(case.text, string), _contexts(translation, string)
        if sum(map(len, wanted.values())) != sum(map(len, found.values())):
            return Fault.BROKEN
        if any(_is_moved(each, found.get(elements, ())) for elements, each in wanted.items()):
            return Fault.MOVED
    return Fault.MARKS if _unbalanced(translation) > _unbalanced(case.text) else None


def _is_tag(character: str) -> bool:
    return character in OPENING or character in CLOSING


def _is_nested(text: str) -> bool:
    opened = list[str]()
    for character in filter(_is_tag, text):
        if character in OPENING:
            opened.append(character)
        elif not opened or OPENING.index(opened.pop()) != CLOSING.index(character):
            return False
    return not opened


def _is_moved(wanted: Sequence[tuple[bool, ...]], found: Sequence[tuple[bool, ...]]) -> bool:
    """Whether a string is not as often in some elements, or fewer of these are right around it."""
    right = [list(map(sum, zip(*each, strict=True))) for each in (wanted, found)]
    return len(wanted) != len(found) or any(after < before for before, after in zip(*right, strict=True))


def _contexts(text: str, string: str) -> Contexts:
    """Return in which elements a string without tags in it is, as often as it is found."""
    contexts: dict[str, list[tuple[bool, ...]]] = {}
    at = text.find(string)
    while at >= 0:
        opened, end = list[int](), at + len(string)
        for place in range(at):
            if text[place] in OPENING:
                opened.append(place)
            elif text[place] in CLOSING:
                opened.pop()
        inside = (
            (text[place + 1 : at].strip(OPENING), text[end : _end(text, place)].strip(CLOSING)) for place in opened
        )
        contexts.setdefault("".join(text[place] for place in opened), []).append(
            tuple(not before and not after for before, after in inside)
        )
        at = text.find(string, at + 1)
    return contexts


def _end(text: str, start: int) -> int:
    """Return where the end tag of an element is; start: of its start tag."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in OPENING) - (text[place] in CLOSING)
        if not depth:
            return place
    return len(text)


def _unbalanced(text: str) -> int:
    """Return how many elements have one mark of a pair of brackets or quotation marks."""
    found = 0
    for start in (place for place, character in enumerate(text) if character in OPENING):
        inside = text[start : _end(text, start)]
        quotes = sum(map(inside.count, '"„“”«»'))
        found += inside.count("(") != inside.count(")") or quotes % 2 == 1
    return found
