"""The reference of the gRPC interface, from the comments in protos/."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import google.rpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from docs.generators.reference import code, table

PROTOS = Path(__file__).parents[2] / "protos"
SERVICE, MESSAGE, ENUM, FIELD, METHOD, VALUE = 6, 4, 5, 2, 2, 2  # field numbers in descriptor.proto
Comments = Mapping[tuple[int, ...], str]


def reference(name: str) -> str:
    """Return the sections of one file: its opening comment, its services, messages and enums."""
    file = _parsed()[name]
    comments = {tuple(each.path): _prose(each.leading_comments) for each in file.source_code_info.location}
    syntax = next(each for each in file.source_code_info.location if tuple(each.path) == (12,))
    opening = "\n\n".join(_prose(each) for each in [*syntax.leading_detached_comments, syntax.leading_comments] if each)
    parts = [opening, *_services(file, comments), *_messages(file, comments), *_enums(file, comments)]
    return "\n\n".join(part for part in parts if part)


def _services(file: FileDescriptorProto, comments: Comments) -> Iterator[str]:
    for place, service in enumerate(file.service):
        yield f"### Service {service.name}\n\n{comments.get((SERVICE, place), '')}"
        rows = []
        for row, method in enumerate(service.method):
            reply = f"{'stream ' if method.server_streaming else ''}{_short(method.output_type)}"
            request = f"{'stream ' if method.client_streaming else ''}{_short(method.input_type)}"
            call = code(f"{method.name}({request}) returns ({reply})")
            rows.append((call, _cell(comments.get((SERVICE, place, METHOD, row), ""))))
        yield table(("call", "meaning"), rows)


def _messages(file: FileDescriptorProto, comments: Comments) -> Iterator[str]:
    for place, message in enumerate(file.message_type):
        yield f"### {message.name}\n\n{comments.get((MESSAGE, place), '')}"
        rows = []
        for row, field in enumerate(message.field):
            text = _cell(comments.get((MESSAGE, place, FIELD, row), ""))
            rows.append((code(field.name), code(_type(field)), str(field.number), text))
        if rows:
            yield table(("field", "type", "number", "meaning"), rows)
        else:
            yield "It has no fields."


def _enums(file: FileDescriptorProto, comments: Comments) -> Iterator[str]:
    for place, enum in enumerate(file.enum_type):
        yield f"### {enum.name}\n\n{comments.get((ENUM, place), '')}"
        rows = []
        for row, value in enumerate(enum.value):
            text = _cell(comments.get((ENUM, place, VALUE, row), ""))
            rows.append((code(value.name), str(value.number), text))
        yield table(("value", "number", "meaning"), rows)


def _type(field: FieldDescriptorProto) -> str:
    kind = _short(field.type_name) or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {kind}"
    return f"optional {kind}" if field.proto3_optional else kind


def _short(name: str) -> str:
    """Return a type's name without the package of the file, as in the file."""
    own = name.startswith(".lingon.")
    return name.rpartition(".")[2] if own else name.removeprefix(".")


def _prose(comment: str) -> str:
    return "\n".join(line.removeprefix(" ") for line in comment.strip("\n").splitlines())


def _cell(comment: str) -> str:
    return " ".join(comment.split()).replace("|", "\\|")


def _parsed() -> dict[str, Any]:
    """Parse the files with their comments, by their paths below protos/."""
    names = [path.relative_to(PROTOS).as_posix() for path in sorted(PROTOS.rglob("*.proto"))]
    folders = [PROTOS, *(Path(path).parent.parent for path in google.rpc.__path__)]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "protos.bin"
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{path}" for path in folders)]
        command += [f"--descriptor_set_out={output}", "--include_source_info", *names]
        subprocess.run(command, check=True)
        files = FileDescriptorSet.FromString(output.read_bytes()).file
    return {file.name: file for file in files}
