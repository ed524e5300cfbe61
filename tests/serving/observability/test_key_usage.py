"""The metrics of API keys: calls and characters of each key in the file, and when it was last used."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.admin.v1 import admin_pb2, admin_pb2_grpc
from lingon.serving.auth.api_keys import new_key
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import RunningServer, running
from tests.support.eventually import eventually
from tests.support.key_files import bearer, write_key_file
from tests.support.reload_harness import refused

SHOP, OLD, OPS = new_key(), new_key(), new_key()
KEYS = {"shop": SHOP, "old": OLD, "ops": OPS}
FIELDS = {"shop": {"requests_per_minute": 2}, "old": {"disabled": True}, "ops": {"admin": True}}
TOM = pb.TranslateRequest(texts=["Tom", "Tom lives"])


def requests(server: RunningServer) -> dict[tuple[str, str], float]:
    """The counted calls by key and code, without zeros."""
    (family,) = (each for each in server.server.metrics.registry.collect() if each.name == "lingon_key_requests")
    return {(each.labels["key"], each.labels["code"]): each.value for each in family.samples if each.value}


async def test_calls_and_characters_are_counted_by_key(tmp_path: Path):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS), admin_port=0) as server:
        for key in (SHOP, SHOP, SHOP, OLD, OPS, new_key()):
            await asyncio.gather(server.stub.Translate(TOM, metadata=bearer(key)), return_exceptions=True)
        await refused(server.channel.unary_unary("/no.such.Service/Method")(b"", metadata=bearer(OPS)))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as channel:
            stub: Any = admin_pb2_grpc.ModelServiceStub(channel)
            await stub.ListModels(admin_pb2.ListModelsRequest(), metadata=bearer(OPS))
            await refused(stub.ListModels(admin_pb2.ListModelsRequest(), metadata=bearer(SHOP)))
        await eventually(lambda: requests(server).get(("shop", "PERMISSION_DENIED")))
        assert requests(server) == {
            ("shop", "OK"): 2,
            ("shop", "RESOURCE_EXHAUSTED"): 1,
            ("shop", "PERMISSION_DENIED"): 1,
            ("old", "UNAUTHENTICATED"): 1,
            ("ops", "OK"): 2,
            ("ops", "UNIMPLEMENTED"): 1,
        }
        characters = [server.metric("lingon_key_characters_total", key=name) for name in KEYS]
    assert characters == [24, 0, 12]


async def test_the_time_of_the_last_use_of_a_key_is_that_of_the_last_accepted_call(tmp_path: Path):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        before = time.time()
        for key in (SHOP, OLD):
            await asyncio.gather(server.stub.Translate(TOM, metadata=bearer(key)), return_exceptions=True)
        used = {name: server.metric("lingon_key_last_used_timestamp_seconds", key=name) for name in KEYS}
    assert before <= used["shop"] <= time.time()
    assert (used["old"], used["ops"]) == (0, 0)


async def test_a_key_that_leaves_the_file_leaves_the_metrics_and_a_new_one_is_there_before_its_first_call(
    tmp_path: Path,
):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        server.runner.gate.clear()
        call = server.stub.Translate(TOM, metadata=bearer(SHOP))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        write_key_file(tmp_path, {"ops": OPS, "new": new_key()})
        await eventually(lambda: _keys_after_a_call(server, {"ops", "new"}))
        server.runner.gate.set()
        await call  # a call that ends after its key left brings nothing back
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        assert _keys(server) == {"ops", "new"}
        assert server.metric("lingon_key_characters_total", key="new") == 0
        with pytest.raises(KeyError):
            server.metric("lingon_key_characters_total", key="shop")


async def _keys_after_a_call(server: RunningServer, wanted: set[str]) -> bool:
    """Whether the metrics have these keys after a call, which makes the server check the file."""
    await asyncio.gather(server.stub.ListModels(pb.ListModelsRequest(), metadata=bearer(OPS)), return_exceptions=True)
    return _keys(server) == wanted


def _keys(server: RunningServer) -> set[str]:
    families = [each for each in server.server.metrics.registry.collect() if each.name.startswith("lingon_key_")]
    assert len(families) == 3
    return {sample.labels["key"] for family in families for sample in family.samples}
