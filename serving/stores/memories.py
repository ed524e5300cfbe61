"""The translation memories of a server: stored by owner and name, listed, read, looked up, and removed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lingon.errors import InvalidRequest, StoreFull
from lingon.language_tags import canonical, is_one_language
from lingon.memories.adaptation import adapted_matches
from lingon.memories.building import build
from lingon.memories.keys import EXACT
from lingon.memories.memory import Memory
from lingon.memories.segment import MOST_TEXT, Segment, SegmentError
from lingon.message_batches import batches_of
from lingon.serving.stores.data_dir import DataDir
from lingon.serving.stores.loaded import Loaded, stamp_of
from lingon.serving.stores.memory_file import (
    KIND,
    SUFFIX,
    MemoryHeader,
    folder_name,
    open_memory,
    read_header,
    remove_unnamed,
    write_header,
)
from lingon.serving.stores.messages_file import Spool
from lingon.serving.stores.owners import OwnerFolder, bytes_in, check_name, disk_errors, not_stored
from lingon.serving.stores.store import Store, check_label, next_version
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import translation_pb2

MOST_OPEN = 64  # memories that stay open; one takes no memory but for what was looked up, which processes share
LEAST_SCORE, MIN_SCORE = 50, 70  # lowest that a caller may ask for; default
MOST_MATCHES = 20  # matches for a text

Pair = tuple[str, str]


class MemoryStore(Store[MemoryHeader, pb.Memory]):
    """The memories of all owners."""

    kind, folder, suffix, several = "memory", KIND, SUFFIX, "translation memories"
    message_type = pb.Memory

    def __init__(self, data_dir: DataDir | None, looked_up: Callable[[int], None] = lambda score: None) -> None:
        """looked_up: called for each text that is looked up, with the score of its best match, 0 without one."""
        super().__init__(data_dir)
        self.looked_up = looked_up
        self._opened_memories = None if data_dir is None else Loaded[tuple[MemoryHeader, Memory]](data_dir, MOST_OPEN)

    async def put(
        self, caller: str, header: pb.PutMemoryHeader, parts: AsyncIterator[pb.PutMemoryRequest]
    ) -> pb.Memory:
        """Store segments as a whole, and return the memory.

        parts: yields messages with the segments
        Raises InvalidRequest, AlreadyStored, StoredVersionChanged, StoreFull or DiskFull
        """
        limits, pair = self._opened().limits, _pair(header)
        check_name(header.name, "header.name")
        check_label(header.label)
        append = partial(_append, limits.max_stored_bytes)
        return await self._receive(
            caller, parts, partial(self._check, header, pair), append, partial(self._store, header, pair)
        )

    async def read(self, caller: str, name: str) -> AsyncGenerator[pb.SegmentList, None]:
        """Yield the segments in their order. Raises NotStored or StoredDamaged.

        They are those of one version, even if the memory is changed meanwhile.
        """
        data_dir = self._opened()
        _, memory = await self._open(data_dir.owner(caller), check_name(name, "name"))
        messages = _messages(memory)
        while (message := await data_dir.run(lambda: next(messages, None))) is not None:
            yield message

    async def look_up(self, caller: str, request: pb.LookUpRequest) -> list[pb.MatchList]:
        """Return what a memory has for each of the texts. Raises InvalidRequest, NotStored or StoredDamaged."""
        min_score = request.min_score if request.HasField("min_score") else MIN_SCORE
        most = request.max_matches if request.HasField("max_matches") else 1
        if not LEAST_SCORE <= min_score <= EXACT:
            raise InvalidRequest("min_score", f"min_score must be {LEAST_SCORE} to {EXACT}, got {min_score}")
        if most > MOST_MATCHES:
            raise InvalidRequest("max_matches", f"max_matches must be at most {MOST_MATCHES}, got {most}")
        for index, text in enumerate(request.texts):
            if len(text) > MOST_TEXT:
                message = f"texts[{index}] has {len(text):,} characters; at most {MOST_TEXT:,} are looked up"
                raise InvalidRequest(f"texts[{index}]", message)
        data_dir, name = self._opened(), check_name(request.name, "name")
        _, memory = await self._open(data_dir.owner(caller), name)
        found = list[pb.MatchList]()
        for text in request.texts:  # each by itself, so that others have the threads in between
            found.append(await data_dir.run(partial(_look_up, name, memory, text, min_score, most)))
            self.looked_up(max((match.score for match in found[-1].matches), default=0))
        return found

    async def delete(self, caller: str, name: str) -> None:
        """Remove a memory. Raises NotStored."""
        data_dir = self._opened()
        await data_dir.change(caller, partial(self._remove, data_dir.owner(caller), check_name(name, "name")))

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Memory]]:
        """Return the memories for a translation, in the order of the names, without those of other languages.

        A memory for pt-PT is none for pt-BR, but one for pt, whose translations are taken as they are, is for both.
        A change by any process is seen by the next call. Raises NotStored or StoredDamaged.

        source, target: languages of the translation
        """
        found = list[tuple[str, Memory]]()
        for index, name in enumerate(names):
            check_name(name, f"memory.memories[{index}]")
            header, memory = await self._open(self._opened().owner(caller), name)
            if is_one_language(header.source, source) and is_one_language(header.target, target):
                found.append((name, memory))
        return found

    async def _open(self, owner: OwnerFolder, name: str) -> tuple[MemoryHeader, Memory]:
        """Return a memory and its header. Raises NotStored or StoredDamaged."""
        path = self._path(owner, name)
        stamp = stamp_of(path)
        if stamp is None:
            raise not_stored("memory", name)
        assert self._opened_memories is not None, "there is a folder"
        return await self._opened_memories.get(path, stamp, lambda: (open_memory(path, name), 1))

    def _header(self, path: Path, name: str) -> MemoryHeader:
        return read_header(path, name)

    def _check(self, wanted: pb.PutMemoryHeader, pair: Pair, owner: OwnerFolder) -> MemoryHeader | None:
        """Return the header of the memory that is to be changed, or None for a new one. Raises what refuses it."""
        header = self._before(owner, wanted, self._opened().limits.max_memories)
        if header is not None and (header.source, header.target) != pair:
            raise InvalidRequest(
                "header.target_language_code" if header.source == pair[0] else "header.source_language_code",
                f"memory {wanted.name} is from {header.source} to {header.target}, not from {pair[0]} to {pair[1]}",
            )
        return header

    def _store(self, wanted: pb.PutMemoryHeader, pair: Pair, owner: OwnerFolder, spool: Spool) -> pb.Memory:
        """Store segments that have arrived. Blocks."""
        with owner.changing():
            folder, path = owner.folder(KIND), self._path(owner, wanted.name)
            remove_unnamed(folder)
            before = self._check(wanted, pair, owner)
            base = None if before is None or wanted.replace else open_memory(path, wanted.name)[1]
            header = _next_header(before, wanted, pair)
            try:
                _build(folder / header.folder, spool, base)
                replaced = 0 if before is None else bytes_in(folder / before.folder)
                # The new folder is among those that are counted.
                self._check_bytes(owner, replaced, 0)
                header = replace(header, segments=len(Memory.open(folder / header.folder)))
                write_header(path, header)
            except BaseException:
                shutil.rmtree(folder / header.folder, ignore_errors=True)
                raise
            remove_unnamed(folder)
            return header.message()

    def _removed(self, owner: OwnerFolder) -> None:
        remove_unnamed(owner.folder(KIND))


def _pair(header: pb.PutMemoryHeader) -> Pair:
    """Return the canonical languages of a header. Raises InvalidRequest."""
    return (
        canonical(header.source_language_code, "header.source_language_code"),
        canonical(header.target_language_code, "header.target_language_code"),
    )


def _append(most: int, spool: Spool, part: pb.PutMemoryRequest) -> None:
    """Add segments to those that have arrived. Raises StoreFull or DiskFull; most: bytes of them."""
    with disk_errors():
        spool.append(part)
    if spool.size > most:
        raise StoreFull(f"the segments have more than {most:,} bytes, and the server keeps {most:,} for you")


def _build(folder: Path, spool: Spool, base: Memory | None) -> None:
    """Write the segments that have arrived, after those of another memory. Raises InvalidRequest, which names one."""
    arrived = (Segment.of(each) for part in spool.messages(pb.PutMemoryRequest) for each in part.segments)
    try:
        build(folder, arrived, base=base)
    except SegmentError as error:
        raise InvalidRequest(f"segments[{error.number - 1}]", str(error)) from None


def _next_header(before: MemoryHeader | None, wanted: pb.PutMemoryHeader, pair: Pair) -> MemoryHeader:
    """Return the header of the next version, without the number of its segments."""
    values = next_version(before, wanted.label)
    folder = folder_name(wanted.name, values["version"])
    return MemoryHeader(name=wanted.name, source=pair[0], target=pair[1], segments=0, folder=folder, **values)


def _messages(memory: Memory) -> Iterator[pb.SegmentList]:
    for batch in batches_of(each.message() for each in memory):
        yield pb.SegmentList(segments=batch)


def _look_up(name: str, memory: Memory, text: str, min_score: int, most: int) -> pb.MatchList:
    span = translation_pb2.Span(begin=0, end=len(text))
    found = adapted_matches(memory, text, min_score=min_score, most=most) if most else []
    return pb.MatchList(
        matches=[
            translation_pb2.MemoryMatch(
                memory=name,
                source=each.segment.source,
                target=each.target,
                score=each.score,
                source_span=span,
                origin=each.segment.origin,
            )
            for each in found
        ]
    )
