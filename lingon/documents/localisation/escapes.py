"""Escapes with a backslash, as files of Java and of Apple write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_SURROGATES = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
BEYOND = re.compile(r"[^\x00-\x7f]")


def joined(text: str) -> str:
    """Return a text in which two halves of a character, which two escapes have written, are that character."""
    if _SURROGATES.search(text) is None:
        return text
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


def as_escapes(character: str, letter: str = "u", *, big: bool = False) -> str:
    """Return the escapes of a character, one for each of its units of UTF-16; big: with big figures."""
    units = character.encode("utf-16-be")
    codes = (units[place : place + 2].hex() for place in range(0, len(units), 2))
    return "".join(f"\\{letter}{code.upper() if big else code}" for code in codes)


def needless(literal: str, escape: re.Pattern[str]) -> dict[str, str]:
    """Return the ASCII signs that a literal escapes, each with its escape; letters, figures and blanks are none.

    escape: finds an escape that stands for the character behind its backslash
    """
    signs = {found[0][1:]: found[0] for found in escape.finditer(literal)}
    return {sign: written for sign, written in signs.items() if len(sign) == 1 and sign.isascii() and _is_sign(sign)}


def _is_sign(character: str) -> bool:
    return character.isprintable() and not character.isalnum() and character != " "


def escaping(signs: Mapping[str, str]) -> Callable[[str], str]:
    """Return what writes a text with the escapes of these characters."""
    pattern = re.compile(f"[{re.escape(''.join(signs))}]")
    return lambda text: pattern.sub(lambda found: signs[found[0]], text)
