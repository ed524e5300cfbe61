"""Generate the description of our HTTP API, gateway/page/openapi.json, from protos/. --check only compares.

The API has the messages of the gRPC service in the JSON of protobuf, so that descriptors and comments describe all of
it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

ROOT = Path(__file__).resolve().parent.parent
PROTOS, OUTPUT = ROOT / "protos", ROOT / "gateway/page/openapi.json"
PROTO = "lingon/translation/v1/translation.proto"
MESSAGE, ENUM, FIELD, VALUE, SERVICE, METHOD = 4, 5, 2, 2, 6, 2  # field numbers in descriptor.proto
ROUTES = {
    "Translate": ("/v1/translate", "post"),
    "TranslateStream": ("/v1/translate:stream", "post"),
    "Score": ("/v1/score", "post"),
    "DetectLanguages": ("/v1/detect", "post"),
    "ListModels": ("/v1/models", "get"),
}
TYPES: dict[int, dict[str, Any]] = {
    FieldDescriptorProto.TYPE_STRING: {"type": "string"},
    FieldDescriptorProto.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptorProto.TYPE_UINT32: {"type": "integer", "format": "uint32", "minimum": 0, "maximum": 2**32 - 1},
    FieldDescriptorProto.TYPE_UINT64: {"type": "string", "format": "uint64", "pattern": "^[0-9]{1,20}$"},
    FieldDescriptorProto.TYPE_FLOAT: {"type": "number", "format": "float"},
}
DOCUMENT_ROUTE, SOURCE_ROUTE = "/v1/translate:document", "/v1/translate:source"
LIVE = "TranslateLive"
LIVE_ROUTE = "/v1/translate:live"
DOCUMENT: dict[str, Any] = {
    "type": "object",
    "description": "A form with a file.",
    "required": ["file", "targetLanguageCode"],
    "properties": {
        "file": {
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "description": "The file, with a name that ends as its kind does, such as letter.docx.",
        },
        "targetLanguageCode": {"type": "string", "description": "BCP-47, such as de."},
        "sourceLanguageCode": {"type": "string", "description": "Detected if it is missing."},
        "beamSize": {"type": "integer", "description": "As in DecodingOptions.", "minimum": 0, "maximum": 1000},
        "column": {
            "type": "string",
            "description": "Of a .csv or .tsv file, the column with the texts: its name in the first row, or its "
            "number, from 1 on.",
        },
    },
}
STATUS: dict[str, Any] = {
    "type": "object",
    "description": "An error: https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto",
    "properties": {
        "code": {"type": "integer", "format": "int32", "description": "A value of google.rpc.Code."},
        "message": {"type": "string", "description": "One line for people."},
        "details": {"type": "array", "items": {"type": "object"}, "description": "Messages with details."},
    },
}
NEEDED = {
    "TranslateRequest": "texts",
    "TranslateStreamRequest": "texts",
    "DetectLanguagesRequest": "texts",
    "ScoreRequest": "pairs",
}
"""The lists that have at least one element, by their message: a request without it is refused."""

EVENT: dict[str, Any] = {
    "type": "object",
    "description": "A server-sent event.",
    "required": ["event", "data"],
    "properties": {
        "event": {
            "type": "string",
            "enum": ["start", "delta", "done", "error"],
            "description": "The field that the message has, or error.",
        },
        "data": {
            "type": "string",
            "description": "A TranslateStreamResponse as JSON; of an error, a Status.",
            "contentMediaType": "application/json",
            "contentSchema": {
                "anyOf": [
                    {"$ref": "#/components/schemas/TranslateStreamResponse"},
                    {"$ref": "#/components/schemas/Status"},
                ]
            },
        },
    },
}
LIVE_ANSWER: dict[str, Any] = {
    "description": "A message of the server of a live translation. After an error the connection closes with 4000 and "
    "the HTTP status of the error.",
    "anyOf": [
        {"$ref": "#/components/schemas/TranslateLiveResponse"},
        {"type": "object", "required": ["error"], "properties": {"error": {"$ref": "#/components/schemas/Status"}}},
    ],
}
OTHERS = {"DocumentForm": DOCUMENT, "Status": STATUS, "StreamEvent": EVENT, "LiveAnswer": LIVE_ANSWER}
Comments = dict[tuple[int, ...], str]


def parsed() -> FileDescriptorProto:
    """Parse the file with its comments."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={output}", PROTO], check=True)
        (file,) = FileDescriptorSet.FromString(output.read_bytes()).file
    return file


