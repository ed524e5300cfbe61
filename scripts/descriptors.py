"""Generate deploy/envoy/lingon.binpb, the descriptor set that Envoy transcodes JSON with. --check only compares.

protos/ has no HTTP paths, because gRPC does not need them. The set has the paths of scripts/openapi.py, so that a
proxy and our own HTTP API answer at the same paths. Run it as a module: python -m scripts.descriptors
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import google.rpc.error_details_pb2
from google.api import annotations_pb2
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from scripts.openapi import PROTO, PROTOS, ROOT, ROUTES, write_or_check

OUTPUT = ROOT / "deploy/envoy/lingon.binpb"
ERRORS = (any_pb2, duration_pb2, google.rpc.error_details_pb2)
"""The files of the messages in the details of an error. The service does not import them, so that protoc omits them."""


def generate() -> bytes:
    """Return the set: our service with its paths, its imports, and the details of errors."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", "--include_imports"]
        subprocess.run([*command, f"--descriptor_set_out={output}", PROTO], check=True)
        found = {file.name: file for file in FileDescriptorSet.FromString(output.read_bytes()).file}
    _add_paths(found[PROTO])
    for module in ERRORS:
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        found.setdefault(file.name, file)
    return FileDescriptorSet(file=found.values()).SerializeToString(deterministic=True)


def _add_paths(file: FileDescriptorProto) -> None:
    (service,) = file.service
    for method in service.method:
        if method.client_streaming:  # Envoy's transcoder has no form for it
            continue
        path, verb = ROUTES[method.name]
        rule = method.options.Extensions[annotations_pb2.http]
        setattr(rule, verb, path)
        if verb == "post":
            rule.body = "*"


if __name__ == "__main__":
    sys.exit(write_or_check(OUTPUT, generate()))
