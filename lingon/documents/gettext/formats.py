"""The arguments in messages of programs, by their flags: a translation has those of its message, or it is refused.

What a message must have is what `msgfmt --check-format` demands, and a little more: arguments are compared as they are
written. Where they change places, they get numbers in formats that have these.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PERCENT = re.compile(
    r"%\{\w{1,100}\}|%(?:(?P<number>\d{1,4})\$)?(?:\([^()]{0,200}\)|<(?!PRI)\w{1,100}>)?"
    r"[-+ #0'I,(]{0,9}(?:\*|\d{0,9})(?:\.(?:\*|\d{0,9}))?(?:hh|h|ll|l|L|q|j|z|t|w)?"
    r"(?:[diouxXeEfFgGaAcspnCSm@brBTD%]|<PRI\w{1,16}>)"
)
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]{0,200}\}")
_NUMBERS = re.compile(r"%%|%L?\d{1,2}|%L?n")
_BETWEEN = re.compile(r"%%|%\d{1,2}%|%\|[^|]{1,40}\|")
_VARIABLES = re.compile(r"\$\{\w{1,100}\}|\$\w{1,100}")
_TILDES = re.compile(r"~(?:[-+\d,'#vV:@]{0,20})[A-Za-z%~&*?{}\[\]();^|_/$<>]")


@dataclass(frozen=True, slots=True)
class Format:
    """How a kind of programs writes arguments.

    pattern: of them, and of signs that stand for themselves
    ordered: whether they have their values by their order; numbered: whether they may have numbers instead
    sign: that begins an argument, and is nothing else; empty if it may be text
    """

    pattern: re.Pattern[str]
    ordered: bool = True
    numbered: bool = False
    sign: str = ""


_C, _PYTHON = Format(_PERCENT, numbered=True, sign="%"), Format(_PERCENT, sign="%")
_NAMED = Format(_BRACES, ordered=False)
FORMATS = {
    **dict.fromkeys(("c", "objc", "php", "perl", "ruby", "java-printf", "awk", "tcl", "gcc-internal"), _C),
    **dict.fromkeys(("gfc-internal", "elisp", "librep", "sh-printf"), _C),
    **dict.fromkeys(("python", "lua", "javascript"), _PYTHON),
    **dict.fromkeys(("python-brace", "perl-brace", "java", "csharp", "rust", "d"), _NAMED),
    **dict.fromkeys(("qt", "qt-plural", "kde", "kde-kuit", "ycp", "smalltalk"), Format(_NUMBERS, ordered=False)),
    **dict.fromkeys(("lisp", "scheme", "gimp-scheme"), Format(_TILDES)),
    "boost": Format(_BETWEEN, ordered=False),
    "sh": Format(_VARIABLES, ordered=False),
}
"""Formats by the names of their flags, without "-format"."""

SAME, NUMBERED, REORDERED = range(3)
"""What was done with the arguments of a translation: nothing, they got numbers, or the order of the message."""


def formats_of(flags: Iterable[str]) -> list[Format]:
    """Return the formats that flags name."""
    return [FORMATS[name] for flag in flags if (name := flag.removesuffix("-format")) != flag and name in FORMATS]


def arguments_of(text: str) -> list[str]:
    """Return what may be arguments in a message without flags, sorted."""
    return sorted(
        each[0] for pattern in (_PERCENT, _BRACES) for each in pattern.finditer(text) if _is_argument(each[0])
    )


def fitted(formats: Sequence[Format], message: str, translation: str) -> tuple[str, int] | None:
    """Return a translation with the arguments of its message, and what was done; None if it has others."""
    done = SAME
    for format in formats:
        found = _fitted(format, message, translation)
        if found is None:
            return None
        translation, done = found[0], max(done, found[1])
    return translation, done


def _fitted(format: Format, message: str, translation: str) -> tuple[str, int] | None:
    wanted, found = (list(format.pattern.finditer(text)) for text in (message, translation))
    if format.sign and format.sign in format.pattern.sub("", message):
        return translation, SAME  # the message is none of this format: msgfmt looks no further
    if format.sign and format.sign in format.pattern.sub("", translation):
        return None
    names, others = ([each[0] for each in each_of if _is_argument(each[0])] for each_of in (wanted, found))
    if not format.ordered:
        return (translation, SAME) if set(names) == set(others) else None
    if sorted(names) != sorted(others):
        return None
    if names == others or all(each["number"] or _is_named(each[0]) for each in wanted if _is_argument(each[0])):
        return translation, SAME
    if format.numbered and not any("*" in name for name in names):
        return _with_numbers(format, names, translation), NUMBERED
    order = iter(names)
    return format.pattern.sub(lambda each: next(order) if _is_argument(each[0]) else each[0], translation), REORDERED


def _with_numbers(format: Format, names: Sequence[str], translation: str) -> str:
    """Return a translation whose arguments have the numbers of those of its message."""
    places = defaultdict[str, deque[int]](deque)
    for place, name in enumerate(name for name in names if not name.endswith("m")):  # %m has no value of its own
        places[name].append(place + 1)

    def numbered(argument: re.Match[str]) -> str:
        places_of = places.get(argument[0])
        return f"%{places_of.popleft()}${argument[0][1:]}" if places_of else argument[0]

    return format.pattern.sub(numbered, translation)


def _is_argument(text: str) -> bool:
    return not text.endswith(("%%", "{{", "}}", "~~", "~%"))


def _is_named(text: str) -> bool:
    return text[1:2] in "(<{" and text[:1] == "%"
