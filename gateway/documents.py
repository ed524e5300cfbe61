"""Files to translate, read and written in separate processes, and kept until they are fetched.

The number of processes is bounded, and callers use them round-robin. A kept file belongs to the API and to the caller
that sent it.
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

PIECE_BYTES = 65_536  # bytes of a message; the process has to read them before more are sent
RETRY_SECONDS = 1.0  # seconds; after them a document that was refused with QUEUE_FULL may be sent again


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentLimits:
    """The bounds of work on documents.

    processes: number of them; memory: bytes of each, beside the memory of Python
    computing: seconds of processor time to read a file, and again to write it
    waiting: files that wait to be read, without patient ones; half of them at most are of one caller
    """

    processes: int = 2
    memory: int = 192 << 20
    computing: int = 20
    waiting: int = 256


@dataclass(frozen=True, slots=True)
class File:
    """A file to translate.

    target: the target language, for formats that name it
    owner: see Caller
    column: name or number of the column of a table; empty if it was not given
    """

    name: str
    content: bytes
    target: str
    owner: str
    column: str = ""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The content of a file. `file.name` has a suffix, and `options` apply to `texts`; characters: their number."""

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
    """The processes that read and write documents. A process ends if it exceeds its limits.

    Belongs to the event loop. Cancelling a task ends the process that works for it.
    """

    def __init__(self, limits: DocumentLimits | None = None) -> None:
        self._limits = limits or DocumentLimits()
        self._slots = Slots(self._limits.processes, self._limits.waiting)
        self._idle: list[asyncio.subprocess.Process] = []

    async def read(self, file: File, *, patient: bool = False) -> ReadFile:
        """Return the content of a file. Raises Problem.

        patient: whether it waits even if the queue is full
        """
        name, texts, characters = await self._ask(file, READ, patient=patient)
        found = pb.TranslateRequest.FromString(texts)
        named = replace(file, name=name.decode())
        return ReadFile(named, found.texts, found.text, int(characters), len(texts))

    async def write(self, file: File, translations: Sequence[str]) -> WrittenFile:
        """Return a file with the translations of its texts. Raises Problem.

        It waits even if the queue is full, because its translations are done.
        """
        translated = pb.TranslateRequest(texts=translations).SerializeToString()
        written, *notes = await self._ask(file, WRITE, translated, patient=True)
        return WrittenFile(written, tuple(note.decode() for note in notes))

    async def close(self) -> None:
        """End idle processes. The others end when their tasks are cancelled."""
        while self._idle:
            await _end(self._idle.pop())

    async def _ask(self, file: File, operation: bytes, *more: bytes, patient: bool) -> list[bytes]:
        """Return the reply of a process to an operation."""
        async with self._slots.slot(file.owner, patient=patient):
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
        """Return an idle process. Raises LingonError if none can be started."""
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
        except OSError as error:  # no memory, too many processes or too many open files
            raise LingonError(f"no process for documents could be started: {error.strerror}") from None

    def _ended(self, code: int) -> LingonError:
        """Return the error of a document after its process ended with this code."""
        if code == OUT_OF_MEMORY:
            return Problem(400, f"the file takes more than {self._limits.memory >> 20} MiB of memory", field="file")
        if code == -signal.SIGXCPU:
            return Problem(400, f"the file takes more than {self._limits.computing} s of computing time", field="file")
        return LingonError(f"the process of a document ended with {code}")


async def _exchange(process: asyncio.subprocess.Process, *parts: bytes) -> list[bytes]:
    """Send a message and return the parts of the reply. Raises EOFError or OSError if the process ends."""
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


