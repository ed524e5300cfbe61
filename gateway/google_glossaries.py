"""The glossaries of Google's API over REST: the messages of the gRPC API as JSON, in paths with their names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.errors import RequestError
from lingon.gateway.endpoint import Api, Call, Endpoints
from lingon.gateway.problem import Problem, problem_of_request
from lingon.google.glossaries import GoogleGlossaries, Operation, type_url
from lingon.google.v3 import cloud_translation_pb2 as google

PLACE = "/v3/projects/{project}/locations/{location}"
GLOSSARIES, OPERATIONS = f"{PLACE}/glossaries", f"{PLACE}/operations"
GLOSSARY = f"{GLOSSARIES}/{{glossary}}"
ENTRIES = f"{GLOSSARY}/glossaryEntries"
ENTRY = f"{ENTRIES}/{{entry}}"
MessageT = TypeVar("MessageT", bound=Message)
Method = Callable[[GoogleGlossaries, Call], Awaitable[Message | Operation | None]]


def routes(api: Api, endpoints: Endpoints) -> Iterator[Route]:
    """Yield the routes."""
    methods: list[tuple[str, str, Method]] = [
        ("POST", GLOSSARIES, _create),
        ("GET", GLOSSARIES, _list),
        ("GET", GLOSSARY, _get),
        ("PATCH", GLOSSARY, _update),
        ("DELETE", GLOSSARY, _delete),
        ("POST", ENTRIES, _create_entry),
        ("GET", ENTRIES, _list_entries),
        ("GET", ENTRY, _get_entry),
        ("PATCH", ENTRY, _update_entry),
        ("DELETE", ENTRY, _delete_entry),
        ("GET", f"{OPERATIONS}/{{operation}}", _operation),
    ]
    for method, path, handler in methods:
        # The bodies are messages of JSON, and have no fields.
        options: dict[str, Any] = {"message": True, "large": True} if method in ("POST", "PATCH") else {}
        yield endpoints.route(api, path, _answering(handler), (method,), **options)


async def glossary_for(call: Call, config: google.TranslateTextGlossaryConfig, source: str, target: str) -> str:
    """Return the glossary of a translation by its name on the server. Raises Problem."""
    try:
        return await GoogleGlossaries(call.stores).name_for(config, source, target)
    except RequestError as error:
        raise problem_of_request(error) from None


def _answering(method: Method) -> Callable[[Call], Awaitable[Response]]:
    """Return the handler that replies with the result of a method."""

    async def answer(call: Call) -> Response:
        try:
            found = await method(GoogleGlossaries(call.stores), call)
        except RequestError as error:
            raise problem_of_request(error) from None
        if isinstance(found, Operation):
            return JSONResponse(_operation_json(found))
        return JSONResponse({} if found is None else json_format.MessageToDict(found))

    return answer


def _operation_json(operation: Operation) -> dict[str, Any]:
    packed = {
        name: {"@type": type_url(message), **json_format.MessageToDict(message)}
        for name, message in (("metadata", operation.metadata), ("response", operation.response))
    }
    return {"name": operation.name, "done": True, **packed}


async def _create(glossaries: GoogleGlossaries, call: Call) -> Operation:
    glossary = _body(call, google.Glossary())
    return await glossaries.create(google.CreateGlossaryRequest(parent=_parent(call), glossary=glossary))


async def _update(glossaries: GoogleGlossaries, call: Call) -> Operation:
    request = google.UpdateGlossaryRequest(glossary=_body(call, google.Glossary()))
    request.glossary.name = _name(call)
    if mask := call.fields.text("updateMask"):
        request.update_mask.FromJsonString(mask)
    return await glossaries.update(request)


async def _get(glossaries: GoogleGlossaries, call: Call) -> Message:
    return await glossaries.get(google.GetGlossaryRequest(name=_name(call)))


async def _delete(glossaries: GoogleGlossaries, call: Call) -> Operation:
    return await glossaries.delete(google.DeleteGlossaryRequest(name=_name(call)))


async def _list(glossaries: GoogleGlossaries, call: Call) -> Message:
    chosen = call.fields.text("filter")
    return await glossaries.list(google.ListGlossariesRequest(parent=_parent(call), filter=chosen, **_page(call)))


async def _create_entry(glossaries: GoogleGlossaries, call: Call) -> Message:
    entry = _body(call, google.GlossaryEntry())
    return await glossaries.create_entry(google.CreateGlossaryEntryRequest(parent=_parent(call), glossary_entry=entry))


async def _update_entry(glossaries: GoogleGlossaries, call: Call) -> Message:
    request = google.UpdateGlossaryEntryRequest(glossary_entry=_body(call, google.GlossaryEntry()))
    request.glossary_entry.name = _name(call)
    return await glossaries.update_entry(request)


async def _get_entry(glossaries: GoogleGlossaries, call: Call) -> Message:
    return await glossaries.get_entry(google.GetGlossaryEntryRequest(name=_name(call)))


async def _delete_entry(glossaries: GoogleGlossaries, call: Call) -> None:
    await glossaries.delete_entry(google.DeleteGlossaryEntryRequest(name=_name(call)))


async def _list_entries(glossaries: GoogleGlossaries, call: Call) -> Message:
    return await glossaries.list_entries(google.ListGlossaryEntriesRequest(parent=_parent(call), **_page(call)))


async def _operation(glossaries: GoogleGlossaries, call: Call) -> Operation:
    return await glossaries.operation(_name(call))


def _body(call: Call, message: MessageT) -> MessageT:
    """Return the body as a message. Fields that have no effect are not known here, and are ignored."""
    try:
        return json_format.Parse(call.body or b"{}", message, ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not a {type(message).__name__}: {' '.join(str(error).split())}") from None


def _name(call: Call) -> str:
    """Return the name of what a path is about."""
    return call.request.url.path.removeprefix("/v3/")


def _parent(call: Call) -> str:
    return _name(call).rpartition("/")[0]


def _page(call: Call) -> dict[str, Any]:
    size = call.fields.number("pageSize", 0, 0, 10**6)
    return {"page_size": size, "page_token": call.fields.text("pageToken")}
