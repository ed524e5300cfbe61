"""A hostile caller in a process of its own, so that a polite caller is delayed in the server alone, not in the client.

`python -m chaos.hostile.process` reads one line of JSON from standard input, attacks until standard input ends, and
then prints its tally as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict

from chaos.hostile.attacks import Attack
from chaos.hostile.callers import UNDER_WAY, HostileCaller, Tally
from chaos.server import ends_with_parent
from lingon.bench.worker_process import Cores, on_cores
from lingon.errors import LingonError

STARTED = "attacking\n"


@asynccontextmanager
async def attacking_process(
    address: str, key: str | None, attacks: Sequence[Attack], cores: Cores, under_way: int = UNDER_WAY
) -> AsyncIterator[Tally]:
    """Like HostileCaller.attacking, from another process of low priority; the tally is complete after the block."""
    command = ["nice", sys.executable, "-m", "chaos.hostile.process"]
    with on_cores(cores):
        process = subprocess.Popen(ends_with_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220
    assert process.stdin is not None
    assert process.stdout is not None
    tally = Tally()
    try:
        order = {"address": address, "key": key, "under_way": under_way, "attacks": [_packed(each) for each in attacks]}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        if await asyncio.to_thread(process.stdout.readline) != STARTED.encode():
            raise LingonError("the hostile caller ended before it had begun")
        yield tally
        process.stdin.close()
        found = json.loads(await asyncio.to_thread(process.stdout.read))
        tally.sent = found["sent"]
        tally.ended, tally.reasons = Counter(found["ended"]), Counter(found["reasons"])
    finally:
        process.kill()
        process.wait()
        with suppress(BrokenPipeError):  # what it did not read
            process.stdin.close()
        process.stdout.close()


def _packed(attack: Attack) -> dict[str, str]:
    return {**asdict(attack), "body": base64.b64encode(attack.body).decode()}


async def _attack(order: dict[str, object]) -> None:
    packed = order["attacks"]
    assert isinstance(packed, list)
    attacks = [Attack(each["name"], each["method"], base64.b64decode(each["body"])) for each in packed]
    key = order["key"]
    caller = HostileCaller(str(order["address"]), None if key is None else str(key))
    async with caller.attacking(attacks, int(str(order["under_way"]))) as tally:
        sys.stdout.write(STARTED)
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        counted = {"sent": tally.sent, "ended": dict(tally.ended), "reasons": dict(tally.reasons)}
    await caller.close()
    sys.stdout.write(json.dumps(counted))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_attack(json.loads(sys.stdin.readline())))
