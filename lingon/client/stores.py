"""What a server keeps for its callers, glossaries and translation memories: the calls of the clients, and results.

A call that changes something is sent once: one whose answer was lost may have been carried out, and a repeated creation
or removal would then fail. Other calls are repeated as translations are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypedDict, TypeVar, Unpack

from lingon.client.calls import AsyncCalls, Blocking
from lingon.client.messages import check_options, memory_match, write_request
from lingon.client.protocol import ClientProtocol
from lingon.client.results import MemoryMatch
from lingon.client.steps import Exchange, Method, Retry
from lingon.errors import ServerError
from lingon.memories.segment import Segment, check_segment
from lingon.message_batches import batches_of
from lingon.terms.term import Term, check_terms
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import translation_pb2

Reply = TypeVar("Reply")

STORE_SECONDS = 600.0  # seconds for a call that sends or reads all of something, by default

_GLOSSARIES = f"/{pb.DESCRIPTOR.services_by_name['GlossaryService'].full_name}"
PUT_GLOSSARY = Method(f"{_GLOSSARIES}/PutGlossary", pb.Glossary.FromString, uploads=True)
GET_GLOSSARY = Method(f"{_GLOSSARIES}/GetGlossary", pb.Glossary.FromString)
LIST_GLOSSARIES = Method(f"{_GLOSSARIES}/ListGlossaries", pb.ListGlossariesResponse.FromString)
READ_GLOSSARY: Method[Any] = Method(f"{_GLOSSARIES}/ReadGlossary", pb.TermList.FromString, streams=True)
_MEMORIES = f"/{pb.DESCRIPTOR.services_by_name['MemoryService'].full_name}"
PUT_MEMORY = Method(f"{_MEMORIES}/PutMemory", pb.Memory.FromString, uploads=True)
GET_MEMORY = Method(f"{_MEMORIES}/GetMemory", pb.Memory.FromString)
LIST_MEMORIES = Method(f"{_MEMORIES}/ListMemories", pb.ListMemoriesResponse.FromString)
READ_MEMORY: Method[Any] = Method(f"{_MEMORIES}/ReadMemory", pb.SegmentList.FromString, streams=True)
LOOK_UP = Method(f"{_MEMORIES}/LookUp", pb.LookUpResponse.FromString)
DELETE_MEMORY = Method(f"{_MEMORIES}/DeleteMemory", pb.DeleteMemoryResponse.FromString)
DELETE_GLOSSARY = Method(f"{_GLOSSARIES}/DeleteGlossary", pb.DeleteGlossaryResponse.FromString)


@dataclass(frozen=True, slots=True)
class StoredDictionary:
    """The terms of a glossary for one pair of languages; source, target: BCP-47; terms: their number."""

    source: str
    target: str
    terms: int


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary at a server, without its terms.

    label: a name for people; version: grows with each change
    created, changed: milliseconds since 1970
    """

    name: str
    label: str
    dictionaries: tuple[StoredDictionary, ...]
    version: int
    created: int
    changed: int

    @classmethod
    def of(cls, message: pb.Glossary) -> StoredGlossary:
        """Return the glossary of a message."""
        dictionaries = tuple(
            StoredDictionary(each.source_language_code, each.target_language_code, each.terms)
            for each in message.dictionaries
        )
        return cls(message.name, message.label, dictionaries, message.version, message.created, message.changed)


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A translation memory at a server, without its segments.

    label: a name for people; source, target: BCP-47; segments: their number; version: grows with each change
    created, changed: milliseconds since 1970
    """

    name: str
    label: str
    source: str
    target: str
    segments: int
    version: int
    created: int
    changed: int

    @classmethod
    def of(cls, message: pb.Memory) -> StoredMemory:
        """Return the memory of a message."""
        return cls(
            message.name,
            message.label,
            message.source_language_code,
            message.target_language_code,
            message.segments,
            message.version,
            message.created,
            message.changed,
        )


class _Languages(TypedDict):
    source: str
    target: str


class PutOptions(_Languages, total=False):
    """The options of both `put_glossary` and `put_memory`."""

    label: str
    create: bool
    expected_version: int
    timeout: float | None


class PutGlossaryOptions(PutOptions, total=False):
    """The options of `Client.put_glossary`."""

    merge: bool


class PutMemoryOptions(PutOptions, total=False):
    """The options of `Client.put_memory`."""

    replace: bool


class Upload(Iterable[Any]):
    """The messages of a call that stores items. They are read once.

    error: what the items have raised. The server then gets a message that it refuses, so that it stores nothing
    """

    def __init__(self, message: Any, field: str, header: Any, items: Iterable[Any]) -> None:
        """message: its kind; field: that of the items in it."""
        self._message, self._field, self._header, self._items = message, field, header, items
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        header: Any = self._header
        try:
            for part in chain(batches_of(self._items), [[]]):
                if part or header is not None:  # without items the header is sent alone
                    yield self._message(header=header, **{self._field: part})
                header = None
        except Exception as error:
            self.error = error
            yield self._message(header=self._header)
            yield self._message(header=self._header)


class StoreProtocol:
    """The exchanges about what a server keeps; see BlockingStores for the calls."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol, self._once = protocol, replace(protocol, retry=Retry(retries=0))

    def put_glossary(self, name: str, terms: Iterable[Term], options: PutGlossaryOptions) -> Exchange[StoredGlossary]:
        """Store terms. Raises TermError, before anything is sent, for terms that contradict each other."""
        header = _header(options, PutGlossaryOptions)
        messages = [term.message() for term in check_terms(terms)]
        written = write_request(pb.PutGlossaryHeader, name=name, **header)
        upload = Upload(pb.PutGlossaryRequest, "terms", written, messages)
        return StoredGlossary.of((yield from self._send(PUT_GLOSSARY, upload, options.get("timeout"))))

    def glossary(self, name: str) -> Exchange[StoredGlossary]:
        """Return a glossary without its terms."""
        request = write_request(pb.GetGlossaryRequest, name=name)
        return StoredGlossary.of((yield from self._protocol.call(GET_GLOSSARY, request)))

    def glossaries(self) -> Exchange[list[StoredGlossary]]:
        """Return all glossaries without their terms."""
        reply = yield from self._protocol.call(LIST_GLOSSARIES, pb.ListGlossariesRequest())
        return [StoredGlossary.of(each) for each in reply.glossaries]

    def read_glossary(self, name: str, source: str, target: str) -> Exchange[Any]:
        """Return the first message with terms, or None, and the iterator of the others."""
        request = write_request(pb.ReadGlossaryRequest, name=name, **_languages(source, target))
        return (yield from self._protocol.call(READ_GLOSSARY, request, STORE_SECONDS))

    def remove_glossary(self, name: str, source: str, target: str) -> Exchange[None]:
        """Remove a glossary, or its terms for one pair of languages."""
        request = write_request(pb.DeleteGlossaryRequest, name=name, **_languages(source, target))
        yield from self._once.call(DELETE_GLOSSARY, request)

    def put_memory(self, name: str, segments: Iterable[Segment], options: PutMemoryOptions) -> Exchange[StoredMemory]:
        """Store segments, which are read while they are sent. Raises SegmentError for one that is out of bounds."""
        written = write_request(pb.PutMemoryHeader, name=name, **_header(options, PutMemoryOptions))
        upload = Upload(pb.PutMemoryRequest, "segments", written, _checked_messages(segments))
        return StoredMemory.of((yield from self._send(PUT_MEMORY, upload, options.get("timeout"))))

    def memory(self, name: str) -> Exchange[StoredMemory]:
        """Return a memory without its segments."""
        request = write_request(pb.GetMemoryRequest, name=name)
        return StoredMemory.of((yield from self._protocol.call(GET_MEMORY, request)))

    def memories(self) -> Exchange[list[StoredMemory]]:
        """Return all memories without their segments."""
        reply = yield from self._protocol.call(LIST_MEMORIES, pb.ListMemoriesRequest())
        return [StoredMemory.of(each) for each in reply.memories]

    def read_memory(self, name: str) -> Exchange[Any]:
        """Return the first message with segments, or None, and the iterator of the others."""
        request = write_request(pb.ReadMemoryRequest, name=name)
        return (yield from self._protocol.call(READ_MEMORY, request, STORE_SECONDS))

    def look_up(
        self, name: str, texts: Sequence[str], min_score: int | None, max_matches: int | None
    ) -> Exchange[list[list[MemoryMatch]]]:
        """Return the matches of each text."""
        request = write_request(pb.LookUpRequest, name=name, texts=texts, min_score=min_score, max_matches=max_matches)
        reply = yield from self._protocol.call(LOOK_UP, request)
        return [[memory_match(match) for match in each.matches] for each in reply.results]

    def remove_memory(self, name: str) -> Exchange[None]:
        """Remove a memory."""
        yield from self._once.call(DELETE_MEMORY, write_request(pb.DeleteMemoryRequest, name=name))

    def _send(self, method: Method[Reply], upload: Upload, timeout: float | None) -> Exchange[Reply]:
        """Send items, and return the reply. Raises what reading the items raises."""
        try:
            return (yield from self._once.call(method, upload, STORE_SECONDS if timeout is None else timeout))
        except ServerError:
            if upload.error is None:
                raise
        raise upload.error


