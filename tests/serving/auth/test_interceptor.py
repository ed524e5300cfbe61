"""API keys on every method of every service: missing, invalid and valid keys; quotas; identity of the caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lingon import Client, ServerError
from lingon.admin.v1 import admin_pb2
from lingon.client.steps import Retry
from lingon.errors import NotBegun, QuotaExceeded, WontFinish
from lingon.serving.auth import charges
from lingon.serving.auth.api_keys import ApiKeyFile, new_key
from lingon.serving.auth.callers import ApiKeyInterceptor, caller_of
from lingon.serving.auth.charges import charged
from lingon.serving.observability.metrics import Metrics
from lingon.serving.rpc.interceptors import ErrorInterceptor
from lingon.serving.rpc.ports import PortSecurity
from lingon.serving.settings import Settings
from lingon.translation.v1 import stores_pb2
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import Authority, bearer, client_credentials, write_key_file
from tests.support.echo_engine import EchoRunner, RunningServer, details, failure, running
from tests.support.timing import eventually

SHOP, OPS, OLD = new_key(), new_key(), new_key()
HEALTH = "/grpc.health.v1.Health/"


def methods(*files: Any) -> set[str]:
    """The paths of all methods of all services of these files."""
    return {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


REFLECTION_V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
MAIN = methods(pb, stores_pb2, health_pb2, reflection_pb2) | {REFLECTION_V1}
ADMIN = methods(admin_pb2)
UNKNOWN = {"/no.such.Service/Method", "/lingon.translation.v1.TranslationService/NoSuchMethod", "/"}
NO_KEY: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "an unknown one": bearer(new_key()),
    "the beginning of one": bearer(SHOP[:-1]),
    "its name": bearer("shop"),
    "another scheme": (("authorization", f"Basic {SHOP}"),),
    "no scheme": (("authorization", SHOP),),
    "an empty one": (("authorization", "Bearer "),),
    "elsewhere": (("x-api-key", SHOP),),
    "a disabled one": bearer(OLD),
    "two": bearer(SHOP) + bearer(OPS),
}


async def end_of(channel: grpc.aio.Channel, method: str, metadata: tuple[tuple[str, str], ...]) -> grpc.StatusCode:
    """The code of a call with an empty message; OK once it has a reply.

    One kind of call fits all methods, because they look the same on the wire. A client that streams would report
    INTERNAL for a call that ends before its message is sent.
    """
    call = channel.unary_stream(method)(b"", metadata=metadata, timeout=10)
    try:
        if await call.read() is not grpc.aio.EOF:
            return grpc.StatusCode.OK
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()
    return await call.code()


@asynccontextmanager
async def running_with_keys(
    folder: Path, runner: EchoRunner | None = None, **settings: Any
) -> AsyncIterator[RunningServer]:
    """A server with keys; its channel sends none."""
    shop = settings.pop("shop", {})
    keys = write_key_file(
        folder, {"shop": SHOP, "ops": OPS, "old": OLD}, shop=shop, ops={"admin": True}, old={"disabled": True}
    )
    async with running(runner, api_keys=keys, **settings) as server:
        yield server


@pytest.mark.parametrize("kind", NO_KEY)
async def test_without_a_valid_key_only_health_answers(kind: str, tmp_path: Path):
    async with running_with_keys(tmp_path) as server:
        for method in sorted(MAIN | ADMIN | UNKNOWN):
            code = await end_of(server.channel, method, NO_KEY[kind])
            if method.startswith(HEALTH):
                assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED), method  # List is not written
            else:
                assert code == grpc.StatusCode.UNAUTHENTICATED, method
        assert server.runner.encoded <= 1  # that of warming up


async def test_with_a_valid_key_all_methods_answer_and_unknown_ones_are_unimplemented(tmp_path: Path):
    async with running_with_keys(tmp_path) as server:
        for key in (SHOP, OPS):
            for method in sorted(MAIN):
                code = await end_of(server.channel, method, bearer(key))
                assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED), method
            for method in sorted(UNKNOWN | ADMIN):
                assert await end_of(server.channel, method, bearer(key)) == grpc.StatusCode.UNIMPLEMENTED, method
            request = pb.TranslateRequest(texts=["Tom"])
            assert (await server.stub.Translate(request, metadata=bearer(key))).results[0].hypotheses[0].text == "Tom"


async def test_the_admin_port_accepts_admin_keys_only(tmp_path: Path):
    others = {method for method in MAIN if not method.startswith(HEALTH)}
    async with running_with_keys(tmp_path, admin_port=0) as server:
        address = f"127.0.0.1:{server.server.admin_port}"
        async with grpc.aio.insecure_channel(address) as channel:
            for method in sorted(ADMIN | UNKNOWN | others):
                for metadata in NO_KEY.values():
                    assert await end_of(channel, method, metadata) == grpc.StatusCode.UNAUTHENTICATED, method
                assert await end_of(channel, method, bearer(SHOP)) == grpc.StatusCode.PERMISSION_DENIED, method
                expected = grpc.StatusCode.UNIMPLEMENTED
                code = await end_of(channel, method, bearer(OPS))
                assert (code == expected) == (method not in ADMIN), method
            assert await end_of(channel, "/lingon.admin.v1.ModelService/ListModels", bearer(OPS)) == grpc.StatusCode.OK
            call = channel.unary_unary("/lingon.admin.v1.ModelService/ListModels")
            status, trailers = await failure(call(b"", metadata=bearer(SHOP)))
        assert server.metric("lingon_rejected_total", reason="PERMISSION_DENIED") > 1
        assert server.metric("lingon_rejected_total", reason="UNAUTHENTICATED") > 1
    assert details(status)["ErrorInfo"].reason == "PERMISSION_DENIED"
    assert trailers["x-request-id"]


async def test_reflection_lists_exactly_the_methods_tested_here(tmp_path: Path):
    async with running_with_keys(tmp_path) as server:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(server.channel)

        async def reflect(**request: str) -> Any:
            call = stub.ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(**request)]), metadata=bearer(SHOP), timeout=10
            )
            return await call.read()

        listed = set()
        for service in (await reflect(list_services="")).list_services_response.service:
            reply = await reflect(file_containing_symbol=service.name)
            for raw in reply.file_descriptor_response.file_descriptor_proto:
                file = FileDescriptorProto.FromString(raw)
                listed |= {f"/{file.package}.{one.name}/{method.name}" for one in file.service for method in one.method}
    assert listed == MAIN


async def test_a_refusal_names_the_remedy_and_is_counted(tmp_path: Path):
    async with running_with_keys(tmp_path) as server:
        status, trailers = await failure(server.translate("Tom"))
        await failure(server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=bearer(OLD)))
        assert server.metric("lingon_requests_total", method="Translate", code="UNAUTHENTICATED") == 2
        assert server.metric("lingon_rejected_total", reason="UNAUTHENTICATED") == 2
    assert status.message == "an API key is needed: send it as metadata, authorization: Bearer KEY"
    assert details(status)["ErrorInfo"].reason == "UNAUTHENTICATED"
    assert len(trailers["x-request-id"]) == 32


async def test_a_revoked_key_is_refused_and_a_new_one_accepted(tmp_path: Path):
    async with running_with_keys(tmp_path) as server:
        new = new_key()

        async def code(key: str) -> str:
            return (
                await end_of(server.channel, "/lingon.translation.v1.TranslationService/ListModels", bearer(key))
            ).name

        assert [await code(SHOP), await code(new)] == ["OK", "UNAUTHENTICATED"]
        write_key_file(tmp_path, {"shop": new})

        async def renewed() -> bool:
            return [await code(SHOP), await code(new)] == ["UNAUTHENTICATED", "OK"]

        await eventually(renewed)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nanoseconds of the clock of quotas, which stands still."""
    found = [time.monotonic_ns()]
    monkeypatch.setattr(charges, "time", SimpleNamespace(monotonic_ns=lambda: found[0]))
    return found


