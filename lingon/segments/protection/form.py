"""One row of the table of string forms: what it looks like, what may change in it, and what may stand around it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lingon.segments.protection.spans import Kind

NOTHING = "nothing"
TEXTS = "the texts inside are translated"
WORD = "letters and figures that touch it are kept with it"
ANYTHING = "anything; words that touch it are translated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """A form of strings that a translation keeps.

    name: what it is, or the programs that write it
    kind: of its spans
    examples: complete strings of the form, without what may stand around them
    pattern: finds it in a text, in a time that is linear in the text; None if a reader of its own does
    needs: characters or strings of which a text with the form has one or more; empty if any text may have it
    trims: whether punctuation and closing brackets at its end belong to the sentence
    accepts: whether a span of a text that the pattern finds is of the form; None if all are
    changes: what may change in it
    around: what may stand right beside it
    """

    name: str
    kind: Kind
    examples: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    needs: str | tuple[str, ...] = ""
    trims: bool = False
    accepts: Callable[[str, int, int], bool] | None = None
    changes: str = NOTHING
    around: str = WORD

    def may_be_in(self, text: str) -> bool:
        """Whether a text has one of what the form needs."""
        return not self.needs or any(each in text for each in self.needs)
