"""Lists within a line, such as "Home > Products" and "About us | Contact", cut at the signs between the texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.layout.marks import BLANKS

LONGEST = 4000  # characters of a list
MOST_WORDS = 4  # of a text between two signs that may also be part of a sentence
MOST_CHARACTERS = 48  # of such a text
LEAST_OF_LOWER = 3  # texts that make a list if they begin with small letters: "size > limit" is a comparison

_STRONG = "|¦‖›❯•"  # signs that no sentence has
_WEAK = ">»·∙・/→⇒"
SEPARATORS = f"{_STRONG}{_WEAK}"
_SIGN = re.compile(rf"(?:(?<=[{BLANKS}])|\A)([{_STRONG}]{{1,2}}+|[{_WEAK}]{{1,2}}+)(?=[{BLANKS}]|\Z)")
_OPENING, _CLOSING = re.compile(r"[(\[{]"), re.compile(r"[)\]}]")
_END_MARKS = ".!?,;:…。！？،؟।"
_LONG_WORD = re.compile(r"[^\W\d_]{3,}+")


def crumbs(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the texts of a list within a span, or the span itself if it is none."""
    signs = list(_SIGN.finditer(text, begin, end)) if end - begin <= LONGEST else []
    if not signs:
        yield begin, end
        return
    strong = [sign.span() for sign in signs if sign[1][0] in _STRONG]
    place = 0
    for first, last in _between(text, begin, end, _outside_brackets(text, begin, strong)):
        own = list[re.Match[str]]()
        while place < len(signs) and signs[place].start() < last:
            if signs[place].start() >= first and signs[place][1][0] not in _STRONG:
                own.append(signs[place])
            place += 1
        parts = list(_between(text, first, last, [sign.span() for sign in own]))
        yield from parts if own and _is_list(text, parts, {sign[1] for sign in own}) else ((first, last),)


def _between(text: str, begin: int, end: int, signs: list[Span]) -> Iterator[Span]:
    """Yield what is between signs, without the blanks around it, unless it is blank."""
    for first, last in zip([begin, *(sign[1] for sign in signs)], [*(sign[0] for sign in signs), end], strict=True):
        first = next_visible(text, first, last)
        if first < last:
            yield first, trimmed_end(text, first, last)


def _outside_brackets(text: str, begin: int, signs: list[Span]) -> list[Span]:
    """Return the signs that are not within brackets, as one of P(A | B) is."""
    found, depth, at = list[Span](), 0, begin
    for sign in signs:
        depth += len(_OPENING.findall(text, at, sign[0])) - len(_CLOSING.findall(text, at, sign[0]))
        at = sign[1]
        if depth <= 0:
            found.append(sign)
    return found


def _is_list(text: str, parts: list[Span], signs: set[str]) -> bool:
    """Whether these signs separate the texts of a list, and are no part of a sentence or a comparison."""
    if len(parts) < 2 or len(signs) > 1 or "«" in text[parts[0][0] : parts[-1][1]]:
        return False
    texts = [text[first : min(last, first + MOST_CHARACTERS + 1)] for first, last in parts]
    if any(len(each) > MOST_CHARACTERS or len(each.split()) > MOST_WORDS for each in texts):
        return False
    if any(each[-1] in _END_MARKS or not any(map(str.isalpha, each)) for each in texts):
        return False
    begins_high = all(each[0].isalpha() and not each[0].islower() for each in texts)
    are_words = all(_LONG_WORD.search(each) and not each[0].isdecimal() for each in texts)
    return begins_high or (are_words and (len(parts) >= LEAST_OF_LOWER or min(signs) in "·∙・"))
