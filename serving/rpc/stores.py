"""GlossaryService and MemoryService: the glossaries and translation memories that callers keep at the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from lingon.serving.auth.callers import caller_of
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.rpc.calls import Context, check_count
from lingon.serving.rpc.uploads import upload_of
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