def _checked_messages(segments: Iterable[Segment]) -> Iterator[translation_pb2.Segment]:
    for number, each in enumerate(segments, start=1):
        check_segment(each, number)
        yield each.message()


def _languages(source: str, target: str) -> dict[str, str]:
    return {"source_language_code": source, "target_language_code": target}


class BlockingStores(Blocking):
    """The calls of `Client` about what the server keeps for the caller: its API key, or everyone without keys."""

    @abstractmethod
    def _received(self, rest: Any) -> Iterator[Any]:
        """Yield the other messages of a stream that has begun. Raises ServerError."""

    def put_glossary(self, name: str, terms: Iterable[Term], **options: Unpack[PutGlossaryOptions]) -> StoredGlossary:
        """Store terms for a pair of languages under a name, all or none, and return the glossary.

        Raises TermError for terms that are out of bounds or contradict each other, and ServerError.

        name: 1 to 64 letters, figures and the signs . _ -
        source, target: BCP-47
        label: a name for people; empty, the default, leaves the one that the glossary has
        merge: add the terms to those that are there, in place of those with the same source; default: replace all
        create: fail with ALREADY_EXISTS if there is a glossary of the name
        expected_version: fail with ABORTED if the glossary has another version; 0, the default, for any
        timeout: seconds; None, the default, means STORE_SECONDS
        """
        return self._drive(self._stores.put_glossary(name, terms, options))

    def glossary(self, name: str) -> StoredGlossary:
        """Return a glossary without its terms. Raises ServerError with NOT_FOUND if there is none."""
        return self._drive(self._stores.glossary(name))

    def glossaries(self) -> list[StoredGlossary]:
        """Return all glossaries without their terms, sorted by name."""
        return self._drive(self._stores.glossaries())

    def read_glossary(self, name: str, *, source: str, target: str) -> list[Term]:
        """Return the terms of a glossary for a pair of languages (BCP-47), in the order in which they were stored."""
        first, rest = self._drive(self._stores.read_glossary(name, source, target))
        return [Term.of(term) for part in _all(first, self._received(rest)) for term in part.terms]

    def remove_glossary(self, name: str, *, source: str = "", target: str = "") -> None:
        """Remove a glossary, or only its terms for one pair of languages if both are given."""
        self._drive(self._stores.remove_glossary(name, source, target))

    def put_memory(self, name: str, segments: Iterable[Segment], **options: Unpack[PutMemoryOptions]) -> StoredMemory:
        """Store segments and their translations under a name, all or none, and return the memory.

        Raises SegmentError for a segment that is out of bounds, what `segments` raises, and ServerError.

        name: 1 to 64 letters, figures and the signs . _ -
        segments: read while they are sent, a thousand at once
        source, target: BCP-47; those of a memory do not change
        label: a name for people; empty, the default, leaves the one that the memory has
        replace: replace all segments; default: add them, in place of those with the same source and neighbours
        create: fail with ALREADY_EXISTS if there is a memory of the name
        expected_version: fail with ABORTED if the memory has another version; 0, the default, for any
        timeout: seconds; None, the default, means STORE_SECONDS
        """
        return self._drive(self._stores.put_memory(name, segments, options))

    def memory(self, name: str) -> StoredMemory:
        """Return a memory without its segments. Raises ServerError with NOT_FOUND if there is none."""
        return self._drive(self._stores.memory(name))

    def memories(self) -> list[StoredMemory]:
        """Return all memories without their segments, sorted by name."""
        return self._drive(self._stores.memories())

    def read_memory(self, name: str) -> Iterator[Segment]:
        """Yield the segments of a memory in the order in which they were stored."""
        first, rest = self._drive(self._stores.read_memory(name))
        for part in _all(first, self._received(rest)):
            yield from map(Segment.of, part.segments)

    def look_up(
        self, name: str, texts: Sequence[str], *, min_score: int | None = None, max_matches: int | None = None
    ) -> list[list[MemoryMatch]]:
        """Return what a memory has for each of the texts, each looked up as one segment; the best match first.

        texts: as many as a request takes, see `max_texts` of a server
        min_score: lowest score, 50 to 100, where 100 is an exact match; None means 70
        max_matches: of a text, at most 20; None means 1
        """
        return self._drive(self._stores.look_up(name, texts, min_score, max_matches))

    def remove_memory(self, name: str) -> None:
        """Remove a memory."""
        self._drive(self._stores.remove_memory(name))

    @property
    def _stores(self) -> StoreProtocol:
        return StoreProtocol(self._protocol)


