"""What an operator does or sets and a caller can make worse: SIGHUP, IPv6 for metrics, connection age."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import suppress

from chaos.case import case
from chaos.context import CaseContext
from chaos.server import Server
from chaos.verdict.checks import Checks
from chaos.verdict.history import OK
from lingon.errors import LingonError

AGE, DRAIN = 1.0, 2.0  # seconds of max_connection_age_seconds and drain_seconds
SPARE = 3.0  # seconds: gRPC varies the age of a connection by a tenth, and closes it on a timer


@case(
    "SIGHUP cuts no call; with --metrics-host ::1 the pages answer; a Watch ends within age + drain_seconds + 3 s",
    figures=(
        "call under way at SIGHUP",
        "pages on ::1",
        "Watch of an old connection ended after",
    ),
)
async def signals_and_old_connections(context: CaseContext, checks: Checks) -> None:
    """One server for each of the three."""
    await _sighup(context, checks)
    await _metrics_on_ipv6(context, checks)
    await _old_connection(context, checks)


async def _sighup(context: CaseContext, checks: Checks) -> None:
    slow = context.switch("slow")
    async with context.server(failpoints=f"step=sleep:0.2?{slow}") as server:
        client = context.client(server)
        await client.translate(context.texts[0])
        slow.on()
        call = asyncio.create_task(client.translate(context.texts[1]))
        await context.wait_until("it runs", lambda: _in_flight(server))
        server.signal(signal.SIGHUP)
        outcome = await call
        checks.equal("call under way at SIGHUP", outcome.code, OK)
        with suppress(LingonError):
            await server.exited(3.0)  # a server may drain and end, or go on
        checks.equal("exit code after SIGHUP is that of a drain, or none", server.exit_code in (0, None), True)
        checks.clean("no unhandled error after SIGHUP", server.tracebacks())


async def _in_flight(server: Server) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= 1


async def _metrics_on_ipv6(context: CaseContext, checks: Checks) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        checks.not_run("metrics on ::1: this machine has no IPv6")
        return
    try:
        async with context.server(metrics_host="::1") as server:
            pages = [_page(server.metrics_port, path) for path in ("/healthz", "/metrics")]
            checks.equal("pages on ::1", [await page for page in pages], ["200", "200"])
    except LingonError as error:
        context.session.log(f"  {error}")
        checks.equal("pages on ::1", "the server does not start", ["200", "200"])


async def _page(port: int, path: str) -> str:
    """The HTTP status of a page on ::1."""
    reader, writer = await asyncio.open_connection("::1", port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    status = (await reader.readline()).decode().split()[1]
    writer.close()
    return status


async def _old_connection(context: CaseContext, checks: Checks) -> None:
    """A Watch that would stay for ever, on a connection that is old after a second."""
    async with context.server(max_connection_age_seconds=AGE, drain_seconds=DRAIN) as server:
        watcher, states = context.client(server, "watcher"), list[str]()
        begun = time.monotonic()
        watch = asyncio.create_task(watcher.watch(states.append))
        bound = AGE + DRAIN + SPARE
        await asyncio.wait({watch}, timeout=bound + SPARE)
        spent = time.monotonic() - begun if watch.done() else float("inf")
        watch.cancel()
        checks.equal("first state of the Watch", states[:1], ["SERVING"])
        checks.at_most("Watch of an old connection ended after", spent, bound, "s", timing=True)
        again = context.client(server, "again")
        checks.equal("a new connection afterwards", (await again.translate(context.texts[0])).code, OK)
