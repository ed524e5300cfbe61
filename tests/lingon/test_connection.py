"""The address of a server: what is taken, what is refused, and what a client says if nobody answers there."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon import AsyncClient, Client, ServerError, Tls
from lingon.bench.serve.load import LoadGenerator
from lingon.cli.main import main
from lingon.client.client import ModelsClient
from lingon.client.connection import EXCEPTIONS, VARIABLES, Proxy, no_answer, proxy_of, with_port
from lingon.errors import SettingsError
from lingon.gateway.backend import Backend, Caller
from tests.support.credentials import Authority
from tests.support.echo_engine import running

NAMES_OF_GRPC = ["dns:///server:1", "unix:/run/lingon.sock", "unix-abstract:lingon", "ipv4:10.0.0.1:1,10.0.0.2:1"]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("127.0.0.1", "127.0.0.1:50051"),
        ("server.example", "server.example:50051"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:9", "[::1]:9"),
        ("server:9", "server:9"),
        *((name, name) for name in NAMES_OF_GRPC),
    ],
)
def test_an_address_without_a_port_gets_the_default_port(given: str, taken: str) -> None:
    assert with_port(given, 50051) == taken


def test_clients_take_the_default_port_of_their_service() -> None:
    for client, target in ((Client("server"), "server:50051"), (ModelsClient("server"), "server:50052")):
        with client:
            assert client.target == target
    assert AsyncClient("server").target == "server:50051"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "server '': give HOST:PORT, such as 127.0.0.1:50051"),
        (":50051", "server ':50051': give HOST:PORT"),
        ("http://server:1", "server http://server:1: give HOST:PORT, such as 127.0.0.1:50051, without http://"),
        ("https://server:1", "without https://; TLS is turned on by tls= or --tls"),
        ("server/path", "give HOST:PORT"),
        ("a server", "give HOST:PORT"),
        ("server:", "the port must be 1 to 65535, got ''"),
        ("server:gprc", "the port must be 1 to 65535, got 'gprc'"),
        ("server:0", "the port must be 1 to 65535, got '0'"),
        ("server:99999", "the port must be 1 to 65535, got '99999'"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(given: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Client(given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def message(address: str, tls: Tls | bool = False) -> str:
    """What a client says to a server that does not answer."""
    with Client(address, retries=0, timeout=20, tls=tls) as client, pytest.raises(ServerError) as caught:
        client.translate("hello")
    return str(caught.value)


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A listener that sends this reply to whatever it gets and closes; its address."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def grpc_server(credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """A gRPC server without services; its address."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def test_a_port_that_nothing_listens_on_is_named_without_the_jargon_of_grpc() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        why = "nothing listens there; start a server with `lingon serve`, or correct the address"
        assert message(address) == f"no answer from {address}: {why}"


def test_an_admin_port_that_is_not_open_is_told_how_to_open() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with ModelsClient(f"127.0.0.1:{bound.getsockname()[1]}") as client, pytest.raises(ServerError) as refused:
            client.models()
    assert str(refused.value).endswith("; start the server with --admin-port, or correct the address")


def test_a_refused_address_of_a_name_does_not_hide_that_the_name_has_others() -> None:
    details = "last error: UNKNOWN: ipv6:%5B::1%5D:9: Failed to connect to remote host: Connection refused"
    told = no_answer("localhost:9", details, tls=True)
    assert told.startswith("no answer from localhost:9: nothing listens at [::1]:9, the last address of this host")
    assert "give an IP address in place of the name" in told


def test_a_port_that_speaks_http_is_named_as_such() -> None:
    with answering(b"HTTP/1.0 505 HTTP Version Not Supported\r\n\r\n") as address:
        assert "no gRPC server; it may be the metrics port" in message(address)


def test_a_client_and_a_server_that_disagree_about_tls_are_told_so(tmp_path: Path) -> None:
    authority, other = Authority(), Authority("another")
    files = {name: tmp_path / f"{name}.pem" for name in ("own", "other")}
    files["own"].write_bytes(authority.pem)
    files["other"].write_bytes(other.pem)
    pair, elsewhere = authority.sign(), authority.sign(names=("elsewhere",), addresses=())
    with grpc_server(grpc.ssl_server_credentials([(pair.key, pair.certificate)])) as address:
        assert "it may expect TLS (--tls or --tls-ca, in Python tls=)" in message(address)
        for tls in (True, Tls(ca=files["other"])):
            told = message(address, tls)
            assert "its certificate is not trusted (unable to get local issuer certificate)" in told
            assert "--tls-ca or Tls(ca=...)" in told
    with grpc_server(grpc.ssl_server_credentials([(elsewhere.key, elsewhere.certificate)])) as address:
        assert "its certificate is for another host" in message(address, Tls(ca=files["own"]))
    mutual = grpc.ssl_server_credentials([(pair.key, pair.certificate)], authority.pem, require_client_auth=True)
    with grpc_server(mutual) as address:
        assert "it may expect a client certificate" in message(address, Tls(ca=files["own"]))
    with grpc_server() as address:
        assert "it does not use TLS; leave the TLS options out" in message(address, tls=True)


def test_a_call_on_the_wrong_port_names_the_port_of_the_method() -> None:
    with grpc_server() as address:
        why = f"{address} does not have this method; "
        assert message(address) == f"{why}translations are on the port --port of `lingon serve`, 50051 by default"
        with ModelsClient(address) as client, pytest.raises(ServerError) as caught:
            client.models()
    assert str(caught.value).startswith(f"{why}models are listed and changed on the admin port, --admin-port")


def test_a_message_that_fits_no_pattern_is_passed_on() -> None:
    assert no_answer("server:9", "the moon is full", tls=False).endswith("(does a server run there?): the moon is full")


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
