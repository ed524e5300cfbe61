"""Failpoints: named points where a test makes the server fail.

    load=sleep:5             loading a model takes five seconds longer
    step=raise@11            the 11th decoder step raises
    step=hang?/tmp/stop      steps hang while the file /tmp/stop exists
    step=nan@3; slot=poison  the first row of step 3 is NaN; a slot is filled with NaN before it is used again
    open=memory?/tmp/full    there is no memory for new states while the file /tmp/full exists

Failpoints wrap the Runner, between the engine and the graphs. A server without failpoints runs no code of this file. A
server that is not started for testing rejects them.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lingon.alignment import AttentionKind
from lingon.bundle.manifest import Limits
from lingon.errors import LingonError, SettingsError
from lingon.serving.runtime.runner import (
    AttendingBuffers,
    AttentionChoice,
    AttentionHistory,
    AttentionSize,
    BatchShape,
    BeamBuffers,
    BeamSearch,
    BeamStates,
    Buffers,
    Encoded,
    GreedyBuffers,
    GreedySteps,
    PastBuffers,
    Runner,
    SavedPast,
    Scored,
    Step,
)
from lingon.serving.runtime.shortlist import Shortlist

ACTIONS = {
    "load": ("raise", "sleep", "hang"),
    "encode": ("raise", "sleep", "hang", "leak", "memory"),
    "open": ("memory",),
    "step": ("raise", "sleep", "hang", "nan", "memory"),
    "slot": ("poison",),
    "score": ("raise", "sleep", "hang", "memory"),
}
"""By point, the possible actions."""

_RULE = re.compile(r"(?P<place>\w+)=(?P<action>\w+)(:(?P<amount>[\d.]+))?(@(?P<nth>\d+))?(\?(?P<file>\S+))?")
_POLL = 0.005  # seconds between two checks whether to continue hanging


class InjectedFault(Exception):
    """The exception that a failpoint raises."""


@dataclass(slots=True)
class Failpoint:
    """One action at one point.

    amount: seconds of a sleep, or bytes of a leak per run of the encoder
    nth: the pass, from 1, in which the action is carried out; 0 means every pass
    file: the failpoint is enabled, and counts passes, only while this file exists; None means always
    """

    place: str
    action: str
    amount: float = 0.0
    nth: int = 0
    file: Path | None = None
    passes: int = field(default=0, init=False)

    @property
    def enabled(self) -> bool:
        """Whether the failpoint counts passes now."""
        return self.file is None or self.file.exists()

    def count_pass(self) -> bool:
        """Count a pass and return whether the action is carried out in it."""
        if not self.enabled:
            return False
        self.passes += 1
        return self.nth in (0, self.passes)


class Failpoints:
    """The failpoints of a server."""

    def __init__(self, points: Sequence[Failpoint]) -> None:
        self._points = points
        self._lock = threading.Lock()  # several threads of the engine pass the same point
        self._leaked: list[bytes] = []

    @classmethod
    def parse(cls, text: str) -> Failpoints:
        """Return the failpoints of a text of rules separated by ";". Raises SettingsError."""
        return cls([_parse_rule(rule.strip()) for rule in text.split(";") if rule.strip()])

    def trigger(self, place: str) -> list[str]:
        """Carry out the due actions at a point.

        Returns the names of these actions. The caller carries out nan and poison.
        """
        with self._lock:
            due = [point for point in self._points if point.place == place and point.count_pass()]
        for point in due:
            if point.action == "raise":
                raise InjectedFault(f"injected at {place}")
            if point.action == "memory":
                raise MemoryError(f"injected at {place}")
            if point.action == "sleep":
                time.sleep(point.amount)
            if point.action == "leak":
                self._leaked.append(bytes(int(point.amount)))
            while point.action == "hang" and point.enabled:
                time.sleep(_POLL)
        return [point.action for point in due]


def _parse_rule(rule: str) -> Failpoint:
    match = _RULE.fullmatch(rule)
    if match is None:
        raise SettingsError(f"failpoints: {rule!r} is not PLACE=ACTION[:AMOUNT][@NTH][?FILE]")
    place, action = match["place"], match["action"]
    if action not in ACTIONS.get(place, ()):
        known = ", ".join(f"{place}={action}" for place, actions in ACTIONS.items() for action in actions)
        raise SettingsError(f"failpoints: {place}={action} is none of {known}")
    file = Path(match["file"]) if match["file"] else None
    return Failpoint(place, action, float(match["amount"] or 0), int(match["nth"] or 0), file)


class FaultyRunner:
    """A runner with failpoints; see lingon.serving.runtime.runner.Runner."""

    def __init__(self, runner: Runner, failpoints: Failpoints) -> None:
        self._runner, self._failpoints = runner, failpoints

    @property
    def limits(self) -> Limits:
        return self._runner.limits

    def capacity(self, width: int) -> int:
        return self._runner.capacity(width)

    @property
    def shortlist(self) -> Shortlist | None:
        return self._runner.shortlist

    @property
    def spread(self) -> int:
        return self._runner.spread

    @property
    def steps_attend(self) -> bool:
        return self._runner.steps_attend

    @property
    def any_width(self) -> bool:
        return self._runner.any_width

    @property
    def run_bytes(self) -> int:
        return self._runner.run_bytes

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        self._failpoints.trigger("encode")
        return self._runner.encode(source_ids, source_lengths)

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Buffers:
        self._failpoints.trigger("open")
        return _faulty(self._runner.open(shape, shortlist=shortlist), self._failpoints)

    @property
    def attention(self) -> Mapping[AttentionKind, AttentionSize]:
        return self._runner.attention

    def score(
        self,
        source_ids: np.ndarray,
        source_lengths: np.ndarray,
        target_ids: np.ndarray,
        target_lengths: np.ndarray,
        choices: Sequence[AttentionChoice] = (),
    ) -> list[Scored]:
        self._failpoints.trigger("score")
        return self._runner.score(source_ids, source_lengths, target_ids, target_lengths, choices)

    def free_memory(self) -> None:
        self._runner.free_memory()


def _faulty(buffers: Buffers, failpoints: Failpoints) -> FaultyBuffers:
    """Return buffers with failpoints and the same methods, so that the engine uses the same loop."""
    if isinstance(buffers, GreedyBuffers):
        if isinstance(buffers, PastBuffers):
            return FaultyHostBuffers(buffers, failpoints)
        able = FaultySearchBuffers if isinstance(buffers, BeamBuffers) else FaultyGreedyBuffers
        return able(buffers, failpoints)
    assert not isinstance(buffers, BeamBuffers)
    return FaultyBuffers(buffers, failpoints)


class FaultyBuffers:
    """Buffers with failpoints; see lingon.serving.runtime.runner.Buffers."""

    def __init__(self, buffers: Buffers, failpoints: Failpoints) -> None:
        self._buffers, self._failpoints = buffers, failpoints

    @property
    def token_ids(self) -> np.ndarray:
        return self._buffers.token_ids

    @property
    def positions(self) -> np.ndarray:
        return self._buffers.positions

    @property
    def nbytes(self) -> int:
        return self._buffers.nbytes

    @property
    def attention(self) -> AttentionHistory | None:
        return self._buffers.attention if isinstance(self._buffers, AttendingBuffers) else None

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence into a slot. The failpoint invalidates the slot first."""
        if "poison" in self._failpoints.trigger("slot"):
            invalidate: Callable[[int], None] | None = getattr(self._buffers, "invalidate", None)
            if invalidate is None:
                raise LingonError("failpoints: these buffers cannot be poisoned")
            invalidate(slot)
        self._buffers.place(slot, encoded, index, piece_ids)

    def step(self, sentences: int, *, logits: bool) -> Step:
        actions = self._failpoints.trigger("step")
        step = self._buffers.step(sentences, logits=logits)
        if "nan" in actions:
            step.candidate_log_probs[0] = np.nan
        return step

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        return self._buffers.copy_rows(sources, targets, lengths)

    def move(self, source: int, target: int, length: int) -> int:
        return self._buffers.move(source, target, length)


