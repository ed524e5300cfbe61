"""The glossaries and translation memories that the server keeps, for one caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any, TypeVar

from google.rpc import code_pb2

from lingon.errors import ServerError
from lingon.gateway.backend import Backend, Caller
from lingon.gateway.problem import Problem
from lingon.glossary_calls import GlossaryCalls
from lingon.message_batches import batches_of
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb


class Stores(GlossaryCalls):
    """The methods of GlossaryService and MemoryService. All raise ServerError."""

    def __init__(self, backend: Backend, caller: Caller) -> None:
        self._backend, self._caller = backend, caller

    async def _reply(self, method: str, request: Any) -> Any:
        return await self._backend.call(getattr(self._backend.glossary_stub, method), request, self._caller)

    def _replies(self, method: str, request: Any) -> AsyncIterator[Any]:
        return self._backend.replies(getattr(self._backend.glossary_stub, method), request, self._caller)

    async def put_memory(self, header: stores.PutMemoryHeader, segments: Iterable[pb.Segment]) -> stores.Memory:
        """Store segments as the header says, and return the memory."""

        async def messages() -> AsyncIterator[stores.PutMemoryRequest]:
            yield stores.PutMemoryRequest(header=header)
            for part in batches_of(segments):
                yield stores.PutMemoryRequest(segments=part)

        stored: stores.Memory = await self._call(self._backend.memory_stub.PutMemory, messages())
        return stored

    async def memory(self, name: str) -> stores.Memory:
        """Return a memory without its segments."""
        request = stores.GetMemoryRequest(name=name)
        found: stores.Memory = await self._call(self._backend.memory_stub.GetMemory, request)
        return found

    async def memories(self) -> list[stores.Memory]:
        """Return all memories without their segments, sorted by name."""
        reply = await self._call(self._backend.memory_stub.ListMemories, stores.ListMemoriesRequest())
        return list(reply.memories)

    async def segments(self, name: str) -> AsyncIterator[pb.Segment]:
        """Yield the segments of a memory in their order."""
        request = stores.ReadMemoryRequest(name=name)
        async for reply in self._backend.replies(self._backend.memory_stub.ReadMemory, request, self._caller):
            for segment in reply.segments:
                yield segment

    async def delete_memory(self, name: str) -> None:
        await self._call(self._backend.memory_stub.DeleteMemory, stores.DeleteMemoryRequest(name=name))

    async def _call(self, method: Any, request: Any) -> Any:
        return await self._backend.call(method, request, self._caller)


Reply = TypeVar("Reply")


async def if_found(asking: Awaitable[Reply], missing: str) -> Reply:
    """Return the reply about one glossary or memory. Raises Problem with a message for one that is not there."""
    try:
        return await asking
    except ServerError as error:
        if error.code != code_pb2.NOT_FOUND:
            raise
        raise Problem(404, missing) from None


async def if_kept(listing: Awaitable[list[Any]]) -> list[Any] | None:
    """Return a list of the server, or None if the server keeps nothing.

    Tools ask for lists before they translate, even if they use nothing of them.
    """
    try:
        return await listing
    except ServerError as error:
        if error.code != code_pb2.UNIMPLEMENTED:
            raise
        return None
