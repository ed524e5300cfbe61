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
Method = Callable[[GoogleGlossaries, Any], Awaitable[Message | Operation | None]]


def routes(api: Api, endpoints: Endpoints) -> Iterator[Route]:
    """Yield the routes."""
    methods: list[tuple[str, str, Method, Callable[[Call], Any]]] = [
        ("POST", GLOSSARIES, GoogleGlossaries.create, _creation),
        ("GET", GLOSSARIES, GoogleGlossaries.list, _list),
        ("GET", GLOSSARY, GoogleGlossaries.get, _named(google.GetGlossaryRequest)),
        ("PATCH", GLOSSARY, GoogleGlossaries.update, _update),
        ("DELETE", GLOSSARY, GoogleGlossaries.delete, _named(google.DeleteGlossaryRequest)),
        ("POST", ENTRIES, GoogleGlossaries.create_entry, _creation_of_entry),
        ("GET", ENTRIES, GoogleGlossaries.list_entries, _list_of_entries),
        ("GET", ENTRY, GoogleGlossaries.get_entry, _named(google.GetGlossaryEntryRequest)),
        ("PATCH", ENTRY, GoogleGlossaries.update_entry, _update_of_entry),
        ("DELETE", ENTRY, GoogleGlossaries.delete_entry, _named(google.DeleteGlossaryEntryRequest)),
        ("GET", f"{OPERATIONS}/{{operation}}", GoogleGlossaries.operation, _name),
    ]
    for verb, path, method, request_of in methods:
        # The bodies are messages of JSON, and have no fields.
        options: dict[str, Any] = {"message": True, "large": True} if verb in ("POST", "PATCH") else {}
        yield endpoints.route(api, path, _answering(method, request_of), (verb,), **options)


async def glossary_for(call: Call, config: google.TranslateTextGlossaryConfig, source: str, target: str) -> str:
    """Return the glossary of a translation by its name on the server. Raises Problem."""
    try:
        return await GoogleGlossaries(call.stores).name_for(config, source, target)
    except RequestError as error:
        raise problem_of_request(error) from None


def _answering(method: Method, request_of: Callable[[Call], Any]) -> Callable[[Call], Awaitable[Response]]:
    """Return the handler that replies with the result of a method. request_of: returns the request of a call."""

    async def answer(call: Call) -> Response:
        try:
            found = await method(GoogleGlossaries(call.stores), request_of(call))
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


def _named(kind: Callable[..., Message]) -> Callable[[Call], Message]:
    """Return what makes a request of a kind with the name in the path of a call."""
    return lambda call: kind(name=_name(call))


def _creation(call: Call) -> Message:
    return google.CreateGlossaryRequest(parent=_parent(call), glossary=_body(call, google.Glossary()))


def _update(call: Call) -> Message:
    request = google.UpdateGlossaryRequest(glossary=_body(call, google.Glossary()))
    request.glossary.name = _name(call)
    if mask := call.fields.text("updateMask"):
        request.update_mask.FromJsonString(mask)
    return request


def _list(call: Call) -> Message:
    return google.ListGlossariesRequest(parent=_parent(call), filter=call.fields.text("filter"), **_page(call))


def _creation_of_entry(call: Call) -> Message:
    return google.CreateGlossaryEntryRequest(parent=_parent(call), glossary_entry=_body(call, google.GlossaryEntry()))


def _update_of_entry(call: Call) -> Message:
    request = google.UpdateGlossaryEntryRequest(glossary_entry=_body(call, google.GlossaryEntry()))
    request.glossary_entry.name = _name(call)
    return request


def _list_of_entries(call: Call) -> Message:
    return google.ListGlossaryEntriesRequest(parent=_parent(call), **_page(call))


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
