"""Clients of the HTTP port that send too much, too slowly, or do not read, all without a key."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from chaos.case import case
from chaos.context import CaseContext
from chaos.hostile.http_storm import Did, did
from chaos.hostile.probes import QUIET, may_need, observed
from chaos.server import ends_with_parent, free_port, write_api_keys
from chaos.verdict.checks import Checks
from chaos.verdict.history import OK
from lingon.bench.worker_process import Cores, on_cores

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
async def http_storm(context: CaseContext, checks: Checks) -> None:
    """The storm is a process of low priority. Its seed is fixed, and so is what each client would like to do."""
    keys, port = write_api_keys(context.scratch / "keys.toml", "polite"), free_port()
    async with context.server(api_keys=context.scratch / "keys.toml", http_port=port) as server:
        polite = context.client(server, "polite", key=keys["polite"])
        await polite.translate(context.texts[0])
        async with observed(server, polite) as found:
            raging = asyncio.create_task(_rage(port, context.choose(60.0, 10.0), context.pinning.clients))
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


async def _rage(port: int, seconds: float, cores: Cores) -> Did:
    """Let the clients rage in a process of their own; returns what they did."""
    command = ["nice", sys.executable, "-m", "chaos.hostile.http_storm", str(port), "1", str(seconds), str(CLIENTS)]
    with on_cores(cores):
        process = subprocess.Popen(ends_with_parent(command), stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        output, _ = await asyncio.to_thread(process.communicate)
    finally:
        process.kill()
    return did(output)