def generate() -> str:
    """Return the description as JSON."""
    file = parsed()
    comments = {tuple(each.path): " ".join(each.leading_comments.split()) for each in file.source_code_info.location}
    schemas = {
        message.name: _message(message, (MESSAGE, place), comments) for place, message in enumerate(file.message_type)
    }
    enums = {enum.name: _enum(enum, (ENUM, place), comments) for place, enum in enumerate(file.enum_type)}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Lingon",
            "version": "1",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "The gRPC service of a Lingon server as JSON. Fields are written in lower camel case, and "
            "read in snake case too; a field that has its default is left out.",
        },
        "paths": dict(_paths(file, comments)),
        "components": {
            "schemas": dict(sorted({**schemas, **enums, **OTHERS}.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _paths(file: FileDescriptorProto, comments: Comments) -> Iterator[tuple[str, Any]]:
    (service,) = file.service
    for place, method in enumerate(service.method):
        summary = comments.get((SERVICE, 0, METHOD, place), "")
        if method.name == LIVE:
            yield LIVE_ROUTE, {"get": _live_operation(summary)}
            continue
        path, verb = ROUTES[method.name]
        reply = {"application/json": {"schema": _reference(method.output_type)}}
        if method.server_streaming:
            line = _reference(method.output_type)
            event = {"$ref": "#/components/schemas/StreamEvent"}
            reply = {"text/event-stream": {"schema": event}, "application/x-ndjson": {"schema": line}}
        body = {"application/json": {"schema": _reference(method.input_type)}} if verb == "post" else None
        yield path, {verb: _operation(method.name, summary, body, reply)}
    yield DOCUMENT_ROUTE, {"post": _document_operation()}
    yield SOURCE_ROUTE, {"post": _source_operation()}


def _document_operation() -> dict[str, Any]:
    file = {"type": "string", "contentMediaType": "application/octet-stream"}
    return _operation(
        "TranslateDocument",
        "Translates a file into a file of the same kind. The reply names it, and the header "
        "`X-Lingon-Detected-Language` the source language if that was detected.",
        {"multipart/form-data": {"schema": _reference("DocumentForm")}},
        {"application/octet-stream": {"schema": file}},
    )


def _source_operation() -> dict[str, Any]:
    return _operation(
        "FindSource",
        "Finds the language that texts are translated from, all of them together: the target language if they are in "
        "it already. It is an error if no model translates them. Only texts, targetLanguageCode and text are read.",
        {"application/json": {"schema": _reference("TranslateRequest")}},
        {"application/json": {"schema": _reference("DetectedLanguage")}},
    )


def _live_operation(summary: str) -> dict[str, Any]:
    """Return the operation of a WebSocket, whose messages OpenAPI has no words for: x-websocket names their schemas."""
    error = {"application/json": {"schema": _reference("Status")}}
    protocol = {
        "type": "string",
        "description": "lingon.live.v1, and for a caller that cannot set headers the API key: lingon.key. and the key "
        "in base64url without padding.",
        "examples": ["lingon.live.v1, lingon.key.c2VjcmV0"],
    }
    return {
        "operationId": LIVE,
        "summary": summary,
        "description": "A WebSocket. Each frame of text has one message as JSON: the client sends "
        "TranslateLiveRequest, the first one with start, and the server LiveAnswer, the first one with ready. The "
        "connection closes with 1000 after the message with done.",
        "parameters": [{"name": "Sec-WebSocket-Protocol", "in": "header", "schema": protocol}],
        "responses": {
            "101": {"description": "The connection is a WebSocket."},
            "426": {"description": "The request has no upgrade to a WebSocket.", "content": error},
            "default": {"description": "An error.", "content": error},
        },
        "x-websocket": {"client": _reference("TranslateLiveRequest"), "server": _reference("LiveAnswer")},
    }


def _operation(name: str, summary: str, body: dict[str, Any] | None, reply: dict[str, Any]) -> dict[str, Any]:
    """Return an operation. body, reply: schemas by media type."""
    asked = {"requestBody": {"required": True, "content": body}} if body else {}
    return {"operationId": name, "summary": summary, "responses": _responses(reply), **asked}


def _responses(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the responses of an operation. reply: schemas by media type."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Status"}}}
    return {
        "200": {"description": "The reply.", "content": reply},
        "default": {"description": "An error.", "content": error},
    }


def _message(message: DescriptorProto, path: tuple[int, ...], comments: Comments) -> dict[str, Any]:
    properties, needed = {}, NEEDED.get(message.name)
    for place, field in enumerate(message.field):
        schema = _type(field)
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            least = {"minItems": 1} if field.name == needed else {}
            schema = {"type": "array", "items": schema, **least}
        text = comments.get((*path, FIELD, place), "")
        properties[field.json_name] = {**schema, **({"description": text} if text else {})}
    described = {"type": "object", "description": comments.get(path, ""), "properties": properties}
    if all(field.HasField("oneof_index") and not field.proto3_optional for field in message.field) and message.field:
        described |= {"minProperties": 1, "maxProperties": 1}
    return {**described, "required": [needed]} if needed else described


def _enum(enum: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> dict[str, Any]:
    return {
        "type": "string",
        "description": comments.get(path, ""),
        "enum": [value.name for value in enum.value],
        "x-enum-descriptions": [comments.get((*path, VALUE, place), "") for place in range(len(enum.value))],
    }


def _type(field: FieldDescriptorProto) -> dict[str, Any]:
    return dict(TYPES[field.type]) if field.type in TYPES else _reference(field.type_name)


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name.rpartition('.')[2]}"}


def write_or_check(output: Path, content: bytes) -> int:
    """Write a generated file; with --check, return 1 if it is outdated."""
    if sys.argv[1:] != ["--check"]:
        output.write_bytes(content)
        return 0
    if not output.exists() or output.read_bytes() != content:
        print(f"{output.relative_to(ROOT)}: differs from what protos/ gives; run: make stubs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(write_or_check(OUTPUT, generate().encode()))
