"""Numbers as people write them: with separators, sign, currency, unit; dates, times, versions, ranges, telephones.

A small number without any of these, such as 12, is a figure: the model translates it, and the ladder looks whether it
is still there. Of 160 sentences with a number of one or two figures `en-de/9` and `en-fr/3` lose the number in 4; of 80
with 1,299.99 and its like they lose it in 34 and 42, with 12.34 in 8 and 4, and with 123 in 5 and 6.
"""

from __future__ import annotations

import re

_SPACES = " \u00a0\u2009\u202f"
_DASHES = "\\-\u2010-\u2015\u2212"
_CURRENCIES = "$\u00a2\u00a3\u00a5\u20a0-\u20bf"
_FRACTIONS = "\u00bc-\u00be\u2150-\u215e"
_RAISED = "\u00b2\u00b3\u00b9\u2070-\u207b"
_LOWERED = "\u2080-\u2089"

_SIGN = (
    rf"(?:(?<![\w+\-])(?:[+{_DASHES}#](?=[\d{_CURRENCIES}.])|[~\u00b1\u2248\u2264\u2265\u00a7\u2116]\s?)"
    r"|(?<=\w\s)[<>]=?\s?(?!\d{1,3}\s?/?>))"  # a < 5, but not <1/>
)
_CURRENCY = rf"(?<!\w)[A-Z]{{0,3}}+[{_CURRENCIES}]\s?(?:-(?=\d))?"
_SEPARATOR = (
    rf"(?:[.,:/'\u2019\u00b7\u00d7x*^+=\u00b0\u2032{_DASHES}]"
    rf"|(?<!\d\d\d\d)[{_SPACES}](?=\d\d\d(?!\d))"  # 1 250 000, but not a year before another number
    r"|T(?=\d\d:)|[eE][+\-\u2212]?)"
)
_POWER = rf"\s?[\u00d7x\u00b7*]\s?10(?:\^?[+\-\u2212]?\d++|[{_RAISED}]++)"
_METRIC = "(?:[kcdm\u00b5\u03bcnMGT]?(?:m|g|l|L|s|h|B|bit|Hz|Pa|J|W|V|A|mol)|mi|ft|in|ha|min|dL)"
_UNIT = (
    rf"\s?(?:\u00b0\s?(?:[CFKNSEWO](?!\w))?|[\u2032\u2033\u2030]|(?<=['\u2032]\d)[\"\u2033]|(?<=['\u2032]\d\d)[\"\u2033]|[{_CURRENCIES}](?!\d)"
    rf"|{_METRIC}(?:[{_RAISED}]++|/{_METRIC}[{_RAISED}]*+)(?!\w)|[\u00b5\u03bc][A-Za-z]{{1,2}}+(?!\w)|[kM]?\u03a9)"
)

_REST = rf"(?:{_POWER})?+(?:{_UNIT})?+(?:Z(?!\w))?+"
_MORE = rf"{_SEPARATOR}?\d|[{_FRACTIONS}{_RAISED}{_LOWERED}]|{_POWER}|{_UNIT}|Z(?!\w)"
_ONLY_FIGURE = rf"(?!0\d)\d{{1,2}}+(?!{_MORE})"  # most numbers of most texts, which cost less if left here

_FIRST = rf"[\d.<>+{_DASHES}#~\u00b1\u2248\u2264\u2265\u00a7\u2116A-Z{_CURRENCIES}{_FRACTIONS}]"

AMOUNT = re.compile(
    rf"(?={_FIRST})(?!{_ONLY_FIGURE})(?:{_SIGN})?+(?:{_CURRENCY})?+(?<!\d)(?<!\d[.,])"
    rf"(?:\d++(?:{_SEPARATOR}\d++)*+[{_FRACTIONS}{_RAISED}{_LOWERED}]*+|[{_FRACTIONS}]|(?<![\w.)\]\"])\.\d++){_REST}"
)
PHONE = re.compile(rf"(?:\+\d{{1,3}}+|\(\+?\d{{1,5}}+\))(?:[{_SPACES}.\-/]?\(?\d{{1,8}}+\)?){{1,8}}+")
FIGURE = re.compile(r"(?<!\w)(?<!\d[.,:])\d{1,2}+(?!\w|[.,:/]\d)")
"""A number that the model may translate, and that is looked for in its translation."""
DIGIT = re.compile(rf"[\d{_FRACTIONS}]")
"""What every number has."""
LONGEST_PREFIX = 12  # characters of a sign and a currency, with blanks, before the first digit
LONGEST_SUFFIX = 32  # characters of a unit, with blanks, after the last digit; only its raised figures may be more
NEAR_DIGITS = re.compile(rf"{DIGIT.pattern}(?:[^\d{_FRACTIONS}]{{0,{LONGEST_PREFIX}}}+{DIGIT.pattern}){{0,1000}}+")
"""Digits of which the prefix of none may hold one of another: 1,000 at most, so that a search in them is short."""


def is_amount(text: str, begin: int, end: int) -> bool:
    """Whether what AMOUNT finds is more than a figure, and no part of a word such as 3D or 100th."""
    number = text[begin:end]
    if len(number) > 3 or not number.isdecimal():
        return True
    if len(number) == 1:
        return False
    touches = text[end : end + 1].isalpha() or (begin > 0 and text[begin - 1].isalpha())
    return not touches and (len(number) == 3 or number[0] == "0")
