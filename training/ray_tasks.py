"""The engine ray of `lingon prepare`: actors of a Ray cluster run the tasks, which read and write files by themselves.

These are tasks of Ray itself, not a dataset of Ray Data: a task has the name of the file that it writes, is left out if
the file is there, and may carry text from the one reader of an archive. Ray Data takes all its items before it begins
and counts rows in blocks of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import ray

from lingon.ray_workers import Workers

Result = TypeVar("Result")


class TaskActor:
    """An actor, on one core. After the death of its process it begins again, and so does the task."""

    def ready(self) -> None:
        """Return when the actor has a machine."""

    def run(self, task: Callable[[], Any]) -> Any:
        """Run a task."""
        return task()


@dataclass(frozen=True, slots=True)
class RayTasks:
    """The workers of a cluster as an engine for tasks; bounds: smallest and largest number of workers."""

    bounds: tuple[int, int]

    def run(self, tasks: Iterable[Callable[[], Result]], check: Callable[[], object]) -> Iterator[Result]:
        """Run tasks and yield their results in any order; check: called now and then, raises an error to stop."""
        kind = ray.remote(TaskActor).options(num_cpus=1, max_restarts=-1, max_task_retries=-1)
        workers = Workers[Callable[[], Result]](
            kind.remote, lambda actor, task: actor.run.remote(task), *self.bounds, check
        )
        yield from workers.results(tasks)
