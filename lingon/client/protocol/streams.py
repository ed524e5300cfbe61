"""The streams that translate a long list, and their events as one sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.rpc import code_pb2

from lingon.client.values.replies import stream_event
from lingon.client.values.results import StreamEvent, StreamStart, TextDone
from lingon.errors import ServerError
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One of the streams that translate a long list.

    start, count: the index of its first text in the list, and its number of texts
    deadline: on the clock of the protocol; None if the stream gets a deadline of its own when it begins
    """

    request: pb.TranslateStreamRequest
    start: int
    count: int
    deadline: float | None


class StreamReader:
    """Joins the events of the streams of one list into one sequence."""

    def __init__(self) -> None:
        self._start: StreamStart | None = None
        self._done = 0

    def read(self, part: StreamPart, message: pb.TranslateStreamResponse | None) -> Iterator[StreamEvent]:
        """The event of a message of this part's stream; the start of a later stream yields nothing."""
        if message is None:
            return
        event = stream_event(message, self._start, part.start)
        if isinstance(event, StreamStart):
            if self._start is not None:
                return
            self._start = event
        self._done += isinstance(event, TextDone)
        yield event

    def end(self, part: StreamPart) -> None:
        """Check at the end of a stream without error that each of its texts is done."""
        if self._done != part.start + part.count:
            raise ServerError(f"the stream ended with {self._done} texts done", code_pb2.INTERNAL)
