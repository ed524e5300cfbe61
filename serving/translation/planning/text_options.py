"""How the texts of a request are read: where they are split, and what is kept as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from lingon.errors import InvalidRequest, SettingsError
from lingon.segments.document import Split
from lingon.segments.markup.rules import NO_RULES, MarkupRules
from lingon.segments.protection.strings import NO_STRINGS, KeptStrings
from lingon.translation.v1 import translation_pb2 as pb

MAX_KEEP = 256  # strings
MAX_TAGS = 256  # names in each list of elements
MAX_KEEP_CHARACTERS = 256  # of each string to keep, and of each name

Policy: TypeAlias = pb.GuardPolicy.ValueType

WHOLE = pb.TextOptions(
    split_sentences=pb.SENTENCE_SPLITTING_OFF, protect=False, lower_capitals=False, guard=pb.GUARD_POLICY_OFF
)
"""The model reads each text as it is, and what it writes is the translation."""

_NOT_IN_NAMES = re.compile(r"[\s\"'<>/=]")

_SPLITS = {
    pb.SENTENCE_SPLITTING_ON: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_NONEWLINES: Split.NONEWLINES,
    pb.SENTENCE_SPLITTING_OFF: Split.OFF,
}


class Format(Enum):
    """How a text is written."""

    PLAIN = pb.TEXT_FORMAT_PLAIN
    HTML = pb.TEXT_FORMAT_HTML
    XML = pb.TEXT_FORMAT_XML
    PIECES = pb.TEXT_FORMAT_PIECES

    @property
    def is_markup(self) -> bool:
        """Whether texts have tags."""
        return self in (Format.HTML, Format.XML)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChoice:
    """The options of `TextOptions`, checked and with defaults.

    twins: whether the model reads twins of characters that it lacks
    """

    format: Format = Format.PLAIN
    rules: MarkupRules = NO_RULES
    sentences: Split = Split.SENTENCES
    return_sentences: bool = False
    keep: KeptStrings = NO_STRINGS
    protect: bool = True
    lower_capitals: bool = True
    twins: bool = True
    guard: Policy = pb.GUARD_POLICY_WARN
    localise_numbers: bool = False


def text_choice(
    asked: pb.TextOptions, *, forced: bool, greedy: bool, forbidden: Sequence[str] = (), conflict: str = ""
) -> TextChoice:
    """Return the options to use; raises InvalidRequest.

    forbidden: words that translations must not have; in lower case the model would not know them
    forced: whether translations have forced words, which belong to one sentence and to what the model itself reads
    greedy: whether the search is greedy
    conflict: the option with which no sentence is translated once more; empty without one
    """
    written = format_of(asked.format, "text.format")
    if forced and asked.keep:
        raise InvalidRequest("text.keep", "text.keep cannot be used with options.forced_words")
    for word in forbidden:
        if any(word in kept for kept in asked.keep):
            raise InvalidRequest("text.keep", f"text.keep has a string with the forbidden word {word!r}")
    if forced and written is not Format.PLAIN:
        raise InvalidRequest("text.format", "text.format must be plain with options.forced_words")
    if written is Format.PIECES:
        return _for_pieces(asked)
    if asked.localise_numbers and (forced or (asked.HasField("protect") and not asked.protect)):
        reason = "options.forced_words" if forced else "text.protect set to false"
        raise InvalidRequest("text.localise_numbers", f"text.localise_numbers cannot be used with {reason}")
    return TextChoice(
        format=written,
        rules=_markup_rules(asked, written),
        sentences=_splitting(asked, written, forced=forced),
        return_sentences=asked.return_sentences,
        keep=KeptStrings(_strings(asked.keep, "text.keep", MAX_KEEP)),
        protect=not forced and (asked.protect or not asked.HasField("protect")),
        lower_capitals=not (forced or forbidden) and (asked.lower_capitals or not asked.HasField("lower_capitals")),
        twins=asked.protect
        or asked.lower_capitals
        or not (asked.HasField("protect") and asked.HasField("lower_capitals")),
        guard=_policy(asked.guard, conflict, greedy=greedy),
        localise_numbers=asked.localise_numbers,
    )


def _for_pieces(asked: pb.TextOptions) -> TextChoice:
    """Return the options of texts in pieces; raises InvalidRequest for those that need text."""
    needless = {
        "keep": bool(asked.keep),
        "protect": asked.protect,
        "lower_capitals": asked.lower_capitals,
        "localise_numbers": asked.localise_numbers,
        "split_sentences": asked.split_sentences not in (pb.SENTENCE_SPLITTING_UNSPECIFIED, pb.SENTENCE_SPLITTING_OFF),
        "guard": asked.guard not in (pb.GUARD_POLICY_UNSPECIFIED, pb.GUARD_POLICY_OFF),
    }
    for name, given in needless.items():
        if given:
            raise InvalidRequest(f"text.{name}", f"text.{name} must be unset or off with texts in pieces")
    return TextChoice(
        format=Format.PIECES,
        rules=_markup_rules(asked, Format.PIECES),
        sentences=Split.OFF,
        return_sentences=asked.return_sentences,
        protect=False,
        lower_capitals=False,
        guard=pb.GUARD_POLICY_OFF,
    )


def _policy(asked: Policy, conflict: str, *, greedy: bool) -> Policy:
    if asked not in pb.GuardPolicy.values():
        raise InvalidRequest("text.guard", f"text.guard has no value {asked}")
    if asked == pb.GUARD_POLICY_UNSPECIFIED:
        return pb.GUARD_POLICY_RETRY if greedy and not conflict else pb.GUARD_POLICY_WARN
    if asked == pb.GUARD_POLICY_RETRY and conflict:
        raise InvalidRequest("text.guard", f"text.guard must not be GUARD_POLICY_RETRY with {conflict}")
    return asked


def format_of(asked: pb.TextFormat.ValueType, field: str) -> Format:
    """Return how texts are written; raises InvalidRequest, which names the field, for a value that is none."""
    try:
        return Format(asked or pb.TEXT_FORMAT_PLAIN)
    except ValueError:
        raise InvalidRequest(field, f"{field} has no value {asked}") from None


def _splitting(asked: pb.TextOptions, written: Format, *, forced: bool) -> Split:
    if asked.split_sentences == pb.SENTENCE_SPLITTING_UNSPECIFIED:
        if forced:
            return Split.OFF
        return Split.NONEWLINES if written.is_markup else Split.SENTENCES
    if asked.split_sentences not in _SPLITS:
        raise InvalidRequest("text.split_sentences", f"text.split_sentences has no value {asked.split_sentences}")
    return _SPLITS[asked.split_sentences]


def _markup_rules(asked: pb.TextOptions, written: Format) -> MarkupRules:
    names = ("ignore_tags", "splitting_tags", "non_splitting_tags", "translate_attributes")
    lists = {name: getattr(asked, name) for name in names}
    for name, tags in lists.items():
        if tags and not written.is_markup:
            raise InvalidRequest(f"text.{name}", f"text.{name} needs a text.format with markup, HTML or XML")
        _strings(tags, f"text.{name}", MAX_TAGS)
    for place, name in enumerate(asked.translate_attributes):
        if found := _NOT_IN_NAMES.search(name):
            field = f"text.translate_attributes[{place}]"
            raise InvalidRequest(field, f"{field} must be the name of an attribute, which has no {found[0]!r}")
    try:
        rules = MarkupRules.of(*lists.values())
        return rules.lowered() if written is Format.HTML else rules
    except SettingsError as error:
        raise InvalidRequest("text.splitting_tags", f"text: {error}") from None


def _strings(strings: Sequence[str], field: str, most: int) -> tuple[str, ...]:
    """Return the strings of a list; raises InvalidRequest."""
    if len(strings) > most:
        raise InvalidRequest(field, f"{field} must have at most {most} strings, got {len(strings)}")
    for place, string in enumerate(strings):
        if not string.strip() or len(string) > MAX_KEEP_CHARACTERS:
            raise InvalidRequest(
                field,
                f"{field}[{place}] must have 1 to {MAX_KEEP_CHARACTERS} characters and not only white space, got "
                f"{len(string)}",
            )
    return tuple(strings)
