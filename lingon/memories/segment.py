"""A segment of a translation memory, its bounds, and what is wrong with one or with a memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lingon.errors import CorpusError, LingonError
from lingon.translation.v1 import translation_pb2 as pb

WHOLLY = "the translation is from a translation memory"
"""The warning about a text all of whose sentences a memory has."""
MOST_SEGMENTS = 1000  # in a request
MOST_TEXT = 10_000  # characters of a source, a target or a neighbour
MOST_ORIGIN = 256  # characters
MOST_CHANGED = 2**63 - 1  # milliseconds since 1970
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class SegmentError(CorpusError):
    """A segment is out of bounds. The message names the segment, the bound and the value.

    number: of the segment among those that were given, from 1
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"segment {number:,}: {message}")
        self.number = number


class DamagedMemory(LingonError):
    """A folder is no translation memory, is not whole, or is in a format that this version does not read."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A text and its translation.

    source, target: at most 10,000 characters each, and not blank
    before, after: the segments around it in its document, at most 10,000 characters each; empty if they are not known
    origin: where it is from, such as a file or a person; at most 256 characters
    changed: milliseconds since 1970, 0 if it is not known
    """

    source: str
    target: str
    before: str = ""
    after: str = ""
    origin: str = ""
    changed: int = 0

    @classmethod
    def of(cls, message: pb.Segment) -> Segment:
        """Return the segment of a message of the API, unchecked."""
        return cls(message.source, message.target, message.before, message.after, message.origin, message.changed)

    def message(self) -> pb.Segment:
        """Return the message of the API. Raises ValueError for what protobuf cannot hold."""
        return pb.Segment(
            source=self.source,
            target=self.target,
            before=self.before,
            after=self.after,
            origin=self.origin,
            changed=self.changed,
        )


def check_segment(segment: Segment, number: int) -> None:
    """Raise SegmentError if a segment is out of bounds; number: among those that are given, from 1."""
    for name in ("source", "target", "before", "after"):
        _check_text(getattr(segment, name), name, MOST_TEXT, number)
    _check_text(segment.origin, "origin", MOST_ORIGIN, number)
    for name in ("source", "target"):
        if not getattr(segment, name).strip():
            raise SegmentError(number, f"the {name} is empty")
    if not 0 <= segment.changed <= MOST_CHANGED:
        raise SegmentError(number, f"the time of its change must be 0 to {MOST_CHANGED}, got {segment.changed}")


def _check_text(text: str, name: str, most: int, number: int) -> None:
    if len(text) > most:
        raise SegmentError(number, f"the {name} has {len(text):,} characters; at most {most:,}")
    if found := _CONTROL.search(text):
        character = f"U+{ord(found[0]):04X}"
        raise SegmentError(number, f"the {name} has the character {character}, which is no text")
