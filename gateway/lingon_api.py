"""Our own API: the messages of the gRPC service as JSON, and the errors as google.rpc.Status.

The JSON is what google.protobuf.json_format reads and writes, faster for usual messages. Other input goes to
json_format, which reports every error: null, numbers as text, unknown fields, wrong types.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal.type_checkers import ToShortestFloat
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lingon.client.steps import SCORE, STREAM, TRANSLATE
from lingon.errors import ServerError
from lingon.gateway.body import Fields
from lingon.gateway.documents import Documents
from lingon.gateway.endpoint import Call, Endpoints, Streamed, bearer, json_error
from lingon.gateway.problem import Problem, problem_of
from lingon.gateway.translate import Wanted, detect
from lingon.status import DOMAIN
from lingon.translation.v1 import translation_pb2 as pb

MessageT = TypeVar("MessageT", bound=Message)
KNOWN_TYPES = "google.protobuf."  # start of the names of messages with their own JSON form
LARGEST = 3.4e38  # about the largest float
WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)  # written as text in JSON
Convert = Callable[[Any], Any]


class _Unusual(Exception):
    """A message that json_format has to read."""


def to_json(message: Message) -> str:
    """Return a message as JSON on one line."""
    return json.dumps(to_dict(message), ensure_ascii=False, separators=(",", ":"))


def to_dict(message: Message) -> dict[str, Any]:
    """Return the result of json_format.MessageToDict."""
    if message.DESCRIPTOR.full_name.startswith(KNOWN_TYPES):
        found: dict[str, Any] = json_format.MessageToDict(message)
        return found
    return _written(message)


def _written(message: Message) -> dict[str, Any]:
    writers = _writers(message.DESCRIPTOR)
    found = {}
    for field, value in message.ListFields():
        name, repeated, convert = writers[field.number]
        if convert is None:
            found[name] = list(value) if repeated else value
        else:
            found[name] = [convert(each) for each in value] if repeated else convert(value)
    return found


@functools.cache
def _writers(descriptor: Descriptor) -> dict[int, tuple[str, bool, Convert | None]]:
    """Return for each field by number: its name in JSON, whether it is repeated, the function that converts a value."""
    return {field.number: (field.json_name, field.is_repeated, _writer(field)) for field in descriptor.fields}


def _writer(field: FieldDescriptor) -> Convert | None:
    if field.message_type is not None:
        assert not field.message_type.GetOptions().map_entry, "the API has no maps"
        return json_format.MessageToDict if field.message_type.full_name.startswith(KNOWN_TYPES) else _written
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return _shortest
    if field.cpp_type in LONG:
        return str
    assert field.type != FieldDescriptor.TYPE_BYTES
    assert field.cpp_type != FieldDescriptor.CPPTYPE_DOUBLE
    return None


def _shortest(value: float) -> float | str:
    """Return the shortest number for this float, or text for NaN and infinity."""
    if math.isfinite(value):
        found: float = ToShortestFloat(value)
        return found
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_KINDS = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def from_json(body: bytes | str, message: MessageT) -> MessageT:
    """Fill a new message from JSON and return it. Raises what json_format.Parse raises."""
    try:
        found = json.loads(body, object_pairs_hook=_without_duplicates, parse_constant=_refuse)
        if type(found) is not dict:
            raise json_format.ParseError(f"it must be an object, got {_KINDS.get(type(found), 'a number')}")
        _read(found, message)
    except (_Unusual, ValueError, TypeError, RecursionError):
        message.Clear()
        return json_format.Parse(body, message)
    return message


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unusual
    return found


def _refuse(value: Any) -> None:
    raise _Unusual


def _read(found: Any, message: Message) -> None:
    if type(found) is not dict:
        raise _Unusual
    readers, seen = _readers(message.DESCRIPTOR), set()
    for key, value in found.items():
        reader = readers.get(key)
        if reader is None or reader.alone in seen:
            raise _Unusual
        name, kind, convert, alone = reader
        seen.add(alone)
        if kind == "list":
            if type(value) is not list:
                raise _Unusual
            getattr(message, name).extend([convert(each) for each in value])
        elif kind == "messages":
            if type(value) is not list:
                raise _Unusual
            for each in value:
                _read(each, getattr(message, name).add())
        elif kind == "message":
            part = getattr(message, name)
            part.SetInParent()
            _read(value, part)
        else:
            setattr(message, name, convert(value))


class _FieldReader(NamedTuple):
    """How a field is read.

    name: of the field; kind: list, messages, message or value; convert: checks and converts a value
    alone: the field, or the group of fields of which a message has one at most
    """

    name: str
    kind: str
    convert: Convert
    alone: str


@functools.cache
def _readers(descriptor: Descriptor) -> dict[str, _FieldReader]:
    """Return the readers by the names of the fields in JSON."""
    found: dict[str, _FieldReader] = {}
    convert: Convert
    for field in descriptor.fields:
        if field.message_type is not None:
            kind, convert = "messages" if field.is_repeated else "message", _refuse
            if field.message_type.full_name.startswith(KNOWN_TYPES):
                continue
        else:
            kind, convert = "list" if field.is_repeated else "value", _reader(field)
        group = field.containing_oneof
        reader = _FieldReader(field.name, kind, convert, field.name if group is None else f"oneof {group.name}")
        found[field.json_name] = found[field.name] = reader
    return found


def _reader(field: FieldDescriptor) -> Convert:
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda value: numbers[value] if type(value) is str and value in numbers else _refuse(value)
    if field.type == FieldDescriptor.TYPE_STRING:
        return functools.partial(_of_type, str)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return functools.partial(_of_type, bool)
    if field.cpp_type in WHOLE:
        return functools.partial(_of_type, int)
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return _number
    return _refuse


def _of_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise _Unusual
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
        raise _Unusual
    return float(value)


DETECTED = "x-lingon-detected-language"
NOTES = "x-lingon-notes"  # header with the notes about a translated file, separated by semicolons
DOCUMENT_FIELDS = (
    *("file", "targetLanguageCode", "target_language_code", "sourceLanguageCode", "source_language_code"),
    *("beamSize", "column"),
)
MOST_BEAMS = 1000  # highest beam size that a field accepts; the bound of the model is lower
EVENT_STREAM, LINES = "text/event-stream", "application/x-ndjson"
DETAIL = "type.googleapis.com/google.rpc"  # start of the type URLs of details of errors


class LingonApi:
    """`/v1`, for clients without gRPC."""

    name = "lingon"
    key_in_body = False

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        yield endpoints.route(self, "/v1/translate", self.translate, message=True, method=TRANSLATE)
        yield endpoints.route(self, "/v1/translate:stream", self.stream, message=True, method=STREAM)
        yield endpoints.route(self, "/v1/translate:document", self.document, check_files=_no_check)
        yield endpoints.route(self, "/v1/translate:source", self.source, message=True)
        yield endpoints.route(self, "/v1/score", self.score, message=True, method=SCORE)
        yield endpoints.route(self, "/v1/detect", self.detect, message=True)
        yield endpoints.route(self, "/v1/models", self.models, ("GET",))

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the key of the header `Authorization: Bearer KEY`."""
        return bearer(request)

    def error(self, problem: Problem, request: Request) -> Response:
        return error_response(problem)

    async def translate(self, call: Call) -> Response:
        return _json(await call.backend.translate(_message(call, pb.TranslateRequest()), call.caller))

    async def score(self, call: Call) -> Response:
        return _json(await call.backend.score(_message(call, pb.ScoreRequest()), call.caller))

    async def detect(self, call: Call) -> Response:
        return _json(await call.backend.detect(_message(call, pb.DetectLanguagesRequest()), call.caller))

    async def models(self, call: Call) -> Response:
        return _json(await call.backend.models(call.caller))

    async def document(self, call: Call) -> Response:
        """Translate a file and return its translation as a file. The language is detected if it is not given."""
        fields = call.fields
        if fields.file is None:
            raise Problem(400, "the form must have a file in the field 'file'", field="file")
        given, content = fields.file
        fields.check_names(DOCUMENT_FIELDS)
        target, source = (_either(fields, name) for name in ("target_language_code", "source_language_code"))
        if not target:
            raise Problem(400, "the form must have the field 'targetLanguageCode'", field="target_language_code")
        options = pb.DecodingOptions()
        if beams := fields.number("beamSize", 0, 0, MOST_BEAMS):
            options.beam_size = beams
        wanted = Wanted(target, source, options=options)
        found = await self._documents.translate(call, given, content, wanted, fields.text("column"))
        headers = {
            "content-disposition": _attachment(_named(found.name, target)),
            **({DETECTED: found.detected} if found.detected else {}),
            **({NOTES: _header(found.notes)} if found.notes else {}),
        }
        return Response(found.content, headers=headers, media_type="application/octet-stream")

    async def source(self, call: Call) -> Response:
        """Return the source language of all texts together. It is the target language if they are in it."""
        request = _message(call, pb.TranslateRequest())
        if not request.texts:
            raise Problem(400, "texts must be 1 or more, got 0", field="texts")
        target = request.target_language_code
        (source,) = await detect(
            call.backend, ["\n".join(request.texts)], call.caller, Wanted(target, text=request.text)
        )
        return _json(pb.DetectedLanguage(language_code=source.tag_for(target), confidence=source.confidence))

    async def stream(self, call: Call) -> Response:
        """Translate texts and send each event when it occurs, as server-sent events or as lines of JSON.

        An error before the event after `start` is an HTTP status. A later one is the event `error`. The server sends
        `start` before it plans the texts, and may refuse them then.
        """
        request = _message(call, pb.TranslateStreamRequest())
        messages = aiter(call.backend.stream(request, call.caller))
        first = [await anext(messages), await anext(messages, None)]
        as_events = LINES not in call.request.headers.get("accept", "")
        kind = EVENT_STREAM if as_events else LINES
        headers = {"x-accel-buffering": "no"}  # nginx would buffer the events
        return Streamed(_events(first, messages, as_events=as_events), headers=headers, media_type=kind)


