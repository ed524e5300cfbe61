"""Case 3: two replicas behind a proxy are restarted in turn, under traffic.

nginx is the proxy, and knows nothing of health: whoever rolls out takes a replica that is not ready out of its list,
as the endpoints of an orchestrator do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos import checker
from chaos.case import case
from chaos.checks import Findings, Skip
from chaos.clients import open_loop
from chaos.context import World, translated
from chaos.history import Fate
from chaos.server import LOOK, Server, bound_to_us, free_port
from lingon.bench.worker_process import on_cores

PROPAGATION = 1.0  # seconds that a replica goes on after NOT_SERVING
RATE = 25.0  # requests a second of each of two clients
CONFIGURATION = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fast; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/replicas.conf;
    server {{
        listen 127.0.0.1:{port} http2;
        keepalive_requests 1000000;
        location / {{ grpc_pass grpc://replicas; grpc_next_upstream error; grpc_read_timeout 120s; }}
    }}
}}
"""


class Proxy:
    """nginx in front of those replicas that are ready."""

    def __init__(self, folder: Path, replicas: Sequence[Server], world: World) -> None:
        self._folder, self._replicas, self.port = folder.resolve(), replicas, free_port()
        self._folder.mkdir()
        self._ready = list(replicas)
        (self._folder / "nginx.conf").write_text(CONFIGURATION.format(folder=self._folder, port=self.port))
        self._list()
        command = [
            "nginx",
            "-p",
            str(self._folder),
            "-e",
            f"{self._folder}/nginx.log",
            "-c",
            f"{self._folder}/nginx.conf",
        ]
        with on_cores(world.cast.server):
            self._process = subprocess.Popen(bound_to_us(command), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def follow(self) -> None:
        """Keep the list of replicas as their readiness is."""
        while True:
            states = await asyncio.gather(*(_is_ready(each) for each in self._replicas))
            ready = [each for each, state in zip(self._replicas, states, strict=True) if state]
            if ready != self._ready and ready:
                self._ready = ready
                self._list()
                os.kill(self._process.pid, signal.SIGHUP)
            await asyncio.sleep(5 * LOOK)

    def end(self) -> None:
        """End nginx and its workers."""
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _list(self) -> None:
        servers = " ".join(f"server {each.address};" for each in self._ready)
        (self._folder / "replicas.conf").write_text(f"upstream replicas {{ {servers} keepalive 16; }}\n")


async def _is_ready(server: Server) -> bool:
    try:
        return (await server.get("/healthz", 0.5))[0] == 200
    except OSError:
        return False


@case(
    3,
    "readiness-first rollout",
    "2 replicas restarted 10x each at 50/s: 0 errors with retry on UNAVAILABLE, <= 0.1 % without",
)
async def rollout(world: World, found: Findings) -> None:
    """Replicas say NOT_SERVING, go on for a second, drain, end, and come back."""
    if shutil.which("nginx") is None:
        raise Skip("nginx is not installed")
    more: dict[str, Any] = {"propagation_seconds": PROPAGATION, "engines": 1, "threads": 1}
    async with world.server(name="one", **more) as one, world.server(name="two", **more) as two:
        proxy = Proxy(world.scratch / "nginx", (one, two), world)
        follower = asyncio.create_task(proxy.follow())
        try:
            address = f"127.0.0.1:{proxy.port}"
            retrying, plain = world.client(address, "retrying", retries=True), world.client(address, "plain")
            await world.until("the proxy answers", lambda: _translates(world, plain.translate))
            rounds = world.choose(10, 1)
            rolling = asyncio.create_task(_roll(world, [one, two] * rounds))
            fates = await asyncio.gather(
                _traffic(world, retrying.translate, rolling), _traffic(world, plain.translate, rolling)
            )
            found.equal("restarts that ended with code 0", await rolling, 2 * rounds)
        finally:
            follower.cancel()
            proxy.end()
    with_retry, without = fates
    found.at_least("requests", len(with_retry) + len(without), rounds * 100)
    found.equal("errors with retry", [f"{f.code} {f.reason}" for f in with_retry if not f.good][:3], [])
    failed = [fate for fate in without if not fate.good]
    found.at_most(f"errors without retry ({len(failed)})", 100 * len(failed) / len(without), 0.1, "%")
    found.clean("each of the requests ended once", checker.ended_once([f for f in world.history if f.good]))
    golden = await world.session.golden(translated(world.history))
    found.clean("translations as alone", checker.as_alone(world.history, golden))


async def _translates(world: World, send: object) -> bool:
    assert callable(send)
    fate: Fate = await send(world.texts[0], deadline=2.0)
    return fate.good


async def _traffic(world: World, send: object, rolling: asyncio.Task[int]) -> list[Fate]:
    """An open loop, in parts of two seconds, until all is rolled out."""
    found: list[Fate] = []
    while not rolling.done():
        found += await open_loop(send, world.texts[:200], RATE, 2.0, seed=len(found))  # type: ignore[arg-type]
    return found


async def _roll(world: World, servers: Sequence[Server]) -> int:
    """Restart one after the other, the next when the last is ready again; how many ended as they should."""
    orderly = 0
    for server in servers:
        server.signal(signal.SIGTERM)
        await server.exited(60.0)
        orderly += server.exit_code == 0
        server.start()
        await server.ready()
        await asyncio.sleep(PROPAGATION)  # as an orchestrator does, the list of the proxy is given time
    return orderly
