"""The admin port: off by default, own statuses for every error, and no access to files outside the models."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.admin.v1 import admin_pb2 as pb
from lingon.cli.main import main
from lingon.errors import Forbidden, LingonError, SettingsError
from lingon.serving.models.reload import MAX_PATH
from lingon.serving.rpc.admin import METHODS, SERVICE
from lingon.serving.rpc.interceptors import ErrorInterceptor
from lingon.serving.settings import load
from lingon.status import REQUEST_ID
from tests.support.credentials import write_key_file
from tests.support.echo_engine import running
from tests.support.reload_harness import AdministeredServer, refused, running_with_admin_port
from tests.support.timing import eventually

VERB = [EntryPoint("models", "lingon.cli.models:models", "lingon.verbs")]


async def test_the_admin_port_is_off_by_default():
    async with running() as server:
        assert server.server.admin_port == 0
        call = server.channel.unary_unary(f"/{SERVICE}/ListModels")(b"")
        assert (await refused(call))[0] == "UNIMPLEMENTED"


async def test_the_admin_port_serves_no_other_service():
    async with running_with_admin_port() as admin:
        call = admin.channel.unary_unary("/lingon.translation.v1.TranslationService/ListModels")(b"")
        assert (await refused(call))[0] == "UNIMPLEMENTED"


async def test_an_admin_port_in_use_is_reported_in_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(LingonError, match=r"cannot listen on 127\.0\.0\.1:\d+: .* --admin-port"):
            async with running(admin_port=taken.getsockname()[1]):
                pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
def test_without_keys_the_admin_port_must_be_on_a_loopback_address(host: str):
    with pytest.raises(SettingsError, match=r"admin_host must be a loopback address .* unless api_keys is set"):
        load({"admin_host": host, "admin_port": 0}, {}, None)
    keys = Path("keys.toml")
    assert load({"admin_host": host, "admin_port": 0, "api_keys": keys}, {}, None).settings.admin_host == host
    assert load({"admin_host": host}, {}, None).settings.admin_port is None
    assert load({"admin_host": "::1", "admin_port": 0}, {}, None).settings.admin_port == 0


async def test_a_server_that_is_not_ready_refuses_changes():
    async with running_with_admin_port(ready=False) as admin:
        calls = [admin.call(method, getattr(pb, f"{method}Request")()) for method in METHODS]
        assert [(await refused(call))[0] for call in calls] == ["UNAVAILABLE"] * 4
        admin.versions.gate.set()


async def test_a_listed_model_has_all_fields():
    async with running_with_admin_port() as admin:
        (model,) = (await admin.call("ListModels", pb.ListModelsRequest())).models
        assert model == pb.Model(
            name="en-de",
            version="1",
            source_language_code="en",
            target_language_code="de",
            precision="fp32",
            provider="CPUExecutionProvider",
            state=pb.MODEL_STATE_SERVING,
            graph_bytes=7,
            memory_bytes=model.memory_bytes,
            folder=str(admin.server.folder / "en-de" / "1"),
        )


def _outside(admin: AdministeredServer, outside: Path) -> Path:
    return outside / "en-de" / "2"


def _through_dots(admin: AdministeredServer, outside: Path) -> str:
    return f"{admin.server.folder}/en-de/../../{outside.name}/en-de/2"


def _through_a_link(admin: AdministeredServer, outside: Path) -> Path:
    link = admin.server.folder / "link"
    link.symlink_to(outside / "en-de" / "2")
    return link


def _through_a_version_that_is_a_link(admin: AdministeredServer, outside: Path) -> Path:
    (admin.server.folder / "en-de" / "7").symlink_to(outside / "en-de" / "2")
    return admin.server.folder / "en-de"


async def test_a_copy_of_an_earlier_version_is_not_the_highest():
    async with running_with_admin_port() as admin:
        copied = shutil.copytree(admin.publish(2), admin.server.folder / "en-de" / "7")
        code, message = await refused(admin.swap(copied.parent))
        assert code == "FAILED_PRECONDITION"
        assert message.endswith("/en-de/7/manifest.json: declares version 2 in the folder of version 7")
        assert await admin.models() == [("en-de", "1", "SERVING")]


def _circular_link(admin: AdministeredServer, outside: Path) -> Path:
    link = admin.server.folder / "circle"
    link.symlink_to(link)
    return link / "1"


INVALID_PATHS: dict[str, Callable[[AdministeredServer, Path], Path | str]] = {
    "outside": _outside,
    "missing": lambda admin, outside: outside / "nope",
    "dots": _through_dots,
    "a link": _through_a_link,
    "a version that is a link": _through_a_version_that_is_a_link,
    "the root": lambda admin, outside: "/",
    "a circle": _circular_link,
    "nothing": lambda admin, outside: "",
    "a NUL": lambda admin, outside: f"{admin.server.folder}/en-de\0/1",
    "too long": lambda admin, outside: "a" * (MAX_PATH + 1),
}


@pytest.mark.parametrize("way", INVALID_PATHS)
@pytest.mark.parametrize("change", ["LoadModel", "SwapModel"])
async def test_only_paths_below_the_models_of_the_server_are_loaded(way: str, change: str, tmp_path: Path):
    async with running_with_admin_port() as other, running_with_admin_port() as admin:
        other.publish(2)
        path = INVALID_PATHS[way](admin, other.server.folder)
        request = getattr(pb, f"{change}Request")(path=str(path))
        status, details = await refused(admin.call(change, request))
        assert status == "INVALID_ARGUMENT"
        assert details.startswith("path ")
        assert "manifest" not in details
        if way in ("outside", "missing", "dots", "a link", "a version that is a link", "the root"):
            assert f"must be below {admin.server.folder} after symbolic links and .. are resolved" in details
        assert await admin.models() == [("en-de", "1", "SERVING")]


async def test_a_link_below_the_models_and_a_relative_path_are_accepted(monkeypatch: pytest.MonkeyPatch):
    async with running_with_admin_port() as admin:
        admin.publish(2)
        (admin.server.folder / "best").symlink_to(admin.server.folder / "en-de" / "2")
        monkeypatch.chdir(admin.server.folder)
        assert (await admin.swap("en-de/../best")).model.version == "2"


async def test_a_path_below_the_models_without_a_bundle_is_not_found():
    async with running_with_admin_port() as admin:
        for path in ("nope", "en-de/7", "."):
            status, details = await refused(admin.load(admin.server.folder / path))
            assert (status, "no bundle and no version" in details) == ("NOT_FOUND", True)
        status, details = await refused(admin.load(admin.server.folder / ("a" * 300)))
        assert (status, details.endswith("File name too long")) == ("FAILED_PRECONDITION", True)


async def test_a_message_that_cannot_be_parsed_is_an_invalid_argument():
    async with running_with_admin_port() as admin:
        for method in METHODS:
            call = admin.channel.unary_unary(f"/{SERVICE}/{method}")(b"\x0a\xff\xff\xff")
            assert (await refused(call))[0] == "INVALID_ARGUMENT"


async def test_an_internal_error_reveals_only_the_request_id(monkeypatch: pytest.MonkeyPatch):
    async with running_with_admin_port() as admin:
        monkeypatch.setattr(admin.server.server._registry, "catalog", None)  # makes the handler raise AttributeError
        call = admin.channel.unary_unary(f"/{SERVICE}/ListModels")(b"", metadata=((REQUEST_ID, "r-1"),))
        status, details = await refused(call)
        trailers = dict(await call.trailing_metadata())
        monkeypatch.undo()
    assert (status, "request id r-1" in details, "NoneType" in details) == ("INTERNAL", True, False)
    assert trailers[REQUEST_ID] == "r-1"


class RefuseAll(grpc.aio.ServerInterceptor):
    """Refuses every call."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)

        async def call(request: Any, context: Any) -> Any:
            raise Forbidden("this key does not open the admin port")

        return grpc.unary_unary_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)


