"""Workers of a Ray cluster: actors that translate shards, as many as the cluster has room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from lingon.bulk.planning import Shard
from lingon.bulk.shards import Record
from lingon.errors import LingonError

STARTING = 4  # workers that may wait for a machine at once, so that the autoscaler sees what is wanted


@dataclass(slots=True)
class Workers:
    """Actors that translate the shards of a plan; a shard whose actor dies is given to another one.

    make: starts an actor with the methods ready() and run_with(shard, bundle)
    bundle: the second argument of run_with
    low, high: bounds of their number; more than `low` are started as long as every actor has work
    """

    make: Callable[[], Any]
    bundle: list[Any]
    low: int
    high: int
    actors: list[Any] = field(default_factory=list)
    _starting: dict[Any, Any] = field(default_factory=dict)  # actors by the promise of their first answer
    _running: dict[Any, Any] = field(default_factory=dict)  # actors by the promise of a record

    def records(self, shards: Sequence[Shard]) -> Iterator[Record]:
        """Translate shards; yields the record of each as it is done."""
        waiting = deque(shards)
        while waiting or self._running:
            self._grow(len(waiting))
            promises = [*self._starting, *self._running]
            try:
                done, _ = ray.wait(promises, num_returns=1)
            except RayError as error:
                raise LingonError(f"the Ray cluster failed: {_first_line(error)}") from None
            for promise in done:
                if promise in self._starting:
                    self._result(promise)
                    self._give(self._starting.pop(promise), waiting)
                else:
                    actor = self._running.pop(promise)
                    yield self._result(promise)
                    self._give(actor, waiting)

    def _grow(self, waiting: int) -> None:
        """Start actors, at first the smallest number, then some as long as there is more work than actors."""
        wanted = min(self.high, len(self._running) + waiting)
        while len(self.actors) < wanted and (len(self.actors) < self.low or len(self._starting) < STARTING):
            actor = self.make()
            self.actors.append(actor)
            self._starting[actor.ready.remote()] = actor

    def _give(self, actor: Any, waiting: deque[Shard]) -> None:
        """Give the next shard to an actor that has none; without one it ends, and its cores are free for others."""
        if waiting:
            self._running[actor.run_with.remote(waiting.popleft(), self.bundle)] = actor
        else:
            self.actors.remove(actor)
            ray.kill(actor)

    def _result(self, promise: Any) -> Any:
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
