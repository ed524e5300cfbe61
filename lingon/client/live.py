"""A speaker whose words are translated while they come: the calls that `live` of a client or a model returns.

`LiveCall` blocks, `AsyncLiveCall` is for asyncio. Both write what `LiveWriter` makes of the caller's words, and give
what `LiveReader` reads. What carries the messages is a `Talk`, or an `AsyncTalk`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from threading import Condition
from types import TracebackType
from typing import Any, Protocol, Self

from google.protobuf.message import Message
from google.rpc import code_pb2

from lingon.client.messages import listed, write_request
from lingon.client.options import POLICIES
from lingon.client.results import LiveDone, LiveReady, LiveUpdate, LiveWord
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.scoring import WITHOUT_BLANKS
from lingon.terms.words import WITHOUT_BLANKS as UNSPACED_SCRIPTS
from lingon.translation.v1 import translation_pb2 as pb

MOST_WORDS = 1000  # words in a message
MOST_UNSENT = 1000  # messages of a speaker that wait to be sent; `send` then waits

Words = str | Iterable[str | LiveWord]
"""Words of a speaker: a text, or words, with their times if they are known. A text is cut at its white space, and in a
language without blanks between its characters.
"""

_POLICY_NAMES = {number: name for name, number in POLICIES.items()}


class Talk(Protocol):
    """The messages of one call in both directions. Its methods raise ServerError."""

    def write(self, message: pb.TranslateLiveRequest) -> None:
        """Send a message. Waits while many are unsent. Raises the error of a call that has ended."""

    def read(self) -> pb.TranslateLiveResponse | None:
        """Return the next message, or None after the last one."""

    def cancel(self) -> None:
        """End the call, and the work for it."""


class AsyncTalk(Protocol):
    """`Talk` for asyncio."""

    async def write(self, message: pb.TranslateLiveRequest) -> None:
        """See Talk."""

    async def read(self) -> pb.TranslateLiveResponse | None:
        """See Talk."""

    def cancel(self) -> None:
        """See Talk."""


def is_unspaced(language: str) -> bool:
    """Return whether a language writes no blanks between words; language: BCP-47."""
    return re.split("[-_]", language.lower())[0] in WITHOUT_BLANKS


def split_words(text: str, language: str) -> list[str]:
    """Return the words of a text. In a language without blanks each character of its script is one.

    language: BCP-47, of the text
    """
    if not is_unspaced(language):
        return text.split()
    return re.findall(rf"[{UNSPACED_SCRIPTS}]|[^\s{UNSPACED_SCRIPTS}]+", text)


class LiveWriter:
    """The messages of a speaker, which count its words.

    count: words so far
    """

    def __init__(self) -> None:
        self.count, self._ended = 0, False

    def words(self, words: Words, first: int | None, language: str) -> Iterator[pb.TranslateLiveRequest]:
        """Yield the messages for words; first: the number of the first one, None to append them; language: of a text.

        Raises SettingsError for words that cannot be sent, before the first message is yielded.
        """
        self._check_open()
        begin = self.count if first is None else first
        if begin not in range(self.count + 1):
            raise SettingsError(f"first must be 0 to {self.count}, the number of words so far, got {begin!r}")
        made = [_word(position, each) for position, each in enumerate(_each(words, language))]
        if made or first is not None:
            self.count = begin + len(made)
            yield from _messages(begin, made)

    def pause(self) -> pb.TranslateLiveRequest:
        """Return the message of a pause."""
        self._check_open()
        return pb.TranslateLiveRequest(pause=pb.LivePause())

    def end(self) -> pb.TranslateLiveRequest | None:
        """Return the message of the end, or None if it has been returned before."""
        ended, self._ended = self._ended, True
        return None if ended else pb.TranslateLiveRequest(end=pb.LiveEnd())

    def _check_open(self) -> None:
        if self._ended:
            raise LingonError("this speaker has ended; begin a new one")


def _each(words: Words, language: str) -> list[Any]:
    if isinstance(words, str):
        return list(split_words(words, language))
    return listed(words, "words must be a str or an iterable of words")


def _word(position: int, word: Any) -> pb.LiveWord:
    if isinstance(word, str):
        word = LiveWord(word)
    elif not isinstance(word, LiveWord):
        raise SettingsError(f"words[{position}] must be a str or a lingon.LiveWord, got {type(word).__name__}")
    if not word.text or len(word.text.split()) != 1 or word.text != word.text.strip():
        raise SettingsError(f"words[{position}] must be one word without white space, got {word.text[:40]!r}")
    return write_request(pb.LiveWord, text=word.text, begin_ms=word.begin_ms, end_ms=word.end_ms)


def _messages(first: int, words: list[pb.LiveWord]) -> Iterator[pb.TranslateLiveRequest]:
    """Yield the messages of words. A revision without words is one message, which only removes some."""
    for begin in range(0, max(len(words), 1), MOST_WORDS):
        part = pb.LiveWords(words=words[begin : begin + MOST_WORDS], **{"from": first + begin})
        yield pb.TranslateLiveRequest(words=part)


class LiveReader:
    """The messages to a speaker: what they say, and that they come in their order."""

    def __init__(self) -> None:
        self.ready: LiveReady | None = None
        self.done: LiveDone | None = None

    def begin(self, message: pb.TranslateLiveResponse | None) -> None:
        """Read the first message. Raises ServerError for another one."""
        if message is None or message.WhichOneof("message") != "ready":
            raise ServerError("the server did not begin with `ready`", code_pb2.INTERNAL)
        ready = message.ready
        self.ready = LiveReady(
            model=ready.model,
            version=ready.version,
            source_language=ready.source_language_code,
            target_language=ready.target_language_code,
            policy=_POLICY_NAMES.get(ready.policy, str(ready.policy)),
            lag_words=ready.lag_words,
        )

    def read(self, message: pb.TranslateLiveResponse | None) -> LiveUpdate | None:
        """Return the update of a message, or None for the last one. Raises ServerError if it cannot be the last."""
        kind = None if message is None else message.WhichOneof("message")
        if message is not None and kind == "update":
            return _update(message.update)
        if message is None or kind != "done":
            raise ServerError("the server ended the call without `done`", code_pb2.INTERNAL)
        usage = message.done.usage
        self.done = LiveDone(message.done.words, usage.source_tokens, usage.target_tokens)
        return None


def _update(message: pb.LiveUpdate) -> LiveUpdate:
    return LiveUpdate(
        agreed=message.agreed,
        tentative=message.tentative,
        sentence=message.sentence,
        is_complete=message.is_complete,
        words=message.words,
        first_word=message.first_word,
        agreed_words=message.agreed_words,
        late_words=message.late_words,
        failure=message.failure,
    )


class _LiveCallBase:
    """What a speaker has said and was answered.

    agreed: the translation so far, which no later update changes
    """

    def __init__(self) -> None:
        self._writer, self._reader = LiveWriter(), LiveReader()
        self.agreed = ""

    @property
    def ready(self) -> LiveReady:
        """The model, the languages and the policy. Raises LingonError before the call is open."""
        if self._reader.ready is None:
            raise LingonError("this speaker has not begun; use it in `with` or `async with`")
        return self._reader.ready

    @property
    def done(self) -> LiveDone | None:
        """The end of the speaker, or None before it."""
        return self._reader.done

    @property
    def words(self) -> int:
        """The number of words that were sent, as the next revision counts them."""
        return self._writer.count

    def _read(self, message: pb.TranslateLiveResponse | None) -> LiveUpdate | None:
        update = self._reader.read(message)
        if update is not None:
            self.agreed += update.agreed
        return update


class LiveCall(_LiveCallBase):
    """A speaker of `Client.live` or `Model.live`. One thread may send words while another one reads updates.

        with client.live(source="en", target="de") as live:
            live.send("I would like a cup of tea.")
            live.end()
            for update in live:
                print(update.agreed, end="")

    Up to 1,000 messages wait to be sent. A caller that sends more before it reads updates may wait for ever: it reads
    them on another thread. Leaving the block ends the call, and the work for it.
    """

    def __init__(self, open_talk: Callable[[], tuple[pb.TranslateLiveResponse | None, Talk]]) -> None:
        """open_talk: begins the call and returns its first message and the talk. Raises ServerError."""
        super().__init__()
        self._open_talk = open_talk
        self._talk: Talk | None = None

    def __enter__(self) -> Self:
        if self._talk is not None:
            raise LingonError("this speaker has begun already; call live() again for another one")
        first, self._talk = self._open_talk()
        try:
            self._reader.begin(first)
        except BaseException:
            self._talk.cancel()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened().cancel()

    def send(self, words: Words) -> None:
        """Append words: a text, which is cut at its white space, or words as str or `lingon.LiveWord`."""
        for message in self._writer.words(words, None, self.ready.source_language):
            self._opened().write(message)

    def revise(self, first: int, words: Words) -> None:
        """Replace all words from number `first` on, counted from 0; no words only removes some.

        Words of a sentence that is complete stay, see `LiveUpdate.late_words`.
        """
        for message in self._writer.words(words, first, self.ready.source_language):
            self._opened().write(message)

    def pause(self) -> None:
        """Say that the speaker pauses: all words so far are translated to the end, and all of it is agreed."""
        self._opened().write(self._writer.pause())

    def end(self) -> None:
        """Say that the speaker has ended. The iterator then ends after the last update. A second call has no effect."""
        if message := self._writer.end():
            self._opened().write(message)

    def __iter__(self) -> Iterator[LiveUpdate]:
        """Yield updates until the speaker has ended. Raises ServerError."""
        while self.done is None and (update := self._read(self._opened().read())) is not None:
            yield update

    def _opened(self) -> Talk:
        if self._talk is None:
            raise LingonError("this speaker has not begun; use it in `with`")
        return self._talk


class AsyncLiveCall(_LiveCallBase):
    """`LiveCall` for asyncio, of `AsyncClient.live` or `AsyncModel.live`.

        async with client.live(source="en", target="de") as live:
            await live.send("I would like a cup of tea.")
            await live.end()
            async for update in live:
                print(update.agreed, end="")

    A method that sends waits while the server reads nothing. A caller that sends more than some words before it reads
    updates reads them in another task.
    """

    def __init__(self, open_talk: Callable[[], Awaitable[tuple[pb.TranslateLiveResponse | None, AsyncTalk]]]) -> None:
        """open_talk: see `LiveCall`."""
        super().__init__()
        self._open_talk = open_talk
        self._talk: AsyncTalk | None = None

    async def __aenter__(self) -> Self:
        if self._talk is not None:
            raise LingonError("this speaker has begun already; call live() again for another one")
        first, self._talk = await self._open_talk()
        try:
            self._reader.begin(first)
        except BaseException:
            self._talk.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened().cancel()

    async def send(self, words: Words) -> None:
        """As `LiveCall.send`."""
        for message in self._writer.words(words, None, self.ready.source_language):
            await self._opened().write(message)

    async def revise(self, first: int, words: Words) -> None:
        """As `LiveCall.revise`."""
        for message in self._writer.words(words, first, self.ready.source_language):
            await self._opened().write(message)

    async def pause(self) -> None:
        """As `LiveCall.pause`."""
        await self._opened().write(self._writer.pause())

    async def end(self) -> None:
        """As `LiveCall.end`."""
        if message := self._writer.end():
            await self._opened().write(message)

    async def __aiter__(self) -> AsyncIterator[LiveUpdate]:
        """Yield updates until the speaker has ended. Raises ServerError."""
        while self.done is None and (update := self._read(await self._opened().read())) is not None:
            yield update

    def _opened(self) -> AsyncTalk:
        if self._talk is None:
            raise LingonError("this speaker has not begun; use it in `async with`")
        return self._talk


class Outgoing(Iterator[Message]):
    """The messages of a call that wait to be sent, for the thread that sends them. `end` wakes all that wait."""

    def __init__(self, first: Message) -> None:
        self._waiting, self._changed, self._ended = deque([first]), Condition(), False

    def put(self, message: Message) -> bool:
        """Add a message, and return whether it will be sent. Waits while MOST_UNSENT are there."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._waiting) < MOST_UNSENT)
            self._waiting.append(message)
            self._changed.notify_all()
            return not self._ended

    def end(self) -> None:
        """End the messages: none is sent any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __next__(self) -> Message:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._waiting)
            if self._ended:
                raise StopIteration
            message = self._waiting.popleft()
            self._changed.notify_all()
            return message
