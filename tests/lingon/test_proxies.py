"""A proxy of the environment gets no call to this machine, and the error of another call names the variable."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from lingon import AsyncClient, Client, ServerError
from lingon.bench.serve.load.generator import LoadGenerator
from lingon.cli.main import main
from lingon.client.admin import ModelsClient
from lingon.client.proxies import EXCEPTIONS, VARIABLES, Proxy, proxy_of
from lingon.gateway.backend import Backend, Caller
from tests.support.echo_engine import running

ALL = [*VARIABLES, "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY"]
REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


@dataclass
class CountingProxy:
    """A proxy that refuses what it is asked for; asked: the first line of each connection."""

    address: str
    asked: list[str]


@contextmanager
def counting_proxy() -> Iterator[CountingProxy]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        proxy = CountingProxy(f"127.0.0.1:{listener.getsockname()[1]}", [])
        threading.Thread(target=_refuse, args=(listener, proxy), daemon=True).start()
        yield proxy


def _refuse(listener: socket.socket, proxy: CountingProxy) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            proxy.asked.append(connection.recv(65_536).decode(errors="replace").partition("\r\n")[0])
            connection.sendall(REFUSAL)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProxy]:
    """A proxy that every variable names, and no exceptions."""
    with counting_proxy() as opened:
        for name in EXCEPTIONS:
            monkeypatch.delenv(name, raising=False)
        for name in ALL:
            monkeypatch.setenv(name, f"http://{opened.address}")
        yield opened


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "ipv4:127.0.0.1", "dns:///localhost"])
async def test_a_call_to_this_machine_goes_through_no_proxy(proxy: CountingProxy, host: str):
    async with running() as server:
        target = f"{host}:{server.server.port}"
        with Client(target, retries=0) as client:
            assert (await asyncio.to_thread(client.translate, "Tom")).text == "Tom"
        async with AsyncClient(target, retries=0) as other:
            assert (await other.translate("Tom")).text == "Tom"
        backend = Backend.connect(target, proxy=True)
        assert (await backend.models(Caller(None, "127.0.0.1", "1"))).models
        await backend.close()
    assert proxy.asked == []


@pytest.mark.parametrize("target", ["[::1]:1", "127.8.9.10:1", "ipv6:[::1]:1", "localhost:1"])
@pytest.mark.parametrize("tls", [False, True])
def test_no_form_of_a_loopback_address_goes_through_a_proxy(proxy: CountingProxy, target: str, tls: bool):
    for kind in (Client, ModelsClient):
        client: Any = kind(target, timeout=5, tls=tls, **({"retries": 0} if kind is Client else {}))
        with client, pytest.raises(ServerError) as caught:
            client.list_models() if kind is Client else client.models()
        assert "proxy" not in str(caught.value)
    assert proxy.asked == []


async def test_the_health_check_and_the_load_generator_go_through_no_proxy(
    proxy: CountingProxy, capsys: pytest.CaptureFixture[str]
):
    async with running() as server:
        address = f"127.0.0.1:{server.server.port}"
        assert not await asyncio.to_thread(main, ["healthcheck", "--server", address])
        generator = LoadGenerator(["Tom"])
        await generator._stub(address).ListModels(_no_models())
        await generator.close()
    assert "SERVING" in capsys.readouterr().out
    assert proxy.asked == []


def _no_models() -> Any:
    from lingon.translation.v1 import translation_pb2 as pb

    return pb.ListModelsRequest()


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("tls", [False, True])
def test_the_error_of_a_call_through_a_proxy_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, tls: bool
):
    for name in (*ALL, *EXCEPTIONS):
        monkeypatch.delenv(name, raising=False)
    with counting_proxy() as opened:
        monkeypatch.setenv(variable, f"http://user:secret@{opened.address}")
        with (
            Client("lingon.example.invalid:50051", retries=0, timeout=10, tls=tls) as client,
            pytest.raises(ServerError) as caught,
        ):
            client.list_models()
    message = str(caught.value)
    assert [line.split()[:2] for line in opened.asked[:1]] == [["CONNECT", "lingon.example.invalid:50051"]]
    assert f"through the proxy {opened.address} that the environment variable {variable} names" in message
    assert "secret" not in message
    assert message.startswith("no answer from lingon.example.invalid:50051")


def test_a_proxy_at_which_nothing_listens_is_named(monkeypatch: pytest.MonkeyPatch):
    for name in (*ALL, *EXCEPTIONS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Client("192.0.2.1:50051", retries=0, timeout=10) as client, pytest.raises(ServerError) as caught:
        client.list_models()
    assert str(caught.value) == (
        "no answer from 192.0.2.1:50051: nothing listens at the proxy; the call goes through the proxy 127.0.0.1:1 "
        "that the environment variable http_proxy names; unset it, or add the host of the server to no_proxy"
    )


@pytest.mark.parametrize(
    ("variables", "target", "expected"),
    [
        ({}, "lingon.example:1", None),
        ({"http_proxy": "http://p:3128/"}, "lingon.example:1", Proxy("http_proxy", "p:3128")),
        ({"http_proxy": "p:3128", "grpc_proxy": "http://q:1"}, "lingon.example:1", Proxy("grpc_proxy", "q:1")),
        ({"http_proxy": "http://p:3128", "no_proxy": "a.example, .example"}, "dns:///lingon.example:1", None),
        ({"http_proxy": "http://p:3128", "no_proxy": "a.example"}, "b.example:1", Proxy("http_proxy", "p:3128")),
        ({"http_proxy": "http://p:3128"}, "unix:/run/lingon.sock", None),
        ({"http_proxy": "http://p:3128"}, "127.0.0.1:1", None),
    ],
)
def test_the_proxy_of_a_target_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], target: str, expected: Proxy | None
):
    for name in (*ALL, *EXCEPTIONS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(target) == expected
