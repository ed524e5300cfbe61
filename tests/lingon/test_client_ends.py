"""Closing of clients, and their errors after the server, the event loop or the client itself is gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from lingon import AsyncClient, Client, ServerError
from lingon.client.retry import Retry
from lingon.errors import LingonError, SettingsError
from tests.support.scripted_server import FakeService, queue_full


def test_a_server_address_that_is_not_utf8_is_an_error() -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(SettingsError, match="not UTF-8"):
            kind("\udcff:50051")


def test_a_call_of_a_closed_client_is_an_error(address: str) -> None:
    client, other = Client(address), AsyncClient(address)
    assert client.translate("hello").text == "HELLO"
    client.close()
    for ask in (client.translate, client.translate_stream):
        with pytest.raises(LingonError, match="this client is closed"):
            list(ask("hello"))

    async def closed() -> None:
        await other.translate("hello")
        await other.close()
        with pytest.raises(LingonError, match="this client is closed"):
            await other.translate("hello")

    asyncio.run(closed())


def test_an_asynchronous_client_refuses_another_event_loop(address: str) -> None:
    client = AsyncClient(address)

    async def ask() -> str:
        return (await client.translate("hello")).text

    assert asyncio.run(ask()) == "HELLO"
    with pytest.raises(LingonError, match="belongs to the event loop"):
        asyncio.run(ask())
    asyncio.run(client.close())


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_closing_a_client_ends_its_calls_as_cancelled(kind: str, address: str, service: FakeService) -> None:
    service.delay = 4.0
    client = Client(address) if kind == "sync" else AsyncClient(address)
    asked = asyncio.to_thread(client.translate, "hello") if kind == "sync" else client.translate("hello")
    call = asyncio.ensure_future(asked)
    while not service.requests:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    closing = client.close()
    if closing is not None:
        await closing
    with pytest.raises(ServerError) as caught:
        await call
    assert caught.value.status == "CANCELLED"
    assert "the client was closed during this call" in str(caught.value)


async def test_a_call_whose_task_is_cancelled_is_cancelled(address: str, service: FakeService) -> None:
    service.delay = 4.0
    async with AsyncClient(address) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.translate("hello"), 0.2)


def test_closing_ends_a_pause_before_the_next_try(address: str, service: FakeService) -> None:
    """It may come before the pause: then it ends the call."""
    service.faults = [queue_full(20.0)]
    with Client(address, retries=Retry(wait_when_full=True)) as client, ThreadPoolExecutor() as pool:
        call = pool.submit(client.translate, "hello")
        while not service.requests:
            time.sleep(0.01)
        client.close()
        with pytest.raises(LingonError, match=r"this client is closed|the client was closed during this call"):
            call.result(timeout=5)


@contextmanager
def vanishing(address: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A proxy to an address, and a function that silences it: connections stay open, but no data comes back."""
    host, port = address.split(":")
    silent = threading.Event()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not silent.is_set():
                    target.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                open_ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    pool.submit(carry, *pair)

    open_ends: list[socket.socket] = []
    with ThreadPoolExecutor(32) as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = pool.submit(accept)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", silent.set
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.result()
            for each in open_ends:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_that_vanished_silently_is_noticed(kind: str, address: str) -> None:
    with vanishing(address) as (way, vanish):

        async def ask_async() -> float:
            async with AsyncClient(way, retries=0, keepalive=1.0) as client:
                await client.translate("hello")
                vanish()
                begin = time.monotonic()
                with pytest.raises(ServerError, match="no answer from"):
                    await client.translate("hello", timeout=15)
                return time.monotonic() - begin

        def ask() -> float:
            with Client(way, retries=0, keepalive=1.0) as client:
                client.translate("hello")
                vanish()
                begin = time.monotonic()
                with pytest.raises(ServerError, match="no answer from"):
                    client.translate("hello", timeout=15)
                return time.monotonic() - begin

        assert (ask() if kind == "sync" else asyncio.run(ask_async())) < 10
