"""Processes that read and write documents: as many as there are places, which callers get in turn."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from lingon.documents.process import COUNT, DONE, FAILED, OUT_OF_MEMORY, READ, SIZE, STAYS, WRITE, packed
from lingon.errors import LingonError
from lingon.gateway.requests.problem import Problem
from lingon.translation.v1 import translation_pb2 as pb

PIECE_BYTES = 65_536  # of a message, after which the process has to read before more is sent
RETRY_SECONDS = 1.0  # after which a document for which there was no place may be sent again


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentLimits:
    """What documents may take.

    processes: at once; memory: bytes of each, beside what Python takes
    computing: seconds of processor time to read a file, and again to write it
    waiting: files that wait for a place to be read, but for patient ones; those of one caller are half of them at most
    """

    processes: int = 2
    memory: int = 192 << 20
    computing: int = 20
    waiting: int = 256


@dataclass(frozen=True, slots=True)
class File:
    """A file to translate.

    target: the language to translate to, for files that say it
    owner: see Caller
    column: of a table, its name or its number; empty if it was not given
    """

    name: str
    content: bytes
    target: str
    owner: str
    column: str = ""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What a file has to translate; its name has a suffix, and its texts have options; characters: of its texts."""

    file: File
    texts: Sequence[str]
    options: pb.TextOptions
    characters: int
    size: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file with translations; notes: lines about it, such as its encoding."""

    content: bytes
    notes: Sequence[str]


class DocumentProcesses:
    """Reads and writes documents in processes of their own, which end when one passes its limits.

    Belongs to the event loop. Cancelling a task ends the process that works for it.
    """

    def __init__(self, limits: DocumentLimits | None = None) -> None:
        self._limits = limits or DocumentLimits()
        self._places = Places(self._limits.processes, self._limits.waiting)
        self._idle: list[asyncio.subprocess.Process] = []

    async def read(self, file: File, *, patient: bool = False) -> ReadFile:
        """Return what a file has to translate; raises Problem.

        patient: whether it waits for a place however many others do
        """
        name, texts, characters = await self._ask(file, READ, patient=patient)
        found = pb.TranslateRequest.FromString(texts)
        named = replace(file, name=name.decode())
        return ReadFile(named, found.texts, found.text, int(characters), len(texts))

    async def write(self, file: File, translations: Sequence[str]) -> WrittenFile:
        """Return a file with the translations of its texts; raises Problem.

        It waits for a place however many others do: its translations are done.
        """
        translated = pb.TranslateRequest(texts=translations).SerializeToString()
        written, *notes = await self._ask(file, WRITE, translated, patient=True)
        return WrittenFile(written, tuple(note.decode() for note in notes))

    async def close(self) -> None:
        """End the processes that have nothing to do; cancelled tasks end the others."""
        while self._idle:
            await _end(self._idle.pop())

    async def _ask(self, file: File, operation: bytes, *more: bytes, patient: bool) -> list[bytes]:
        """Return what an operation of a process returns."""
        async with self._places.place(file.owner, patient=patient):
            process = await self._process()
            try:
                reply = await _exchange(
                    process,
                    operation,
                    *(each.encode() for each in (file.name, file.target, file.column)),
                    file.content,
                    *more,
                )
            except (OSError, EOFError):
                raise self._ended(await process.wait()) from None
            except BaseException:
                await asyncio.shield(_end(process))
                raise
            outcome, stays, *found = reply
            if stays == STAYS:
                self._idle.append(process)
            else:
                await asyncio.shield(_end(process))
        if outcome == DONE:
            return found
        message = found[0].decode()
        if outcome == FAILED:
            raise LingonError(f"a document could not be read or written: {message}")
        raise Problem(400, message, field="file")

    async def _process(self) -> asyncio.subprocess.Process:
        """Return a process that waits for a message; raises LingonError if none can be started."""
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        arguments = map(str, (self._limits.memory, self._limits.computing))
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-W", "ignore", "-m", "lingon.documents.process", *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:  # out of memory, of processes or of open files
            raise LingonError(f"no process for documents could be started: {error.strerror}") from None

    def _ended(self, code: int) -> LingonError:
        """Return the error of a document whose process has ended with this code."""
        if code == OUT_OF_MEMORY:
            return Problem(400, f"the file takes more than {self._limits.memory >> 20} MiB of memory", field="file")
        if code == -signal.SIGXCPU:
            return Problem(400, f"the file takes more than {self._limits.computing} s of computing time", field="file")
        return LingonError(f"the process of a document ended with {code}")


async def _exchange(process: asyncio.subprocess.Process, *parts: bytes) -> list[bytes]:
    """Send a message and return the parts of the reply; raises EOFError or OSError if the process ends."""
    source, sink = process.stdout, process.stdin
    assert source is not None
    assert sink is not None
    for part in (packed(parts), *parts):
        for begin in range(0, len(part), PIECE_BYTES):
            sink.write(part[begin : begin + PIECE_BYTES])
            await sink.drain()
    (count,) = COUNT.unpack(await source.readexactly(COUNT.size))
    sizes = [SIZE.unpack(await source.readexactly(SIZE.size))[0] for _ in range(count)]
    return [await source.readexactly(size) for size in sizes]


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


class Places:
    """Gives places to callers in turn, and to the tasks of one caller in their order.

    One place stays for others: a caller has all but one at most. Half of the tasks that may wait are of one caller;
    patient ones are not counted.
    """

    def __init__(self, places: int, most: int) -> None:
        """most: tasks that wait."""
        self._free, self._own, self._most = places, max(places - 1, 1), most
        self._held, self._counted = Counter[str](), Counter[str]()
        self._waiting = OrderedDict[str, deque[asyncio.Future[None]]]()

    @asynccontextmanager
    async def place(self, owner: str, *, patient: bool = False) -> AsyncIterator[None]:
        """Hold a place until the block ends; raises Problem 503 if too many wait, unless the task is patient."""
        if self._free and self._held[owner] < self._own:  # then none of its other tasks waits
            self._take(owner)
        elif patient:
            await self._turn(owner)
        else:
            with self._count(owner):
                await self._turn(owner)
        try:
            yield
        finally:
            self._give_back(owner)

    @contextmanager
    def _count(self, owner: str) -> Iterator[None]:
        """Count a task that waits; raises Problem 503 if too many wait, or too many of this caller."""
        waiting, own = self._counted.total(), self._counted[owner]
        if waiting >= self._most or own >= max(self._most // 2, 1):
            shown = f"{waiting} documents" if waiting >= self._most else f"{own} documents of this caller"
            message = f"{shown} wait to be read or written; try again"
            raise Problem(503, message, reason="QUEUE_FULL", retry_after=RETRY_SECONDS)
        self._counted[owner] += 1
        try:
            yield
        finally:
            self._counted[owner] -= 1
            if not self._counted[owner]:
                del self._counted[owner]

    async def _turn(self, owner: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(owner, turn)
            else:  # it has got its place meanwhile
                self._give_back(owner)
            raise

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        own = self._waiting[owner]
        own.remove(turn)
        if not own:
            del self._waiting[owner]

    def _give_back(self, owner: str) -> None:
        """Free a place, and give it to the next caller that may have one more."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        for each in self._waiting:
            if self._held[each] < self._own:
                turn = next((turn for turn in self._waiting[each] if not turn.cancelled()), None)
                if turn is not None:
                    self._waiting.move_to_end(each)
                    self._leave(each, turn)
                    self._take(each)
                    turn.set_result(None)
                    return
