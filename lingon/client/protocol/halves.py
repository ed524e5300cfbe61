"""Requests that are too large are sent in halves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from google.rpc import code_pb2

from lingon.client.protocol.steps import Exchange
from lingon.errors import RequestTooLarge, ServerError, TextTooLong

Result = TypeVar("Result")


def ask_in_halves(
    ask: Callable[[int, int, float], Exchange[list[Result]]],
    refused: Callable[[ServerError], Result],
    begin: int,
    end: int,
    deadline: float,
) -> Exchange[list[Result]]:
    """The results of items begin to end; a request that is too large is sent as two halves.

    Its message may be too large for gRPC, or its texts may have more sentences or tokens than the server queues.
    """
    try:
        return (yield from ask(begin, end, deadline))
    except ServerError as error:
        queue_refuses = error.reason == RequestTooLarge.reason
        grpc_refuses = (
            error.code == code_pb2.RESOURCE_EXHAUSTED and not error.reason and "larger than max" in str(error)
        )
        if not (queue_refuses or grpc_refuses):
            raise
        if end - begin == 1 and queue_refuses:
            return [refused(error)]
        if end - begin == 1:
            message = _too_large(str(error))
            return [refused(ServerError(message, code_pb2.INVALID_ARGUMENT, reason=TextTooLong.reason))]
    middle = (begin + end) // 2
    first = yield from ask_in_halves(ask, refused, begin, middle, deadline)
    return first + (yield from ask_in_halves(ask, refused, middle, end, deadline))


def _too_large(details: str) -> str:
    """The error of one text that no message can hold; details: gRPC's message, which names the side that refused it."""
    numbers = re.search(r"(CLIENT)?: Received message larger than max \((\d+) vs\. (\d+)\)", details)
    if numbers is None:
        return f"is too large for a message: {details}"
    what, side = ("its result", "this client") if numbers[1] else ("its request", "the server")
    return f"is too large: {what} has {int(numbers[2]):,} bytes, {side} takes {int(numbers[3]):,} at most; split it"


def check_count(results: list[Result], expected: int) -> list[Result]:
    """The results; raises ServerError if their number is not the expected one."""
    if len(results) != expected:
        raise ServerError(f"the server answered {expected} texts with {len(results)} results", code_pb2.INTERNAL)
    return results
