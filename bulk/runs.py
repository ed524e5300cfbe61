"""A run: plan, the shards that are missing by an engine, and the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.shards import Record, finish, missing, read_ahead, translate_shard
from lingon.bulk.storage import LocalFolder
from lingon.bulk.translating import Translate
from lingon.errors import LingonError
from lingon.files import lock_path, make_folders


class Watch(Protocol):
    """Is told of the progress of a run."""

    def begin(self, plan: Plan, left: Sequence[Shard]) -> None:
        """The run begins; left: the shards that are not done."""

    def rows(self, count: int) -> None:
        """So many more rows are done."""

    def shard(self, record: Record) -> None:
        """A shard is done."""


class Engine(Protocol):
    """Where shards are translated."""

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: Watch) -> Iterator[Record]:
        """Translate shards; yields the record of each when it is done, in any order."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Translates the shards one after the other, in this process or by a server."""

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: Watch) -> Iterator[Record]:
        for shard, rows in read_ahead(plan, left):
            yield translate_shard(plan, shard, rows, translate, watch.rows)


def run(plan: Plan, engine: Engine, translate: Translate, watch: Watch) -> dict[str, Any]:
    """Translate the shards that are missing and finish; returns the manifest.

    On this machine's file systems a second run of the same folder is refused while one is going on.
    """
    with _alone(plan):
        left = missing(plan)
        watch.begin(plan, left)
        for record in engine.run(plan, left, translate, watch) if left else ():
            watch.shard(record)
        return finish(plan)


@contextmanager
def _alone(plan: Plan) -> Iterator[None]:
    """Hold the lock of a folder of this machine; an object store has none, and two runs write the same bytes there."""
    folder = plan.folder
    if not isinstance(folder, LocalFolder):
        yield
        return
    make_folders(folder.path)
    try:
        with lock_path(folder.path):
            folder.remove_partial_files()
            yield
    except BlockingIOError:
        raise LingonError(f"{folder.url}: another run is writing to this folder") from None
