"""Fuzzing of the whole way of a request, led by coverage, for as long as one likes. Needs `pip install atheris`.

    python -m tests.hostile.fuzz_requests -max_total_time=3600 [FOLDER OF A CORPUS]

The server of tests/support/echo_engine.py runs in this process: real but for the graphs. The first byte of an input
chooses the method, the rest is the message. An answer outside the contract, or none in time, ends it with the input
at fault.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import grpc

from lingon.translation.v1 import translation_pb2 as pb
from tests.hostile.requests import METHODS
from tests.support import echo_engine as fakes
from tests.support.server_process import ALIVE, CONTRACT, SERVICE

SEEDS = [
    pb.TranslateRequest(texts=["Tom lives in Boston.", ""], options=pb.DecodingOptions(beam_size=2)),
    pb.TranslateRequest(texts=["Tom"], target_prefixes=["Tom"], options=pb.DecodingOptions(return_alignment=True)),
    pb.TranslateRequest(texts=["Tom. " * 40], options=pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)),
    pb.ScoreRequest(pairs=[pb.ScorePair(source="Tom", target="Tom")], return_alignment=True),
]


async def knock(server: fakes.Running, data: bytes) -> grpc.StatusCode:
    """Send what an input stands for; returns how it ended, which is within the contract, and in time."""
    code = await _ended(server, data)
    for _ in range(2):  # the machine has others to serve too
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            code = await _ended(server, data)
    assert code in CONTRACT, code
    return code


async def _ended(server: fakes.Running, data: bytes) -> grpc.StatusCode:
    method, raw = METHODS[data[0] % len(METHODS)] if data else METHODS[0], data[1:]
    channel: Any = server.channel
    try:
        if method.endswith("Stream"):
            async for _ in channel.unary_stream(SERVICE + method)(raw, timeout=ALIVE):
                pass
        else:
            await channel.unary_unary(SERVICE + method)(raw, timeout=ALIVE)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def inputs() -> list[bytes]:
    """What fuzzing may begin with: every message by every method."""
    messages = [message.SerializeToString() for message in SEEDS]
    return [bytes([place]) + message for place in range(len(METHODS)) for message in [b"", *messages]]


def main() -> None:
    """Fuzz until told to stop."""
    import atheris

    ours = [module for name, module in sys.modules.items() if name.split(".")[0] in ("lingon", "serving")]
    for module in ours:
        _instrument(vars(module), module.__name__, atheris.instrument_func)
    loop = asyncio.new_event_loop()
    running = fakes.running(fakes.EchoRunner(shortlist=fakes.everything()))
    server = loop.run_until_complete(running.__aenter__())
    for data in inputs():
        loop.run_until_complete(knock(server, data))
    atheris.Setup(sys.argv, lambda data: loop.run_until_complete(knock(server, data)) and None)
    atheris.Fuzz()


def _instrument(scope: Any, owner: str, instrument: Callable[[Any], Any]) -> None:
    """Have the functions of a module, and those of its classes, tell what of them was reached."""
    for value in list(scope.values()):
        if getattr(value, "__module__", None) != owner:
            continue
        if isinstance(value, FunctionType):
            instrument(value)
        elif isinstance(value, type):
            _instrument(vars(value), owner, instrument)


if __name__ == "__main__":
    main()
