"""The life of a server: ready after the warm-up, drained after a signal, restart or end after an engine failure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2

from lingon.errors import BundleError, LingonError
from lingon.serving.engine.engine import Engine, any_worker_alive
from lingon.serving.models import supervisor
from lingon.serving.server import SERVICE
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import NOT_SERVING, SERVING, EchoRunner, RunningServer, bundle, details, failure, running
from tests.support.http2 import get
from tests.support.repository import ROOT
from tests.support.timing import eventually

MAIN = """
import asyncio, sys
from lingon.serving.observability.logs import configure
from lingon.serving.server import Server
from lingon.serving.settings import Settings
from tests.support import echo_engine
configure("console", "debug")

async def main():
    loader = echo_engine.Loader(echo_engine.EchoRunner(delay=float(sys.argv[2]), endless=True))
    if "slow" in sys.argv:
        loader.gate.clear()
    settings = Settings.model_validate({"models": (sys.argv[1],), "port": 0, "metrics_port": 0, "drain_seconds": 10})
    server = Server(settings, lambda line: print(server.port, server.metrics_port, flush=True), loader)
    task = asyncio.create_task(server.run())
    await server.bound.wait()
    print("bound", flush=True)
    return await task

sys.exit(asyncio.run(main()))
"""


async def serves(server: RunningServer) -> bool:
    return await server.health() == SERVING


async def refuses(server: RunningServer) -> bool:
    return await server.health() == NOT_SERVING


async def test_health_is_serving_only_after_the_models_are_warmed_up():
    async with running(ready=False) as server:
        names = ("", SERVICE, "en-de", "en-de/1", "model/en-de", "model/en-de/1")
        before = [await server.health(name) for name in names]
        http = await asyncio.to_thread(get, server.server.metrics_port, "/healthz")
        server.loader.gate.set()
        await eventually(partial(serves, server))
        after = [await server.health(name) for name in names]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.health("model/nope")
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK
        assert await asyncio.to_thread(get, server.server.metrics_port, "/healthz") == (200, "SERVING\n")
        assert (await asyncio.to_thread(get, server.server.metrics_port, "/nope"))[0] == 404
    assert before == [NOT_SERVING] * len(names)
    assert after == [SERVING] * len(names)
    assert http == (503, "NOT_SERVING\n")
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_server_in_a_process_of_others_leaves_the_garbage_collection_to_them():
    before = gc.get_freeze_count(), gc.get_threshold()
    async with running() as server:
        await server.translate("Tom")
        assert (gc.get_freeze_count(), gc.get_threshold()) == before


async def test_a_drain_finishes_calls_in_flight_and_refuses_new_ones():
    async with running(EchoRunner(endless=True), drain_seconds=60) as server:
        server.runner.gate.clear()
        in_flight = server.call("Tom", "The sea", seconds=None, options=pb.DecodingOptions(return_alignment=True))
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 2)
        server.server.stop()
        await eventually(partial(refuses, server))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.translate("Tom")
        assert await server.health() == NOT_SERVING
        server.runner.gate.set()
        reply = await in_flight
        assert server.metric("lingon_requests_total", method="Translate", code="UNAVAILABLE") == 1
        assert await asyncio.wait_for(server.task, 10) == 0
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert [len(result.hypotheses[0].alignment) > 0 for result in reply.results] == [True, True]


async def test_calls_are_still_answered_during_the_propagation_time():
    async with running(propagation_seconds=3) as server:
        server.server.stop()
        await asyncio.sleep(0.1)
        assert await server.health() == NOT_SERVING
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK


async def test_a_server_whose_event_loop_hangs_reports_not_serving():
    async with running(hang_seconds=1.5) as server:
        port, replies = server.server.metrics_port, list[tuple[int, str]]()

        async def serving() -> bool:
            return await asyncio.to_thread(get, port, "/healthz") == (200, "SERVING\n")

        await eventually(serving)
        request = threading.Timer(2.0, lambda: replies.append(get(port, "/healthz")))
        request.start()
        request.join()  # blocks the event loop
        assert replies == [(503, "NOT_SERVING\n")]
        await eventually(serving)


async def test_the_metrics_port_logs_nothing_about_connections_that_are_reset(capfd: pytest.CaptureFixture[str]):
    async with running() as server:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.server.metrics_port)) as peer:
                peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                # With a linger time of 0, closing the socket resets the connection.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert (await asyncio.to_thread(get, server.server.metrics_port, "/healthz"))[0] == 200
    assert capfd.readouterr().err == ""


async def test_silent_connections_to_the_metrics_port_use_a_bounded_number_of_threads():
    async with running() as server:
        address, before = ("127.0.0.1", server.server.metrics_port), threading.active_count()
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(150)]
            assert await asyncio.to_thread(peers[0].recv, 1) == b""  # the server closed it
            await eventually(lambda: threading.active_count() - before <= 128 + 1)
        await eventually(lambda: threading.active_count() <= before + 2)
        assert (await asyncio.to_thread(get, address[1], "/healthz"))[0] == 200


async def test_calls_that_are_not_done_when_the_drain_ends_are_unavailable():
    async with running(EchoRunner(delay=0.05, endless=True), drain_seconds=0.1) as server:
        in_flight = server.call("Tom lives in Boston", "The old man and the sea")
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 2)
        server.server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await in_flight
        assert await asyncio.wait_for(server.task, 10) == 0
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_dead_engine_is_restarted_and_its_calls_may_be_retried():
    async with running(EchoRunner(dies_at=3)) as server:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.translate("Tom lives in Boston.")
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "canary" not in str(raised.value)
        death = {"model": "en-de", "version": "1", "cause": "death"}
        await eventually(lambda: server.metric("lingon_engine_restarts_total", **death) == 1)
        await eventually(partial(serves, server))
        reply = await server.translate("Tom lives in Boston.")
        assert reply.results[0].hypotheses[0].text == "Tom lives in Boston."
        assert server.metric("lingon_ready") == 1


async def test_an_engine_that_dies_too_often_ends_the_server_with_a_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "MAX_RESTARTS", 0)
    async with running(EchoRunner(dies_at=3)) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        assert await asyncio.wait_for(server.task, 10) == 1


class Unstoppable(Engine):
    """An engine that fails to stop."""

    def stop(self, timeout: float) -> bool:
        raise RuntimeError("can't start new thread")


async def test_a_server_ends_and_reports_a_stuck_thread_if_an_engine_cannot_be_stopped(
    caplog: pytest.LogCaptureFixture,
):
    async with running(EchoRunner(endless=True, delay=0.5), engine=Unstoppable, drain_seconds=0.1) as server:
        in_flight = asyncio.create_task(failure(server.call("Tom")))
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 1)
        server.server.stop()
        assert details((await in_flight)[0])["ErrorInfo"].reason == "ENGINE_RESTARTING"
        assert await asyncio.wait_for(server.task, 10) == 0
        assert "an engine was not stopped" in caplog.messages
        assert server.server.has_stuck_thread  # an orderly exit would abort if the thread runs a graph
        assert any_worker_alive()


EARLY = """
import os, signal, sys
me, os.getpid = os.getpid(), lambda: 1  # looks like process 1; an unhandled signal still ends it

