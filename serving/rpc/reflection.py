"""gRPC server reflection under both names of its protocol: `v1`, and the older `v1alpha`.

grpcio-reflection (1.85.1) has v1alpha alone. Clients ask for v1 first, and some know no other. Both have the same
messages, so that one servicer answers both. The description of v1 is that of v1alpha with other names.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1ALPHA = reflection.SERVICE_NAME
V1 = V1ALPHA.replace("v1alpha", "v1")


def add_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Add both services to a server. They list themselves and `services`, which are full names of protobuf services."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer([*services, V1, V1ALPHA])
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (V1, V1ALPHA):
        methods = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
        server.add_registered_method_handlers(name, methods)


def _describe_v1() -> None:
    """Add the description of v1 to the pool from which reflection answers, unless another library has done so."""
    pool = descriptor_pool.Default()
    try:
        pool.FindFileContainingSymbol(V1)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        file.name = "grpc/reflection/v1/reflection.proto"
        file.ClearField("options")  # those of generated code in other languages
        text = text_format.MessageToString(file).replace(V1ALPHA.rpartition(".")[0], V1.rpartition(".")[0])
        pool.AddSerializedFile(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()).SerializeToString())