class AsyncStores(AsyncCalls):
    """The calls of `AsyncClient` about what the server keeps for the caller."""

    async def put_glossary(
        self, name: str, terms: Iterable[Term], **options: Unpack[PutGlossaryOptions]
    ) -> StoredGlossary:
        """As `Client.put_glossary`."""
        return await self._drive(self._stores.put_glossary(name, terms, options))

    async def glossary(self, name: str) -> StoredGlossary:
        """As `Client.glossary`."""
        return await self._drive(self._stores.glossary(name))

    async def glossaries(self) -> list[StoredGlossary]:
        """As `Client.glossaries`."""
        return await self._drive(self._stores.glossaries())

    async def read_glossary(self, name: str, *, source: str, target: str) -> list[Term]:
        """As `Client.read_glossary`."""
        first, rest = await self._drive(self._stores.read_glossary(name, source, target))
        return [Term.of(term) async for part in self._all(first, rest) for term in part.terms]

    async def remove_glossary(self, name: str, *, source: str = "", target: str = "") -> None:
        """As `Client.remove_glossary`."""
        await self._drive(self._stores.remove_glossary(name, source, target))

    async def put_memory(
        self, name: str, segments: Iterable[Segment], **options: Unpack[PutMemoryOptions]
    ) -> StoredMemory:
        """As `Client.put_memory`. The segments are read on the event loop."""
        return await self._drive(self._stores.put_memory(name, segments, options))

    async def memory(self, name: str) -> StoredMemory:
        """As `Client.memory`."""
        return await self._drive(self._stores.memory(name))

    async def memories(self) -> list[StoredMemory]:
        """As `Client.memories`."""
        return await self._drive(self._stores.memories())

    async def read_memory(self, name: str) -> AsyncIterator[Segment]:
        """As `Client.read_memory`. Do not await it: `async for segment in client.read_memory(...)`."""
        first, rest = await self._drive(self._stores.read_memory(name))
        async for part in self._all(first, rest):
            for each in part.segments:
                yield Segment.of(each)

    async def look_up(
        self, name: str, texts: Sequence[str], *, min_score: int | None = None, max_matches: int | None = None
    ) -> list[list[MemoryMatch]]:
        """As `Client.look_up`."""
        return await self._drive(self._stores.look_up(name, texts, min_score, max_matches))

    async def remove_memory(self, name: str) -> None:
        """As `Client.remove_memory`."""
        await self._drive(self._stores.remove_memory(name))

    async def _all(self, first: Any, rest: Any) -> AsyncIterator[Any]:
        """Yield all messages of a stream. Raises ServerError."""
        try:
            if first is not None:
                yield first
            with self._server_errors():
                async for message in rest:
                    yield message
        finally:
            rest.cancel()

    @property
    def _stores(self) -> StoreProtocol:
        return StoreProtocol(self._protocol)


def _header(options: PutOptions, known: type) -> dict[str, Any]:
    """Return the fields of a header. Raises TypeError for options that are not known, or without both languages."""
    check_options(options, known)
    rest: dict[str, Any] = {**options}
    rest.pop("timeout", None)
    if "source" not in rest or "target" not in rest:
        raise TypeError("source and target must be given")
    return {**_languages(rest.pop("source"), rest.pop("target")), **rest}


def _all(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    """Yield all messages of a stream."""
    if first is not None:
        yield first
    yield from rest
