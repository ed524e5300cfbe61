"""The environment of the server: full disks, clocks that jump, no DNS, hung scrapers, signals and old connections."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import tests.reliability.checker as checker
from lingon.bench.results_file import percentile
from lingon.errors import LingonError
from lingon.serving.observability.http import PAUSE
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, closed_loop
from tests.reliability.context import CaseContext, translated
from tests.reliability.history import DEADLINE_EXCEEDED, OK, Outcome
from tests.reliability.server import Server

READ_ONLY = 'mount --bind /dev/null /etc/resolv.conf && mount -o remount,bind,ro / && exec "$@"'
HOUR, MINUTE = 3600, 60.0  # seconds
SCRAPERS = 50  # scrapers that hang at the same time


@case(
    "disk full, read-only tree, no DNS, clock +-1 h, hung scrapers: 0 errors; deadlines kept within 100 ms",
    figures=(
        "errors with logs on a full disk",
        "errors with a read-only tree and no DNS",
        "errors with a clock that jumps to +3600 s",
        "errors with a clock that jumps to -3600 s",
        "errors with 50 hung scrapers",
        "deadline missed by, after +3600 s",
        "deadline missed by, after -3600 s",
        "scrape p99 with hung scrapers",
    ),
)
async def test_environment_faults(context: CaseContext, checks: Checks) -> None:
    """The same traffic with each of these faults."""
    await _full_disk(context, checks)
    await _read_only(context, checks)
    await _clock_jumps(context, checks)
    await _hung_scrapers(context, checks)
    outcomes = list(context.history)
    golden = await context.session.golden(translated(outcomes))
    checks.clean("every request ended once", checker.ended_once(outcomes))
    checks.clean("translations as alone", checker.same_as_alone(outcomes, golden))


async def _traffic(context: CaseContext, checks: Checks, server: Server, what: str) -> list[Outcome]:
    client = context.client(server, what.replace(" ", "-"))
    outcomes = await closed_loop(client.translate, context.texts[:100], 4, requests=context.choose(400, 60))
    checks.equal(f"errors with {what}", sum(not outcome.good for outcome in outcomes), 0)
    return outcomes


async def _full_disk(context: CaseContext, checks: Checks) -> None:
    """Check a server whose log cannot be written because the disk is full."""
    async with context.server(calls=True, log_to=Path("/dev/full")) as server:
        await _traffic(context, checks, server, "logs on a full disk")


async def _read_only(context: CaseContext, checks: Checks) -> None:
    """Check a server in a mount namespace without writable files and without a name server."""
    prefix = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh"]
    probe = subprocess.run([*prefix, "touch", "/tmp/reliability-probe"], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    if "Read-only" not in probe.stderr:
        checks.not_run(f"read-only tree and no DNS: {probe.stderr.strip() or 'the tree can be written'}")
        return
    async with context.server(prefix=prefix) as server:
        await _traffic(context, checks, server, "a read-only tree and no DNS")


def _library() -> Path | None:
    """Return the library of Debian's libfaketime; None if it is not installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


async def _clock_jumps(context: CaseContext, checks: Checks) -> None:
    """Let the server's wall clock jump an hour ahead, then two hours back. Its monotonic clock does not jump."""
    library = _library()
    if library is None:
        checks.not_run("clock jumps: libfaketime is not installed")
        return
    clock = context.scratch / "clock"
    clock.write_text("+0")
    faked = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",  # seconds, because without a cache every call for the time reads the file
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    async with context.server(calls=True, environment=faked) as server:
        await _traffic(context, checks, server, "a clock that is true")
        for jump in (HOUR, -HOUR):
            answers = len(context.history.of(OK))
            loop = asyncio.create_task(_traffic(context, checks, server, f"a clock that jumps to {jump:+d} s"))
            await context.wait_until("some are under way", partial(_more_than, context, answers + 20))
            clock.write_text(f"{jump:+d}")
            await loop
            watching = context.client(server, f"ahead{jump:+d}")
            jumped = partial(_has_jumped, watching, context.texts[0], server, jump)
            await context.wait_until("its clock has jumped", jumped)
            ahead = server.calls()[-1].time - time.time()
            checks.at_most(f"the server's clock, off from {jump:+d} s", abs(ahead - jump), MINUTE, "s")
            client, texts = context.client(server, "late"), context.session.long_texts(64, 80)
            late = await client.translate(*texts, beam_size=8, deadline=0.5)  # takes seconds
            checks.equal(f"a deadline after {jump:+d} s", late.code, DEADLINE_EXCEEDED)
            await context.idle_scrape(server, 0.5)
            freed = 1000 * (time.monotonic() - (late.ended or 0.0))
            checks.at_most(f"places free, after {jump:+d} s, within", freed, 500.0, "ms", timing=True)
            ended = [call for call in server.calls() if call.request_id == late.id]
            checks.equal(f"code in the server's log after {jump:+d} s", [c.code for c in ended], [DEADLINE_EXCEEDED])
            checks.at_most(
                f"deadline missed by, after {jump:+d} s", abs(ended[0].milliseconds - 500.0), 100.0, "ms", timing=True
            )


async def _has_jumped(client: Client, text: str, server: Server, jump: int) -> bool:
    outcome = await client.translate(text)
    return outcome.good and abs(server.calls()[-1].time - time.time() - jump) <= MINUTE


def _more_than(context: CaseContext, answers: int) -> bool:
    return len(context.history.of(OK)) > answers


async def _hung_scrapers(context: CaseContext, checks: Checks) -> None:
    """Run scrapers that never read the answer or never finish their request, beside one that gets its answer."""
    async with context.server() as server:
        async with _silent(server):
            await _traffic(context, checks, server, f"{SCRAPERS} hung scrapers")
            times = []
            for _ in range(20):
                await asyncio.sleep(PAUSE)  # a scrape before that waits for the next page
                start = time.monotonic()
                await server.scrape()
                times.append(1000 * (time.monotonic() - start))
        checks.at_most("scrape p99 with hung scrapers", percentile(times, 99), 100.0, "ms", timing=True)


@asynccontextmanager
async def _silent(server: Server) -> AsyncIterator[None]:
    sockets: list[Any] = []
    try:
        for number in range(SCRAPERS):
            each = socket.create_connection(("127.0.0.1", server.metrics_port), timeout=5.0)
            sockets.append(each)
            each.sendall(b"GET /metrics HTTP/1.1\r\n" + (b"Host: x\r\n\r\n" if number % 2 else b""))
        yield
    finally:
        for each in sockets:
            each.close()


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
async def test_signals_and_old_connections(context: CaseContext, checks: Checks) -> None:
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
            await server.exited(3.0)  # a server may drain and end, or continue
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
        context.note(f"{error}")
        checks.equal("pages on ::1", "the server does not start", ["200", "200"])


async def _page(port: int, path: str) -> str:
    """Return the HTTP status of a page on ::1."""
    reader, writer = await asyncio.open_connection("::1", port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    status = (await reader.readline()).decode().split()[1]
    writer.close()
    return status


async def _old_connection(context: CaseContext, checks: Checks) -> None:
    """Open a Watch without an end, on a connection that is old after a second."""
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