class FaultyGreedyBuffers(FaultyBuffers):
    """Buffers with failpoints; see lingon.serving.runtime.runner.GreedyBuffers."""

    @property
    def most_steps(self) -> int:
        assert isinstance(self._buffers, GreedyBuffers)
        return self._buffers.most_steps

    @property
    def weighs(self) -> bool:
        assert isinstance(self._buffers, GreedyBuffers)
        return self._buffers.weighs

    def greedy_steps(
        self, sentences: int, steps: int, forced: np.ndarray | None = None, *, weighs: bool = False
    ) -> GreedySteps:
        """Run one step, because a failpoint precedes each. Its first row decides about NaN."""
        assert isinstance(self._buffers, GreedyBuffers)
        actions = self._failpoints.trigger("step")
        found = self._buffers.greedy_steps(sentences, 1, None if forced is None else forced[:1], weighs=weighs)
        if "nan" in actions:
            found.log_probs[0][0] = math.nan
        return found


class FaultySearchBuffers(FaultyGreedyBuffers):
    """Buffers with failpoints; see lingon.serving.runtime.runner.BeamBuffers."""

    def beam_search(self, states: BeamStates) -> BeamSearch | None:
        """Return the search by the graph, which reads the results of a step with their NaN."""
        assert isinstance(self._buffers, BeamBuffers)
        return self._buffers.beam_search(states)


class FaultyHostBuffers(FaultySearchBuffers):
    """Buffers with failpoints; see lingon.serving.runtime.runner.PastBuffers."""

    @property
    def can_cut(self) -> bool:
        assert isinstance(self._buffers, PastBuffers)
        return self._buffers.can_cut

    def save(self, row: int, tokens: tuple[int, ...]) -> SavedPast:
        assert isinstance(self._buffers, PastBuffers)
        return self._buffers.save(row, tokens)

    def restore(self, slot: int, past: SavedPast) -> bool:
        assert isinstance(self._buffers, PastBuffers)
        return self._buffers.restore(slot, past)
