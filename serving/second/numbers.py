"""Numbers of an answer in the form in which its sentence has them. Pure.

Our translations keep a number as it is written, and a large model writes it as its language does: 4,000 as 4.000.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NUMBER = re.compile(r"\d+(?:[.,:'’]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
_THOUSANDS = 3  # digits of each group but the first


def with_numbers_of(answer: str, kept: Iterable[str]) -> str:
    """Return an answer in which a number that is kept is written as it is kept.

    kept: strings of the sentence, each as often as the answer must have it; those that are no numbers do not count
    """
    strings = [each for each in kept if _NUMBER.fullmatch(each)]
    missing = Counter(strings) - Counter(found[0] for found in _NUMBER.finditer(answer))

    def own(found: re.Match[str]) -> str:
        same = next((each for each in missing if missing[each] > 0 and _groups(each) == _groups(found[0])), None)
        if same is None or found[0] in strings:
            return found[0]
        missing[same] -= 1
        return same

    return _NUMBER.sub(own, answer) if missing else answer


def _groups(number: str) -> list[str]:
    """Return the groups of digits of a number; one group if separators make thousands of them."""
    first, *others = re.findall(r"\d+", number)
    is_whole = len(first) <= _THOUSANDS and all(len(each) == _THOUSANDS for each in others)
    return ["".join([first, *others])] if is_whole else [first, *others]