async def test_errors_of_interceptors_become_statuses():
    server = grpc.aio.server(interceptors=[ErrorInterceptor(), RefuseAll()])
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", {"b": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await refused(channel.unary_unary("/a/b")(b"")) == (
            "PERMISSION_DENIED",
            "this key does not open the admin port",
        )
    await server.stop(0)


async def lingon(admin: AdministeredServer, *arguments: str) -> int:
    """Run `lingon models` with these arguments; returns its exit code."""
    address = f"127.0.0.1:{admin.server.server.admin_port}"
    return await asyncio.to_thread(main, ["models", *arguments, "--server", address], VERB)


async def test_the_command_lists_loads_swaps_and_unloads(capsys: pytest.CaptureFixture[str]):
    async with running_with_admin_port() as admin:
        assert await lingon(admin, "list") == 0
        assert await lingon(admin, "load", str(admin.publish(3))) == 0
        assert await lingon(admin, "unload", "en-de/1") == 0
        assert await lingon(admin, "swap", str(admin.publish(2))) == 0
        assert await lingon(admin, "list", "--json") == 0
        lines = capsys.readouterr().out.splitlines()
    line = "en-de/{}: serving, en to de, fp32 on CPU, 0.0 MB, 0 requests"
    assert lines[:-1] == [
        line.format(1),
        line.format(3),
        "en-de/1 was unloaded",
        line.format(2) + ", in place of en-de/3",
    ]
    assert {"name": "en-de", "version": "2", "state": "serving"}.items() <= json.loads(lines[-1]).items()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["swap", "/nowhere"], 1, "path must be below"),
        (["unload", "en-de/10"], 1, "model 'en-de/10' is not served; served: en-de/1"),
        (["unload", "en-de"], 2, "the model must be NAME/VERSION, got 'en-de'"),
        (["load"], 2, "Missing argument"),
    ],
)
async def test_an_error_of_the_command_is_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
):
    async with running_with_admin_port() as admin:
        assert await lingon(admin, *arguments) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lingon: error: ")
    assert message in line


