"""Lets grpc.aio read all its wake-ups at once.

A thread of grpc.aio waits for events of its core and writes a byte into a socket for each. The event loop reads one
byte in an iteration, though it handles all events that are there: most iterations find nothing to do. Without them a
refusal takes a fifth less of a core.

This uses internal names of grpc, which may change; tests/serving/rpc/arrival/test_accepting.py fails when they do.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_BYTES = 65_536  # wake-ups that are read at once
_HANDLER = "_handle_events"  # name of the method of grpc.aio that reads one byte and handles all events


@contextmanager
def wake_ups_read_at_once(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have the reader that grpc.aio adds to the loop inside the block read all wake-ups at once."""
    add_reader = loop.add_reader

    def add(source: Any, callback: Callable[..., Any], *arguments: Any) -> None:
        if getattr(callback, "__name__", "") == _HANDLER and isinstance(source, socket.socket):
            add_reader(source, handle_all, source, callback)
        else:
            add_reader(source, callback, *arguments)

    loop.add_reader = add  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del loop.add_reader  # the method of the class again


def handle_all(source: socket.socket, handle_events: Callable[[], None]) -> None:
    """Read all wake-ups but one, and leave that to grpc.aio, whose socket blocks if it is empty."""
    waiting = len(source.recv(MOST_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    if waiting > 1:
        source.recv(waiting - 1)
    handle_events()
