"""The translation memories of DeepL's API, and the jobs that import and export them as TMX.

An import is a job that waits for its file, which the client sends to an address with a secret. An export is done at
once: the client fetches the file from such an address, and it is written while it is sent.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import os
import secrets
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.gateway.backend import Caller
from lingon.gateway.body import Fields
from lingon.gateway.deepl_glossaries import timestamp
from lingon.gateway.endpoint import Api, Call, Endpoints, Streamed, as_problem
from lingon.gateway.problem import Problem
from lingon.gateway.stores import Stores, if_found, if_kept
from lingon.language_tags import is_same_language, is_same_tag, primary
from lingon.memories.files import read_segments, write_segments
from lingon.memories.segment import Segment
from lingon.memories.units import read_units
from lingon.message_batches import MOST_ITEMS
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb

MEMORIES = "/v3/translation_memories"
JOBS = f"{MEMORIES}/jobs"
THRESHOLD = 75  # default of the lowest score of a match
LOWEST = 50  # lowest score that the server looks for
MOST_OF_LIST, MOST_OF_PAGE, PAGE = 25, 100, 50  # memories of a list, segments of a page: bound and default
SHORTEST_FILTER = 2  # characters
MOST_JOBS = 1000  # jobs of all callers; one has a quarter of them at most
JOB_SECONDS = 3600.0  # seconds; a job and its addresses then end
WAIT_SECONDS = 2.0  # seconds that the reply to a file waits for the end of its import
AWAITING, PROCESSING, COMPLETED, FAILED = "awaiting_input", "processing", "completed", "failed"
IMPORT, EXPORT = "import", "export"
NOT_FOUND = "Translation memory not found"
NAME = "memory.tmx"
SENT_BYTES = 65_536  # bytes of a file that are sent at once
SHOWN = 40  # characters of a value in a message


@dataclass(kw_only=True, slots=True)
class Job:
    """An import or an export.

    caller: on whose behalf it works; holder: its owner, see Call
    secret: what its address has beside its number
    memory: ID of the memory that it reads, or has made; label: name of a new memory
    skipped: units of a file that an import left out
    made, changed: seconds since 1970
    """

    operation: str
    caller: Caller
    holder: Caller
    status: str
    memory: str = ""
    label: str = ""
    file_name: str = ""
    content_type: str = "application/xml"
    content_length: int = 0
    skipped: int = 0
    message: str = ""
    number: str = field(default_factory=lambda: str(uuid.uuid4()))
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    made: float = field(default_factory=time.time)
    changed: float = field(default_factory=time.time)

    @property
    def ends(self) -> float:
        """Seconds since 1970."""
        return self.made + JOB_SECONDS

    def become(self, status: str, message: str = "") -> None:
        self.status, self.message, self.changed = status, message, time.time()


class Jobs:
    """The jobs of all callers, in memory. Belongs to the event loop."""

    def __init__(self, most: int = MOST_JOBS, clock: Callable[[], float] = time.time) -> None:
        """most: jobs of all callers; clock: seconds since 1970."""
        self._most, self._clock = most, clock
        self._jobs = OrderedDict[str, Job]()  # the oldest first

    def add(self, job: Job) -> Job:
        """Add a job. Raises Problem 429 if there are too many."""
        self._remove_old_ones()
        own = sum(each.holder.owner == job.holder.owner for each in self._jobs.values())
        if len(self._jobs) >= self._most or own >= max(self._most // 4, 1):
            raise Problem(429, "too many import and export jobs wait to end; try again later", retry_after=JOB_SECONDS)
        self._jobs[job.number] = job
        return job

    def find(self, number: str, holder: Caller) -> Job:
        """Return a job of a caller. Raises Problem 404."""
        job = self._of(number)
        if holder.key is not None and job.holder.owner != holder.owner:
            raise _no_job()
        return job

    def by_secret(self, request: Request) -> Job:
        """Return the job that an address with a secret belongs to. Raises Problem 404."""
        job = self._of(request.path_params["number"])
        if not hmac.compare_digest(job.secret.encode(), request.path_params["secret"].encode()):
            raise _no_job()
        return job

    def _of(self, number: str) -> Job:
        self._remove_old_ones()
        if number not in self._jobs:
            raise _no_job()
        return self._jobs[number]

    def _remove_old_ones(self) -> None:
        now = self._clock()
        while self._jobs and abs(now - (first := next(iter(self._jobs.values()))).made) > JOB_SECONDS:
            del self._jobs[first.number]


class DeepLMemories:
    """The routes of translation memories. The ID of one is its name on the server, and its name is the label there."""

    def __init__(self) -> None:
        self._jobs = Jobs()
        self._files = asyncio.Semaphore()  # one file is read or written at a time: its segments take memory, and a core

    def routes(self, api: Api, endpoints: Endpoints, root: str) -> Iterator[Route]:
        """Yield the routes; root: what the paths begin with."""

        def route(path: str, handler: Callable[[Call], Awaitable[Response]], method: str, **options: Any) -> Route:
            return endpoints.route(api, f"{root}{path}", handler, (method,), **options)

        def create_import(call: Call) -> Awaitable[Response]:
            return self.create_import(call, endpoints.limits.with_file)

        # Addresses with a secret need no key: the official clients do not send theirs there.
        held: dict[str, Any] = {"public": True, "check": self._jobs.by_secret}
        yield route(f"{JOBS}/{{number}}/{{secret}}/file", self.upload, "PUT", file=True, **held)
        yield route(f"{JOBS}/{{number}}/{{secret}}/file", self.download, "GET", **held)
        yield route(f"{JOBS}/{{number}}", self.job, "GET")
        yield route(MEMORIES, self.list_all, "GET")
        yield route(f"{MEMORIES}/import", create_import, "POST")
        yield route(f"{MEMORIES}/{{name}}", self.get_one, "GET")
        yield route(f"{MEMORIES}/{{name}}", self.delete, "DELETE")
        yield route(f"{MEMORIES}/{{name}}/segments", self.segments, "GET")
        yield route(f"{MEMORIES}/{{name}}/export", self.create_export, "POST")

    async def list_all(self, call: Call) -> Response:
        """List a page of memories; pages count from 0."""
        size = call.fields.number("page_size", MOST_OF_LIST, 1, MOST_OF_LIST)
        begin = call.fields.number("page", 0, 0, 10**6) * size
        found = await if_kept(call.stores.memories()) or []
        shown = [_shown(each) for each in found[begin : begin + size]]
        return JSONResponse({"translation_memories": shown, "total_count": len(found)})

    async def get_one(self, call: Call) -> Response:
        return JSONResponse(_shown(await _memory(call, _id(call))))

    async def delete(self, call: Call) -> Response:
        await if_found(call.stores.delete_memory(_id(call)), NOT_FOUND)
        return Response(status_code=204)

    async def segments(self, call: Call) -> Response:
        """Return a page of segments. The cursor of the next page is the index of its first segment."""
        fields, memory = call.fields, await _memory(call, _id(call))
        size, begin = fields.number("page_size", PAGE, 1, MOST_OF_PAGE), fields.number("page_cursor", 0, 0, 10**9 - 1)
        passes = _filter(fields)
        found: dict[str, Any] = {"segments": [], "segment_count": memory.segments}
        async with aclosing(call.stores.segments(memory.name)) as segments:  # type: ignore[type-var]
            index = 0
            async for segment in segments:
                if index >= begin and passes(segment):
                    if len(found["segments"]) == size:
                        found["next_page_cursor"] = str(index)
                        break
                    found["segments"].append(_segment(index, segment, memory))
                index += 1
        return JSONResponse(found)

    async def create_import(self, call: Call, most: int) -> Response:
        """Make the job that waits for a file; most: bytes of a file."""
        source = next(iter(call.fields.objects("source_file")), Fields(()))
        name, size = source.text("file_name"), source.number("content_length", 0, 0, 10**9 - 1)
        if not name or not size:
            raise Problem(400, "source_file must have file_name and content_length", field="source_file")
        if Path(name).suffix.lower() != ".tmx":
            message = f"source_file.file_name must end in .tmx, got {name[:SHOWN]!r}"
            raise Problem(400, message, field="source_file")
        if size > most:
            raise Problem(413, f"source_file.content_length may be {most:,} bytes at most, got {size:,}")
        if await if_kept(call.stores.memories()) is None:
            raise Problem(501, "translation memories are not kept: the server has no folder for them")
        parameters = next(iter(call.fields.objects("parameters")), Fields(()))
        job = self._jobs.add(
            Job(
                operation=IMPORT,
                caller=call.caller.background(),
                holder=call.holder,
                status=AWAITING,
                label=parameters.text("display_name") or name,
                file_name=name,
                content_type=source.text("content_type") or "application/xml",
                content_length=size,
            )
        )
        content = {"job_id": job.number, "upload_url": _address(call, job), "expires_at": _time(job.ends)}
        return JSONResponse(content, 201)

    async def upload(self, call: Call) -> Response:
        """Take the file of an import, and start to store it.

        The reply waits a moment for the end, because the official clients ask for the state at once, and then only
        every five seconds.
        """
        job = self._jobs.by_secret(call.request)
        if job.operation != IMPORT or job.status != AWAITING:
            raise Problem(409, f"the job {job.number} waits for no file: its state is {job.status}")
        if len(call.body) != job.content_length:
            raise Problem(400, f"the file must have {job.content_length:,} bytes as announced, got {len(call.body):,}")
        job.become(PROCESSING)
        await asyncio.wait({call.held.start(self._store(call, job))}, timeout=WAIT_SECONDS)
        return Response(status_code=200)

    async def job(self, call: Call) -> Response:
        """Return the state of a job."""
        return JSONResponse(self._state(call, self._jobs.find(call.request.path_params["number"], call.holder)))

    async def create_export(self, call: Call) -> Response:
        """Make the job whose address has the file."""
        memory = await _memory(call, _id(call))
        job = Job(
            operation=EXPORT,
            caller=call.caller.background(),
            holder=call.holder,
            status=COMPLETED,
            memory=memory.name,
        )
        return JSONResponse(self._state(call, self._jobs.add(job)), 202)

    async def download(self, call: Call) -> Response:
        """Send a memory as TMX. The file is written before the reply begins, so that it is whole or an error."""
        job = self._jobs.by_secret(call.request)
        if job.operation != EXPORT:
            raise _no_job()
        stored = Stores(call.backend, job.caller)
        memory = await if_found(stored.memory(job.memory), NOT_FOUND)
        async with self._files:
            file = await _written(memory, stored.segments(memory.name))
        size = {"content-length": str(os.fstat(file.fileno()).st_size)}
        return Streamed(_parts(file), headers=size, media_type="application/xml")

    async def _store(self, call: Call, job: Job) -> None:
        """Store the segments of the file of an import in a new memory."""
        try:
            async with self._files:
                read = await asyncio.to_thread(_read, call.body)
                header = stores.PutMemoryHeader(
                    name=job.number,
                    label=job.label,
                    source_language_code=read.source,
                    target_language_code=read.target,
                    create=True,
                )
                memory = await Stores(call.backend, job.caller).put_memory(header, read.segments)
                job.skipped = read.skipped
        except Exception as error:  # the client gets every error as the state of the job
            job.become(FAILED, str(as_problem(error)))
        else:
            job.memory = memory.name
            job.become(COMPLETED)

    def _state(self, call: Call, job: Job) -> dict[str, Any]:
        result: dict[str, Any] = {"status": job.status}
        if job.status == AWAITING:
            result["status_metadata"] = {"required_action": "upload_file"}
        elif job.status == FAILED:
            result["error"] = {"message": job.message}
        elif job.operation == EXPORT:
            result |= {"download_url": _address(call, job), "expires_at": _time(job.ends)}
        elif job.status == COMPLETED:
            result |= {"translation_memory_id": job.memory, "skipped_segment_count": job.skipped}
        found: dict[str, Any] = {
            "job_id": job.number,
            "product": "translation_memory",
            "operation": job.operation,
            "creation_time": _time(job.made),
            "updated_time": _time(job.changed),
            "results": [result],
        }
        if job.operation == EXPORT:
            return {**found, "parameters": {"translation_memory_id": job.memory}}
        source = {"content_type": job.content_type, "content_length": job.content_length}
        return {**found, "parameters": {"display_name": job.label}, "source_file": source}


async def memory_options(call: Call, source: str, target: str) -> pb.MemoryOptions | None:
    """Return the use of a translation memory that a request asks for, or None. Raises Problem.

    A match from the threshold on is used, as DeepL does.
    """
    name = call.fields.text("translation_memory_id")
    threshold = call.fields.number("translation_memory_threshold", THRESHOLD, 0, 100)
    if not name:
        return None
    memory = await _memory(call, name)
    pair = memory.source_language_code, memory.target_language_code
    if (source and primary(source) != primary(pair[0])) or primary(target) != primary(pair[1]):
        message = f"the translation memory {name[:SHOWN]!r} is from {pair[0]} to {pair[1]}"
        raise Problem(400, message, field="translation_memory_id")
    return pb.MemoryOptions(memories=[name], min_score=max(threshold, LOWEST), use_fuzzy=threshold < 100)


class _ReadFile(NamedTuple):
    """The content of a file of TMX; skipped: its units that are not in both languages."""

    source: str
    target: str
    segments: list[pb.Segment]
    skipped: int


def _read(content: bytes) -> _ReadFile:
    """Return the segments of the first two languages of a file of TMX. Raises LingonError."""
    first = next(read_units(io.BytesIO(content)), None)
    if first is None:
        raise Problem(400, "the file has no units with texts")
    languages = [each.language for each in first.variants if each.text and each.language]
    said = [each for each in languages if is_same_language(each, first.source_language)]
    source = next(iter(said or languages), "")
    target = next((each for each in languages if not is_same_tag(each, source)), "")
    if not target:
        raise Problem(400, "the first unit of the file has no texts in two languages")
    found = [each.message() for each in read_segments(content, source, target, name=NAME)]
    units = sum(1 for _ in read_units(io.BytesIO(content)))
    return _ReadFile(source, target, found, units - len(found))


async def _written(memory: stores.Memory, segments: AsyncIterator[pb.Segment]) -> BinaryIO:
    """Return a new file with segments as TMX, which is removed when it is closed. Raises ServerError."""
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def pulled() -> Iterator[Segment]:
        """Yield the segments that the event loop receives, on the thread that writes them."""
        while not stopped.is_set() and (each := asyncio.run_coroutine_threadsafe(_next(segments), loop).result()):
            yield from each

    def write() -> BinaryIO:
        with TemporaryDirectory(prefix="lingon-") as folder:
            path = Path(folder) / NAME
            write_segments(path, pulled(), memory.source_language_code, memory.target_language_code)
            return path.open("rb")  # can be read after its folder is removed

    async with aclosing(segments):  # type: ignore[type-var]
        work = asyncio.ensure_future(asyncio.to_thread(write))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            with suppress(Exception):  # the thread must not ask for segments after they are closed
                (await work).close()
            raise


async def _next(segments: AsyncIterator[pb.Segment]) -> list[Segment]:
    """Return the next segments, at most MOST_ITEMS, or none after the last ones."""
    found = []
    async for each in segments:
        found.append(Segment.of(each))
        if len(found) == MOST_ITEMS:
            break
    return found


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the content of a file, and close it."""
    with file:
        while part := await asyncio.to_thread(file.read, SENT_BYTES):
            yield part


