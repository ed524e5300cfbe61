"""Coverage-guided fuzzing of a request from the socket to the reply, without end. Needs `pip install atheris`.

    python -m tests.support.fuzz_requests -max_total_time=3600 [FOLDER OF A CORPUS]

The server of tests/support/echo_engine.py runs in this process: everything but the graphs is real. The first byte of
an input selects the method, the rest is the message. Fuzzing ends with the input whose answer has an undocumented
status or arrives late.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import grpc

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine
from tests.support.request_strategies import METHODS
from tests.support.server_process import CONTRACT, RESPONSE_SECONDS, SERVICE

SEEDS = [
    pb.TranslateRequest(texts=["Tom lives in Boston.", ""], options=pb.DecodingOptions(beam_size=2)),
    pb.TranslateRequest(texts=["Tom"], target_prefixes=["Tom"], options=pb.DecodingOptions(return_alignment=True)),
    pb.TranslateRequest(texts=["Tom. " * 40], options=pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)),
    pb.ScoreRequest(pairs=[pb.ScorePair(source="Tom", target="Tom")], return_alignment=True),
    pb.ScoreRequest(
        pairs=[pb.ScorePair(source="Tom", target="Tom")],
        attention=pb.AttentionSelection(kinds=[pb.ATTENTION_KIND_CROSS], layers=[1], heads=[0, 3]),
    ),
]


async def answer_to(server: echo_engine.RunningServer, data: bytes) -> grpc.StatusCode:
    """Send an input; returns the status of the answer, which must be documented and arrive in time."""
    code = await _ended(server, data)
    for _ in range(2):  # a busy machine may delay a single answer
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            code = await _ended(server, data)
    assert code in CONTRACT, code
    return code


async def _ended(server: echo_engine.RunningServer, data: bytes) -> grpc.StatusCode:
    method, raw = METHODS[data[0] % len(METHODS)] if data else METHODS[0], data[1:]
    channel: Any = server.channel
    try:
        if method.endswith("Stream"):
            async for _ in channel.unary_stream(SERVICE + method)(raw, timeout=RESPONSE_SECONDS):
                pass
        else:
            await channel.unary_unary(SERVICE + method)(raw, timeout=RESPONSE_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def inputs() -> list[bytes]:
    """The seeds of fuzzing: every message with every method."""
    messages = [message.SerializeToString() for message in SEEDS]
    return [bytes([place]) + message for place in range(len(METHODS)) for message in [b"", *messages]]


def main() -> None:
    """Fuzz until interrupted."""
    import atheris

    instrumented = [module for name, module in sys.modules.items() if name.split(".")[0] == "lingon"]
    for module in instrumented:
        _instrument(vars(module), module.__name__, atheris.instrument_func)
    loop = asyncio.new_event_loop()
    running = echo_engine.running(echo_engine.EchoRunner(shortlist=echo_engine.full_shortlist()))
    server = loop.run_until_complete(running.__aenter__())
    for data in inputs():
        loop.run_until_complete(answer_to(server, data))
    atheris.Setup(sys.argv, lambda data: loop.run_until_complete(answer_to(server, data)) and None)
    atheris.Fuzz()


def _instrument(scope: Any, owner: str, instrument: Callable[[Any], Any]) -> None:
    """Instrument the functions of a module and the methods of its classes, so that their coverage is measured."""
    for value in list(scope.values()):
        if getattr(value, "__module__", None) != owner:
            continue
        if isinstance(value, FunctionType):
            instrument(value)
        elif isinstance(value, type):
            _instrument(vars(value), owner, instrument)


if __name__ == "__main__":
    main()
