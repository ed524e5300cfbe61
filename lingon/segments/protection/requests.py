"""What the ladder asks its caller for, and what it returns."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias, cast

from lingon.segments.boundaries import Span
from lingon.segments.protection.spans import ProtectedSpan

Link = tuple[Span, Span]


@dataclass(frozen=True, slots=True)
class Translate:
    """Asks for translations of a normalised text, best first: one or more strings that begin with the prefix."""

    text: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Align:
    """Asks for links between two normalised texts: pairs of a source span and a target span, in code points."""

    source: str
    target: str


Request: TypeAlias = Translate | Align
Answer: TypeAlias = Sequence[str] | Sequence[Link]
Output: TypeAlias = tuple[Translate, str]
"""One of the translations that answered a request."""


class Rung(IntEnum):
    """How the protected spans of a sentence came into its translation; a sentence has the last one that it needed."""

    NONE = 0  # there are none, or the model never saw them
    STAND_IN = 1  # the model translated the sentence with words in their place, or with the strings themselves
    PLACED = 2  # a prefix forced a word in the place of one
    SPLIT = 3  # the sentence was split there, and its parts were translated apart


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation with the protected strings in it.

    kept: where they are in the text
    lowered: of a sentence in capitals: how the model read and wrote it
    outputs: what it is made of; an output that was asked for and not used is not among them
    """

    text: str
    kept: tuple[Span, ...] = ()
    rung: Rung = Rung.NONE
    lowered: Lowered | None = None
    outputs: tuple[Output, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A sentence in capitals in lower case, with what is kept of it, and its translation before it was raised."""

    source: str
    spans: Sequence[ProtectedSpan]
    translation: Restored


Steps: TypeAlias = Generator[Request, Answer, Restored]


def translations(request: Translate) -> Generator[Request, Answer, Sequence[str]]:
    """Ask for translations."""
    return cast(Sequence[str], (yield request))


def links(request: Align) -> Generator[Request, Answer, Sequence[Link]]:
    """Ask for links."""
    return cast(Sequence[Link], (yield request))


def joined(*parts: Restored | str) -> Restored:
    """Return parts of a translation as one; a string has nothing that is kept."""
    text, kept, rung, outputs = "", list[Span](), Rung.NONE, list[Output]()
    for part in parts:
        restored = Restored(part) if isinstance(part, str) else part
        kept += [(len(text) + begin, len(text) + end) for begin, end in restored.kept]
        text, rung = text + restored.text, max(rung, restored.rung)
        outputs += restored.outputs
    return Restored(text, tuple(kept), rung, outputs=tuple(outputs))