async def test_a_used_up_quota_names_the_time_to_wait(tmp_path: Path, now: list[int]):
    async with running_with_keys(tmp_path, shop={"requests_per_minute": 600, "characters_per_minute": 1200}) as server:

        async def translate(*texts: str, key: str = SHOP) -> Any:
            return await server.stub.Translate(pb.TranslateRequest(texts=texts), metadata=bearer(key))

        await translate("x" * 600, "y" * 590, "z" * 10)
        encoded = server.runner.encoded
        status, trailers = await failure(translate("Tom", "B" * 37))
        assert status.code == code_pb2.RESOURCE_EXHAUSTED
        assert details(status)["ErrorInfo"].reason == "QUOTA_EXCEEDED"
        wait = details(status)["RetryInfo"].retry_delay.ToMilliseconds()
        assert wait == 2000  # 40 characters, at 20 a second
        assert trailers["retry-after-ms"] == str(wait)
        assert server.runner.encoded == encoded  # not even the text that the quota allows
        await translate("Tom", key=OPS)
        now[0] += wait * 10**6
        assert (await translate("Tom", "B" * 37)).results[0].hypotheses[0].text == "Tom"


async def test_a_patient_client_waits_for_its_quota(tmp_path: Path, now: list[int], monkeypatch: pytest.MonkeyPatch):
    async with running_with_keys(tmp_path, shop={"characters_per_minute": 1200}) as server:
        spent = pb.TranslateRequest(texts=["x" * 1200])
        await server.stub.Translate(spent, metadata=bearer(SHOP))

        def translate(patient: bool) -> list[str]:
            retry = Retry(wait_when_full=patient)
            with Client(f"127.0.0.1:{server.server.port}", api_key=SHOP, retries=retry) as client:
                return [result.text for result in client.translate(["Tom lives in Boston."] * 2)]

        with pytest.raises(ServerError, match="1200 characters in a minute; try again in"):
            await asyncio.to_thread(translate, False)
        monkeypatch.undo()  # the clock goes on
        assert await asyncio.to_thread(translate, True) == ["Tom lives in Boston."] * 2


