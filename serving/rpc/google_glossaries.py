"""The glossaries of Google Cloud Translation v3 on the gRPC port, as calls of GlossaryService."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from google.longrunning import operations_proto_pb2 as operations_pb2
from google.protobuf.empty_pb2 import Empty

from lingon.glossary_calls import GlossaryCalls
from lingon.google.glossaries import GoogleGlossaries, Operation
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.serving.rpc.calls import Context
from lingon.serving.rpc.stores import GlossaryService

OPERATIONS = "google.longrunning.Operations"

Method = Callable[[Any, Context], Awaitable[Any]]


class CallGlossaries(GlossaryCalls):
    """The glossaries of the caller of a call."""

    def __init__(self, service: GlossaryService, context: Context) -> None:
        self._service, self._context = service, context

    async def _reply(self, method: str, request: Any) -> Any:
        return await getattr(self._service, method)(request, self._context)

    def _replies(self, method: str, request: Any) -> AsyncIterator[Any]:
        return cast("AsyncIterator[Any]", getattr(self._service, method)(request, self._context))


_METHODS: dict[str, tuple[Callable[[GoogleGlossaries, Any], Awaitable[Any]], Any]] = {
    "CreateGlossary": (GoogleGlossaries.create, google.CreateGlossaryRequest),
    "UpdateGlossary": (GoogleGlossaries.update, google.UpdateGlossaryRequest),
    "ListGlossaries": (GoogleGlossaries.list, google.ListGlossariesRequest),
    "GetGlossary": (GoogleGlossaries.get, google.GetGlossaryRequest),
    "DeleteGlossary": (GoogleGlossaries.delete, google.DeleteGlossaryRequest),
    "GetGlossaryEntry": (GoogleGlossaries.get_entry, google.GetGlossaryEntryRequest),
    "ListGlossaryEntries": (GoogleGlossaries.list_entries, google.ListGlossaryEntriesRequest),
    "CreateGlossaryEntry": (GoogleGlossaries.create_entry, google.CreateGlossaryEntryRequest),
    "UpdateGlossaryEntry": (GoogleGlossaries.update_entry, google.UpdateGlossaryEntryRequest),
    "DeleteGlossaryEntry": (GoogleGlossaries.delete_entry, google.DeleteGlossaryEntryRequest),
}
"""What answers each method of Google's service, and the type of its request."""


class GoogleGlossaryService:
    """The methods for glossaries, for their entries, and for the operations that change them."""

    def __init__(self, service: GlossaryService) -> None:
        self._service = service

    def of(self, context: Context) -> GoogleGlossaries:
        """Return the glossaries of the caller of a call."""
        return GoogleGlossaries(CallGlossaries(self._service, context))

    def methods(self) -> dict[str, tuple[Method, Any]]:
        """Return the methods of Google's service by name, each with the type of its request."""
        return {name: (self._answering(function), kind) for name, (function, kind) in _METHODS.items()}

    def operations(self) -> dict[str, tuple[Method, Any]]:
        """Return the methods of OPERATIONS by name, each with the type of its request."""
        method = self._answering(lambda glossaries, request: glossaries.operation(request.name))
        return {"GetOperation": (method, operations_pb2.GetOperationRequest)}

    def _answering(self, function: Callable[[GoogleGlossaries, Any], Awaitable[Any]]) -> Method:
        """Return the method that replies with the result of a function."""

        async def answer(request: Any, context: Context) -> Any:
            found = await function(self.of(context), request)
            if isinstance(found, Operation):
                return found.message()
            return Empty() if found is None else found

        return answer
