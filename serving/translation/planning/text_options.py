"""How the texts of a request are read: where they are split, and what is kept as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lingon.errors import InvalidRequest
from lingon.segments.document import Split
from lingon.translation.v1 import translation_pb2 as pb

MAX_KEEP = 256  # strings; the time to find them in a text is linear in their number
MAX_KEEP_CHARACTERS = 256  # of each

WHOLE = pb.TextOptions(split_sentences=pb.SENTENCE_SPLITTING_OFF, protect=False, lower_capitals=False)
"""The model reads each text as it is."""

_SPLITS = {
    pb.SENTENCE_SPLITTING_UNSPECIFIED: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_ON: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_NONEWLINES: Split.NONEWLINES,
    pb.SENTENCE_SPLITTING_OFF: Split.OFF,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChoice:
    """The options of `TextOptions`, checked and with defaults."""

    sentences: Split = Split.SENTENCES
    return_sentences: bool = False
    keep: tuple[str, ...] = ()
    protect: bool = True
    lower_capitals: bool = True


def text_choice(asked: pb.TextOptions, *, forced: bool) -> TextChoice:
    """Return the options to use; raises InvalidRequest.

    forced: whether translations have forced words, which belong to one sentence and to what the model itself reads
    """
    if asked.split_sentences not in _SPLITS:
        raise InvalidRequest("text.split_sentences", f"text.split_sentences has no value {asked.split_sentences}")
    unset = asked.split_sentences == pb.SENTENCE_SPLITTING_UNSPECIFIED
    if forced and asked.keep:
        raise InvalidRequest("text.keep", "text.keep cannot be used with options.forced_words")
    return TextChoice(
        sentences=Split.OFF if forced and unset else _SPLITS[asked.split_sentences],
        return_sentences=asked.return_sentences,
        keep=_kept(asked.keep),
        protect=not forced and (asked.protect or not asked.HasField("protect")),
        lower_capitals=not forced and (asked.lower_capitals or not asked.HasField("lower_capitals")),
    )


def _kept(strings: Sequence[str]) -> tuple[str, ...]:
    if len(strings) > MAX_KEEP:
        raise InvalidRequest("text.keep", f"text.keep must have at most {MAX_KEEP} strings, got {len(strings)}")
    for place, string in enumerate(strings):
        if not string.strip() or len(string) > MAX_KEEP_CHARACTERS:
            raise InvalidRequest(
                "text.keep",
                f"text.keep[{place}] must have 1 to {MAX_KEEP_CHARACTERS} characters and not only white space, got "
                f"{len(string)}",
            )
    return tuple(strings)