async def test_every_method_that_runs_a_model_is_charged(tmp_path: Path):
    async with running_with_keys(tmp_path, shop={"requests_per_minute": 3}) as server:
        with_key = {"metadata": bearer(SHOP)}
        texts = {"texts": ["Tom"]}
        await server.stub.Translate(pb.TranslateRequest(**texts), **with_key)
        assert [event async for event in server.stub.TranslateStream(pb.TranslateStreamRequest(**texts), **with_key)]
        await server.stub.Score(pb.ScoreRequest(pairs=[pb.ScorePair(source="a", target="b")]), **with_key)
        for call in (
            server.stub.Translate(pb.TranslateRequest(**texts), **with_key),
            server.stub.TranslateStream(pb.TranslateStreamRequest(**texts), **with_key).read(),
        ):
            status, _ = await failure(call)
            assert details(status)["ErrorInfo"].reason == "QUOTA_EXCEEDED"
        await server.stub.ListModels(pb.ListModelsRequest(), **with_key)


async def test_a_request_above_the_quota_of_a_minute_is_invalid(tmp_path: Path):
    async with running_with_keys(tmp_path, shop={"characters_per_minute": 2}) as server:
        request = pb.ScoreRequest(pairs=[pb.ScorePair(source="äöü", target="abc")])
        status, trailers = await failure(server.stub.Score(request, metadata=bearer(SHOP)))
        assert status.code == code_pb2.INVALID_ARGUMENT
        assert "RetryInfo" not in details(status)
        assert "retry-after-ms" not in trailers
        request.pairs[0].target = "ab"
        await server.stub.Score(request, metadata=bearer(SHOP))


async def test_a_call_that_a_starting_server_refuses_is_not_charged(tmp_path: Path):
    async with running_with_keys(tmp_path, ready=False, shop={"requests_per_minute": 1}) as server:
        for _ in range(3):
            status, _ = await failure(server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=bearer(SHOP)))
            assert status.code == code_pb2.UNAVAILABLE
        server.loader.gate.set()
        await eventually(lambda: server.metric("lingon_ready") == 1)
        await server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=bearer(SHOP))


async def authenticate(key_file: ApiKeyFile) -> None:
    """Make this task serve a call with the key of the shop."""

    async def handler(_: Any) -> None:
        return None

    call: Any = SimpleNamespace(method="/a/b", invocation_metadata=bearer(SHOP))
    await ApiKeyInterceptor(key_file).intercept_service(handler, call)


async def test_a_request_refused_for_its_deadline_is_not_charged(tmp_path: Path):
    await authenticate(ApiKeyFile(write_key_file(tmp_path, {"shop": SHOP}, shop={"requests_per_minute": 1})))
    request = pb.TranslateRequest(texts=["Tom"])
    for kind in (WontFinish, NotBegun, WontFinish):
        with pytest.raises(kind), charged(request):
            raise kind("the deadline is nearer than the work's end")
    with charged(request):
        pass
    with pytest.raises(QuotaExceeded), charged(request):
        pass


