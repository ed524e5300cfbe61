"""The log and the traces name the caller of a call and of a model change, and never hold a key."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.admin.v1 import admin_pb2, admin_pb2_grpc
from lingon.serving.auth.api_keys import new_key
from lingon.serving.auth.callers import block_of, find_caller
from lingon.serving.observability.logs import JsonFormatter
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.credentials import Authority, bearer, client_credentials, write_key_file
from tests.support.echo_engine import BrokenEngine, bundle, running
from tests.support.reload_harness import refused
from tests.support.timing import eventually

SHOP, OLD, OPS, UNKNOWN = new_key(), new_key(), new_key(), new_key()
KEYS = {"shop": SHOP, "old": OLD, "ops": OPS}
FIELDS = {"shop": {"requests_per_minute": 1}, "old": {"disabled": True}, "ops": {"admin": True}}
TOM = pb.TranslateRequest(texts=["Tom"])


def lines(caplog: pytest.LogCaptureFixture, message: str = "call") -> list[dict[str, Any]]:
    """The fields of the log lines with a message."""
    return [vars(record)["fields"] for record in caplog.records if record.getMessage() == message]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "lingon.serving")
    return caplog


async def test_the_line_of_a_call_above_its_quota_names_the_key(tmp_path: Path, log: pytest.LogCaptureFixture):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        await server.stub.Translate(TOM, metadata=bearer(SHOP))
        assert (await refused(server.stub.Translate(TOM, metadata=bearer(SHOP))))[0] == "RESOURCE_EXHAUSTED"
    (line,) = lines(log)
    assert (line["code"], line["caller"]) == ("RESOURCE_EXHAUSTED", "key/shop")
    assert "address" not in line


@pytest.mark.parametrize(
    ("key", "caller"),
    [("", "address/127.0.0.1"), (UNKNOWN, "address/127.0.0.1"), (OLD, "key/old")],
    ids=["none", "unknown", "disabled"],
)
@pytest.mark.parametrize(
    "method",
    [
        "/lingon.translation.v1.TranslationService/Translate",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/no.such.Service/Method",
    ],
)
async def test_the_line_of_a_refused_caller_has_its_address_and_its_key_if_that_is_known(
    key: str, caller: str, method: str, tmp_path: Path, log: pytest.LogCaptureFixture
):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        call = server.channel.unary_unary(method)
        assert (await refused(call(b"", metadata=bearer(key) if key else ())))[0] == "UNAUTHENTICATED"
        await eventually(lambda: lines(log))
        assert server.metric("lingon_rejected_total", reason="UNAUTHENTICATED") == 1
    (line,) = lines(log)
    assert (line["code"], line["caller"]) == ("UNAUTHENTICATED", caller)
    assert line.get("address") == ("127.0.0.1" if caller == "key/old" else None)


async def test_no_part_of_a_key_is_in_the_log(tmp_path: Path, log: pytest.LogCaptureFixture):
    log.set_level(logging.DEBUG, "lingon.serving")
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        for key in (SHOP, SHOP, OLD, OPS, UNKNOWN):
            await asyncio.gather(server.stub.Translate(TOM, metadata=bearer(key)), return_exceptions=True)
    text = "".join(map(JsonFormatter().format, log.records))
    assert text.count('"caller": "key/') == 4
    for key in (SHOP, OLD, OPS, UNKNOWN):
        secret = key.removeprefix("lingon_")
        assert not [start for start in range(0, len(secret) - 7) if secret[start : start + 8] in text]


async def test_the_line_of_a_call_names_the_certificate_on_one_line(tmp_path: Path, log: pytest.LogCaptureFixture):
    ours = Authority()
    (tmp_path / "ca.crt").write_bytes(ours.pem)
    client = client_credentials(ours, ours.sign("shop\nlevel=error", names=(), addresses=()))
    async with running(**ours.sign().write(tmp_path), tls_client_ca=tmp_path / "ca.crt", ready=False) as server:
        await eventually(lambda: server.server.port)
        async with grpc.aio.secure_channel(f"127.0.0.1:{server.server.port}", client) as channel:
            stub: Any = pb_grpc.TranslationServiceStub(channel)
            assert (await refused(stub.Translate(TOM)))[0] == "UNAVAILABLE"
    (record,) = (record for record in log.records if record.getMessage() == "call")
    assert vars(record)["fields"]["caller"] == "certificate/shop\nlevel=error"
    assert r'"caller": "certificate/shop\nlevel=error"' in JsonFormatter().format(record)


async def test_the_lines_of_a_model_change_name_the_caller(tmp_path: Path, log: pytest.LogCaptureFixture):
    keys = write_key_file(tmp_path, KEYS, **FIELDS)
    async with running(api_keys=keys, admin_port=0) as server:
        path = str(bundle(server.folder, version=2).folder)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as channel:
            stub: Any = admin_pb2_grpc.ModelServiceStub(channel)
            admin = {"metadata": bearer(OPS)}
            await stub.LoadModel(admin_pb2.LoadModelRequest(path=path), **admin)
            await stub.UnloadModel(admin_pb2.UnloadModelRequest(name="en-de", version="2"), **admin)
            await stub.SwapModel(admin_pb2.SwapModelRequest(path=path), **admin)
            await refused(stub.SwapModel(admin_pb2.SwapModelRequest(path=path), **admin))
    wanted = [{"change": change, "model": path, "caller": "key/ops"} for change in ("load", "unload", "swap", "swap")]
    wanted[1]["model"] = "en-de/2"
    assert lines(log, "a model change begins") == wanted
    assert lines(log, "a model change is done") == wanted[:3]
    (line,) = lines(log, "a model change was refused")
    assert line.pop("reason")
    assert line == wanted[3]


async def test_the_line_of_an_unexpected_error_names_the_caller(log: pytest.LogCaptureFixture):
    async with running(engine=BrokenEngine) as server:
        assert (await refused(server.call("Tom")))[0] == "INTERNAL"
    assert [line["caller"] for line in lines(log, "a call failed")] == ["address/127.0.0.1"]


@pytest.mark.parametrize(
    ("address", "block"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::7", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("/run/lingon.sock", "/run/lingon.sock"),
    ],
)
def test_callers_without_a_name_are_told_apart_by_address_and_by_block_in_ipv6(address: str, block: str):
    assert block_of(address) == block


@pytest.mark.parametrize("with_key", [False, True])
async def test_the_caller_of_a_call_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_key: bool):
    found = []

    def counting(context: Any) -> str:
        found.append(caller := find_caller(context))
        return caller

    for module in ("auth.callers", "rpc.arrival"):
        monkeypatch.setattr(f"lingon.serving.{module}.find_caller", counting)
    settings = {"api_keys": write_key_file(tmp_path, KEYS, **FIELDS)} if with_key else {}
    async with running(**settings) as server:
        await server.stub.Translate(TOM, metadata=bearer(SHOP) if with_key else ())
        await server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=["Tom"]), metadata=bearer(OPS))
    assert found == (["key/shop", "key/ops"] if with_key else ["address/127.0.0.1"] * 2)