async def _memory(call: Call, name: str) -> stores.Memory:
    found = await if_found(call.stores.memory(name), NOT_FOUND)
    return found


def _id(call: Call) -> str:
    return str(call.request.path_params["name"])


def _no_job() -> Problem:
    return Problem(404, "no such job, or it has ended")


def _address(call: Call, job: Job) -> str:
    """Return the address of the file of a job, on the host that the client called."""
    root = call.request.url.path.partition(MEMORIES)[0]
    return str(call.request.url.replace(path=f"{root}{JOBS}/{job.number}/{job.secret}/file", query=""))


def _time(seconds: float) -> str:
    return timestamp(round(seconds * 1000))


def _filter(fields: Fields) -> Callable[[pb.Segment], bool]:
    """Return whether a segment has the text of a filter. Raises Problem for a short one."""
    text, cased = fields.text("filter_text"), fields.text("filter_case_sensitive") == "true"
    if 0 < len(text) < SHORTEST_FILTER:
        message = f"filter_text must have {SHORTEST_FILTER} characters at least, got {len(text)}"
        raise Problem(400, message, field="filter_text")
    wanted = text if cased else text.casefold()

    def passes(segment: pb.Segment) -> bool:
        both = f"{segment.source}\n{segment.target}"
        return wanted in (both if cased else both.casefold())

    return passes


def _shown(memory: stores.Memory) -> dict[str, Any]:
    return {
        "translation_memory_id": memory.name,
        "name": memory.label or memory.name,
        "source_language": memory.source_language_code.lower(),
        "target_languages": [memory.target_language_code.lower()],
        "segment_count": memory.segments,
        "creation_time": timestamp(memory.created),
        "updated_time": timestamp(memory.changed),
    }


def _segment(index: int, segment: pb.Segment, memory: stores.Memory) -> dict[str, Any]:
    changed = {"updated_time": timestamp(segment.changed)} if segment.changed else {}
    language = memory.target_language_code.lower()
    target = {"target_segment_id": f"{index}-{language}", "target_language": language, "target_text": segment.target}
    return {
        "source_segment_id": str(index),
        "source_text": segment.source,
        "targets": [{**target, **changed}],
        **changed,
    }
