"""Cases 33 to 35: models that are swapped under load, bad ones among them."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chaos import checker
from chaos.case import backed, case
from chaos.checks import Findings, Skip
from chaos.clients import open_loop
from chaos.context import World
from chaos.history import OK, Fate
from chaos.server import LOOK, free_port
from lingon.bench.statistics import percentile
from lingon.bundle import GOLDEN, MANIFEST, Bundle, open_bundle
from lingon.client.admin import ModelsClient

RATE = 50.0  # requests a second
PAUSE = 1.0  # seconds between two swaps, and before the first
SETTLED = 10.0  # seconds after the last swap that memory has to come back


BEAMS = {"1": 4, "2": 1}
"""By version, the beam size where a request says nothing: so the same request has two translations."""


def two_versions(model: Path, folder: Path) -> list[Path]:
    """Copies of a bundle as versions 1 and 2 of a model, which differ in BEAMS."""
    made, original = [], open_bundle(model)
    for version, beam_size in BEAMS.items():
        target = folder / version
        shutil.copytree(original.folder, target)
        (target / GOLDEN).unlink(missing_ok=True)  # which are of the original's beam size
        sums = {name: value for name, value in original.manifest.checksums.items() if name != GOLDEN}
        defaults = replace(original.manifest.defaults, beam_size=beam_size)
        manifest = replace(original.manifest, version=int(version), defaults=defaults, checksums=sums)
        (target / MANIFEST).write_bytes(Bundle(target, manifest).manifest.to_bytes())
        made.append(target)
    return made


def while_swapped(fates: Sequence[Fate], swaps: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The latencies in milliseconds of requests that met a swap, and of the others."""
    met, calm = list[float](), list[float]()
    for fate in fates:
        touched = any(fate.sent < end and begin < (fate.ended or end) for begin, end in swaps)
        (met if touched else calm).append(fate.milliseconds)
    return met, calm


@case(
    33,
    "hot reload",
    "50 requests a second, 20 swaps: no error, each reply wholly of one version, p99 at most 2x, memory back in 10 s",
)
async def hot_reload(world: World, found: Findings) -> None:
    """Swap back and forth between two versions of the model under steady traffic."""
    count, admin = world.choose(20, 4), free_port()
    paths = two_versions(world.session.model, world.scratch / "models")
    differing = await _differing(world)
    async with world.server(model=paths[0].parent, admin_port=admin, calls=True) as server:
        client, draw = world.client(server), random.Random(33)

        async def send(text: str, due: float) -> Fate:
            several = draw.sample(differing, 2) if draw.random() < 0.1 else []
            return await client.translate(text, *several, beam_size=None, due=due)

        await open_loop(send, differing, RATE, world.choose(5, 2))
        before = server.rss()
        traffic = asyncio.create_task(open_loop(send, differing, RATE, count * 2 * PAUSE))
        swaps = []
        with ModelsClient(f"127.0.0.1:{admin}") as models:
            for number in range(count):
                await asyncio.sleep(PAUSE)
                begin = time.monotonic()
                await asyncio.to_thread(models.swap, str(paths[number % 2].resolve()))
                swaps.append((begin, time.monotonic()))
        fates = await traffic
        met, calm = while_swapped(fates, swaps)
        found.clean("no errors", checker.only(fates, [OK]))
        found.equal("versions seen", sorted({fate.version for fate in fates}), ["1", "2"])
        for fate in world.history:  # what it was translated with, if the version that it names did all of it
            fate.beam_size = BEAMS.get(fate.version, 0)
        found.at_most("p99 in a swap, to calm", percentile(met, 99) / percentile(calm, 99), 2.0, "x", timing=True)
        ends = time.monotonic() + SETTLED
        while server.rss() > 1.25 * before and time.monotonic() < ends:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        found.at_most("memory afterwards", server.rss() / before, 1.25, "x")
        await world.judge(found, server)


backed(
    34,
    "bad reload",
    "corrupt, cold, or translating otherwise: the old version goes on serving, 0 errors, counted and logged",
    "tests/serving/models/test_registry.py",
    "tests/serving/rpc/test_admin.py",
)


async def _differing(world: World) -> list[str]:
    """Texts that the two versions translate otherwise."""
    texts = world.texts[: world.choose(400, 100)]
    golden = await world.session.golden((beam_size, text) for text in texts for beam_size in BEAMS.values())
    found = [text for text in texts if len({golden[beam_size, text] for beam_size in BEAMS.values()}) > 1]
    assert len(found) >= 20, f"of {len(texts)} texts only {len(found)} tell the versions apart"
    return found


@case(35, "card out of memory", "only the affected requests fail; never a silent move to the CPU")
async def card_out_of_memory(world: World, found: Findings) -> None:
    """Needs a card."""
    raise Skip("no CUDA card was lent")
