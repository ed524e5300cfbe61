"""Failpoints: named places where something goes wrong on purpose, for tests of what the server promises then.

    load=sleep:5             loading a model takes five seconds longer
    step=raise@11            the 11th decoder step fails
    step=hang?/tmp/stop      steps hang while there is a file /tmp/stop
    step=nan@3; slot=poison  the first row of step 3 has no numbers; a slot is full of them before it is used again

They lie between the engine and the graphs (the Runner seam): a server without them runs no line of this file, and one
that is not told that it is tested refuses them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lingon.bundle import Limits
from lingon.errors import LingonError, SettingsError
from lingon.serving.runtime.runner import BatchShape, Buffers, Encoded, Runner, Scored, Step
from lingon.serving.runtime.shortlist import Shortlist

ACTIONS = {
    "load": ("raise", "sleep", "hang"),
    "encode": ("raise", "sleep", "hang", "leak"),
    "step": ("raise", "sleep", "hang", "nan"),
    "slot": ("poison",),
    "score": ("raise", "sleep", "hang"),
}
"""By place, what can go wrong there."""

_RULE = re.compile(r"(?P<place>\w+)=(?P<action>\w+)(:(?P<amount>[\d.]+))?(@(?P<nth>\d+))?(\?(?P<file>\S+))?")
_MOMENT = 0.005  # seconds between two looks whether to hang on


class InjectedFault(Exception):
    """What a failpoint raises."""


@dataclass(slots=True)
class Failpoint:
    """One thing that goes wrong.

    amount: seconds of a sleep, bytes of a leak for each sentence
    nth: the time, from 1, that it happens; 0 is every time
    file: it happens, and counts, only while this is there
    """

    place: str
    action: str
    amount: float = 0.0
    nth: int = 0
    file: Path | None = None
    reached: int = field(default=0, init=False)

    @property
    def enabled(self) -> bool:
        """Whether it may happen now."""
        return self.file is None or self.file.exists()

    def fires(self) -> bool:
        """Whether it happens this time."""
        if not self.enabled:
            return False
        self.reached += 1
        return self.nth in (0, self.reached)


class Failpoints:
    """The failpoints of a server."""

    def __init__(self, points: Sequence[Failpoint]) -> None:
        self._points = points
        self._lock = threading.Lock()  # engines have threads
        self._lost: list[bytes] = []

    @classmethod
    def parse(cls, text: str) -> Failpoints:
        """Failpoints as written, with ; between them. Raises SettingsError."""
        return cls([_parsed(rule.strip()) for rule in text.split(";") if rule.strip()])

    def trigger(self, place: str) -> list[str]:
        """Be at a place: fails, sleeps or hangs if it has to; returns the actions that are left to the place itself."""
        with self._lock:
            struck = [point for point in self._points if point.place == place and point.fires()]
        for point in struck:
            if point.action == "raise":
                raise InjectedFault(f"planted at {place}")
            if point.action == "sleep":
                time.sleep(point.amount)
            if point.action == "leak":
                self._lost.append(bytes(int(point.amount)))
            while point.action == "hang" and point.enabled:
                time.sleep(_MOMENT)
        return [point.action for point in struck]


def _parsed(rule: str) -> Failpoint:
    found = _RULE.fullmatch(rule)
    if found is None:
        raise SettingsError(f"failpoints: {rule!r} is not PLACE=ACTION[:AMOUNT][@NTH][?FILE]")
    place, action = found["place"], found["action"]
    if action not in ACTIONS.get(place, ()):
        known = ", ".join(f"{place}={action}" for place, actions in ACTIONS.items() for action in actions)
        raise SettingsError(f"failpoints: {place}={action} is none of {known}")
    file = Path(found["file"]) if found["file"] else None
    return Failpoint(place, action, float(found["amount"] or 0), int(found["nth"] or 0), file)


class FaultyRunner:
    """A runner with failpoints; see lingon.serving.runtime.runner.Runner."""

    def __init__(self, runner: Runner, faults: Failpoints) -> None:
        self._runner, self._faults = runner, faults

    @property
    def limits(self) -> Limits:
        """The model's bounds."""
        return self._runner.limits

    @property
    def shortlist(self) -> Shortlist | None:
        """Which pieces a source calls for."""
        return self._runner.shortlist

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Run the encoder."""
        self._faults.trigger("encode")
        return self._runner.encode(source_ids, source_lengths)

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Buffers:
        """Allocate the states of a running batch."""
        return FaultyBuffers(self._runner.open(shape, shortlist=shortlist), self._faults)

    def score(
        self, source_ids: np.ndarray, source_lengths: np.ndarray, target_ids: np.ndarray, target_lengths: np.ndarray
    ) -> list[Scored]:
        """Run the scorer."""
        self._faults.trigger("score")
        return self._runner.score(source_ids, source_lengths, target_ids, target_lengths)


class FaultyBuffers:
    """Buffers with failpoints; see lingon.serving.runtime.runner.Buffers."""

    def __init__(self, buffers: Buffers, faults: Failpoints) -> None:
        self._buffers, self._faults = buffers, faults

    @property
    def token_ids(self) -> np.ndarray:
        """What each row reads next."""
        return self._buffers.token_ids

    @property
    def positions(self) -> np.ndarray:
        """How many tokens each row has read."""
        return self._buffers.positions

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return self._buffers.nbytes

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence into a slot, in which may be what was never meant to be read."""
        if "poison" in self._faults.trigger("slot"):
            poison: Callable[[int], None] | None = getattr(self._buffers, "poison", None)
            if poison is None:
                raise LingonError("failpoints: these buffers cannot be poisoned")
            poison(slot)
        self._buffers.place(slot, encoded, index, piece_ids)

    def step(self, sentences: int, *, logits: bool) -> Step:
        """Run the decoder over the first sentences."""
        actions = self._faults.trigger("step")
        found = self._buffers.step(sentences, logits=logits)
        if "nan" in actions:
            found.candidate_log_probs[0] = np.nan
        return found

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy the past of rows onto others."""
        return self._buffers.copy_rows(sources, targets, lengths)

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence to another slot."""
        return self._buffers.move(source, target, length)
