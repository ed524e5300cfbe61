"""Numbers with the separators of one language, written with those of another; their figures stay."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_SPACES = " \u00a0\u2009\u202f"


@dataclass(frozen=True)
class Separators:
    """What a language writes between thousands, and before decimals: one character each."""

    group: str
    decimal: str


@dataclass(frozen=True)
class Custom:
    """How numbers of one language are written in another.

    What is no single number in groups of three figures or with decimals stays as it is: dates, times, versions.
    """

    source: Separators
    target: Separators

    def written(self, text: str) -> str:
        """Return a text, which has only numbers, with the separators of the target language."""
        return self._number.sub(self._changed, text)

    def _changed(self, found: re.Match[str]) -> str:
        whole, decimals = found["whole"], found["decimals"]
        groups = re.split(r"\D", whole)
        return self.target.group.join(groups) + (self.target.decimal + decimals if decimals else "")

    @cached_property
    def _number(self) -> re.Pattern[str]:
        groups = re.escape(self.source.group) + (_SPACES if self.source.group in _SPACES else "")
        decimal = re.escape(self.source.decimal)
        return re.compile(
            rf"(?<![\w.,:/'\u2019\-\u2010\u2011])(?P<whole>\d{{1,3}}+(?P<group>[{groups}])\d\d\d(?:(?P=group)\d\d\d)*+|\d++)"
            rf"(?:{decimal}(?P<decimals>\d++))?+(?![.,:/'\u2019]?\d|[\-\u2010\u2011]\d)"
        )
