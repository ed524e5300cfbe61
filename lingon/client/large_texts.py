"""Requests and texts that are too large for the server are sent in halves, whose results become one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from google.rpc import code_pb2

from lingon.client.options import TranslateOptions
from lingon.client.results import Link, MemoryMatch, Sentence, Span, TermOutcome, TextResult, TextWarning, Translation
from lingon.client.steps import Exchange
from lingon.errors import RequestTooLarge, ServerError, TextTooLong
from lingon.segments.boundaries import ends_without_space
from lingon.segments.halves import halves
from lingon.translation.v1 import translation_pb2 as pb

Result = TypeVar("Result")


def ask_in_halves(
    ask: Callable[[int, int, float], Exchange[list[Result]]],
    refused: Callable[[ServerError], Result],
    begin: int,
    end: int,
    deadline: float,
) -> Exchange[list[Result]]:
    """Return the results of items begin to end. A request that is too large is sent as two halves.

    Its message may be too large for gRPC, or its texts may have more sentences or tokens than the server queues.
    """
    try:
        return (yield from ask(begin, end, deadline))
    except ServerError as error:
        queue_refuses = error.reason == RequestTooLarge.reason
        grpc_refuses = (
            error.code == code_pb2.RESOURCE_EXHAUSTED and not error.reason and "larger than max" in str(error)
        )
        if not (queue_refuses or grpc_refuses):
            raise
        if end - begin == 1 and queue_refuses:
            return [refused(error)]
        if end - begin == 1:
            message = _too_large(str(error))
            return [refused(ServerError(message, code_pb2.INVALID_ARGUMENT, reason=TextTooLong.reason))]
    middle = (begin + end) // 2
    first = yield from ask_in_halves(ask, refused, begin, middle, deadline)
    return first + (yield from ask_in_halves(ask, refused, middle, end, deadline))


def _too_large(details: str) -> str:
    """Return the error of one text that no message can hold; details: gRPC's message, which names the side that refused
    it.
    """
    numbers = re.search(r"(CLIENT)?: Received message larger than max \((\d+) vs\. (\d+)\)", details)
    if numbers is None:
        return f"is too large for a message: {details}"
    what, side = ("its result", "this client") if numbers[1] else ("its request", "the server")
    return f"is too large: {what} has {int(numbers[2]):,} bytes, {side} takes {int(numbers[3]):,} at most; split it"


def check_count(results: list[Result], expected: int) -> list[Result]:
    """Return the results. Raises ServerError if their number is not the expected one."""
    if len(results) != expected:
        raise ServerError(f"the server answered {expected} texts with {len(results)} results", code_pb2.INTERNAL)
    return results


_COUNT = re.compile(r"^\d+(?= )|(?<= of )\d+(?= (?:parts|sentences))|(?<=translated in )\d+")  # of a message
_OF = re.compile(r"(?<=\d) of \d+(?= (?:parts|sentences))")
_TRANSLATIONS = re.compile(r"^(\d+) of \d+ translations ")
_BY_PARTS = frozenset(
    (
        "empty",
        "repetition",
        "copy",
        "numbers",
        "unreadable",
        "wrong_language",
        "length_ratio",
        "low_confidence",
        "retried",
    )
)
"""Codes of warnings about the parts of a text that a model translates one by one."""
_SEVERAL = "send it in several"  # how the server ends the message of such a refusal
LARGE = 20_000  # characters; a shorter text that is too long has a sentence that is, and its parts have too

MARKUP = (pb.TEXT_FORMAT_HTML, pb.TEXT_FORMAT_XML)
MISSED = "missed"
WHOLE = ("alternatives", "forced_words")  # options of which one concerns the begin of a text, one a single sentence

AskText = Callable[[str, str], Exchange[TextResult]]
"""Translates a text, whose translation begins with a prefix. An error is in the result."""


Place = TypeVar("Place", Sentence, Link)


def in_halves(
    text: str, prefix: str, result: TextResult, asked: pb.TextOptions, options: TranslateOptions, ask: AskText
) -> Exchange[TextResult]:
    """Return the result of a text, of its halves and of theirs if it was refused for its size.

    result: what the server answered; asked: the options of the request for it
    """
    if not _is_too_large(text, result) or any(options.get(name) for name in WHOLE):
        return result
    both = halves(text, asked, options.get("source") or "")
    if both is None:
        return result
    found = list[TextResult]()
    for half, begin in zip(both, (prefix, ""), strict=True):
        answer = yield from ask(half, begin)
        found.append((yield from in_halves(half, begin, answer, asked, options, ask)))
        if found[-1].error is not None:
            return result
    return joined(both, found, spaces=asked.format not in MARKUP)


def joined(texts: Sequence[str], results: Sequence[TextResult], *, spaces: bool = True) -> TextResult:
    """Return the results of the two parts of a text as one. Spans are those of the whole text and its translation.

    spaces: whether a space may come between them, where the source language needs none
    """
    first, second = results
    spaced = texts[0][-1:].isspace() or texts[1][:1].isspace()
    read = first.normalised_text + " " * (spaced and bool(first.normalised_text and second.normalised_text))
    translations = list[Translation]()
    for one, other in zip(first.translations, second.translations, strict=False):
        written = one.text + " " * (spaces and not spaced and _needs_space(one.text, other.text))
        moved = _moved(other.alignment, len(read), len(written))
        translations.append(
            Translation(
                text=written + other.text,
                score=one.score + other.score,
                finish_reason=one.finish_reason if one.finish_reason != "end" else other.finish_reason,
                tokens=one.tokens + other.tokens,
                alignment=one.alignment + moved,
                missing_words=tuple(word for word in one.missing_words if word in other.missing_words),
            )
        )
    begin = len(translations[0].text) - len(second.translations[0].text) if translations else 0
    confidences = [each for each in (first.confidence, second.confidence) if each is not None]
    return replace(
        first,
        translations=tuple(translations),
        warnings=tuple(_warnings(results)),
        source_tokens=first.source_tokens + second.source_tokens,
        target_tokens=first.target_tokens + second.target_tokens,
        shortlist=first.shortlist or second.shortlist,
        normalised_text=read + second.normalised_text,
        sentences=first.sentences + _moved(second.sentences, len(texts[0]), begin),
        confidence=min(confidences, default=None),
        terms=first.terms + tuple(_moved_term(each, len(texts[0]), begin) for each in second.terms),
        matches=first.matches + tuple(_moved_match(each, len(texts[0])) for each in second.matches),
    )


def _is_too_large(text: str, result: TextResult) -> bool:
    """Return whether a text was refused for its size, which its parts may not be."""
    if result.error is None:
        return False
    reason, said = result.error.reason, str(result.error)
    return reason == RequestTooLarge.reason or (
        reason == TextTooLong.reason and (len(text) > LARGE or _SEVERAL in said)
    )


def _needs_space(before: str, after: str) -> bool:
    """Return whether a space separates two translations whose sources have none between them."""
    apart = before[-1:].isspace() or after[:1].isspace()
    return bool(before and after) and not apart and not ends_without_space(before)


def _moved(positions: Iterable[Place], source: int, target: int) -> tuple[Place, ...]:
    """Return positions in the second part of a text as those in the whole."""
    return tuple(
        replace(
            position,
            source=(position.source[0] + source, position.source[1] + source),
            target=(position.target[0] + target, position.target[1] + target),
        )
        for position in positions
    )


def _moved_term(term: TermOutcome, source: int, target: int) -> TermOutcome:
    """Return what became of a term in the second part of a text, with its places in the whole."""
    found = None if term.target_span is None else _moved_span(term.target_span, target)
    return replace(term, source_span=_moved_span(term.source_span, source), target_span=found)


def _moved_match(match: MemoryMatch, source: int) -> MemoryMatch:
    return replace(match, source_span=_moved_span(match.source_span, source))


def _moved_span(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by


def _warnings(results: Sequence[TextResult]) -> Iterator[TextWarning]:
    """Yield the warnings of the parts, one of each kind. The message says in how many parts of the text it was found.

    That there is nothing to translate is true of the whole if it is of all parts.
    """
    by_code = dict[str, list[str]]()
    for result in results:
        for warning in result.warnings:
            by_code.setdefault(warning.code, []).append(warning.message)
    for code, messages in by_code.items():
        if code == "term_missed":
            yield TextWarning(code, _missed(results, messages))
        elif code != "empty_source" or len(messages) == len(results):
            counting = [_counting(code, message) for message in messages]
            yield TextWarning(code, _summed(counting, complete=len(messages) == len(results)))


def _missed(results: Sequence[TextResult], messages: Sequence[str]) -> str:
    """Return the warning about the terms that a text misses; messages: those about its parts, which name the terms."""
    means = [term.means for result in results for term in result.terms]
    named = ", ".join(message.partition(": ")[2] for message in messages)
    return f"{means.count(MISSED)} of {len(means)} terms are missed: {named}"


def _counting(code: str, message: str) -> str:
    """Return a warning about a text of one sentence as it is written about one of several, so that both can be
    added.
    """
    if message[:1].isdigit():
        return message
    if code == "split":
        return f"1 of 1 sentences are {message}"
    if code == "markup_split":
        return message.replace("the sentence was", "1 of 1 sentences were", 1)
    return f"1 of 1 parts: {message}" if code in _BY_PARTS else message


def _summed(messages: Sequence[str], *, complete: bool) -> str:
    """Return the messages of a warning as one, with the sums of their counts; complete: whether all parts have it."""
    found = [(int(each[1]), each.string) for each in map(_TRANSLATIONS.match, messages) if each is not None]
    if len(found) == len(messages):  # both halves have as many translations
        return max(found)[1]
    if not (complete and all(map(_OF.search, messages))):
        messages = [_OF.sub("", message) for message in messages]
    if len({_COUNT.sub("", message) for message in messages}) > 1:
        return messages[0]
    sums = iter([sum(map(int, counts)) for counts in zip(*map(_COUNT.findall, messages), strict=True)])
    return _COUNT.sub(lambda _: str(next(sums)), messages[0])
