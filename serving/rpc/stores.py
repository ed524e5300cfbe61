"""GlossaryService and MemoryService: the glossaries and translation memories that callers keep at the server.

A call that stores data is a stream of messages, of which the first one has a header and all have items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

from lingon.errors import InvalidRequest
from lingon.message_batches import MOST_ITEMS
from lingon.serving.auth.callers import caller_of
from lingon.serving.auth.charges import charged
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.rpc.calls import Context, check_count
from lingon.serving.stores.glossaries import GlossaryStore
from lingon.serving.stores.memories import MemoryStore
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import stores_pb2_grpc as pb_grpc

GLOSSARIES = pb.DESCRIPTOR.services_by_name["GlossaryService"].full_name
MEMORIES = pb.DESCRIPTOR.services_by_name["MemoryService"].full_name


class GlossaryService(pb_grpc.GlossaryServiceServicer):
    """The methods of GlossaryService, available while the gate is open."""

    def __init__(self, gate: AdmissionGate, store: GlossaryStore) -> None:
        self._gate, self._store = gate, store

    async def PutGlossary(self, requests: AsyncIterator[pb.PutGlossaryRequest], context: Context) -> pb.Glossary:
        with self._gate.admitted():
            async with upload_of(requests, "terms", context) as upload:
                return await self._store.put(caller_of(context), upload.header, upload.parts)

    async def GetGlossary(self, request: pb.GetGlossaryRequest, context: Context) -> pb.Glossary:
        with self._gate.admitted():
            return await self._store.get(caller_of(context), request.name)

    async def ListGlossaries(self, request: pb.ListGlossariesRequest, context: Context) -> pb.ListGlossariesResponse:
        with self._gate.admitted():
            return pb.ListGlossariesResponse(glossaries=await self._store.all(caller_of(context)))

    async def ReadGlossary(self, request: pb.ReadGlossaryRequest, context: Context) -> AsyncIterator[pb.TermList]:
        with self._gate.admitted():
            pair = request.source_language_code, request.target_language_code
            async with aclosing(self._store.read(caller_of(context), request.name, *pair)) as parts:
                async for part in parts:
                    yield part

    async def DeleteGlossary(self, request: pb.DeleteGlossaryRequest, context: Context) -> pb.DeleteGlossaryResponse:
        with self._gate.admitted():
            pair = request.source_language_code, request.target_language_code
            await self._store.delete(caller_of(context), request.name, *pair)
            return pb.DeleteGlossaryResponse()


class MemoryService(pb_grpc.MemoryServiceServicer):
    """The methods of MemoryService, available while the gate is open."""

    def __init__(self, gate: AdmissionGate, store: MemoryStore, max_texts: int) -> None:
        """max_texts: of one look-up."""
        self._gate, self._store, self._max_texts = gate, store, max_texts

    async def PutMemory(self, requests: AsyncIterator[pb.PutMemoryRequest], context: Context) -> pb.Memory:
        with self._gate.admitted():
            async with upload_of(requests, "segments", context) as upload:
                return await self._store.put(caller_of(context), upload.header, upload.parts)

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Context) -> pb.Memory:
        with self._gate.admitted():
            return await self._store.get(caller_of(context), request.name)

    async def ListMemories(self, request: pb.ListMemoriesRequest, context: Context) -> pb.ListMemoriesResponse:
        with self._gate.admitted():
            return pb.ListMemoriesResponse(memories=await self._store.all(caller_of(context)))

    async def ReadMemory(self, request: pb.ReadMemoryRequest, context: Context) -> AsyncIterator[pb.SegmentList]:
        with self._gate.admitted():
            async with aclosing(self._store.read(caller_of(context), request.name)) as parts:
                async for part in parts:
                    yield part

    async def LookUp(self, request: pb.LookUpRequest, context: Context) -> pb.LookUpResponse:
        with self._gate.admitted():
            check_count("texts", len(request.texts), self._max_texts)
            return pb.LookUpResponse(results=await self._store.look_up(caller_of(context), request))

    async def DeleteMemory(self, request: pb.DeleteMemoryRequest, context: Context) -> pb.DeleteMemoryResponse:
        with self._gate.admitted():
            await self._store.delete(caller_of(context), request.name)
            return pb.DeleteMemoryResponse()


class Upload(NamedTuple):
    """The data of a call; parts: yields its messages. Raises InvalidRequest."""

    header: Any
    parts: AsyncIterator[Any]


@asynccontextmanager
async def upload_of(requests: AsyncIterator[Any], items: str, context: Context) -> AsyncIterator[Upload]:
    """Read the first message of a call, and charge the call as one request. Raises InvalidRequest.

    items: the field of a message with its items; context: of the call
    """
    first = await anext(requests, None)
    if first is None or not first.HasField("header"):
        raise InvalidRequest("header", "the first message must have a header")
    with charged(first):
        yield Upload(first.header, _parts(first, requests, items, context))


async def _parts(first: Any, requests: AsyncIterator[Any], items: str, context: Context) -> AsyncIterator[Any]:
    yield _checked(first, items)
    async for request in requests:
        if request.HasField("header"):
            raise InvalidRequest("header", "only the first message may have a header")
        yield _checked(request, items)
    # A call that its client cancels, or whose connection breaks, mostly ends its requests as one that is complete, and
    # is cancelled after that, if at all (grpcio 1.85). Metadata can be sent in a complete call alone.
    await context.send_initial_metadata(())


def _checked(request: Any, field: str) -> Any:
    count = len(getattr(request, field))
    if count > MOST_ITEMS:
        raise InvalidRequest(field, f"a message may have at most {MOST_ITEMS} {field}, got {count}")
    return request
