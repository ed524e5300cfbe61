"""The jobs of one request: submitted to an engine, awaited on the event loop, cancelled when the request ends early."""

from __future__ import annotations

import asyncio
import itertools
import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

from lingon.errors import Cancelled, EngineFault, ModelUnloaded, QueueFull, RequestError
from lingon.serving.decoding.job import DecodeJob, Hypotheses, Hypothesis, Job, Options, PrefixBias, ScoreJob
from lingon.serving.decoding.rules import Vocabulary
from lingon.serving.decoding.spelling import BETWEEN
from lingon.serving.engine.engine import Engine
from lingon.serving.observability.logs import fault
from lingon.serving.runtime.runner import AttentionChoice, SavedPast, Scored
from lingon.text import LanguageTokens


class ValidUtf8:
    """A guarantee of valid UTF-8 for the translations of one model, for every search.

    Plain search restricts no token, because rules need the logits of every step. A translation with U+FFFD, or with
    byte pieces that break a character, is decoded once more with the rules. Greedy search continues before that
    character.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._spelling = vocabulary.spelling
        self._rules = vocabulary.rules().of_part(0)

    def options(self, options: Options, prefix: Sequence[int]) -> Options:
        """Return the options for a translation that begins with these tokens.

        With byte pieces in the prefix the rules apply at once, because a model is likely to continue with a byte piece.
        """
        if options.rules is not None or not self._spelling.has_bytes(prefix):
            return options
        return self._ruled(options)

    def until_broken(self, on_token: Callable[[int], None], prefix: int) -> Callable[[int], None]:
        """Return a callback that passes on the tokens of a stream until one breaks a character.

        prefix: the number of first tokens that are passed on in any case
        """
        read = 0
        character: int | None = BETWEEN

        def pass_on(token: int) -> None:
            nonlocal read, character
            read += 1
            if read > prefix and character is not None:
                character = self._spelling.character_after(character, token)
            if character is not None:
                on_token(token)

        return pass_on

    def again(self, job: DecodeJob, found: Sequence[Hypothesis]) -> tuple[Options, tuple[int, ...]] | None:
        """Return the options and the prefix for decoding a job again, or None if its translations are valid."""
        if job.options.rules is not None:
            return None
        prefix = job.shown_prefix
        whole = [self._spelling.whole(each.tokens, len(prefix)) for each in found]
        if whole == [len(each.tokens) for each in found]:
            return None
        kept = found[0].tokens[: whole[0]] if job.options.beam_size == 1 else prefix
        bound = job.options.max_output_tokens - (len(kept) - len(prefix))
        return replace(self._ruled(job.options), max_output_tokens=bound), kept

    def _ruled(self, options: Options) -> Options:
        return replace(options, rules=self._rules, shortlist=False, cut_loops=False)


def rejoined(job: DecodeJob, first: Hypothesis, kept: int, second: Hypothesis) -> Hypothesis:
    """Return a continued translation, with the log-probabilities that its beginning had before.

    first: the translation before; kept: the number of its tokens at the beginning of the second one
    """
    log_probs = first.log_probs[:kept] + second.log_probs[kept:]
    generated = max(len(log_probs) - len(job.shown_prefix), 1)
    score = sum(log_probs) / generated**job.options.length_penalty
    return replace(second, log_probs=log_probs, score=score)


Answer = TypeVar("Answer")
RETRY_SECONDS = 0.02  # seconds between two attempts to submit a follow-up job while the queue is full
ONE_PAIR = LanguageTokens()
_calls = itertools.count(1)
logger = logging.getLogger(__name__)


class LoopCallbacks:
    """A queue of callbacks on an event loop, with values that other threads post, in the order of the posts.

    Notifying a loop costs a system call. One notification serves all values that arrive until the loop runs, for all
    requests of the loop: use `of`.
    """

    # Weak on both sides, because values posted to a closed loop would keep their engine and model alive.
    _by_loop: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[LoopCallbacks]]] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._wake_up_pending = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopCallbacks:
        """Return the only instance for a loop. It lives as long as a client of the loop uses it."""
        known = cls._by_loop.get(loop)
        found = known() if known is not None else None
        if found is None:
            found = cls(loop)
            cls._by_loop[loop] = weakref.ref(found)
        return found

    def post(self, callback: Callable[[Any], None], value: Any) -> None:
        """Run `callback(value)` on the loop. Callable from any thread. A closed loop drops the value."""
        self._posted.append((callback, value))
        if not self._wake_up_pending and not self._loop.is_closed():
            self._wake_up_pending = True
            if asyncio._get_running_loop() is self._loop:  # on the thread of a caller, which decodes between callbacks
                self._loop.call_soon(self._run)
            else:
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._wake_up_pending = False  # before the first read, because a value may be posted during it
        for _ in range(len(self._posted)):
            callback, value = self._posted.popleft()
            try:
                callback(value)
            except Exception as error:
                fault(logger, "a callback of an engine failed", error)


class PendingJob(Generic[Answer]):
    """A job and the future of its outcome. Errors are results of the future, so that none stays unread.

    optional: whether its request can succeed without it, so that its error does not end the others
    """

    __slots__ = ("_mend", "job", "optional", "outcome")

    def __init__(
        self,
        job: Job,
        outcome: asyncio.Future[Answer | RequestError],
        mend: Callable[[Any, Answer], Awaitable[Answer]] | None = None,
        *,
        optional: bool = False,
    ) -> None:
        """mend: returns the answer to a job from its outcome; default: the outcome."""
        self.job, self.outcome, self._mend, self.optional = job, outcome, mend, optional

    async def answer(self) -> Answer:
        """Return the outcome, or raise the error that ended the job."""
        outcome = await self.outcome
        if isinstance(outcome, RequestError):
            # A request that cancels its jobs does not read their outcomes, so that the engine was stopped.
            raise ModelUnloaded if isinstance(outcome, Cancelled) else outcome
        return outcome if self._mend is None else await self._mend(self.job, outcome)


class _CallFields(TypedDict):
    deadline: float | None
    caller: str
    call: int


class EngineClient:
    """The submission of the jobs of one request. Belongs to the event loop that made it."""

    def __init__(
        self,
        engine: Engine,
        valid_utf8: ValidUtf8,
        deadline: float | None,
        caller: str = "",
        languages: LanguageTokens = ONE_PAIR,
    ) -> None:
        """deadline: on the clock of `time.monotonic`; caller: the key of fair queuing.

        languages: the tokens of the pair; sources already have theirs
        """
        self._engine, self._valid_utf8, self._languages = engine, valid_utf8, languages
        self._call: _CallFields = {"deadline": deadline, "caller": caller, "call": next(_calls)}
        self._loop = asyncio.get_running_loop()
        self._callbacks = LoopCallbacks.of(self._loop)
        self._open: dict[int, PendingJob[Any]] = {}  # the jobs in the engine
        self._awaited: dict[int, PendingJob[Any]] = {}  # the jobs in the engine without an outcome

    def decode(
        self,
        source_ids: tuple[int, ...],
        options: Options,
        prefix: tuple[int, ...] = (),
        on_token: Callable[[int], None] | None = None,
        *,
        bias: PrefixBias | None = None,
        past: SavedPast | None = None,
        follow_up: bool = False,
        optional: bool = False,
    ) -> PendingJob[Hypotheses]:
        """Return a job to translate a sentence. The engine's outcome may break a character. The answer is valid UTF-8.

        on_token: called on the loop with every token of a greedy search, up to one that breaks a character
        bias, past, follow_up: see DecodeJob; optional: see PendingJob
        """
        outcome: asyncio.Future[Any] = self._loop.create_future()
        if prefix:
            options = self._valid_utf8.options(options, prefix)
        if on_token is not None and options.rules is None:
            on_token = self._valid_utf8.until_broken(on_token, len(prefix))
        post = self._callbacks.post
        job = DecodeJob(
            source_ids=source_ids,
            options=options,
            on_done=partial(post, partial(self._settle, outcome)),
            on_tokens=partial(post, on_token) if on_token is not None else None,
            prefix=(*self._languages.forced, *prefix),
            hidden=len(self._languages.forced),
            bias=bias,
            past=past,
            follow_up=follow_up,
            **self._call,
        )
        return PendingJob(job, outcome, self.in_valid_utf8, optional=optional)

    def score(
        self,
        source_ids: tuple[int, ...],
        target_ids: tuple[int, ...],
        *,
        follow_up: bool = False,
        attention: AttentionChoice = (),
    ) -> PendingJob[Scored]:
        """Return a job to score a translation; follow_up, attention: see ScoreJob."""
        outcome: asyncio.Future[Any] = self._loop.create_future()
        job = ScoreJob(
            source_ids=source_ids,
            target_ids=(*self._languages.forced, *target_ids),
            on_done=partial(self._callbacks.post, partial(self._settle, outcome)),
            follow_up=follow_up,
            attention=attention,
            **self._call,
        )
        return PendingJob(job, outcome)

    def submit(self, pending: Sequence[PendingJob[Any]]) -> None:
        """Submit all of these jobs or none. Raises what `Engine.submit` raises."""
        if not pending:
            return
        jobs = [each.job for each in pending]
        self._engine.submit(jobs)
        for each in pending:
            self._open[id(each.outcome)] = self._awaited[id(each.outcome)] = each

    async def submit_when_possible(self, pending: Sequence[PendingJob[Any]]) -> None:
        """Submit follow-up jobs one by one, each as soon as the queue accepts it.

        They are not refused, because their text was admitted before. An engine that accepts no more jobs ends them,
        optional ones with their outcome.
        """
        for each in pending:
            while True:
                try:
                    self.submit([each])
                    break
                except QueueFull:
                    await asyncio.sleep(RETRY_SECONDS)
                except RequestError as error:
                    if not each.optional:
                        raise
                    _set(each.outcome, error)
                    break

    async def in_valid_utf8(self, job: DecodeJob, found: Hypotheses) -> Hypotheses:
        """Return the translations of a job. If one is not valid UTF-8, the job is decoded once more."""
        again = self._valid_utf8.again(job, found)
        if again is None:
            return found
        options, prefix = again
        pending = self.decode(job.source_ids, options, prefix, follow_up=True)
        await self.submit_when_possible([pending])
        second = await pending.answer()
        if options.beam_size > 1:
            return second
        return tuple(rejoined(job, found[0], len(prefix), each) for each in second)

    def cancel_all(self) -> None:
        """Cancel the jobs that are not done, so that the engine frees their rows."""
        if self._open:
            self._engine.cancel([each.job for each in self._open.values()])

    def _settle(self, outcome: asyncio.Future[Any], value: Any) -> None:
        pending = self._open.pop(id(outcome), None)
        self._awaited.pop(id(outcome), None)
        if isinstance(value, Scored) and self._languages != ONE_PAIR:
            value = value.without(self._languages)
        _set(outcome, value)
        optional = pending is not None and pending.optional
        if isinstance(value, RequestError) and not isinstance(value, EngineFault) and not optional:
            # The error ends the whole request, which awaits its jobs one by one. It must not wait for the others first.
            for each in self._awaited.values():
                _set(each.outcome, value)
            self._awaited.clear()  # otherwise each of thousands of cancelled jobs would run this loop


def _set(outcome: asyncio.Future[Any], value: Any) -> None:
    if not outcome.done():  # the awaiting request may have been cancelled
        outcome.set_result(value)
