"""Server reflection answers under both names of its protocol, and describes every service that it lists."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2

from tests.support.echo_engine import running

VERSIONS = ["v1", "v1alpha"]
SERVED = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "lingon.translation.v1.GlossaryService",
    "lingon.translation.v1.MemoryService",
    "lingon.translation.v1.TranslationService",
}


async def reflect(channel: grpc.aio.Channel, version: str, **request: str) -> Any:
    """Send one request of reflection; returns the reply.

    A client that streams would report INTERNAL for a call that ends before its message is sent.
    """
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    message = reflection_pb2.ServerReflectionRequest(**request).SerializeToString()
    call = channel.unary_stream(path, None, reflection_pb2.ServerReflectionResponse.FromString)(message, timeout=10)
    return await call.read()


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_listed_service_is_described_with_all_that_it_imports(version: str):
    async with running() as server:
        listed = (await reflect(server.channel, version, list_services="*")).list_services_response.service
        assert {service.name for service in listed} == SERVED
        for service in listed:
            reply = await reflect(server.channel, version, file_containing_symbol=service.name)
            raw = reply.file_descriptor_response.file_descriptor_proto
            files = [FileDescriptorProto.FromString(each) for each in raw]
            assert service.name in {f"{file.package}.{one.name}" for file in files for one in file.service}
            assert {needed for file in files for needed in file.dependency} <= {file.name for file in files}


@pytest.mark.parametrize("version", VERSIONS)
async def test_reflection_can_be_turned_off(version: str):
    async with running(reflection=False) as server:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await reflect(server.channel, version, list_services="*")
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("detail", ["BadRequest", "ErrorInfo", "RequestInfo", "ResourceInfo", "RetryInfo"])
async def test_the_messages_in_the_details_of_errors_are_described_too(version: str, detail: str):
    async with running() as server:
        reply = await reflect(server.channel, version, file_containing_symbol=f"google.rpc.{detail}")
    names = {
        message.name
        for raw in reply.file_descriptor_response.file_descriptor_proto
        for message in FileDescriptorProto.FromString(raw).message_type
    }
    assert detail in names


async def test_both_versions_are_described_alike():
    async with running() as server:
        descriptions = []
        for version in VERSIONS:
            symbol = f"grpc.reflection.{version}.ServerReflection"
            reply = await reflect(server.channel, version, file_containing_symbol=symbol)
            (raw,) = reply.file_descriptor_response.file_descriptor_proto
            file = FileDescriptorProto.FromString(raw)
            descriptions.append(str([*file.message_type, *file.service]).replace(f".{version}.", "."))
    assert descriptions[0] == descriptions[1]