async def test_the_command_sends_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    keys = write_key_file(tmp_path, {"shop": "a-key", "ops": "another-key"}, ops={"admin": True})
    async with running_with_admin_port(api_keys=keys) as admin:
        codes = [await lingon(admin, "list")]
        for key in ("a-key", "another-key"):
            monkeypatch.setenv("LINGON_API_KEY", key)
            codes.append(await lingon(admin, "swap", str(admin.publish(2 * len(codes)))))
    captured = capsys.readouterr()
    assert codes == [1, 1, 0]
    assert captured.out.startswith("en-de/4: serving")
    assert "the API key has no access to the admin port" in captured.err


def test_the_command_names_a_server_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LINGON_ADMIN", f"127.0.0.1:{unused.getsockname()[1]}")
        assert main(["models", "list"], VERB) == 1
    assert f"no answer from {'127.0.0.1'}" in capsys.readouterr().err


def test_the_module_of_the_command_imports_no_grpc():
    code = "import sys, lingon.cli.models; print({'grpc', 'lingon.admin'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


async def test_a_long_load_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr("lingon.serving.models.reload.LOADING_LOG_INTERVAL", 0.1)
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        await eventually(lambda: "a model is still being loaded" in caplog.messages)
        admin.versions.gate.set()
        await swap
        assert await admin.version() == "2"


RESULT = "en-de/2: serving, en to de, fp32 on CPU, 0.0 MB, 0 requests, in place of en-de/1\n"


def read_open(terminal: int) -> Callable[[], str]:
    """A function that returns all that a terminal has shown so far."""
    shown = b""
    os.set_blocking(terminal, False)

    def read() -> str:
        nonlocal shown
        try:
            while chunk := os.read(terminal, 4096):
                shown += chunk
        except OSError:  # nothing more at the moment, or the other end was closed
            pass
        return shown.decode()

    return read


async def swap(admin: AdministeredServer, path: Path, stderr: int) -> asyncio.subprocess.Process:
    """Start the command."""
    address = f"127.0.0.1:{admin.server.server.admin_port}"
    command = [sys.executable, "-m", "lingon", "models", "swap", str(path), "--server", address]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=stderr)


async def test_on_a_terminal_the_command_shows_the_phase_of_the_load_and_the_model_that_leaves():
    terminal, slave = pty.openpty()
    shown = read_open(terminal)
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        admin.versions.runners[1].gate.clear()
        process = await swap(admin, admin.publish(2), slave)
        os.close(slave)
        await eventually(lambda: "en-de/2: loading (checksums, " in shown())
        in_flight = admin.server.call("Tom lives in Boston.")
        await eventually(lambda: admin.server.metric("lingon_running_sentences", model="en-de", version="1"))
        admin.versions.gate.set()
        await eventually(lambda: "en-de/1: leaving, en to de, fp32 on CPU, 0.0 MB, 1 requests" in shown())
        admin.versions.runners[1].gate.set()
        await in_flight
        output, _ = await process.communicate()
    assert (process.returncode, output.decode()) == (0, RESULT)
    lines = shown().splitlines()
    assert len(lines) == len(set(lines))
    assert not any("serving" in line for line in lines)
    os.close(terminal)


async def test_without_a_terminal_the_command_prints_the_result_alone():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        process = await swap(admin, admin.publish(2), asyncio.subprocess.PIPE)
        registry = admin.server.server.metrics.registry
        await eventually(lambda: registry.get_sample_value("lingon_models_to_load") == 1)
        await asyncio.sleep(0.6)  # two polls of a command with a terminal
        admin.versions.gate.set()
        output, errors = await process.communicate()
    assert (process.returncode, output.decode(), errors) == (0, RESULT, b"")
