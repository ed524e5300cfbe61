"""What has to be decoded for a text: normalised, measured, tokenised, cut in parts where it is long. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lingon.bundle import Limits
from lingon.errors import EmptyText, InvalidRequest, TextTooLong
from lingon.serving.translation.sentences import WordTooLong, split
from lingon.text import Tokenizer, normalise

CHARACTERS_PER_TOKEN = 16  # the longest piece that sentencepiece learns unless told otherwise
SPARE_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a text that is decoded on its own.

    begin: its place in the normalised text, in code points
    source_ids: ends with EOS
    """

    text: str
    begin: int
    source_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PairPlan:
    """A translation to score, normalised; target_ids without begin and end token."""

    source: str
    target: str
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A text that can be translated: its parts, and the tokens that the first one's translation begins with."""

    parts: tuple[Part, ...]
    prefix: tuple[int, ...] = ()

    @property
    def source_tokens(self) -> int:
        """Over all parts, end tokens included."""
        return sum(len(part.source_ids) for part in self.parts)


def most_characters(tokens: int) -> int:
    """Code points that a text of so many tokens has at most, with room to spare.

    Normalising and tokenising happen on the event loop, and NFC takes time by the square of a run of combining
    marks: 16 000 of them take 70 ms, 128 000 take 19 s. So length is looked at before all else.
    """
    return tokens * CHARACTERS_PER_TOKEN + SPARE_CHARACTERS


def blocks(text: str, size: int) -> Iterator[str]:
    """A text in stretches of about size characters, cut at white space.

    Normalised one by one and joined by spaces they are the normalised text.
    """
    block: list[str] = []
    held = 0
    for word in text.split():
        if block and held + len(word) >= size:
            yield " ".join(block)
            block, held = [], 0
        block.append(word)
        held += len(word) + 1
    yield " ".join(block)


def check_size(text: str, field: str, limits: Limits, *, splits: bool, most: int) -> None:
    """Refuse a raw text whose length alone rules it out.

    most: characters of a text that may be split
    """
    whole = most_characters(limits.max_source_tokens)
    if len(text) <= whole:
        return
    if not splits:
        raise TextTooLong(
            field,
            f"{field} has {len(text)} characters; the model reads {limits.max_source_tokens} tokens at most, which "
            f"{whole} characters exceed; shorten it or set options.long_text to LONG_TEXT_POLICY_SPLIT",
        )
    if len(text) > most:
        raise TextTooLong(field, f"{field} has {len(text)} characters, more than the {most} that the server splits")
    if any(len(word) > whole for word in text.split()):
        raise _word_too_long(field, limits)


def parts_of(text: str, field: str, tokenizer: Tokenizer, limits: Limits, *, splits: bool) -> Iterator[Part]:
    """The parts of a normalised text: itself where the model reads it whole.

    Raises EmptyText and TextTooLong, which name the field.
    """
    if not text:
        raise EmptyText(field, f"{field} is empty")
    longest = most_characters(limits.max_source_tokens)
    if len(text) <= longest:
        ids = tokenizer.encode_source(text)
        if len(ids) <= limits.max_source_tokens:
            yield Part(text, 0, tuple(ids))
            return
        if not splits:
            raise TextTooLong(
                field,
                f"{field} has {len(ids)} tokens, the model reads {limits.max_source_tokens} at most; shorten it or "
                "set options.long_text to LONG_TEXT_POLICY_SPLIT",
            )

    def fits(stretch: str) -> bool:
        return len(stretch) <= longest and len(tokenizer.encode_source(stretch)) <= limits.max_source_tokens

    try:
        for begin, end in split(text, fits):
            yield Part(text[begin:end], begin, tuple(tokenizer.encode_source(text[begin:end])))
    except WordTooLong:
        raise _word_too_long(field, limits) from None


def target_ids(text: str, field: str, tokenizer: Tokenizer, most: int) -> tuple[int, ...]:
    """The tokens of a target text or prefix, at most `most` of them."""
    if len(text) > most_characters(most):
        raise TextTooLong(field, f"{field} has {len(text)} characters, more than {most} target tokens can hold")
    ids = tokenizer.encode_target(normalise(text))
    if len(ids) > most:
        raise TextTooLong(field, f"{field} has {len(ids)} tokens, at most {most} fit")
    return tuple(ids)


def plan_pair(source: str, target: str, field: str, tokenizer: Tokenizer, limits: Limits) -> PairPlan:
    """The tokens of a pair; field is the pair's."""
    check_size(source, f"{field}.source", limits, splits=False, most=0)
    source = normalise(source)
    (part,) = parts_of(source, f"{field}.source", tokenizer, limits, splits=False)
    ids = target_ids(target, f"{field}.target", tokenizer, limits.max_target_tokens - 1)
    if not ids:
        raise EmptyText(f"{field}.target", f"{field}.target is empty")
    return PairPlan(source, normalise(target), part.source_ids, ids)


def max_output(limits: Limits, plan: TextPlan, place: int, asked: int) -> int:
    """Target tokens of part `place` at most, the prefix not counted: what was asked for, within the model's bound."""
    prefix = len(plan.prefix) if place == 0 else 0
    return min(asked, limits.max_output(len(plan.parts[place].source_ids)) - prefix)


def check_prefix(limits: Limits, plan: TextPlan, field: str) -> None:
    """Refuse a prefix that leaves no room for a translation."""
    bound = limits.max_output(len(plan.parts[0].source_ids))
    if len(plan.prefix) >= bound:
        message = f"{field} has {len(plan.prefix)} tokens; the translation of this text has {bound} at most"
        raise InvalidRequest(field, message)


def _word_too_long(field: str, limits: Limits) -> TextTooLong:
    bound = limits.max_source_tokens
    return TextTooLong(field, f"{field} has a single word of more than the {bound} tokens that the model reads at most")
