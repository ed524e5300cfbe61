"""Hostile clients of the HTTP port: too much, too slow, not reading, and documents that take long to read."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from lingon.bench.results_file import percentile
from lingon.bench.worker_process import Cores, on_cores
from tests.reliability.attackers import QUIET, SLOWER, may_need, observed, one_by_one
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.context import CaseContext
from tests.reliability.history import OK, p99
from tests.reliability.http_storm import Did, did
from tests.reliability.server import ends_with_parent, write_api_keys
from tests.support.ports import free_port

CLIENTS = 256
MEMORY = 128.0  # megabytes above those before it
STOPPED = 0.5  # seconds for which the positive control stops the server


@case(
    "256 clients without a key that pipeline, send slowly, do not read, or send large headers or bodies, for 60 s: "
    "health silent <= 0.25 s, memory + 128 MB at most and within what the server may need; no fault; others are served",
    figures=(
        "megabytes sent",
        "replies",
        "health silent",
        "memory at its peak",
        "silence while the server is stopped",
    ),
)
async def test_http_storm(context: CaseContext, checks: Checks) -> None:
    """The storm is a process of low priority. Its seed is fixed, and so is what each client would like to do."""
    keys, port = write_api_keys(context.scratch / "keys.toml", "polite"), free_port()
    async with context.server(api_keys=context.scratch / "keys.toml", http_port=port) as server:
        polite = context.client(server, "polite", key=keys["polite"])
        await polite.translate(context.texts[0])
        async with observed(server, polite) as found:
            raging = asyncio.create_task(_storm(port, context.choose(60.0, 10.0), context.pinning.clients))
            await asyncio.sleep(1.0)
            beside = [await polite.translate(text) for text in context.texts[: context.choose(50, 10)]]
            done = await raging
        peak = server.peak_rss()
        async with observed(server, polite) as stopped:
            server.signal(signal.SIGSTOP)
            await asyncio.sleep(STOPPED)
            server.signal(signal.SIGCONT)
        checks.at_least("megabytes sent", done["bytes sent"] / 1e6, 10.0, "MB")
        checks.at_least("replies", done["replies"], 100)
        checks.at_most("health silent", found.health.longest, QUIET, "s", timing=True)
        checks.at_most("/healthz silent", found.http.longest, QUIET, "s", timing=True)
        checks.at_most("memory at its peak", found.peak, MEMORY, "MB")
        checks.measured("memory kept", found.kept, "MB")
        checks.at_most("memory of the process", peak, may_need(server.log), "MB")
        checks.equal("other calls that failed", sum(outcome.code != OK for outcome in beside), 0)
        checks.equal("lines about faults", server.tracebacks(), [])
        checks.at_least("silence while the server is stopped", stopped.health.longest, STOPPED, "s")


async def _storm(port: int, seconds: float, cores: Cores) -> Did:
    """Run the clients of the storm in a process of their own, and return their counts."""
    command = ["nice", sys.executable, "-m", "tests.reliability.http_storm", str(port), "1", str(seconds), str(CLIENTS)]
    with on_cores(cores):
        process = subprocess.Popen(ends_with_parent(command), stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        output, _ = await asyncio.to_thread(process.communicate)
    finally:
        process.kill()
    return did(output)


HOSTILE = 6  # documents at once
SLOW = ("slow.md", b"*1* `2` [3](4)\n\n" * 20_000)  # without letters, so that reading it is all the work
SMALL = ("small.po", b"".join(b'msgid "Tom %d"\nmsgstr "Tom"\n\n' % each for each in range(32)))
"""A file of 1 KB that is translated already: what remains is what a process costs."""

OVERHEAD = 15.0  # milliseconds
DRAIN = 5.0  # seconds that the server gives to requests when it stops
SOON = 2.0  # seconds more until it has ended


@case(
    "six at once of one key, again and again: p99 of another key's sentences <= 3 x alone, its document is translated, "
    "health silent <= 0.25 s; SIGTERM meanwhile: exit within the drain time + 2 s; a document of 1 KB costs <= 15 ms",
    figures=(
        "p99 beside relative to alone",
        "p99 alone",
        "document beside",
        "document alone",
        "health silent",
        "process of a document, p50",
        "exit after SIGTERM",
    ),
)
async def test_slow_documents(context: CaseContext, checks: Checks) -> None:
    """The documents have no letters, so that nothing of them is translated."""
    keys, port = write_api_keys(context.scratch / "keys.toml", "polite", "hostile"), free_port()
    settings: dict[str, Any] = {"api_keys": context.scratch / "keys.toml", "http_port": port, "drain_seconds": DRAIN}
    async with context.server(**settings) as server:
        polite = context.client(server, "polite", key=keys["polite"])
        texts = [text for text in context.texts if len(text) <= 25][:50]
        await one_by_one(polite.translate, texts, 1.0)
        costs = [await _upload(port, keys["polite"], SMALL) for _ in range(20)]
        checks.at_most("process of a document, p50", percentile(costs[1:], 50) * 1000, OVERHEAD, "ms", timing=True)
        checks.measured("document alone", costs[-1], "s")
        alone = await one_by_one(polite.translate, texts, context.choose(5.0, 2.0))
        tally = Counter[str]()
        async with observed(server, polite) as found, _attack(port, keys["hostile"], tally):
            await asyncio.sleep(2.0)
            beside = await one_by_one(polite.translate, texts, context.choose(20.0, 5.0))
            checks.measured("document beside", await _upload(port, keys["polite"], SMALL), "s")
        usual, slowed = p99(alone), p99(beside)
        checks.measured("p99 alone", usual, "ms")
        checks.measured("p99 beside", slowed, "ms")
        checks.at_most("p99 beside relative to alone", slowed / usual, SLOWER, "x", timing=True)
        checks.equal("errors of the polite caller", Counter(each.code for each in beside if not each.good), Counter())
        checks.measured("hostile documents that ended", tally.total())
        checks.at_most("health silent", found.health.longest, QUIET, "s", timing=True)
        checks.at_most("/healthz silent", found.http.longest, QUIET, "s", timing=True)
        checks.at_most("memory of the process", server.peak_rss(), may_need(server.log), "MB")
        async with _attack(port, keys["hostile"], tally):
            await asyncio.sleep(1.0)
            begin = server.signal(signal.SIGTERM)
            ended = await server.exited(DRAIN + 20 * SOON)
            checks.at_most("exit after SIGTERM", ended - begin, DRAIN + SOON, "s", timing=True)
            checks.equal("exit code", server.exit_code, 0)
        checks.equal("lines about faults", server.tracebacks(), [])


@asynccontextmanager
async def _attack(port: int, key: str, tally: Counter[str]) -> AsyncIterator[None]:
    """Send slow documents while the block runs, each again when it has ended."""

    async def send() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await _upload(port, key, SLOW)
                tally["ended"] += 1
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(send()) for _ in range(HOSTILE)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _upload(port: int, key: str, file: tuple[str, bytes]) -> float:
    """Send a document and wait for the reply, and return the seconds. Raise OSError, IncompleteReadError."""
    name, content = file
    form = [
        *('--x\r\nContent-Disposition: form-data; name="sourceLanguageCode"\r\n\r\nen\r\n',),
        *('--x\r\nContent-Disposition: form-data; name="targetLanguageCode"\r\n\r\nde\r\n',),
        f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n',
    ]
    body = "".join(form).encode() + content + b"\r\n--x--\r\n"
    head = (
        "POST /v1/translate:document HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"authorization: Bearer {key}\r\ncontent-type: multipart/form-data; boundary=x\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        await reader.read()
    finally:
        writer.close()
    return time.monotonic() - begin
