"""Numbers of an answer in the form in which its sentence has them. Pure.

Our translations keep a number as it is written, with its sign and its currency, and a large model writes it as its
language does: 4,000 as 4.000, and $1,250.50 as 1.250,50 $.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NUMBER = r"\d+(?:[.,:'’]\d+|[ \u00a0\u202f]\d{3}(?!\d))*"
_DASHES = "-\u2010-\u2015\u2212"
_SIGN = rf"(?<!\w)[+\u00b1{_DASHES}](?=[\w$\u00a2-\u00a5\u20a0-\u20bf])"
_CURRENCY = r"(?<!\w)[A-Z]{0,3}[$\u00a2\u00a3\u00a5\u20a0-\u20bf]"
_AMOUNT = re.compile(
    rf"(?P<sign>{_SIGN})?(?:(?P<before>{_CURRENCY})\s?(?P<inner>[{_DASHES}](?=\d))?)?"
    rf"(?P<numbers>{_NUMBER}(?:\s?[{_DASHES}]\s?{_NUMBER})*)"
    rf"(?:\s?(?P<after>[A-Z]{{0,3}}[$\u00a2\u00a3\u00a5\u20a0-\u20bf](?!\d)|[%\u2030]|\u00b0\s?[CF]?(?!\w)))?"
)
_PLAIN = re.compile(_NUMBER)
_THOUSANDS = 3  # digits of the last group before the decimals
_INDIAN = 2  # digits of each group before that one, but the first, in India


def with_numbers_of(answer: str, kept: Iterable[str]) -> str:
    """Return an answer in which a number that is kept is written as it is kept.

    kept: strings of the sentence, each as often as the answer must have it; those that are no numbers do not count
    """
    wanted = {each: _Amount.of(found) for each in kept if (found := _AMOUNT.fullmatch(each)) is not None}
    strings = [each for each in kept if each in wanted]
    missing = Counter(strings) - Counter(_written(answer, wanted))
    if not missing:
        return answer

    def own(text: str, amount: _Amount) -> str:
        if text in wanted:
            return text
        same = next((each for each, count in missing.items() if count > 0 and wanted[each] == amount), text)
        if same in missing:
            missing[same] -= 1
        return same

    def replaced(found: re.Match[str]) -> str:
        whole = own(found[0], _Amount.of(found))
        if whole != found[0] or found[0] in wanted:
            return whole
        begin, end = (place - found.start() for place in found.span("numbers"))
        numbers = _PLAIN.sub(lambda each: own(each[0], _Amount.of_number(each[0])), found["numbers"])
        return found[0][:begin] + numbers + found[0][end:]

    return _AMOUNT.sub(replaced, answer)


def _written(answer: str, wanted: Iterable[str]) -> Iterator[str]:
    """Yield the amounts of an answer, or the numbers of one that is not wanted as a whole."""
    for found in _AMOUNT.finditer(answer):
        if found[0] in wanted:
            yield found[0]
        else:
            yield from _PLAIN.findall(found["numbers"])


class _Amount(NamedTuple):
    """What two forms of an amount have in common.

    unit: its currency or another unit, wherever it is; values: of a number, or of several with dashes between them
    """

    sign: str
    unit: str
    values: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, found: re.Match[str]) -> _Amount:
        """Return the amount of a match of _AMOUNT."""
        sign = found["sign"] or found["inner"] or ""
        unit = f"{found['before'] or ''}{found['after'] or ''}".replace(" ", "")
        values = tuple(map(_value, _PLAIN.findall(found["numbers"])))
        return cls("-" if sign and sign not in "+\u00b1" else sign, unit, values)

    @classmethod
    def of_number(cls, text: str) -> _Amount:
        """Return the amount of a number without sign and unit."""
        return cls("", "", (_value(text),))


def _value(number: str) -> tuple[str, ...]:
    """Return the groups of digits of a number. Those between which separators make thousands are one group."""
    first, *others = re.findall(r"\d+", number)
    separators = re.findall(r"\D", number)
    if len(set(separators)) == 2 == len(set(separators[:-1])) + 1:  # the last one is that of the decimals
        *thousands, decimals = others
        return ("".join([first, *thousands]), decimals)
    sizes = [len(each) for each in others]
    is_whole = len(first) <= _THOUSANDS and all(size == _THOUSANDS for size in sizes)
    is_indian = len(first) <= _INDIAN and sizes[-1:] == [_THOUSANDS] and set(sizes[:-1]) <= {_INDIAN}
    return ("".join([first, *others]),) if is_whole or is_indian else (first, *others)