class Slots:
    """A bounded number of slots, given to callers round-robin, and to the tasks of one caller in order.

    A caller has all slots but one at most. At most half of the waiting tasks are of one caller. Patient tasks do not
    count.
    """

    def __init__(self, slots: int, most: int) -> None:
        """most: bound of the waiting tasks."""
        self._free, self._own, self._most = slots, max(slots - 1, 1), most
        self._held, self._counted = Counter[str](), Counter[str]()
        self._waiting = OrderedDict[str, deque[asyncio.Future[None]]]()

    @asynccontextmanager
    async def slot(self, owner: str, *, patient: bool = False) -> AsyncIterator[None]:
        """Hold a slot until the block ends. Raises Problem 503 if too many tasks wait, unless the task is patient."""
        if self._free and self._held[owner] < self._own:  # no other task of the owner waits then
            self._take(owner)
        elif patient:
            await self._wait(owner)
        else:
            with self._count(owner):
                await self._wait(owner)
        try:
            yield
        finally:
            self._give_back(owner)

    @contextmanager
    def _count(self, owner: str) -> Iterator[None]:
        """Count a task that waits. Raises Problem 503 if too many wait, or too many of this caller."""
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

    async def _wait(self, owner: str) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._leave(owner, waiter)
            else:  # it received its slot before the cancel arrived
                self._give_back(owner)
            raise

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1

    def _leave(self, owner: str, waiter: asyncio.Future[None]) -> None:
        own = self._waiting[owner]
        own.remove(waiter)
        if not own:
            del self._waiting[owner]

    def _give_back(self, owner: str) -> None:
        """Free a slot, and pass it to the next caller that may have one more."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        for each in self._waiting:
            if self._held[each] < self._own:
                waiter = next((waiter for waiter in self._waiting[each] if not waiter.cancelled()), None)
                if waiter is not None:
                    self._waiting.move_to_end(each)
                    self._leave(each, waiter)
                    self._take(each)
                    waiter.set_result(None)
                    return


KEEP_SECONDS = 3600.0  # seconds; a file that is not fetched is then removed
MOST_BYTES = 2**28  # bytes of all kept files; one caller has a quarter of them at most
LEAST_BYTES = 16_384  # bytes; smallest size that a file counts
ROOM_SECONDS = 60.0  # seconds; after them a file that did not fit may be sent again
REMOVE_SECONDS = 60.0  # seconds between two searches for old files
RECORD, CONTENT = "record.json", "content"  # names of the files in a folder
NUMBER = re.compile(r"[0-9a-f]{32}")
TRANSLATING, TRANSLATED, ERROR = "translating", "done", "error"
logger = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(kw_only=True, slots=True)
class Kept:
    """A kept file.

    api: name of its API; owner: see Caller
    secret: digest of the secret that its caller sends beside the key; empty without one
    made: time of its upload, in seconds since 1970
    status: TRANSLATING, TRANSLATED or ERROR; message: the error
    suffix: suffix of its name; characters: number of characters in its texts
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
    """Files, each in its own folder, readable only for the user of the server. All are indexed in memory.

    The name of a folder does not depend on the content. Finished files survive a restart. One thread accesses the disk,
    in the order of the calls: a file is written before it is read, and is never written after its removal.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Load the kept files and remove incomplete ones. Raises SettingsError for a folder that cannot be used."""
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
        """Reserve room for the translation of a file of so many bytes. Raises Problem if it does not fit.

        secret: a secret that its caller will send beside the key
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
        """Store a translation. Raises Problem if it does not fit, or if the file was removed meanwhile."""
        if kept.number not in self._files:
            raise _no_file()
        more = max(len(content), LEAST_BYTES) - kept.size
        if more > 0:
            self._check_room(kept.owner, more)
        self._resize(kept, kept.size + more)
        kept.status, kept.suffix, kept.characters = TRANSLATED, suffix, characters
        await self._write(kept, content)

    async def fail(self, kept: Kept, message: str) -> None:
        """Store the error of a file, unless the file was removed meanwhile."""
        if kept.number in self._files:
            self._resize(kept, LEAST_BYTES)
            kept.status, kept.message = ERROR, message
            await self._write(kept)

    def find(self, number: str, api: str, caller: Caller, secret: str = "") -> Kept:
        """Return a file of this API and caller. Raises Problem 404.

        A caller without a key can only call a server without keys, and may read any file.
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
        """Return a translation. Raises Problem 404."""
        try:
            return await self._on_disk((self._folder / kept.number / CONTENT).read_bytes)
        except OSError:
            raise _no_file() from None

    async def remove(self, kept: Kept) -> None:
        if self._files.pop(kept.number, None) is not None:
            self._count(kept, -kept.size)
            await self._on_disk(lambda: _remove(self._folder / kept.number))

    async def remove_old_ones(self) -> None:
        """Remove old files from time to time, until cancelled."""
        while True:
            for kept in [kept for kept in self._files.values() if self._is_old(kept)]:
                await self.remove(kept)
            await asyncio.sleep(REMOVE_SECONDS)

    def _is_old(self, kept: Kept) -> bool:
        return abs(self._clock() - kept.made) > KEEP_SECONDS  # made in the future: the clock was set back

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
        """Write the translation of a file, then its record. Raises Problem if the disk is full."""
        try:
            await self._on_disk(lambda: _write(self._folder / kept.number, kept, content))
        except OSError as error:
            logger.error("a file could not be kept: %s", error)
            await self.remove(kept)
            raise _no_room() from None

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        """Return the result of work on the disk, which completes even if the task is cancelled."""
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
    """Return the record of a folder, or None if it is incomplete."""
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
    """A translated file.

    name: file name, with a suffix
    characters: number of characters in its texts
    detected: its detected language; empty if the language was given, or the file has no text
    notes: lines about it, such as its encoding
    """

    name: str
    content: bytes
    characters: int
    detected: str = ""
    notes: Sequence[str] = ()


class Documents:
    """Translation of files for the APIs.

    kept: the kept files, or None without a folder for them
    """

    def __init__(self, processes: DocumentProcesses, kept: KeptFiles | None = None) -> None:
        self._processes, self.kept = processes, kept

    def check_kind(self, name: str) -> None:
        """Raise Problem for the name of a file of an unknown format. A name without a suffix is accepted."""
        try:
            if Path(name).suffix:
                check_suffix(name)
        except UnreadableDocument as error:
            raise Problem(400, str(error), field="file") from None

    async def translate(
        self, call: Call, name: str, content: bytes, wanted: Wanted, column: str = ""
    ) -> TranslatedFile:
        """Return the translation of a file. Raises Problem for one that cannot be read.

        column: name or number of the column of a table; empty if it was not given
        A language that is not given is detected once for the file, because a single text may be too short.
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
    """Bound the time of work on a file, waiting included. Raises Problem 504."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Problem(504, f"the file was not {done} within {seconds:g} s; try again later") from None
