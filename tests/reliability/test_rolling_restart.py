"""Two replicas behind a proxy are restarted one after the other, under traffic.

The proxy is nginx, which checks no health: this case removes a replica that is not ready from the list of nginx, as an
orchestrator removes it from its endpoints.
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

from lingon.bench.worker_process import on_cores
from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks, Skip
from tests.reliability.clients import open_loop
from tests.reliability.context import CaseContext, translated
from tests.reliability.history import Outcome
from tests.reliability.server import CHECK_PAUSE, Server, ends_with_parent
from tests.support.ports import free_port

PROPAGATION = 1.0  # seconds that a replica still accepts requests after it reports NOT_SERVING
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
    """nginx in front of the replicas that are ready."""

    def __init__(self, folder: Path, replicas: Sequence[Server], context: CaseContext) -> None:
        self._folder, self._replicas, self.port = folder.resolve(), replicas, free_port()
        self._folder.mkdir()
        self._ready = list(replicas)
        (self._folder / "nginx.conf").write_text(CONFIGURATION.format(folder=self._folder, port=self.port))
        self._list()
        files = {"-p": self._folder, "-e": self._folder / "nginx.log", "-c": self._folder / "nginx.conf"}
        command = ["nginx", *(str(part) for option in files.items() for part in option)]
        with on_cores(context.pinning.server):
            self._process = subprocess.Popen(
                ends_with_parent(command), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    async def follow(self) -> None:
        """Update the list of replicas whenever their readiness changes."""
        while True:
            states = await asyncio.gather(*(_is_ready(each) for each in self._replicas))
            ready = [each for each, state in zip(self._replicas, states, strict=True) if state]
            if ready != self._ready and ready:
                self._ready = ready
                self._list()
                os.kill(self._process.pid, signal.SIGHUP)
            await asyncio.sleep(5 * CHECK_PAUSE)

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
    "2 replicas restarted 10x each at 50 requests/s: 0 errors with retry on UNAVAILABLE, <= 0.1 % without",
    figures=(
        "restarts that ended with code 0",
        "requests",
        "errors with retry",
        "errors without retry",
    ),
)
async def test_readiness_first_rollout(context: CaseContext, checks: Checks) -> None:
    """A replica reports NOT_SERVING, accepts requests for another second, drains, exits and is started again."""
    if shutil.which("nginx") is None:
        raise Skip("nginx is not installed")
    more: dict[str, Any] = {"propagation_seconds": PROPAGATION, "engines": 1, "threads": 1}
    async with context.server(name="one", **more) as one, context.server(name="two", **more) as two:
        proxy = Proxy(context.scratch / "nginx", (one, two), context)
        follower = asyncio.create_task(proxy.follow())
        try:
            address = f"127.0.0.1:{proxy.port}"
            retrying, plain = context.client(address, "retrying", retries=True), context.client(address, "plain")
            await context.wait_until("the proxy answers", lambda: _translates(context, plain.translate))
            rounds = context.choose(10, 1)
            rolling = asyncio.create_task(_roll(context, [one, two] * rounds))
            outcomes = await asyncio.gather(
                _traffic(context, retrying.translate, rolling), _traffic(context, plain.translate, rolling)
            )
            checks.equal("restarts that ended with code 0", await rolling, 2 * rounds)
        finally:
            follower.cancel()
            proxy.end()
    with_retry, without = outcomes
    checks.at_least("requests", len(with_retry) + len(without), rounds * 100)
    checks.equal("errors with retry", [f"{f.code} {f.reason}" for f in with_retry if not f.good][:3], [])
    failed = [outcome for outcome in without if not outcome.good]
    checks.at_most(f"errors without retry ({len(failed)})", 100 * len(failed) / len(without), 0.1, "%")
    checks.clean("every request ended once", checker.ended_once([f for f in context.history if f.good]))
    golden = await context.session.golden(translated(context.history))
    checks.clean("translations as alone", checker.same_as_alone(context.history, golden))


async def _translates(context: CaseContext, send: object) -> bool:
    assert callable(send)
    outcome: Outcome = await send(context.texts[0], deadline=2.0)
    return outcome.good


async def _traffic(context: CaseContext, send: object, rolling: asyncio.Task[int]) -> list[Outcome]:
    """Run an open loop in parts of two seconds, until all restarts are done."""
    found: list[Outcome] = []
    while not rolling.done():
        found += await open_loop(send, context.texts[:200], RATE, 2.0, seed=len(found))  # type: ignore[arg-type]
    return found


async def _roll(context: CaseContext, servers: Sequence[Server]) -> int:
    """Restart the servers one after the other, the next when the last is ready, and return how many exited with 0."""
    orderly = 0
    for server in servers:
        server.signal(signal.SIGTERM)
        await server.exited(60.0)
        orderly += server.exit_code == 0
        server.start()
        await server.ready()
        await asyncio.sleep(PROPAGATION)  # an orchestrator also waits until its list of endpoints has spread
    return orderly
