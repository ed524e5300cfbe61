"""Texts that are split into very many parts, which the server must refuse before it has paid for them."""

from __future__ import annotations

import asyncio
import signal

from chaos.callers.clients import Client
from chaos.case import case
from chaos.context import CaseContext
from chaos.hostile.attacks import Attack, empty_pairs, marked_texts, split, tiny_sentences
from chaos.hostile.callers import HostileCaller
from chaos.hostile.probes import QUIET, observed
from chaos.server import Server
from chaos.verdict.checks import Checks
from chaos.verdict.history import OK
from lingon.translation.v1 import translation_pb2 as pb

SIZES = ((100_000, 1), (1_048_000, 1), (4_190_000, 4))  # characters of a request, and texts that they are in
PLANNING = 1.0  # seconds of CPU time that planning one request may cost
MEMORY = 64.0  # megabytes above those before it: about 15 times the largest message
PARSED = 160.0  # megabytes: a message of 4 MB in which every two bytes are a message of their own, parsed
STOPPED = 0.5  # seconds for which the positive control stops the server
SENTENCES = 200  # of the book that the server does translate


@case(
    "0.1, 1.05 and 4.19 MB of tiny sentences, 256 texts of combining marks, 2 million empty pairs: refused; <= 1 s of "
    "CPU, health silent <= 0.25 s, memory + 64 MB at most (empty pairs 160 MB)",
    figures=(
        "CPU, 0.1 MB in tiny sentences",
        "CPU, 1.05 MB in tiny sentences",
        "CPU, 4.19 MB in tiny sentences",
        "health silent, 4.19 MB in tiny sentences",
        "memory at its peak, 4.19 MB in tiny sentences",
        "silence while the server is stopped",
    ),
)
async def texts_of_many_parts(context: CaseContext, checks: Checks) -> None:
    """One request at a time to a server of its own; then a book that is long but has few enough sentences."""
    for characters, texts in SIZES:
        async with context.server() as server:
            client = context.client(server)
            await client.translate(context.texts[0])
            await _refused(context, checks, server, client, tiny_sentences(characters, texts))
            if characters == SIZES[0][0]:
                await _silence_is_seen(checks, server, client)
                await _book(context, checks, server)
    await _one_by_one(context, checks)


async def _refused(context: CaseContext, checks: Checks, server: Server, client: Client, attack: Attack) -> None:
    caller = HostileCaller(server.address)
    async with observed(server, client) as found:
        reply = await caller.send(attack)
    await caller.close()
    name = attack.name
    checks.equal(f"answer, {name}", reply.code, "INVALID_ARGUMENT")
    checks.at_most(f"CPU, {name}", found.cpu, PLANNING, "s")
    checks.at_most(f"health silent, {name}", found.health.longest, QUIET, "s", timing=True)
    checks.at_most(f"/healthz silent, {name}", found.http.longest, QUIET, "s", timing=True)
    checks.equal(f"answers of /healthz, {name}", set(found.http.answers), {"200"})
    checks.at_most(f"memory at its peak, {name}", found.peak, MEMORY, "MB")
    checks.measured(f"memory kept, {name}", found.kept, "MB")


async def _one_by_one(context: CaseContext, checks: Checks) -> None:
    """Texts of combining marks, each of which is refused for its tokens, and millions of empty messages."""
    async with context.server() as server:
        client, caller = context.client(server), HostileCaller(server.address)
        await client.translate(context.texts[0])
        for attack, code in ((marked_texts(), OK), (empty_pairs(), "INVALID_ARGUMENT")):
            async with observed(server, client) as found:
                reply = await caller.send(attack)
            checks.equal(f"answer, {attack.name}", reply.code, code)
            checks.at_most(f"CPU, {attack.name}", found.cpu, PLANNING, "s")
            checks.at_most(f"health silent, {attack.name}", found.health.longest, QUIET, "s", timing=True)
            checks.at_most(f"memory at its peak, {attack.name}", found.peak, PARSED, "MB")
        await caller.close()


async def _silence_is_seen(checks: Checks, server: Server, client: Client) -> None:
    """The positive control: the probes notice a server that does nothing for a while."""
    async with observed(server, client) as found:
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED)
        server.signal(signal.SIGCONT)
    checks.at_least("silence while the server is stopped", found.health.longest, STOPPED, "s")
    checks.at_least("silence of /healthz while the server is stopped", found.http.longest, STOPPED, "s")


async def _book(context: CaseContext, checks: Checks, server: Server) -> None:
    """A long text of whole sentences is still split and translated, so that not every long text is refused."""
    caller = HostileCaller(server.address)
    sentences = context.texts[: context.choose(SENTENCES, 60)]
    reply = await caller.send(split("a book", [" ".join(sentences)]))
    await caller.close()
    checks.equal("answer, a book", reply.code, OK)
    results = pb.TranslateResponse.FromString(reply.body).results
    words = sum(len(translation.text.split()) for result in results for translation in result.hypotheses)
    checks.at_least("words of the book's translation", words, 3 * len(sentences))
