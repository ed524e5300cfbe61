"""Case 37: what surrounds the server fails: the disk is full or read-only, the clock jumps, nobody resolves names,
a scraper hangs.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from chaos import checker
from chaos.case import case
from chaos.checks import Findings
from chaos.clients import closed_loop
from chaos.context import World, translated
from chaos.history import DEADLINE_EXCEEDED, OK, Fate
from chaos.server import Server
from lingon.bench.statistics import percentile

READ_ONLY = 'mount --bind /dev/null /etc/resolv.conf && mount -o remount,bind,ro / && exec "$@"'
HOUR = 3600
SCRAPERS = 50


@case(
    37, "hostile surroundings", "disk full, read-only tree, no DNS, clock +-1 h, hung scraper: 0 errors, deadlines hold"
)
async def surroundings(world: World, found: Findings) -> None:
    """The same traffic in each of them."""
    await _full_disk(world, found)
    await _read_only(world, found)
    await _clock_jumps(world, found)
    await _hung_scrapers(world, found)
    fates = list(world.history)
    golden = await world.session.golden(translated(fates))
    found.clean("each of the requests ended once", checker.ended_once(fates))
    found.clean("translations as alone", checker.as_alone(fates, golden))


async def _traffic(world: World, found: Findings, server: Server, what: str) -> list[Fate]:
    client = world.client(server, what.replace(" ", "-"))
    fates = await closed_loop(client.translate, world.texts[:100], 4, requests=world.choose(400, 60))
    found.equal(f"errors with {what}", sum(not fate.good for fate in fates), 0)
    return fates


async def _full_disk(world: World, found: Findings) -> None:
    """Every line of the log finds the disk full."""
    async with world.server(calls=True, log_to=Path("/dev/full")) as server:
        await _traffic(world, found, server, "logs on a full disk")


async def _read_only(world: World, found: Findings) -> None:
    """A mount namespace of its own, in which nothing can be written and there is no name server."""
    prefix = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh"]
    probe = subprocess.run([*prefix, "touch", "/tmp/chaos-probe"], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    if "Read-only" not in probe.stderr:
        found.not_run(f"read-only tree and no DNS: {probe.stderr.strip() or 'the tree can be written'}")
        return
    async with world.server(prefix=prefix) as server:
        await _traffic(world, found, server, "a read-only tree and no DNS")


def _library() -> Path | None:
    """Debian's libfaketime."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


async def _clock_jumps(world: World, found: Findings) -> None:
    """The clock of the server's world jumps an hour ahead and two back; the monotonic one goes on."""
    library = _library()
    if library is None:
        found.not_run("clock jumps: libfaketime is not installed")
        return
    clock = world.scratch / "clock"
    clock.write_text("+0")
    faked = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    async with world.server(calls=True, environment=faked) as server:
        await _traffic(world, found, server, "a clock that is true")
        for jump in (HOUR, -HOUR):
            answers = len(world.history.of(OK))
            loop = asyncio.create_task(_traffic(world, found, server, f"a clock that jumps to {jump:+d} s"))
            await world.until("some are under way", partial(_more_than, world, answers + 20))
            clock.write_text(f"{jump:+d}")
            await loop
            told = server.calls()[-1].time - time.time()
            found.at_most(f"the server's clock, off from {jump:+d} s", abs(told - jump), 60.0, "s")
            client, texts = world.client(server, "late"), world.session.long_texts(64, 80)
            late = await client.translate(*texts, beam_size=8, deadline=0.5)  # takes seconds
            found.equal(f"a deadline after {jump:+d} s", late.code, DEADLINE_EXCEEDED)
            await world.resting(server, 0.5)
            freed = 1000 * (time.monotonic() - (late.ended or 0.0))
            found.at_most(f"places free, after {jump:+d} s, within", freed, 500.0, "ms", timing=True)
            ended = [call for call in server.calls() if call.request_id == late.id]
            found.equal(f"what the server calls it after {jump:+d} s", [c.code for c in ended], [DEADLINE_EXCEEDED])
            found.at_most(f"off by, after {jump:+d} s", abs(ended[0].milliseconds - 500.0), 100.0, "ms", timing=True)


def _more_than(world: World, answers: int) -> bool:
    return len(world.history.of(OK)) > answers


async def _hung_scrapers(world: World, found: Findings) -> None:
    """Scrapers that ask and never read, or never end their question; one that works gets its answer."""
    async with world.server() as server:
        async with _silent(server):
            await _traffic(world, found, server, f"{SCRAPERS} hung scrapers")
            times = []
            for _ in range(20):
                start = time.monotonic()
                await server.scrape()
                times.append(1000 * (time.monotonic() - start))
        found.at_most("a scrape beside them, p99", percentile(times, 99), 100.0, "ms", timing=True)


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
