"""One speaker: translates the words that it has at each moment, and answers with text that it keeps to.

A speaker has one update at work. Words that come meanwhile change the source, and the next update is made of all of
them: no update waits behind another one. Sentences are translated to the end in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from lingon.errors import (
    Draining,
    EngineFault,
    EngineLost,
    InvalidRequest,
    ModelUnloaded,
    RequestError,
    Unsupported,
)
from lingon.serving.live.complete_sentences import MOST_TOGETHER, CompleteSentences, Request
from lingon.serving.live.listening import Arrival, Listener, LiveLimits, Messages
from lingon.serving.live.pasts import Pasts
from lingon.serving.live.policies import DEFAULT_LAGS, Draft, LengthRatio, policy_of
from lingon.serving.live.rounds import Rounds
from lingon.serving.live.sources import LiveSource, Sentence, word_separator
from lingon.serving.live.translating import PASSING, OpenTranslation
from lingon.serving.translation.engine_client import RETRY_SECONDS
from lingon.serving.translation.options import check_alignment
from lingon.serving.translation.terms import NOTHING_STORED, CallerStores
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb

LEAST_PAUSE, MOST_PAUSE, DEFAULT_PAUSE = 200, 60_000, 3_000  # milliseconds
MOST_RETRY_SECONDS = 30.0  # seconds without any update, after which an error that may pass ends the speaker
OWN_BYTES = 1 << 24  # bytes of the states of a speaker without a server

Replies = AsyncGenerator[pb.TranslateLiveResponse, None]
OpenModel = Callable[[], AbstractAsyncContextManager[Translator]]
"""Opens the model of a speaker as it is served now, and keeps it loaded inside the context. Raises RequestError, and
ModelUnloaded in place of the cancellation of a task that waits for words while its model is unloaded.
"""


class Observer(Protocol):
    """A receiver of what happens to speakers, for metrics."""

    def updated(self, kind: str, seconds: float | None, replaced: int) -> None:
        """Count an update; kind: one of LIVE_UPDATES of lingon.serving.observability.metrics.

        seconds: from the arrival of the oldest words that no update before it has; None without such words
        replaced: updates that were never made, because later words came before their turn
        """

    def agreed(self, words: int) -> None:
        """Count source words whose translation became agreed."""


class NullObserver:
    """Counts nothing."""

    def updated(self, kind: str, seconds: float | None, replaced: int) -> None: ...

    def agreed(self, words: int) -> None: ...


class Speaker:
    """One speaker, from its first message to its last. Belongs to the event loop."""

    def __init__(
        self,
        start: pb.LiveStart,
        open_model: OpenModel,
        *,
        caller: str = "",
        deadline: float | None = None,
        stores: CallerStores = NOTHING_STORED,
        limits: LiveLimits | None = None,
        observer: Observer | None = None,
        pasts: Pasts | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        """caller: the key of fair queuing; deadline: on the clock of `time.monotonic`; stores: of the caller.

        pasts: the decoder's states of all speakers; None keeps those of this one
        rounds: of all speakers; None waits for no other one

        Raises InvalidRequest and Unsupported for what is wrong in `start`.
        """
        self._number, self._policy = policy_of(start.policy, start.lag_words)
        self._lag = start.lag_words or DEFAULT_LAGS[self._number]
        self._agreed_only, self._pause_seconds = start.agreed_only, _pause_seconds(start.pause_ms)
        self._request = Request(
            caller, deadline, _terms(start, self._number), stores, Pasts(OWN_BYTES) if pasts is None else pasts
        )
        self._open_model, self._limits, self._observer = open_model, limits or LiveLimits(), observer or NullObserver()
        self._rounds = rounds or Rounds(0)
        self._ratio = LengthRatio()
        self._usage = pb.Usage()
        self._listener: Listener | None = None
        self._drafts: deque[Draft] = deque(maxlen=self._policy.drafts)
        self._draining = False
        self._sentence = 0  # number of the current sentence
        self._agreed = ""  # its agreed text
        self._agreed_words = 0  # number of source words, since the start, that all agreed text covers
        self._separator = self._lead = ""  # between two sentences, and before the current one
        self._failure = ""  # of updates since the last one that succeeded
        self._failing_since: float | None = None  # on the clock of the event loop

    def drain(self) -> None:
        """End the speaker as after a pause, because the server shuts down. Later words are not read."""
        self._draining = True
        if self._listener is not None:
            self._listener.end()

    async def talk(self, messages: Messages) -> Replies:
        """Yield the answers. Closing this generator ends all work. Use it within `aclosing`.

        messages: those after the start

        Raises RequestError.
        """
        async with self._open_model() as translator:
            ready = await self._ready(translator)
            source = LiveSource(translator.manifest.source_language, self._limits.sentence_words)
        listener = self._listener = Listener(source, self._limits, self._pause_seconds, self._request.caller)
        if self._draining:
            listener.end()
        yield pb.TranslateLiveResponse(ready=ready)
        listener.start(messages)
        try:
            while await listener.words_came():
                async with aclosing(self._sentence_updates(listener)) as updates:
                    async for update in updates:
                        yield pb.TranslateLiveResponse(update=update)
            listener.check()
            if self._draining:
                raise Draining("the server is shutting down; the words so far are translated; try again")
            yield pb.TranslateLiveResponse(done=pb.LiveDone(words=source.count, usage=self._usage))
        finally:
            listener.stop()

    async def _ready(self, translator: Translator) -> pb.LiveReady:
        """Return the first answer. Raises RequestError for what the model cannot do."""
        manifest = translator.manifest
        if self._number == pb.LIVE_POLICY_ALIGNMENT:
            check_alignment(manifest, "start.policy LIVE_POLICY_ALIGNMENT")
        await translator.terms(self._request.terms, translator.resolve(pb.DecodingOptions()), self._request.stores)
        self._separator = word_separator(manifest.target_language)
        return pb.LiveReady(
            model=manifest.name,
            version=str(manifest.version),
            source_language_code=manifest.source_language,
            target_language_code=manifest.target_language,
            policy=self._number,
            lag_words=self._lag,
        )

    async def _sentence_updates(self, listener: Listener) -> AsyncGenerator[pb.LiveUpdate, None]:
        """Yield the updates of the first open sentence, until it is complete, and of those that were begun with it.

        The model stays the one of the begin of the sentence. If it is unloaded before the end, or if its engine dies,
        this returns, and the next call goes on after the agreed text with the model that is served then.
        """
        source = listener.source
        if not source.open_words:
            update = self._update(source.first)
            update.late_words = source.take_late()
            yield update
            return
        try:
            async with self._open_model() as translator:
                complete = CompleteSentences(translator, self._request)
                try:
                    is_begun = True
                    while is_begun:
                        async with aclosing(self._updates(listener, translator, complete)) as updates:
                            async for update in updates:
                                yield update
                        is_begun = complete.has_begun(source.first)
                finally:
                    complete.close()
        except ModelUnloaded:
            if self._draining:
                raise

    async def _updates(
        self, listener: Listener, translator: Translator, complete: CompleteSentences
    ) -> AsyncGenerator[pb.LiveUpdate, None]:
        """Yield the updates of the first open sentence, until it is complete or its engine dies."""
        translation = OpenTranslation(translator, self._request, self._agreed, complete)
        self._drafts.clear()
        try:
            async with aclosing(self._translated(listener, translation, complete)) as updates:
                async for update in updates:
                    yield update
        except EngineLost as error:  # the engine of this translator, which another one replaces
            await self._before_retry(error)
        finally:
            translation.close()
            self._usage.source_tokens += translation.usage.source_tokens
            self._usage.target_tokens += translation.usage.target_tokens

    async def _translated(
        self, listener: Listener, translation: OpenTranslation, complete: CompleteSentences
    ) -> AsyncGenerator[pb.LiveUpdate, None]:
        source, seen, version = listener.source, Sentence(-1, "", (), is_complete=False), -1
        while True:
            if version == source.version:
                while version == source.version:
                    await listener.wait()
                await self._rounds.begin()
            version, sentence = source.version, source.sentence(translation.reads)
            if not sentence.is_complete and (sentence == seen or not (sentence.ends or seen.ends)):
                continue
            arrival = listener.take()
            update: pb.LiveUpdate | None = None
            try:
                if sentence.is_complete:
                    self._begin_together(source, translation, complete, sentence)
                    update = await self._completed(listener, translation, sentence, arrival)
                else:
                    update = await self._drafted(translation, sentence)
            except EngineLost:
                listener.put_back(arrival)
                raise
            except PASSING as error:
                listener.put_back(arrival)
                version = -1
                await self._before_retry(error)
                continue
            except EngineFault as error:
                self._failure = str(error)
                self._observer.updated("failed", None, max(arrival.messages - 1, 0))
            self._failing_since, seen = None, sentence
            if sentence.is_complete:
                assert update is not None, "a complete sentence has an update"
                yield update
                return
            if update is not None:
                update.late_words = source.take_late()
                self._answered(arrival, "draft")
                if not self._agreed_only or update.agreed or update.late_words or update.failure:
                    yield update

    async def _before_retry(self, error: RequestError) -> None:
        """Wait until the same work may succeed. Raises the error if nothing has succeeded for too long."""
        now = asyncio.get_running_loop().time()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since > MOST_RETRY_SECONDS:
            raise error
        self._failure = str(error)
        await asyncio.sleep(RETRY_SECONDS)

    def _begin_together(
        self, source: LiveSource, translation: OpenTranslation, complete: CompleteSentences, first: Sentence
    ) -> None:
        """Begin to translate the sentences that are complete now, if they are several; first: the first of them.

        After a failure the first one is translated alone, because an engine that is full may have room for one.
        """
        if self._failing_since is not None or complete.has_begun(first.first) or complete.has_begun(first.end):
            return
        sentences = source.complete(translation.reads, MOST_TOGETHER)
        if len(sentences) > 1:
            complete.begin(sentences[bool(translation.agreed) :])

    async def _drafted(self, translation: OpenTranslation, sentence: Sentence) -> pb.LiveUpdate | None:
        """Return the update of a draft, or None if there is nothing to tell. Raises RequestError."""
        if self._agreed_only and not self._policy.may_agree(len(sentence.ends)):
            return None
        looks = self._number == pb.LIVE_POLICY_ALIGNMENT
        draft = await translation.draft(sentence, self._ratio.value, looks=looks)
        self._drafts.append(draft)
        tokens = 0 if translation.lacks_kept(sentence, draft) else self._policy.agree(self._drafts)
        agreed = translation.agree(draft, tokens)
        self._agree(translation.agreed)
        rest = translation.text_of(draft.tokens)[len(self._agreed) :].rstrip()
        self._cover(sentence.first + _covered(draft, translation.agreed_tokens))
        update = self._update(sentence.end, sentence.first)
        if agreed:
            update.agreed, self._lead = self._lead + agreed, ""
        if rest and not self._agreed_only:
            update.tentative = self._lead + rest
        return update

    async def _completed(
        self, listener: Listener, translation: OpenTranslation, sentence: Sentence, arrival: Arrival
    ) -> pb.LiveUpdate:
        """Translate a sentence to its end, and return its last update. Raises RequestError.

        A sentence that cannot be translated ends with what is agreed.
        """
        text, failed = self._agreed, False
        if sentence.ends:
            try:
                text, words = await translation.whole(sentence)
                self._ratio.add(len(sentence.ends), words)
            except EngineFault as error:
                self._failure, failed = str(error), True
        before = len(self._agreed)
        self._agree(text)
        listener.source.take(sentence)
        self._cover(sentence.end)
        update = self._update(sentence.end, sentence.first)
        update.is_complete, update.late_words = True, listener.source.take_late()
        if rest := text[before:].rstrip():
            update.agreed, self._lead = self._lead + rest, ""
        self._sentence, self._agreed = self._sentence + 1, ""
        self._lead = self._lead or (self._separator if text else "")
        self._answered(arrival, "failed" if failed else "complete")
        if listener.source.open_words:  # they came with those of this sentence
            listener.put_back(Arrival(arrival.since))
        return update

    def _agree(self, text: str) -> None:
        """Set the agreed text of the sentence, which only grows."""
        assert text.startswith(self._agreed), "agreed text is never taken back"
        self._agreed = text

    def _cover(self, words: int) -> None:
        """Set the number of words, since the start, that agreed text covers, which only grows."""
        more = max(words - self._agreed_words, 0)
        self._agreed_words += more
        self._observer.agreed(more)

    def _update(self, words: int, first: int | None = None) -> pb.LiveUpdate:
        """Return an update without text; words, first: the end and the begin of its words; first is `words` if None."""
        failure, self._failure = self._failure, ""
        return pb.LiveUpdate(
            sentence=self._sentence,
            words=words,
            first_word=words if first is None else first,
            agreed_words=min(self._agreed_words, words),  # a revision may have removed some of them
            failure=failure,
        )

    def _answered(self, arrival: Arrival, kind: str) -> None:
        seconds = None if arrival.since is None else asyncio.get_running_loop().time() - arrival.since
        self._observer.updated(kind, seconds, max(arrival.messages - 1, 0))


def _covered(draft: Draft, agreed: int) -> int:
    """Return the number of source words that the first `agreed` tokens of a draft cover.

    They are those at which no later token looks; without attention, the same share of the words as of the tokens.
    """
    if not agreed:
        return 0
    if draft.looks_at is not None:
        return min(draft.looks_at[agreed:], default=draft.source_words)
    return draft.source_words * agreed // len(draft.tokens)


def _pause_seconds(milliseconds: int) -> float:
    """Return the length of a pause. Raises InvalidRequest."""
    pause = milliseconds or DEFAULT_PAUSE
    if not LEAST_PAUSE <= pause <= MOST_PAUSE:
        raise InvalidRequest(
            "start.pause_ms", f"start.pause_ms must be 0 or {LEAST_PAUSE} to {MOST_PAUSE}, got {milliseconds}"
        )
    return pause / 1000


def _terms(start: pb.LiveStart, policy: int) -> pb.TranslateRequest:
    """Return a request with the terms of a speaker. Raises Unsupported."""
    if (start.terms or start.glossaries) and policy != pb.LIVE_POLICY_SENTENCES:
        field = "terms" if start.terms else "glossaries"
        raise Unsupported(f"start.{field} need start.policy LIVE_POLICY_SENTENCES: a term may change a whole sentence")
    return pb.TranslateRequest(terms=start.terms, glossaries=start.glossaries)
