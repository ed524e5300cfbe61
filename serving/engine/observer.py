"""What the engine tells whoever measures it; calls come from the engine's thread, where nothing else is said."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives figures as they arise. Times are in seconds."""

    def queue_changed(self, jobs: int, source_tokens: int) -> None:
        """This much waits now. On the submitter's or the engine's thread."""

    def admitted(self, waited: float) -> None:
        """A job left the queue for the batch."""

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None:
        """The encoder ran."""

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float) -> None:
        """The decoder made one step: rows were computed, live_rows of them for a sentence.

        copied_bytes: of the past that were moved since the last step
        """

    def first_token(self, seconds: float) -> None:
        """The first token of a job was decided, seconds after it was submitted."""

    def states_changed(self, more_bytes: int) -> None:
        """Room for the states of running batches was made; where it is negative, given back."""

    def ended(self, outcome: str, target_tokens: int) -> None:
        """A job is over: "OK" or the reason of its error."""

    def running_changed(self, sentences: int) -> None:
        """This many sentences are in the batch now."""


class NullObserver:
    """Measures nothing."""

    def queue_changed(self, jobs: int, source_tokens: int) -> None: ...

    def admitted(self, waited: float) -> None: ...

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None: ...

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float) -> None: ...

    def first_token(self, seconds: float) -> None: ...

    def states_changed(self, more_bytes: int) -> None: ...

    def ended(self, outcome: str, target_tokens: int) -> None: ...

    def running_changed(self, sentences: int) -> None: ...
