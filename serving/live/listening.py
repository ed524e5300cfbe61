"""The reading side of a speaker: its messages become words of a source, at the pace at which they are translated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

from lingon.errors import InvalidRequest
from lingon.serving.event_loop import TimeSlice
from lingon.serving.live.sources import LiveSource
from lingon.translation.v1 import translation_pb2 as pb

MOST_WORDS = 1_000  # words in a message
MOST_MESSAGES = 32  # messages that are read for one update; a caller that sends more waits
CLOSE_SECONDS = 1.0  # seconds until the read of an ended call is cancelled; mostly the status of the call ends it

Messages = AsyncIterator[pb.TranslateLiveRequest]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveLimits:
    """The bounds of one speaker.

    open_words: words that are not translated to the end; a caller that sends more waits
    sentence_words: words of a sentence, which is ended after so many
    """

    open_words: int = 2_000
    sentence_words: int = 60


class Arrival(NamedTuple):
    """What came since the last update.

    since: when the oldest of it came, on the clock of the event loop; None if nothing came
    messages: number of messages with words
    """

    since: float | None = None
    messages: int = 0


class Listener:
    """Reads the messages of a speaker. Belongs to the event loop.

    source: the words
    ended: whether nothing more is read
    """

    def __init__(self, source: LiveSource, limits: LiveLimits, pause_seconds: float, caller: str) -> None:
        """pause_seconds: after which words without a successor count as a pause; caller: the key of fair service."""
        self.source, self.ended = source, False
        self._limits, self._pause_seconds, self._caller = limits, pause_seconds, caller
        self._loop = asyncio.get_running_loop()
        self._due, self._room = asyncio.Event(), asyncio.Event()
        self._arrival = Arrival()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self, messages: Messages) -> None:
        """Begin to read."""
        self._reading = self._loop.create_task(self._read(messages))
        self._reading.add_done_callback(self._on_read)

    def stop(self) -> None:
        """Read nothing more. gRPC loses a message that arrives while its read is cancelled, so that this comes late."""
        self._stop_timer()
        if self._reading is not None and not self._reading.done():
            self._loop.call_later(CLOSE_SECONDS, self._reading.cancel)

    def end(self) -> None:
        """End the speaker as after a pause. Later messages have no effect."""
        if not self.ended:
            self.ended = True
            self._pause()

    def check(self) -> None:
        """Raise the error that ended the reading, if there is one."""
        if self._reading is not None and self._reading.done() and not self._reading.cancelled():
            self._reading.result()

    def take(self) -> Arrival:
        """Return what came since the last call, and let more come."""
        arrival, self._arrival = self._arrival, Arrival()
        self._room.set()
        return arrival

    def put_back(self, arrival: Arrival) -> None:
        """Undo a `take`, because what came is not answered yet."""
        times = [each.since for each in (arrival, self._arrival) if each.since is not None]
        self._arrival = Arrival(min(times, default=None), arrival.messages + self._arrival.messages)

    async def wait(self) -> None:
        """Wait for a message, a pause or the end. What came before is answered, or changed nothing."""
        self.take()
        await self._due.wait()
        self._due.clear()

    async def words_came(self) -> bool:
        """Wait for words to answer. Returns False at the end of the speaker."""
        while not (self.source.open_words or self.source.late):
            if self.ended:
                return False
            await self.wait()
        return True

    async def _read(self, messages: Messages) -> None:
        time_slice = TimeSlice(self._caller)
        async for message in messages:
            if self.ended or self._apply(message):
                return
            if self._arrival.messages >= MOST_MESSAGES or self.source.open_words >= self._limits.open_words:
                self._room.clear()
                await self._room.wait()
            if time.monotonic() > time_slice.end:
                await time_slice.yield_if_due()

    def _apply(self, message: pb.TranslateLiveRequest) -> bool:
        """Apply a message, and return whether it is the last one. Raises InvalidRequest."""
        kind = message.WhichOneof("message")
        if kind is None or kind == "start":
            raise InvalidRequest(
                "message", f"a message after the first must be words, pause or end, got {kind or 'none'}"
            )
        if kind == "words":
            self._add(message.words)
        else:
            self._pause()
        return kind == "end"

    def _add(self, message: pb.LiveWords) -> None:
        if len(message.words) > MOST_WORDS:
            raise InvalidRequest("words.words", f"words.words must be at most {MOST_WORDS}, got {len(message.words)}")
        self.source.replace(getattr(message, "from"), [word.text for word in message.words])
        self.put_back(Arrival(self._loop.time(), 1))
        self._stop_timer()
        self._timer = self._loop.call_later(self._pause_seconds, self._pause)
        self._due.set()

    def _pause(self) -> None:
        self.source.pause()
        self._due.set()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_read(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled():
            reading.exception()  # marks it as retrieved: `check` raises it, unless the call has ended
        self._stop_timer()
        self.end()
