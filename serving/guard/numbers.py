"""Compares the numbers of a source and of its translation, however each language separates thousands and decimals."""

from __future__ import annotations

import re
from collections import Counter

_THOUSANDS = re.compile(r"(?<=\d)[ .,'’\u00a0\u202f](?=\d{3}(?!\d))")
_DIGITS = re.compile(r"\d++")
LONG = 3  # digits: translations often have shorter numbers as words


def changes_numbers(source: str, target: str) -> bool:
    """Whether a translation has other numbers than its source.

    It lacks a number of the source and has one that the source has not, or this is true of one of them and that number
    has LONG or more digits. A number may be written as words; then it is in one of the two texts only.
    """
    if not _DIGITS.search(source) and not _DIGITS.search(target):
        return False
    wanted, found = _numbers(source), _numbers(target)
    if wanted == found:
        return False
    lost, new = wanted - found, found - wanted
    return bool(lost and new) or any(len(number) >= LONG for number in lost | new)


def _numbers(text: str) -> Counter[str]:
    """The runs of digits without separators of thousands, and how often each occurs; 1.5 and 1,5 are the same two.

    Zeros at the begin do not count: 09:30 is 9:30.
    """
    return Counter(number.lstrip("0") or "0" for number in _DIGITS.findall(_THOUSANDS.sub("", text)))
