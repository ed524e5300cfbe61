"""The calls of GlossaryService for one caller, whatever carries them."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from google.rpc import code_pb2

from lingon.errors import RequestError, ServerError
from lingon.message_batches import batches_of
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb

ResultT = TypeVar("ResultT")


class GlossaryCalls(ABC):
    """The methods of GlossaryService. They raise ServerError or RequestError.

    A server without a folder for glossaries answers UNIMPLEMENTED, and one that has none of a name NOT_FOUND.
    """

    @abstractmethod
    async def _reply(self, method: str, request: Any) -> Any:
        """Return the reply of a method; request: one, or an async iterator of several."""

    @abstractmethod
    def _replies(self, method: str, request: Any) -> AsyncIterator[Any]:
        """Yield the replies of a method."""

    async def put_glossary(
        self, header: stores.PutGlossaryHeader, terms: Mapping[tuple[str, str], Sequence[pb.Term]]
    ) -> stores.Glossary:
        """Store terms by their languages in one change, all or none; header: without languages."""

        async def messages() -> AsyncIterator[stores.PutGlossaryRequest]:
            for message in glossary_requests(header, terms):
                yield message

        return cast("stores.Glossary", await self._reply("PutGlossary", messages()))

    async def glossary(self, name: str) -> stores.Glossary:
        """Return a glossary without its terms."""
        return cast("stores.Glossary", await self._reply("GetGlossary", stores.GetGlossaryRequest(name=name)))

    async def glossaries(self) -> list[stores.Glossary]:
        """Return all glossaries without their terms, sorted by name."""
        return list((await self._reply("ListGlossaries", stores.ListGlossariesRequest())).glossaries)

    async def terms(self, name: str, source: str, target: str) -> list[pb.Term]:
        """Return the terms of a glossary for a pair of languages, in their order."""
        request = stores.ReadGlossaryRequest(name=name, source_language_code=source, target_language_code=target)
        return [term async for part in self._replies("ReadGlossary", request) for term in part.terms]

    async def delete_glossary(self, name: str, source: str = "", target: str = "") -> None:
        """Remove a glossary, or its terms for a pair of languages."""
        request = stores.DeleteGlossaryRequest(name=name, source_language_code=source, target_language_code=target)
        await self._reply("DeleteGlossary", request)


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


# Changes of a glossary that others change at the same time, for APIs whose requests name no version.

TRIES = 30  # attempts; one fails only if another change was made meanwhile
FIRST_PAUSE = 0.02  # seconds at most before the second attempt; the bound doubles with each attempt
LONGEST_PAUSE = 1.0  # seconds, the highest bound


async def change_again(change: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of `change`, which reads a glossary and stores it with the version that it read.

    It is called again if another change came between, after a random pause, so that many changes at a time do not all
    begin again together. Raises what it raises, and the ABORTED of the last attempt.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return await change()
        except (ServerError, RequestError) as error:
            if error.code != code_pb2.ABORTED or attempt == TRIES:
                raise
        await asyncio.sleep(random.uniform(0, min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)))
    raise AssertionError("the last attempt returns or raises")
