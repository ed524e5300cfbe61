"""Protobuf messages in batches that fit into the messages which carry them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

MOST_ITEMS = 1000  # messages of a batch
MOST_BYTES = 2**20  # bytes of a batch, of the 4 MiB that gRPC takes by default

Item = TypeVar("Item", bound=Message)


def batches_of(messages: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield messages in their order, as many in a batch as MOST_ITEMS and MOST_BYTES allow, but at least one."""
    batch, size = list[Item](), 0
    for message in messages:
        own = message.ByteSize()
        if batch and (len(batch) == MOST_ITEMS or size + own > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch
