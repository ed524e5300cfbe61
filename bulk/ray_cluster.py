"""The engine ray of `lingon bulk`: actors of a Ray cluster translate shards and write them themselves.

There is an actor for each group of cores, as many as the cluster has room for.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.runs import ProgressWatch
from lingon.bulk.shards import Record, ShardWorker
from lingon.bulk.translating import Translate
from lingon.bundle.store import find_model, open_bundle
from lingon.cli.backend import BackendOptions
from lingon.files import publish_folder
from lingon.ray_workers import Workers, ray_cluster

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
        with ray_cluster(self.address):
            mine = self._translate_of_worker(translate)
            translate.close()  # the cores of this machine are for its workers
            bundle = [ray.put(_packed(Path(mine.backend.model or "")))] if mine.backend.in_process else []
            workers = Workers[Shard](
                self._maker(plan, mine), lambda actor, shard: actor.run_with.remote(shard, bundle), *self.bounds
            )
            for record in workers.results(left):
                watch.rows(record.rows)
                yield record

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
    bundle = open_bundle(find_model(path))
    folder = bundle.folder
    files = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    return {"": bundle.manifest_digest.encode(), **files}


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