def error_response(problem: Problem) -> Response:
    """Return the reply with an error."""
    response = json_error(problem.http_status, error_json(problem).encode(), problem)
    if problem.http_status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def _header(notes: Iterable[str]) -> str:
    """Return notes as the value of a header, which holds ASCII only."""
    return "; ".join(notes).encode("ascii", "backslashreplace").decode()


def _no_check() -> None:
    """Accept a body with a file, because its translation is not stored."""


def _either(fields: Fields, name: str) -> str:
    """Return a field that TranslateRequest has too, in the spelling of JSON or of the protos."""
    return fields.text(pb.TranslateRequest.DESCRIPTOR.fields_by_name[name].json_name) or fields.text(name)


def _attachment(name: str) -> str:
    """Return the header that names a file. The name is also in ASCII, because curl ignores `filename*`."""
    plain = re.sub(r"[^\w .-]", "_", name, flags=re.ASCII)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"


def _named(name: str, target: str) -> str:
    """Return the name of a translation, such as letter.de.docx for letter.docx."""
    path = Path(name)
    return f"{path.stem}.{target}{path.suffix}"


def error_json(problem: Problem) -> str:
    """Return a problem as google.rpc.Status in JSON, with its details.

    It is written without the messages, because packing details takes as long as the rest of a refusal.
    """
    details: list[dict[str, Any]] = []
    if problem.reason:
        details.append({"@type": f"{DETAIL}.ErrorInfo", "reason": problem.reason, "domain": DOMAIN})
    if problem.field:
        violation = {"field": problem.field, "description": str(problem)}
        details.append({"@type": f"{DETAIL}.BadRequest", "fieldViolations": [violation]})
    if problem.retry_after is not None:
        details.append({"@type": f"{DETAIL}.RetryInfo", "retryDelay": f"{problem.retry_after:.3f}s"})
    return json.dumps({"code": problem.code, "message": str(problem), **({"details": details} if details else {})})


def _message(call: Call, message: MessageT) -> MessageT:
    try:
        return from_json(call.body or b"{}", message)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not a {type(message).__name__}: {' '.join(str(error).split())}") from None


def _json(message: Message) -> Response:
    return Response(to_json(message), media_type="application/json")


async def _events(
    first: Iterable[pb.TranslateStreamResponse | None],
    rest: AsyncIterator[pb.TranslateStreamResponse],
    *,
    as_events: bool,
) -> AsyncIterator[str]:
    async with aclosing(rest):  # type: ignore[type-var]
        try:
            for each in first:
                if each is not None:
                    yield _event(each, as_events=as_events)
            async for message in rest:
                yield _event(message, as_events=as_events)
        except ServerError as error:
            content = error_json(problem_of(error))
            yield f"event: error\ndata: {content}\n\n" if as_events else f'{{"error":{content}}}\n'


def _event(message: pb.TranslateStreamResponse, *, as_events: bool) -> str:
    content = to_json(message)
    return f"event: {message.WhichOneof('event')}\ndata: {content}\n\n" if as_events else f"{content}\n"
