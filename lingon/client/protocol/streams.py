"""The streams that translate a long list, and their events as one sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.rpc import code_pb2

from lingon.client.values.replies import stream_event
from lingon.client.values.results import StreamEvent, StreamStart, TextDone
from lingon.errors import ServerError
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One of the streams that translate a long list.

    places: the indices of its texts in the list
    deadline: on the clock of the protocol; None if the stream gets a deadline of its own when it begins
    """

    request: pb.TranslateStreamRequest
    places: Sequence[int]
    deadline: float | None


class StreamReader:
    """Joins the events of the streams of one list into one sequence."""

    def __init__(self) -> None:
        self._start: StreamStart | None = None
        self._done = self._expected = 0

    def read(self, part: StreamPart, message: pb.TranslateStreamResponse | None) -> Iterator[StreamEvent]:
        """The event of a message of this part's stream; the start of a later one only if it has another language."""
        if message is None:
            return
        event = stream_event(message, self._start, part.places)
        if isinstance(event, StreamStart):
            begun, self._start = self._start, event
            if begun is not None and begun.source_language == event.source_language:
                return
        self._done += isinstance(event, TextDone)
        yield event

    def end(self, part: StreamPart) -> None:
        """Check at the end of a stream without error that each of its texts is done."""
        self._expected += len(part.places)
        if self._done != self._expected:
            raise ServerError(f"the stream ended with {self._done} texts done", code_pb2.INTERNAL)
