"""The engine ray of `lingon bulk`: actors of a Ray cluster translate shards and write them themselves.

There is an actor for each group of cores, as many as the cluster has room for.
"""

from __future__ import annotations

import copy
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.runs import ProgressWatch
from lingon.bulk.shards import Record, ShardWorker
from lingon.bulk.translating import Translate
from lingon.bundle.store import open_bundle
from lingon.cli.backend import BackendOptions
from lingon.errors import LingonError
from lingon.files import publish_folder

STARTING = 4  # workers that may wait for a machine at once, so that the autoscaler sees what is wanted


@dataclass(slots=True)
class Workers:
    """Actors that translate the shards of a plan. A shard whose actor dies is given to another one.

    make: starts an actor with the methods ready() and run_with(shard, bundle)
    bundle: the second argument of run_with
    low, high: bounds of their number. More than `low` are started as long as every actor has work
    """

    make: Callable[[], Any]
    bundle: list[Any]
    low: int
    high: int
    actors: list[Any] = field(default_factory=list)
    _starting: dict[Any, Any] = field(default_factory=dict)  # actors by the promise of their first answer
    _running: dict[Any, Any] = field(default_factory=dict)  # actors by the promise of a record

    def records(self, shards: Sequence[Shard]) -> Iterator[Record]:
        """Translate shards and yield the record of each as it is done."""
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
        """Give the next shard to an actor that has none. Without one it ends, and its cores are free for others."""
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


THREADS = 1  # of each engine: most rows a second for each core


class ShardActor(ShardWorker):
    """An actor. After the death of its process it begins again, with the same plan."""

    def ready(self) -> None:
        """Return when the actor has a machine."""

    def run_with(self, shard: Shard, bundle: list[Any]) -> Record:
        """Translate a shard.

        bundle: the promise of the files of the model, in a list so that Ray does not send them before they are needed
        """
        backend = self.translate.backend
        if backend.in_process and not Path(backend.model or "").exists():
            self.translate.backend = replace(backend, model=str(_unpacked(ray.get(bundle[0]))))
        return self.run(shard)


@dataclass(frozen=True, slots=True)
class RayEngine:
    """The workers of a cluster as an engine for shards.

    address: of the cluster, "auto", or None for $RAY_ADDRESS, else a cluster on this machine that ends with the run
    bounds: smallest and largest number of workers
    backend: device, engines and threads of each worker
    """

    address: str | None
    bounds: tuple[int, int]
    backend: BackendOptions

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: ProgressWatch) -> Iterator[Record]:
        self._connect()
        try:
            mine = self._translate_of_worker(translate)
            translate.close()  # the cores of this machine are for its workers
            bundle = [ray.put(_packed(Path(mine.backend.model or "")))] if mine.backend.in_process else []
            workers = Workers(self._maker(plan, mine), bundle, *self.bounds)
            for record in workers.records(left):
                watch.rows(record.rows)
                yield record
        finally:
            ray.shutdown()

    def _connect(self) -> None:
        arguments: dict[str, Any] = {"include_dashboard": False} if self.address is None else {"address": self.address}
        try:
            ray.init(**arguments, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise LingonError(f"--address {self.address or ''}: {str(error).splitlines()[0]}") from None

    def _translate_of_worker(self, translate: Translate) -> Translate:
        """Return the translator of the run with the engines of one worker."""
        worker = copy.copy(translate)
        if worker.backend.in_process:
            worker.backend = replace(worker.backend, engines=self._engines, threads=self._threads)
        return worker

    def _maker(self, plan: Plan, translate: Translate) -> Callable[[], Any]:
        """Return a function that starts an actor."""
        kind = ray.remote(ShardActor).options(
            num_cpus=self._engines * self._threads,
            num_gpus=1 if self.backend.device == "cuda" else 0,
            max_restarts=-1,
            max_task_retries=-1,
        )
        return lambda: kind.remote(plan, translate)

    @property
    def _engines(self) -> int:
        return self.backend.engines or 1

    @property
    def _threads(self) -> int:
        return self.backend.threads or THREADS


def _packed(path: Path) -> dict[str, bytes]:
    """Return the files of a bundle by their names below its folder, and its label under an empty name."""
    folder = open_bundle(path).folder
    files = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    return {"": open_bundle(path).manifest_digest.encode(), **files}


def _unpacked(files: dict[str, bytes]) -> Path:
    """Return the folder of a bundle on a machine that does not have it, for all workers there."""
    folder = Path(tempfile.gettempdir()) / "lingon-bundles" / files[""].decode()
    with suppress(FileExistsError), publish_folder(folder) as part:
        for name, content in files.items():
            if name:
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    return folder
