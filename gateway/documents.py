"""Files to translate: read and written in processes of their own, and kept until they are fetched.

There are as many processes as places, which callers get in turn. A kept file belongs to the API and to the caller that
sent it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
import signal
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from lingon.documents import UnreadableDocument, check_suffix
from lingon.documents.process import COUNT, DONE, FAILED, OUT_OF_MEMORY, READ, SIZE, STAYS, WRITE, packed
from lingon.errors import LingonError, SettingsError
from lingon.files import make_folders, write_private
from lingon.gateway.backend import Caller, digest_of
from lingon.gateway.endpoint import Call
from lingon.gateway.problem import Problem
from lingon.gateway.translate import Wanted, detect, translate
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


KEEP_SECONDS = 3600.0  # for which a file is kept that nobody fetches
MOST_BYTES = 2**28  # of all files that are kept; those of one caller have a quarter of it
LEAST_BYTES = 16_384  # that a file counts
ROOM_SECONDS = 60.0  # after which a file for which there was no room is tried again
REMOVE_SECONDS = 60.0  # between two looks for old files
RECORD, CONTENT = "record.json", "content"  # the files of a folder
NUMBER = re.compile(r"[0-9a-f]{32}")
TRANSLATING, TRANSLATED, ERROR = "translating", "done", "error"
logger = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(kw_only=True, slots=True)
class Kept:
    """A file that is kept.

    api: name of the API that it came by; owner: see Caller
    secret: digest of what its caller must show beside the key; empty if nothing
    made: time of its upload, in seconds since 1970
    status: TRANSLATING, TRANSLATED or ERROR; message: what was wrong
    suffix: of its name; characters: of its texts
    size: bytes that it counts
    """

    number: str
    api: str
    owner: str
    made: float
    secret: str = ""
    status: str = TRANSLATING
    message: str = ""
    suffix: str = ""
    characters: int = 0
    size: int = LEAST_BYTES


class KeptFiles:
    """Files in folders of their own, for the user of the server only. All are known here, so that no folder is listed.

    The names of files say nothing of what they hold. A restart forgets nothing that was finished. One thread works on
    the disk, in the order of the calls: a file is not read before it is written, nor written after it is removed.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Raises SettingsError for a folder that cannot be used. Files that are not whole are removed."""
        self._folder, self._clock = folder, clock
        self._disk = ThreadPoolExecutor(1, "kept-files")
        self._files: dict[str, Kept] = {}  # the oldest first
        self._bytes, self._by_owner = 0, Counter[str]()
        try:
            make_folders(folder)
            folder.chmod(0o700)
            found = {path: _read(path) for path in folder.iterdir() if NUMBER.match(path.name)}
        except OSError as error:
            raise SettingsError(f"the folder for files {folder} cannot be used: {error.strerror}") from None
        for path in [path for path, kept in found.items() if kept is None]:
            _remove(path)
        for kept in sorted(filter(None, found.values()), key=lambda kept: kept.made):
            if kept.status == TRANSLATING:
                kept.status, kept.message = ERROR, "the gateway was restarted; upload the document again"
                kept.size = LEAST_BYTES
            self._add(kept)

    async def begin(self, api: str, caller: Caller, size: int, secret: str = "") -> Kept:
        """Keep a place for the translation of a file of so many bytes; raises Problem if there is no room.

        secret: what its caller must show beside the key
        """
        size, digest = max(size, LEAST_BYTES), digest_of(secret) if secret else ""
        self._check_room(caller.owner, size)
        number = secrets.token_hex(16)
        kept = Kept(number=number, api=api, owner=caller.owner, made=self._clock(), secret=digest, size=size)
        self._add(kept)
        try:
            await self._write(kept)
        except asyncio.CancelledError:
            await self.remove(kept)
            raise
        return kept

    async def finish(self, kept: Kept, suffix: str, content: bytes, characters: int) -> None:
        """Keep a translation; raises Problem if there is no room, or if the file was removed meanwhile."""
        if kept.number not in self._files:
            raise _no_file()
        more = max(len(content), LEAST_BYTES) - kept.size
        if more > 0:
            self._check_room(kept.owner, more)
        self._resize(kept, kept.size + more)
        kept.status, kept.suffix, kept.characters = TRANSLATED, suffix, characters
        await self._write(kept, content)

    async def fail(self, kept: Kept, message: str) -> None:
        """Keep what was wrong with a file, unless it was removed meanwhile."""
        if kept.number in self._files:
            self._resize(kept, LEAST_BYTES)
            kept.status, kept.message = ERROR, message
            await self._write(kept)

    def find(self, number: str, api: str, caller: Caller, secret: str = "") -> Kept:
        """Return a file of this API and caller; raises Problem 404.

        A caller without a key, whom only a server without keys lets in, may have any.
        """
        kept = self._files.get(number)
        if (
            kept is None
            or kept.api != api
            or (caller.key is not None and kept.owner != caller.owner)
            or not secrets.compare_digest(kept.secret, digest_of(secret) if kept.secret else "")
            or self._is_old(kept)
        ):
            raise _no_file()
        return kept

    async def content(self, kept: Kept) -> bytes:
        """Return a translation; raises Problem 404."""
        try:
            return await self._on_disk((self._folder / kept.number / CONTENT).read_bytes)
        except OSError:
            raise _no_file() from None

    async def remove(self, kept: Kept) -> None:
        """Remove a file."""
        if self._files.pop(kept.number, None) is not None:
            self._count(kept, -kept.size)
            await self._on_disk(lambda: _remove(self._folder / kept.number))

    async def remove_old_ones(self) -> None:
        """Remove them from time to time, until it is cancelled."""
        while True:
            for kept in [kept for kept in self._files.values() if self._is_old(kept)]:
                await self.remove(kept)
            await asyncio.sleep(REMOVE_SECONDS)

    def _is_old(self, kept: Kept) -> bool:
        return abs(self._clock() - kept.made) > KEEP_SECONDS  # made later than now: the clock was set back

    def _add(self, kept: Kept) -> None:
        self._files[kept.number] = kept
        self._count(kept, kept.size)

    def _count(self, kept: Kept, size: int) -> None:
        self._bytes += size
        self._by_owner[kept.owner] += size
        if not self._by_owner[kept.owner]:
            del self._by_owner[kept.owner]

    def _resize(self, kept: Kept, size: int) -> None:
        self._count(kept, size - kept.size)
        kept.size = size

    def _check_room(self, owner: str, size: int) -> None:
        if self._bytes + size > MOST_BYTES or self._by_owner[owner] + size > MOST_BYTES // 4:
            raise _no_room()

    async def _write(self, kept: Kept, content: bytes | None = None) -> None:
        """Write what is known of a file, and its translation before it; raises Problem if the disk is full."""
        try:
            await self._on_disk(lambda: _write(self._folder / kept.number, kept, content))
        except OSError as error:
            logger.error("a file could not be kept: %s", error)
            await self.remove(kept)
            raise _no_room() from None

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        """Return what work on the disk returns; it is done even if the task is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._disk, work))


