"""ModelReloader to what a server serves, while it serves: one at a time, each whole or not at all."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lingon.bundle import MANIFEST, Bundle, Manifest, open_bundle, open_version, versions
from lingon.errors import (
    ChangeInProgress,
    ChangeRefused,
    Draining,
    InvalidRequest,
    LingonError,
    RequestError,
    UnknownModel,
)
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.languages import canonical
from lingon.serving.models.registry import ModelRegistry, ServedModel
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.sessions import GraphLoadError
from lingon.serving.system.memory import release_memory
from lingon.serving.system.threads import run_in_thread

MOST_PATH = 4096  # characters
LONG = 120.0  # seconds of loading after which whoever looks on wants to hear that it goes on

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwapResult:
    """What is served now, and the labels of what it took the place of."""

    entry: Entry[ServedModel]
    unloaded: tuple[str, ...]


class ModelReloader:
    """On the event loop only; what takes time runs in a thread.

    A change that is refused raises a RequestError and leaves all as it was. One that has begun goes on though whoever
    asked for it has gone.
    """

    def __init__(
        self, fleet: ModelRegistry, metrics: Metrics, roots: Sequence[Path], published: Callable[[], None]
    ) -> None:
        """roots: below them lies whatever may be loaded; published: is told when other models are served."""
        self.loading: Manifest | None = None  # of the bundle that is being loaded
        self._fleet, self._metrics, self._roots, self._published = fleet, metrics, tuple(roots), published
        self._under_way: asyncio.Task[Any] | None = None
        self._gone: list[object] = []  # held until the change is over, so that they are freed in a thread
        self._closing = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether a change is under way."""
        return self._under_way is not None

    def close(self) -> None:
        """Whoever waits for a change hears that the server ends."""
        self._closing.set()

    async def load(self, path: str) -> Entry[ServedModel]:
        """Serve the bundle at a path too."""
        return await self._alone("load", self._load(path))

    async def swap(self, path: str) -> SwapResult:
        """Serve the bundle at a path in the place of all other versions of its name."""
        return await self._alone("swap", self._swap(path))

    async def unload(self, name: str, version: str) -> None:
        """Serve a model no more; returns once it is gone."""
        await self._alone("unload", self._unload(name, version))

    async def _alone(self, kind: str, change: Coroutine[Any, Any, Result]) -> Result:
        """The outcome of a change, if no other is under way."""
        if self._under_way is not None:
            change.close()
            self._metrics.changes.labels("refused").inc()
            raise _refusal(kind, ChangeInProgress("another change of models is under way; try again when it is done"))
        task = asyncio.create_task(self._accounted(kind, change))
        self._under_way = task
        task.add_done_callback(self._over)
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({task, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if not task.done():
            raise Draining("the server is shutting down; try again")
        return task.result()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._under_way = None
        freed, self._gone = self._gone, []
        run_in_thread(partial(release_memory, freed), "memory")
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits any more

    async def _accounted(self, kind: str, change: Coroutine[Any, Any, Result]) -> Result:
        """The outcome of a change; a refusal is counted and logged, and says nothing that is not ours."""
        try:
            return await change
        except Exception as error:
            self._metrics.changes.labels("refused").inc()
            refusal = _refusal(kind, error)
            traceback.clear_frames(error.__traceback__)  # which hold the model that was loaded in vain
        raise refusal

    async def _load(self, path: str) -> Entry[ServedModel]:
        entry = await self._loaded(path, swaps=False)
        self._publish(entry, ())
        return entry

    async def _swap(self, path: str) -> SwapResult:
        entry = await self._loaded(path, swaps=True)
        old = [each for each in self._fleet.catalog.entries if each.name == entry.name]
        self._publish(entry, old)
        await asyncio.gather(*map(self._retire, old))
        return SwapResult(entry, tuple(each.label for each in old))

    async def _unload(self, name: str, version: str) -> None:
        catalog = self._fleet.catalog
        found = [entry for entry in catalog.entries if (entry.name, str(entry.version)) == (name, version)]
        if not found:
            label = f"{name}/{version}"[:128]
            raise UnknownModel(label, f"model {label!r} is not served; served: {catalog.listing()}")
        if len(catalog.entries) == 1:
            raise ChangeRefused(f"{found[0].label} is the only model; swap it for another, or stop the server")
        self._fleet.publish([], instead_of=found)
        self._published()
        await self._retire(found[0])

    async def _loaded(self, path: str, *, swaps: bool) -> Entry[ServedModel]:
        """The model of the bundle at a path, proven and warm."""
        loading = run_in_thread(partial(self._prepare, path, swaps=swaps), "loading")
        try:
            while not (await asyncio.wait({loading}, timeout=LONG))[0]:
                event(logger, logging.WARNING, "a model is still being loaded", path=path[:MOST_PATH])
            entry = loading.result()
        finally:
            self.loading = None
        if self._closing.is_set():
            entry.model.translator.engine.stop(0)
            raise Draining("the server is shutting down; try again")
        return entry

    def _prepare(self, path: str, *, swaps: bool) -> Entry[ServedModel]:
        bundle = open_below(path, self._roots)
        check_fits(bundle.manifest, self._fleet.catalog, swaps=swaps)
        self.loading = bundle.manifest
        try:
            return self._fleet.load(bundle)
        except RequestError as error:  # of the golden sentences: to the caller it is no status of their own
            raise ChangeRefused(str(error)) from None

    def _publish(self, entry: Entry[ServedModel], instead_of: Sequence[Entry[ServedModel]]) -> None:
        self._fleet.publish([entry], instead_of)
        self._metrics.changes.labels("loaded").inc()
        self._published()

    async def _retire(self, entry: Entry[ServedModel]) -> None:
        await self._fleet.retire(entry)
        self._gone.append(entry)
        self._metrics.changes.labels("unloaded").inc()


def open_below(path: str, roots: Sequence[Path]) -> Bundle:
    """The bundle at a path, or the highest version below it, that lies below one of the roots.

    Raises InvalidRequest where it lies elsewhere, whether or not there is anything; UnknownModel where nothing is
    there.
    """
    if not 0 < len(path) <= MOST_PATH or "\0" in path:
        raise InvalidRequest("path", f"path must be 1 to {MOST_PATH} characters, none of them NUL")
    folder = _inside(Path(path), roots)
    if (folder / MANIFEST).is_file():
        return open_bundle(folder)
    found = versions(folder)
    if not found:
        raise UnknownModel(path[:128], f"{path[:128]!r}: no bundle and no version of one is there")
    return open_version(_inside(folder / str(found[-1]), roots), found[-1])


def check_fits(manifest: Manifest, catalog: Catalog[Any], *, swaps: bool) -> None:
    """Raises ChangeRefused where a bundle cannot be served beside what is served, or in its place."""
    label = f"{manifest.name}/{manifest.version}"
    same = [entry for entry in catalog.entries if entry.name == manifest.name]
    if manifest.version in [entry.version for entry in same]:
        raise ChangeRefused(f"{label} is served already; what is published under a version never changes")
    if swaps and not same:
        raise ChangeRefused(f"{label} could take the place of no model; load it; served: {catalog.listing()}")
    pair = _pair(manifest.source_language, manifest.target_language)
    for entry in same:
        if _pair(entry.source, entry.target) != pair:
            raise ChangeRefused(
                f"{label} translates from {pair[0]} to {pair[1]}, {entry.label} from {entry.source} to {entry.target}"
            )


def _inside(path: Path, roots: Sequence[Path]) -> Path:
    """The path with symbolic links and .. resolved."""
    try:
        found = path.resolve()
    except RuntimeError:
        raise InvalidRequest("path", "path goes through a loop of symbolic links") from None
    if not any(found.is_relative_to(root.resolve()) for root in roots):
        allowed = ", ".join(map(str, roots))
        raise InvalidRequest(
            "path", f"path must lie below {allowed}, symbolic links and .. resolved, got {str(path)[:128]!r}"
        )
    return found


def _pair(source: str, target: str) -> tuple[str, str]:
    try:
        return canonical(source, "source_language"), canonical(target, "target_language")
    except InvalidRequest as error:
        raise ChangeRefused(f"of the bundle: {error}") from None


def _refusal(kind: str, error: Exception) -> RequestError:
    """What is said of an error, of which one line is logged."""
    if isinstance(error, OSError) and error.filename:
        error = ChangeRefused(f"{str(error.filename)[:MOST_PATH]}: {error.strerror}")
    if isinstance(error, LingonError):
        ours = error.public_message if isinstance(error, GraphLoadError) else str(error)
        found = error if isinstance(error, RequestError) else ChangeRefused(ours)
        event(logger, logging.WARNING, "a model change was refused", change=kind, reason=str(found))
        return found
    fault(logger, "a model change was refused", error, change=kind)
    return ChangeRefused(f"the model cannot be loaded ({type(error).__name__}); the server's log says where")