async def test_charging_a_request_of_very_many_texts_is_fast(tmp_path: Path):
    await authenticate(ApiKeyFile(write_key_file(tmp_path, {"shop": SHOP}, shop={"characters_per_minute": 3_000_000})))
    request = pb.TranslateRequest(texts=[""] * 1_500_000)  # in 3 MB
    looks, charges = [], []
    for _ in range(5):
        start = time.thread_time()
        assert sum(map(len, request.texts)) == 0
        looks.append(time.thread_time() - start)
        start = time.thread_time()
        with suppress(WontFinish), charged(request):
            charges.append(time.thread_time() - start)
            raise WontFinish("what is not done costs nothing")
    assert min(charges) < min(looks) / 4
    with charged(request):
        pass
    with pytest.raises(QuotaExceeded), charged(request):
        pass


class Whoami(grpc.GenericRpcHandler):
    """Every method returns the identity of its caller, after a pause."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            await asyncio.sleep(0.01)  # other calls arrive meanwhile
            return caller_of(context).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def whoami(address: str, key_file: ApiKeyFile | None = None, credentials: Any = None) -> AsyncIterator[int]:
    server = grpc.aio.server(interceptors=[ErrorInterceptor(), *([ApiKeyInterceptor(key_file)] if key_file else [])])
    server.add_generic_rpc_handlers((Whoami(),))
    port = (
        server.add_secure_port(f"{address}:0", credentials) if credentials else server.add_insecure_port(f"{address}:0")
    )
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@pytest.mark.parametrize(("address", "caller"), [("127.0.0.1", "address/127.0.0.1"), ("[::1]", "address/::1")])
async def test_without_key_or_certificate_a_caller_is_identified_by_its_address(address: str, caller: str):
    async with whoami(address) as port, grpc.aio.insecure_channel(f"{address}:{port}") as channel:
        assert (await channel.unary_unary("/a/b")(b"")).decode() == caller


async def test_a_caller_is_identified_by_its_key_in_concurrent_calls(tmp_path: Path):
    key_file = ApiKeyFile(write_key_file(tmp_path, {"shop": SHOP, "ops": OPS}))
    async with whoami("127.0.0.1", key_file) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a/b")
        keys = [SHOP, OPS] * 20
        replies = await asyncio.gather(*(call(b"", metadata=bearer(key)) for key in keys))
    assert [reply.decode() for reply in replies] == ["key/shop", "key/ops"] * 20


@pytest.mark.parametrize(
    ("common_name", "names", "caller"),
    [("shop", ("a.example",), "certificate/shop"), ("", ("a.example",), "certificate/a.example")],
)
async def test_a_caller_is_identified_by_its_certificate(common_name: str, names: tuple[str, ...], caller: str):
    ours = Authority()
    own, client = ours.sign(), ours.sign(common_name, names=names, addresses=())
    credentials = grpc.ssl_server_credentials([(own.key, own.certificate)], ours.pem, require_client_auth=True)
    async with (
        whoami("127.0.0.1", None, credentials) as port,
        grpc.aio.secure_channel(f"127.0.0.1:{port}", client_credentials(ours, client)) as channel,
    ):
        assert (await channel.unary_unary("/a/b")(b"")).decode() == caller


async def test_a_warning_is_logged_for_keys_without_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    keys = {"api_keys": write_key_file(tmp_path, {"shop": SHOP})}
    tls = Authority().sign().write(tmp_path)
    everywhere, admin_everywhere = {"host": "0.0.0.0"}, {"admin_host": "0.0.0.0", "admin_port": 0}
    http_everywhere = {"http_host": "0.0.0.0", "http_port": 0}
    expected = (
        (everywhere, 1),
        (admin_everywhere, 1),
        (http_everywhere, 1),
        ({}, 0),
        ({**everywhere, **admin_everywhere, **tls}, 0),
    )
    for settings, warnings in expected:
        caplog.clear()
        PortSecurity(Settings.model_validate({**keys, **settings}), Metrics())
        assert sum("API keys are sent unencrypted" in record.getMessage() for record in caplog.records) == warnings


async def test_a_flood_of_one_key_does_not_delay_another(tmp_path: Path):
    runner, order = EchoRunner(delay=0.001), []
    async with running_with_keys(tmp_path, runner, max_rows=2, max_queue_texts=1000) as server:

        async def translate_with(key: str) -> None:
            await server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=bearer(key), timeout=30)
            order.append(key)

        runner.gate.clear()
        flood = [asyncio.create_task(translate_with(SHOP)) for _ in range(100)]
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-de", version="1") >= 98)
        other = asyncio.create_task(translate_with(OPS))
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-de", version="1") >= 99)
        runner.gate.set()
        await asyncio.gather(other, *flood)
    assert order.index(OPS) < 10
