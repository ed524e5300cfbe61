"""Protobuf messages in batches that fit into the messages which carry them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb

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


def glossary_requests(
    header: stores.PutGlossaryHeader, terms: Mapping[tuple[str, str], Iterable[pb.Term]]
) -> Iterator[stores.PutGlossaryRequest]:
    """Yield the messages that store terms by their languages in one change; header: without languages."""
    for number, (languages, own) in enumerate(terms.items()):
        pair = stores.GlossaryPair(source_language_code=languages[0], target_language_code=languages[1])
        if number == 0:
            first = stores.PutGlossaryRequest(header=header)
            first.header.source_language_code, first.header.target_language_code = languages
            yield first
        else:
            yield stores.PutGlossaryRequest(pair=pair)
        for batch in batches_of(own):
            yield stores.PutGlossaryRequest(terms=batch)