class Importing:
    def find_spec(self, name, *_):
        if name == "lingon.serving.server":
            os.kill(me, signal.SIGTERM)

sys.meta_path.insert(0, Importing())
from lingon.cli.main import main
sys.exit(main(["serve", "no-such-folder"]))
"""


def test_a_signal_during_the_imports_ends_process_1():
    assert subprocess.run([sys.executable, "-c", EARLY], cwd=ROOT, timeout=60, check=False).returncode == 0


async def test_calls_in_a_hanging_engine_fail_soon_and_the_server_ends_with_a_failure():
    async with running(hang_seconds=0.2) as server:
        server.runner.gate.clear()
        started = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.translate("Tom", seconds=None)
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - started < 10  # without the hang check it waits for ever
        assert server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="hang") == 1
        assert await asyncio.wait_for(server.task, 10) == 1


async def test_the_address_of_another_machine_is_reported_as_such():
    with pytest.raises(LingonError, match=r"198\.51\.100\.7:0: this machine does not have that address; set --host$"):
        async with running(host="198.51.100.7"):
            pass


async def test_a_port_in_use_is_reported_in_one_line():
    async with running() as server:
        with pytest.raises(LingonError, match=f"127.0.0.1:{server.server.port}: it is in use; set --port$"):
            async with running(port=server.server.port):
                pass
        with pytest.raises(LingonError, match="--metrics-port"):
            async with running(metrics_port=server.server.metrics_port):
                pass


async def test_an_altered_bundle_is_never_served(tmp_path: Path):
    path = bundle(tmp_path).folder / "tokenizer.model"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match=r"tokenizer\.model: was altered"):
        async with running(models=(tmp_path,)):
            pass


async def test_an_empty_folder_of_models_is_an_error(tmp_path: Path):
    with pytest.raises(BundleError, match="no bundle is here"):
        async with running(models=(tmp_path,)):
            pass


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start a server in a process of its own, and wait until it listens; its bundle is written to the folder."""
    bundle(folder)
    command = [sys.executable, "-c", MAIN, str(folder), *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "bound\n"
    return process


def ready(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Wait until a server is ready; returns its ports: gRPC, metrics."""
    assert process.stdout is not None
    grpc_port, metrics_port = map(int, process.stdout.readline().split())
    return grpc_port, metrics_port


def wait_for_calls(metrics_port: int, count: int) -> None:
    """Wait until so many calls are in flight."""
    while f"lingon_requests_in_flight {count}.0" not in get(metrics_port, "/metrics")[1]:
        time.sleep(0.02)


async def test_sigterm_lets_calls_in_flight_finish_and_exits_with_0(tmp_path: Path):
    process = start(tmp_path, 0.05)
    port, metrics_port = await asyncio.to_thread(ready, process)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        translate = channel.unary_unary(
            f"/{SERVICE}/Translate",
            request_serializer=pb.TranslateRequest.SerializeToString,
            response_deserializer=pb.TranslateResponse.FromString,
        )
        calls = [translate(pb.TranslateRequest(texts=["canary text", f"Tom {number}"])) for number in range(10)]
        await asyncio.to_thread(wait_for_calls, metrics_port, 10)
        process.send_signal(signal.SIGTERM)
        replies = await asyncio.gather(*calls)
    _, errors = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 0
    assert [len(result.hypotheses) for reply in replies for result in reply.results] == [1] * 20
    assert "draining" in errors
    assert "canary" not in errors  # also not at level debug


async def test_sighup_checks_the_watched_files_and_ends_no_call(tmp_path: Path):
    process = start(tmp_path, 0.05)
    port, metrics_port = await asyncio.to_thread(ready, process)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        translate = channel.unary_unary(f"/{SERVICE}/Translate")
        call = translate(pb.TranslateRequest(texts=["Tom lives in Boston."]).SerializeToString())
        await asyncio.to_thread(wait_for_calls, metrics_port, 1)
        process.send_signal(signal.SIGHUP)
        assert pb.TranslateResponse.FromString(await call).results[0].hypotheses
        process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 0
    assert "SIGHUP: keys and certificates were checked" in errors


def test_sighup_while_loading_ends_nothing(tmp_path: Path):
    process = start(tmp_path, 0, "slow")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    process.communicate()


def test_a_signal_while_loading_ends_the_server_soon(tmp_path: Path):
    process = start(tmp_path, 0, "slow")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    process.communicate()


def test_a_second_signal_ends_the_server_at_once(tmp_path: Path):
    process = start(tmp_path, 1)
    port, metrics_port = ready(process)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/Translate")
        future = call.future(pb.TranslateRequest(texts=["Tom"]).SerializeToString())
        wait_for_calls(metrics_port, 1)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 1  # the call alone takes 40 s
        future.cancel()
    process.communicate()


def test_json_logs_contain_no_messages_of_foreign_exceptions():
    code = (
        "import logging; from lingon.serving.observability.logs import configure, fault; configure('json', 'info')\n"
        "try:\n    {}['canary']\nexcept KeyError as error:\n"
        "    fault(logging.getLogger('x'), 'a call failed', error, request_id='r1')\n"
        "    logging.getLogger('x').exception('the engine died')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["error"] for line in lines] == ["KeyError", "KeyError"]
    assert lines[0]["request_id"] == "r1"
    assert "canary" not in done.stderr
