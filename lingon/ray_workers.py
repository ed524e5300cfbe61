"""Actors of a Ray cluster that do tasks: as many as there is work for, within bounds, as the cluster grows."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from lingon.errors import LingonError

STARTING = 4  # actors that may wait for a machine at once, so that the autoscaler sees what is wanted
POLL = 0.5  # seconds between two calls of `check`
Task = TypeVar("Task")


@contextmanager
def ray_cluster(address: str | None) -> Iterator[None]:
    """Connect to a cluster for the time of the block.

    address: of the cluster, "auto", or None for $RAY_ADDRESS, else a cluster on this machine that ends with the block
    """
    arguments: dict[str, Any] = {"include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(**arguments, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise LingonError(f"--address {address or ''}: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


@dataclass(slots=True)
class Workers(Generic[Task]):
    """Actors that do tasks. A task whose actor dies is given to another one.

    make: starts an actor that has a method ready(). It must begin again after the death of its process
    give: gives a task to an actor and returns the promise of its result
    low, high: bounds of their number. More than `low` are started as long as every actor has work
    check: called now and then. What it raises ends the work
    """

    make: Callable[[], Any]
    give: Callable[[Any, Task], Any]
    low: int
    high: int
    check: Callable[[], object] = lambda: None
    actors: list[Any] = field(default_factory=list)
    _waiting: deque[Task] = field(default_factory=deque)  # a few tasks, since each may be a block of text
    _starting: dict[Any, Any] = field(default_factory=dict)  # actors by the promise of their first answer
    _running: dict[Any, Any] = field(default_factory=dict)  # actors by the promise of a result

    def results(self, tasks: Iterable[Task]) -> Iterator[Any]:
        """Do tasks and yield the result of each as it is done."""
        rest = iter(tasks)
        self._look_ahead(rest)
        while self._waiting or self._running:
            self._grow()
            self.check()
            try:
                done, _ = ray.wait([*self._starting, *self._running], num_returns=1, timeout=POLL)
            except RayError as error:
                raise LingonError(f"the Ray cluster failed: {_first_line(error)}") from None
            for promise in done:
                if promise in self._starting:
                    _result(promise)
                    self._give(self._starting.pop(promise), rest)
                else:
                    actor = self._running.pop(promise)
                    yield _result(promise)
                    self._give(actor, rest)
        for actor in self._starting.values():  # their work was done by others
            ray.kill(actor)

    def _look_ahead(self, rest: Iterator[Task]) -> None:
        """Take tasks for the actors that may be started next."""
        wanted = min(self.high, max(self.low, len(self.actors) + STARTING)) - len(self._running)
        while len(self._waiting) < max(wanted, 1) and (task := next(rest, None)) is not None:
            self._waiting.append(task)

    def _grow(self) -> None:
        """Start actors, at first the smallest number, then some as long as there is more work than actors."""
        wanted = min(self.high, len(self._running) + len(self._waiting))
        while len(self.actors) < wanted and (len(self.actors) < self.low or len(self._starting) < STARTING):
            actor = self.make()
            self.actors.append(actor)
            self._starting[actor.ready.remote()] = actor

    def _give(self, actor: Any, rest: Iterator[Task]) -> None:
        """Give the next task to an actor that has none. Without one it ends, and its cores are free for others."""
        self._look_ahead(rest)
        if self._waiting:
            self._running[self.give(actor, self._waiting.popleft())] = actor
        else:
            self.actors.remove(actor)
            ray.kill(actor)


def _result(promise: Any) -> Any:
    try:
        return ray.get(promise)
    except RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, LingonError) else LingonError(_first_line(cause)) from None
    except RayActorError as error:
        raise LingonError(f"a worker failed: {_first_line(error)}") from None
    except RayError as error:
        raise LingonError(f"the Ray cluster failed: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
