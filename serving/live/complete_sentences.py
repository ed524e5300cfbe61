"""The translations of complete sentences of which nothing is agreed: those that are complete now begin together.

The engine then decodes them together, and a speaker whose words come in long messages waits for one batch, not for each
sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from lingon.errors import EngineFault
from lingon.serving.live.pasts import Pasts
from lingon.serving.live.sources import Sentence
from lingon.serving.translation.terms import NOTHING_STORED, CallerStores
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb

MOST_TOGETHER = 16  # sentences: so many an engine spreads over its workers; more delay the first one


@dataclass(frozen=True, slots=True)
class Request:
    """What is the same for all sentences of a speaker.

    caller: the key of fair queuing; deadline: on the clock of `time.monotonic`, or None
    terms: texts aside, a request with the terms and glossaries of the speaker
    stores: with the glossaries of the caller
    pasts: keeps the decoder's states of drafts, so that agreed tokens are not decoded again
    """

    caller: str = ""
    deadline: float | None = None
    terms: pb.TranslateRequest = field(default_factory=pb.TranslateRequest)
    stores: CallerStores = NOTHING_STORED
    pasts: Pasts = field(default_factory=partial(Pasts, 0))


@dataclass(frozen=True, slots=True)
class _Begun:
    """A sentence whose translation was begun with others."""

    text: str
    result: asyncio.Future[pb.TextResult]


class CompleteSentences:
    """Translates complete sentences as any other text, while one version of a model serves. Belongs to the event loop.

    A sentence that was begun with others and has other words at its turn, because of a revision, is translated again.
    """

    def __init__(self, translator: Translator, request: Request) -> None:
        self._translator, self._request = translator, request
        self._begun: dict[int, _Begun] = {}  # by the number of the first word
        self._work: asyncio.Task[None] | None = None  # on those that were begun together

    def close(self) -> None:
        """End all work."""
        if self._work is not None:
            self._work.cancel()

    def has_begun(self, first: int) -> bool:
        """Return whether the sentence that begins with the word of this number was begun with others."""
        return first in self._begun

    def begin(self, sentences: Sequence[Sentence]) -> None:
        """Begin to translate sentences together."""
        self.close()
        loop = asyncio.get_running_loop()
        self._begun = {each.first: _Begun(each.text, loop.create_future()) for each in sentences if each.text}
        self._work = loop.create_task(self._translate([*self._begun.values()]))

    async def result(self, sentence: Sentence) -> pb.TextResult:
        """Return the result of a sentence. Raises RequestError, after which the next call translates it again."""
        begun = self._begun.pop(sentence.first, None)
        if begun is not None and begun.text == sentence.text:
            return _checked(await begun.result)
        return await self.alone(sentence.text)

    async def alone(self, text: str) -> pb.TextResult:
        """Return the result of a text that was not begun with others. Raises RequestError."""
        asked, own = self._asked([text]), self._request
        reply = await self._translator.translate(asked, own.deadline, own.caller, own.stores)
        return _checked(reply.results[0])

    async def _translate(self, begun: Sequence[_Begun]) -> None:
        """Set the results of sentences, each as soon as it is there. An error is that of all that have none."""
        asked, own, translator = self._asked([each.text for each in begun]), self._request, self._translator
        try:
            options = translator.resolve(asked.options)
            terms = await translator.terms(asked, options, own.stores)
            async with aclosing(translator.stream(asked, options, own.deadline, own.caller, terms)) as events:
                async for index, event in events:
                    if isinstance(event, pb.TextResult) and not begun[index].result.done():
                        begun[index].result.set_result(event)
        except Exception as error:
            for each in begun:
                if not each.result.done():
                    each.result.set_exception(error)
                    each.result.exception()  # marks it as retrieved: the sentence may never have its turn
            self._begun = {first: each for first, each in self._begun.items() if each.result.exception() is None}

    def _asked(self, texts: Sequence[str]) -> pb.TranslateRequest:
        asked = pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT))
        asked.second.never = True  # its answer would take longer than a speaker waits, and LiveStart cannot refuse it
        asked.MergeFrom(self._request.terms)
        return asked


def _checked(result: pb.TextResult) -> pb.TextResult:
    if result.status.code:
        raise EngineFault(result.status.message)
    return result