def _no_room() -> Problem:
    message = "there is no room for more files until others are fetched or an hour old; try again later"
    return Problem(503, message, retry_after=ROOM_SECONDS)


def _no_file() -> Problem:
    return Problem(404, "no such file, or it was removed")


def _write(folder: Path, kept: Kept, content: bytes | None) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if content is not None:
        write_private(folder / CONTENT, content)
    write_private(folder / RECORD, json.dumps(asdict(kept)).encode())


def _read(folder: Path) -> Kept | None:
    """Return the file of a folder; None if it is not whole."""
    try:
        found = json.loads((folder / RECORD).read_bytes())
        kept = Kept(**found)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    right = all(type(getattr(kept, each.name)).__name__ == each.type for each in fields(kept))
    return kept if right and kept.number == folder.name and NUMBER.fullmatch(kept.number) else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """A file that was translated.

    name: of the file, with a suffix
    characters: of its texts
    detected: its language if that was detected; empty if it was given, or the file has no text
    notes: lines about it, such as its encoding
    """

    name: str
    content: bytes
    characters: int
    detected: str = ""
    notes: Sequence[str] = ()


class Documents:
    """What APIs do with files.

    kept: the files that are kept; None if there is no folder for them
    """

    def __init__(self, processes: DocumentProcesses, kept: KeptFiles | None = None) -> None:
        self._processes, self.kept = processes, kept

    def check_kind(self, name: str) -> None:
        """Raise Problem for the name of a file of a kind that is not read; one without a suffix may be of any kind."""
        try:
            if Path(name).suffix:
                check_suffix(name)
        except UnreadableDocument as error:
            raise Problem(400, str(error), field="file") from None

    async def translate(
        self, call: Call, name: str, content: bytes, wanted: Wanted, column: str = ""
    ) -> TranslatedFile:
        """Return the translation of a file; raises Problem for one that cannot be read.

        column: of a table, its name or its number; empty if it was not given
        If its language is not given, it is detected once: a single text may be too short for that.
        """
        file = File(name, content, wanted.target, call.holder.owner, column)
        async with _limited(call.backend.timeout, "read"):
            read = await self._processes.read(file, patient=call.caller.in_background)
        call.held.add(max(read.size - len(content), 0))
        options = pb.TextOptions()
        options.CopyFrom(wanted.text)
        options.MergeFrom(read.options)
        wanted = replace(wanted, text=options)
        detected, texts = "", list(read.texts)
        if not wanted.source and texts:
            (source,) = await detect(call.backend, ["\n".join(texts)], call.caller, wanted)
            detected, wanted = source.language, replace(wanted, source=source.language, unchanged=source.stays)
        results = await translate(call.backend, texts, wanted, call.caller)
        async with _limited(call.backend.timeout, "written"):
            written = await self._processes.write(read.file, [each.text for each in results])
        call.held.add(max(len(written.content) - max(len(content), read.size), 0))
        return TranslatedFile(read.file.name, written.content, read.characters, detected, written.notes)


@asynccontextmanager
async def _limited(seconds: float, done: str) -> AsyncIterator[None]:
    """Bound the time of work on a file, waiting included; raises Problem 504."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Problem(504, f"the file was not {done} within {seconds:g} s; try again later") from None
