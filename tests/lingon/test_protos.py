"""The proto files compile from a clone: all that they import is beside them, or part of every protobuf compiler."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.rpc import status_pb2
from grpc_tools import protoc

from tests.support.repository import ROOT

PROTOS = ROOT / "protos"


def compiled(folder: Path, *names: str) -> dict[str, FileDescriptorProto]:
    """Compile proto files with the folder protos/ alone; returns the descriptors of the files and of their imports."""
    well_known, output = files("grpc_tools") / "_proto", folder / "descriptors"
    options = [f"-I{PROTOS}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={output}"]
    assert protoc.main(["protoc", *options, *names]) == 0
    return {each.name: each for each in FileDescriptorSet.FromString(output.read_bytes()).file}


def test_every_proto_file_compiles_with_the_folder_alone(tmp_path: Path):
    names = [path.relative_to(PROTOS).as_posix() for path in PROTOS.rglob("*.proto")]
    well_known = {f"google/protobuf/{name}.proto" for name in ("any", "field_mask", "timestamp")}
    assert set(compiled(tmp_path, *names)) == {*names, *well_known}


def test_the_status_of_a_text_is_that_of_google_rpc(tmp_path: Path):
    found = compiled(tmp_path, "google/rpc/status.proto")["google/rpc/status.proto"]
    expected = FileDescriptorProto()
    status_pb2.DESCRIPTOR.CopyToProto(expected)
    assert (found.package, fields(found)) == (expected.package, fields(expected))


def fields(file: FileDescriptorProto) -> list[tuple[str, str, int, int, str]]:
    return [
        (message.name, each.name, each.number, each.type, each.type_name)
        for message in file.message_type
        for each in message.field
    ]


def test_the_copied_file_has_its_licence():
    text = (PROTOS / "google" / "rpc" / "status.proto").read_text(encoding="utf-8")
    assert "Google LLC" in text
    assert "Licensed under the Apache License, Version 2.0" in text
