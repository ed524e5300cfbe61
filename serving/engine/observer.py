"""What an engine reports while it works; the calls come from the threads of its workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class EngineLoad(NamedTuple):
    """What an engine holds at one moment."""

    queued: int  # jobs
    queued_tokens: int  # of sources, and of targets to score
    queued_work: int  # units of lingon.serving.engine.cost
    running: int  # jobs


class Observer(Protocol):
    """Receives measurements as they arise. Durations are in seconds."""

    def watch(self, load: Callable[[], EngineLoad]) -> None:
        """Receive a function that returns the current load; called once by every engine, before it starts."""

    def left_queue(self, waited: float) -> None:
        """A job left the queue after so many seconds: it joined a batch, or it ended there."""

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None:
        """The encoder ran."""

    def scored(self, pairs: int, seconds: float) -> None:
        """The scorer ran, for pairs to score or for the alignment of translations."""

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float, steps: int) -> None:
        """The decoder made some steps: each computed `rows` rows, of which live_rows belong to a sentence.

        copied_bytes: of the past, since the last step
        seconds: of all steps
        """

    def first_token(self, seconds: float) -> None:
        """The first token of a job was decided, so many seconds after its submission."""

    def states_changed(self, more_bytes: int) -> None:
        """Memory for decoder states was allocated, or freed if the number is negative."""

    def rows_limited(self, rows: int) -> None:
        """At most so many rows run together from now on."""

    def ended(self, outcome: str, target_tokens: int) -> None:
        """A job ended: "OK" or the reason of its error."""


class NullObserver:
    """Measures nothing."""

    def watch(self, load: Callable[[], EngineLoad]) -> None: ...

    def left_queue(self, waited: float) -> None: ...

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None: ...

    def scored(self, pairs: int, seconds: float) -> None: ...

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float, steps: int) -> None: ...

    def first_token(self, seconds: float) -> None: ...

    def states_changed(self, more_bytes: int) -> None: ...

    def rows_limited(self, rows: int) -> None: ...

    def ended(self, outcome: str, target_tokens: int) -> None: ...
