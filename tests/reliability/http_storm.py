"""Clients of the HTTP port that send too much, too slowly, or do not read. A seed decides the behaviour of each.

`python -m tests.reliability.http_storm PORT SEED SECONDS CLIENTS` prints counts of connections as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

PATHS = ("/health", "/v1/models", "/openapi.json", "/languages", "/v2/usage?a&b&c", "/none", "/frontend/settings")
POSTS = ("/v1/translate", "/translate", "/v2/translate", "/none")
REQUESTS = 500  # of a client that pipelines, in one write
HEADERS = 60_000  # bytes of large headers
SMALL_WINDOW = 4096  # bytes that the system of a client that does not read takes for it
PIECE = 65_536  # bytes that a client sends or reads at once
Random = random.Random
Did = Counter[str]


def get(path: str, *headers: str) -> bytes:
    """Return a request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a request with a body."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def chunked(path: str, parts: list[bytes], *trailers: str) -> bytes:
    """Return a request with a body in chunks."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head + body + "\r\n".join(["0", *trailers, "", ""]).encode()


def _short(random: Random) -> bytes:
    """Return a short request of any kind."""
    kind = random.randrange(4)
    if kind == 0:
        return post(random.choice(POSTS), b'{"texts": ["Tom"], "q": "Tom", "target": "de", "text": "Tom"}')
    if kind == 1:
        parts = [random.randbytes(random.randrange(1, 9)) for _ in range(random.randrange(5))]
        return chunked(random.choice(POSTS), parts, *random.choice(((), ("a: b",))))
    return get(random.choice(PATHS))


def _pipelined(random: Random) -> bytes:
    return b"".join(_short(random) for _ in range(random.randrange(1, REQUESTS)))


def _large_headers(random: Random) -> bytes:
    size = random.randrange(HEADERS)
    kind = random.randrange(4)
    if kind == 0:
        return get("/health?" + "&".join("a" * (size // 2)))
    if kind == 1:
        return get("/" + "%c3" * (size // 3))
    if kind == 2:
        return get("/health", *[f"a{number}: b" for number in range(size // 8)])
    return get("/v1/models", "authorization: Bearer " + "x" * size)


def _large_bodies(random: Random) -> bytes:
    size = random.randrange(300_000)
    if random.randrange(2):
        return post(random.choice((*POSTS, *PATHS)), b" " * size)
    trailers = [f"a{number}: b" for number in range(random.randrange(2000))]
    return chunked(random.choice(POSTS), [b"\r\n\r\n" * (size // 4)], *trailers)


KINDS: dict[str, Callable[[Random], bytes]] = {
    "pipelines": _pipelined,
    "sends large headers": _large_headers,
    "sends large bodies": _large_bodies,
}
READS, SENDS_SLOWLY, DOES_NOT_READ = "reads", "sends slowly", "does not read"


def chosen(random: Random) -> tuple[str, str]:
    """Return the bytes and the behaviour of a client."""
    return random.choice(list(KINDS)), random.choice((READS, SENDS_SLOWLY, DOES_NOT_READ))


def pieces(random: Random, behaviour: str, sent: bytes) -> Iterator[bytes]:
    """Yield the parts in which a client sends its bytes."""
    most = 200 if behaviour == SENDS_SLOWLY else PIECE
    while sent:
        size = random.randrange(1, most)
        yield sent[:size]
        sent = sent[size:]


class Storm:
    """Clients that connect repeatedly. did: the number of connections of each kind, and of bytes in each direction."""

    def __init__(self, port: int, seed: int, addresses: int = 16) -> None:
        """addresses: of loopback, from which the clients come."""
        self._port, self._seed, self._addresses = port, seed, addresses
        self.did = Did()

    async def run(self, seconds: float, clients: int) -> None:
        """Keep so many connections open for so long."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._client(random.Random(f"{self._seed} {number}"), number, end))

    async def _client(self, random: Random, number: int, end: float) -> None:
        while time.monotonic() < end:
            kind, behaviour = chosen(random)
            self.did[f"{kind}, {behaviour}"] += 1
            stay = min(end - time.monotonic(), random.uniform(0.1, 20.0))
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(stay, 0.01)):
                    await self._connect(random, number, kind, behaviour)
            await asyncio.sleep(0.01)

    async def _connect(self, random: Random, number: int, kind: str, behaviour: str) -> None:
        """Send and read until the server closes the connection."""
        loop, own = asyncio.get_running_loop(), socket.socket()
        with own:
            own.setblocking(False)
            if behaviour == DOES_NOT_READ:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
            own.bind((f"127.0.0.{2 + number % self._addresses}", 0))
            await loop.sock_connect(own, ("127.0.0.1", self._port))
            reading = None if behaviour == DOES_NOT_READ else asyncio.create_task(self._read(own))
            try:
                while reading is None or not reading.done():
                    for piece in pieces(random, behaviour, KINDS[kind](random)):
                        await loop.sock_sendall(own, piece)
                        self.did["bytes sent"] += len(piece)
                        if behaviour == SENDS_SLOWLY:
                            await asyncio.sleep(random.uniform(0.0, 0.5))
            finally:
                if reading is not None:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, own: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while part := await loop.sock_recv(own, PIECE):
            self.did["bytes read"] += len(part)
            self.did["replies"] += part.count(b"HTTP/1.1 ")


def did(output: bytes) -> Did:
    """Return the counts that a process of clients printed."""
    return Counter(json.loads(output))


def main(port: int, seed: int, seconds: float, clients: int) -> None:
    """Send all kinds of requests, and print their number."""
    storm = Storm(port, seed)
    asyncio.run(storm.run(seconds, clients))
    sys.stdout.write(json.dumps(storm.did))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
