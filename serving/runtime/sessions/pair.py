"""The choice between all cores for a run of a graph and a share of them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from lingon.serving.runtime.kernels import use_helpers

PROBES = 8  # steps of each number of rows that shared cores compute to tell whether such a step is short
SHORT_STEP = 150e-6  # seconds
STEP_GAP = 0.02  # seconds that a thread stays active after it computed: it is probably between two steps
MOST_KNOWN = 64  # threads; beyond them those are forgotten that are not active any more

SessionT = TypeVar("SessionT")


class ActiveThreads:
    """The threads that compute at the moment and share the cores. Times are those of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_active: dict[int, float] = {}  # by thread id, in seconds of the clock; infinite while it computes

    def begin(self) -> bool:
        """Mark this thread as active until `end`; returns whether it is the only active thread."""
        own, recent = threading.get_ident(), self._clock() - STEP_GAP
        self._last_active[own] = math.inf
        known = self._last_active.copy()
        if len(known) > MOST_KNOWN:
            for thread, active in known.items():
                if active < recent:
                    self._last_active.pop(thread, None)
        return all(active < recent for thread, active in known.items() if thread != own)

    def end(self) -> None:
        """Mark this thread as one that computed until now."""
        self._last_active[threading.get_ident()] = self._clock()


class SessionPair(Generic[SessionT]):
    """Two sessions of one graph: one for a single thread, one for each of several threads at the same time.

    Both give the same results, to the last bit.

    all_cores: the session that uses all cores
    shared_cores: the session that uses one thread's share of the cores
    """

    def __init__(self, all_cores: SessionT, shared_cores: SessionT, active_threads: ActiveThreads) -> None:
        self.all_cores, self.shared_cores, self._active_threads = all_cores, shared_cores, active_threads
        self._steps: dict[int, int] = {}  # by rows: the steps that the session of shared cores has computed
        self._shortest: dict[int, float] = {}  # by rows: the seconds of the shortest of them

    def __enter__(self) -> SessionT:
        """Return the session that this thread should use now; the thread counts as active inside the context."""
        return self.all_cores if self._active_threads.begin() else self.shared_cores

    def __exit__(self, *_: object) -> None:
        self._active_threads.end()

    def around(self, session: SessionT) -> SessionPair[SessionT]:
        """Return a pair like this one whose sessions are both this session."""
        return SessionPair(session, session, self._active_threads)

    def for_step(self, session: SessionT, rows: int) -> SessionT:
        """Return the session for a step of the decoder, where `session` is that of the context.

        A step that is short on shared cores uses no others: to wake their threads takes as long. The first steps of
        each number of rows are measured to decide this.
        """
        if self._steps.get(rows, 0) < PROBES or self._shortest[rows] < SHORT_STEP:
            return self.shared_cores
        return session

    def measure_step(self, session: SessionT, rows: int, seconds: float) -> None:
        """Count a step that a session computed."""
        if session is self.shared_cores:
            self._steps[rows] = self._steps.get(rows, 0) + 1
            self._shortest[rows] = min(self._shortest.get(rows, math.inf), seconds)


class HelpedSession(SessionPair[SessionT]):
    """A session of native operators, whose parts are computed by helpers too while no other thread computes.

    Helpers begin at once, so that a short step uses them as well. Results are the same with and without them, to the
    last bit.

    helpers: the threads beside the one that runs the graph
    """

    def __init__(self, session: SessionT, active_threads: ActiveThreads, helpers: int) -> None:
        super().__init__(session, session, active_threads)
        self._helpers = helpers
        use_helpers(helpers)  # They start here: from a check at low priority they would have that for good.
        use_helpers(0)

    def __enter__(self) -> SessionT:
        if self._active_threads.begin():
            use_helpers(self._helpers)
        return self.all_cores

    def __exit__(self, *_: object) -> None:
        use_helpers(0)
        self._active_threads.end()

    def around(self, session: SessionT) -> HelpedSession[SessionT]:
        """Return another session with the same helpers."""
        return HelpedSession(session, self._active_threads, self._helpers)

    def for_step(self, session: SessionT, rows: int) -> SessionT:
        """Return the session."""
        return session

    def measure_step(self, session: SessionT, rows: int, seconds: float) -> None:
        """Do nothing: there is no choice."""
