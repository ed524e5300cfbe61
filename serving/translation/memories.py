"""The translation memories of a request, and what keeps them. How they are used is in `matches`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lingon.errors import InvalidRequest, Unsupported
from lingon.memories.adaptation import adapted_matches
from lingon.memories.given import GivenMemory
from lingon.memories.keys import EXACT
from lingon.memories.memory import Match, Segments
from lingon.memories.segment import MOST_SEGMENTS, Segment, SegmentError, check_segment
from lingon.segments.boundaries import Span
from lingon.serving.translation.options import Format, ResolvedOptions
from lingon.text import printable
from lingon.translation.v1 import translation_pb2 as pb

MOST_MEMORIES = 5  # names in a request
MOST_MATCHES = 20  # of a sentence in the reply
LEAST_SCORE = 50
DEFAULT_SCORE = 70


class MemorySources(Protocol):
    """What keeps the translation memories of callers."""

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> Sequence[tuple[str, Segments]]:
        """Return these memories for a pair of languages, BCP-47, in the order of the names.

        caller: the owner; "" for callers without a key or certificate
        A memory of another pair is left out. Raises RequestError for one that the caller lacks.
        """

    def looked_up(self, score: int) -> None:
        """Note that a sentence was looked up, on any thread; score: of its best match, 0 without one."""


class NoMemorySources:
    """Keeps no memories."""

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> Sequence[tuple[str, Segments]]:
        raise Unsupported(f"memory.memories: none are kept here, and the request names {printable(names[0])!r}")

    def looked_up(self, score: int) -> None:
        """Nothing is looked up."""


class FoundMemories:
    """The only memories of a request within this process, of whatever languages."""

    def __init__(
        self, memories: Sequence[tuple[str, Segments]], looked_up: Callable[[int], None] = lambda score: None
    ) -> None:
        self._memories, self.looked_up = memories, looked_up

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> Sequence[tuple[str, Segments]]:
        """See MemorySources."""
        return self._memories


class PlannedMatch(NamedTuple):
    """What a memory has for a sentence.

    span: of the sentence, in the text without markup
    memory: its name
    used: whether the translation of the match is the one of the sentence
    """

    span: Span
    memory: str
    match: Match
    used: bool


@dataclass(frozen=True, slots=True)
class RequestMemories:
    """The memories of a request for one pair of languages, and what is done with their matches.

    memories: with their names; that of the request is first, without a name
    min_score, most: of the matches of a sentence
    takes: whether the translations of exact matches are taken
    guides: whether fuzzy matches guide translations
    key: what tells these memories and options from all others
    looked_up: see `MemorySources`
    """

    memories: Sequence[tuple[str, Segments]] = ()
    min_score: int = DEFAULT_SCORE
    most: int = 1
    takes: bool = True
    guides: bool = False
    key: bytes = b""
    looked_up: Callable[[int], None] = lambda score: None

    def __bool__(self) -> bool:
        return bool(self.memories)

    def find(self, text: str, before: str = "", after: str = "", min_score: int = 0) -> list[tuple[str, Match]]:
        """Return the best matches for a sentence and the names of their memories, the best one first.

        Of equal scores, the match of the memory that is named first is first. Each has the numbers and placeholders of
        the sentence.
        """
        least = max(self.min_score, min_score)
        found = [
            (name, match)
            for name, memory in self.memories
            for match in adapted_matches(memory, text, before, after, min_score=least, most=self.most)
        ]
        return sorted(found, key=lambda each: -each[1].score)[: self.most]


NO_MEMORIES = RequestMemories()


async def request_memories(
    request: pb.TranslateRequest | pb.TranslateStreamRequest,
    options: ResolvedOptions,
    languages: tuple[str, str],
    sources: MemorySources,
    owner: str,
) -> RequestMemories:
    """Return the memories of a request; languages: source and target, BCP-47, as the model names them.

    owner: see `MemorySources.find`
    Raises InvalidRequest for options out of bounds, and RequestError for a memory that the caller does not have.
    """
    asked = request.memory
    if not asked.memories and not asked.segments:
        return NO_MEMORIES
    if options.text.format is Format.PIECES:
        raise InvalidRequest("memory", "memory cannot be used with a text.format of pieces")
    if len(asked.memories) > MOST_MEMORIES:
        count = len(asked.memories)
        raise InvalidRequest("memory.memories", f"memory.memories must be at most {MOST_MEMORIES} names, got {count}")
    min_score = _bounded("min_score", asked, LEAST_SCORE, EXACT, DEFAULT_SCORE)
    most = _bounded("max_matches", asked, 1, MOST_MATCHES, 1)
    found: list[tuple[str, Segments]] = [("", given)] if (given := _given(asked.segments)) else []
    if asked.memories:
        found += await sources.find(owner, list(dict.fromkeys(asked.memories)), *languages)
    searches = not (options.restricts or options.alternatives)
    takes, guides = searches and not asked.always_translate, searches and asked.use_fuzzy
    versions = "\0".join(f"{memory.digest} {name}" for name, memory in found)
    key = f"{min_score} {most} {takes} {guides} {versions}".encode()
    return RequestMemories(found, min_score, most, takes, guides, key, sources.looked_up)


def _given(messages: Sequence[pb.Segment]) -> GivenMemory | None:
    """Return the memory of the segments of a request, or None without any. Raises InvalidRequest."""
    if len(messages) > MOST_SEGMENTS:
        message = f"memory.segments must be at most {MOST_SEGMENTS:,}, got {len(messages):,}"
        raise InvalidRequest("memory.segments", message)
    segments = [Segment.of(each) for each in messages]
    try:
        for number, segment in enumerate(segments, start=1):
            check_segment(segment, number)
    except SegmentError as error:
        raise InvalidRequest(f"memory.segments[{error.number - 1}]", f"memory.segments: {error}") from None
    return GivenMemory(segments) if segments else None


def _bounded(name: str, options: pb.MemoryOptions, least: int, most: int, default: int) -> int:
    value = int(getattr(options, name)) if options.HasField(name) else default  # type: ignore[arg-type]
    if not least <= value <= most:
        raise InvalidRequest(f"memory.{name}", f"memory.{name} must be {least} to {most}, got {value}")
    return value
