"""The progress of one load of a model: its phases, how long each took, and which one is under way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from lingon.serving.observability.logs import event

PHASES = ("checksums", "sessions", "checks", "golden_sentences", "warm_up")
"""In this order: every byte of the bundle is verified, ONNX Runtime builds the graphs, manifest and graphs are compared
and run at their limits, the golden sentences are translated, the engine is warmed up."""

logger = logging.getLogger(__name__)


class LoadProgress:
    """Measures and logs the phases of a load, which begins now. One thread loads; any thread may read."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        """label: of the model; clock: returns seconds."""
        self.label, self._clock = label, clock
        self._start = clock()
        self._begins: list[tuple[str, float]] = []  # each phase and its begin; the last phase is "" if the load ended

    @property
    def ended(self) -> bool:
        """Whether the load has succeeded or failed."""
        return bool(self._begins) and not self._begins[-1][0]

    @property
    def phase(self) -> str:
        """The phase that is under way; empty before the first one and after the last one."""
        return self._begins[-1][0] if self._begins else ""

    def is_in(self, phase: str) -> bool:
        """Whether this phase is under way."""
        return self.phase == phase

    def begin(self, phase: str) -> None:
        """End the phase that is under way, and begin another one."""
        assert phase in PHASES, phase
        self._begins.append((phase, self._clock()))
        event(logger, logging.INFO, "loading", model=self.label, phase=phase, seconds=round(self.total(), 2))

    def end(self, **fields: object) -> None:
        """End the load, which succeeded; fields: of the model, for the log."""
        self._begins.append(("", self._clock()))
        phases = {phase: round(self.seconds(phase), 2) for phase, _ in self._begins[:-1]}
        event(logger, logging.INFO, "loaded", model=self.label, **fields, seconds=round(self.total(), 2), **phases)

    def fail(self) -> None:
        """End the load, which failed in the phase that is under way."""
        phase = self.phase
        self._begins.append(("", self._clock()))
        event(logger, logging.INFO, "loading failed", model=self.label, phase=phase, seconds=round(self.total(), 2))

    def seconds(self, phase: str) -> float:
        """The duration of a phase in seconds: so far if it is under way, 0 if it did not begin."""
        begins = self._begins.copy()  # the thread that loads may add to it
        ends = [begin for _, begin in begins[1:]] + [self._clock()]
        return sum(end - begin for (name, begin), end in zip(begins, ends, strict=True) if name == phase)

    def total(self) -> float:
        """The duration of the load in seconds: so far if it is under way."""
        return (self._begins[-1][1] if self.ended else self._clock()) - self._start
