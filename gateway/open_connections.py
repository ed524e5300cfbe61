"""The connections of an HTTP port together: how many each address has, and the bytes that they hold."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence

from lingon.client.address import block_of
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.requests.body_budget import BodyBudget
from lingon.gateway.turns import Turns

MOST_REFUSED = 256  # connections above the limits that are open until they are told so
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class OpenConnections:
    """Counts connections. Belongs to the event loop.

    budget: bounds the bytes that connections hold beyond a small part which each may have
    turns: for what costs connections time
    """

    def __init__(self, most: int, trusted: Sequence[Network], held_bytes: int, metrics: GatewayMetrics) -> None:
        """most: connections; an address that is not of a trusted proxy has half of them at most.

        held_bytes: of all connections together
        """
        self._most, self._share, self._trusted = most, max(most // 2, 1), trusted
        self._by_address = Counter[str]()
        self._refused = 0
        self._open = metrics.connections
        self.budget = BodyBudget(held_bytes, "the connections")
        self.turns = Turns()

    def refusal(self, address: str) -> str | None:
        """Why one more connection of an address is refused; None if it is not."""
        if self._by_address.total() >= self._most:
            return f"the server may have {self._most:,} connections, and has them"
        if self._by_address[block_of(address)] >= self._share and not self._is_trusted(address):
            return f"an address may have {self._share:,} connections, and this one has them"
        return None

    def open(self, address: str, *, refused: bool) -> bool:
        """Count a connection; returns whether it may stay open, for a refused one until it is told so."""
        self._open.inc()
        if refused:
            self._refused += 1
            return self._refused <= MOST_REFUSED
        self._by_address[block_of(address)] += 1
        return True

    def closed(self, address: str, *, refused: bool) -> None:
        """Forget a connection that was counted."""
        self._open.dec()
        if refused:
            self._refused -= 1
            return
        block = block_of(address)
        self._by_address[block] -= 1
        if not self._by_address[block]:
            del self._by_address[block]

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:  # the path of a Unix socket
            return False
        return any(found in network for network in self._trusted)
