"""TCP ports for servers of tests that must know their port before they start."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress

BELOW_CLIENTS = range(15_000, 32_000)
"""Ports that Linux gives to no client: a connection of another test cannot take one before its server listens."""


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that are free now."""
    found = _free_ports()
    return [next(found) for _ in range(count)]


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    return free_ports(1)[0]


def _free_ports() -> Iterator[int]:
    for port in random.SystemRandom().sample(BELOW_CLIENTS, len(BELOW_CLIENTS)):
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            yield port
