"""Changes of the served models while the server serves. One change runs at a time. It succeeds or has no effect."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lingon.bundle.manifest import Manifest
from lingon.bundle.names import MANIFEST
from lingon.bundle.store import Bundle, all_versions, open_bundle, open_version
from lingon.errors import (
    ChangeInProgress,
    ChangeRefused,
    Draining,
    InvalidRequest,
    LingonError,
    RequestError,
    UnknownModel,
)
from lingon.files import is_link_loop
from lingon.language_tags import canonical
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.memory import release_memory
from lingon.serving.models.pool import ModelPool
from lingon.serving.models.registry import ModelRegistry, ServedModel
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.sessions import GraphLoadError
from lingon.serving.threads import run_in_thread

MAX_PATH = 4096  # characters
LOADING_LOG_INTERVAL = 120.0  # seconds between two log lines while a model is loading

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The new served model, and the labels of the models that it replaced."""

    entry: Entry[ServedModel]
    unloaded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A requested change: its kind, the path or the label of the model, the caller."""

    kind: str
    model: str
    caller: str

    @property
    def fields(self) -> dict[str, str]:
        """The fields of every log line about the change."""
        return {"change": self.kind, "model": self.model, "caller": self.caller}


class ModelReloader:
    """The loads, swaps and unloads of models. For use on the event loop only. Slow work runs in threads.

    A change that fails raises a RequestError and has no effect. A change that has begun continues if its caller
    disconnects.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        pool: ModelPool,
        metrics: Metrics,
        roots: Sequence[Path],
        on_published: Callable[[], None],
    ) -> None:
        """roots: folders that bundles must be in; on_published: called after the served models changed."""
        self.loading: Manifest | None = None  # manifest of the bundle that is being loaded
        self._registry, self._pool, self._metrics, self._roots = registry, pool, metrics, tuple(roots)
        self._on_published = on_published
        self._running: asyncio.Task[Any] | None = None
        self._retired: list[object] = []  # models kept until the change ends, so that a thread frees their memory
        self._closing = asyncio.Event()

    @property
    def busy(self) -> bool:
        return self._running is not None

    def close(self) -> None:
        """Cancel all calls that wait for a change, because the server shuts down."""
        self._closing.set()

    async def load(self, path: str, caller: str) -> Entry[ServedModel]:
        """Serve the bundle at a path in addition to the served models; caller: identity, for the log."""
        return await self._run_alone(Change("load", path[:MAX_PATH], caller), self._load(path))

    async def swap(self, path: str, caller: str) -> SwapResult:
        """Serve the bundle at a path instead of all other versions of its name; caller: see `load`."""
        return await self._run_alone(Change("swap", path[:MAX_PATH], caller), self._swap(path))

    async def unload(self, name: str, version: str, caller: str) -> None:
        """Stop serving a model and return when it is unloaded; caller: see `load`."""
        what = f"{name[:MAX_PATH]}/{version[:MAX_PATH]}"
        await self._run_alone(Change("unload", what, caller), self._unload(name, version))

    async def _run_alone(self, asked: Change, change: Coroutine[Any, Any, Result]) -> Result:
        """Run a change and return its result. Raises ChangeInProgress if another one is running."""
        if self._running is not None:
            change.close()
            self._metrics.changes.labels("refused").inc()
            error = ChangeInProgress("another change of models is in progress; try again when it is done")
            raise _refusal(asked, error)
        task = asyncio.create_task(self._log_change(asked, change))
        self._running = task
        task.add_done_callback(self._on_done)
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({task, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if not task.done():
            raise Draining("the server is shutting down; try again")
        return task.result()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._running = None
        freed, self._retired = self._retired, []
        run_in_thread(partial(release_memory, freed), "memory")
        if not task.cancelled():
            task.exception()  # marks it as retrieved, in case the caller disconnected

    async def _log_change(self, asked: Change, change: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a change. An error is counted, logged and replaced by one that is safe for clients."""
        event(logger, logging.INFO, "a model change begins", **asked.fields)
        try:
            result = await change
            event(logger, logging.INFO, "a model change is done", **asked.fields)
            return result
        except Exception as error:
            self._metrics.changes.labels("refused").inc()
            refusal = _refusal(asked, error)
            traceback.clear_frames(error.__traceback__)  # the frames hold the loaded model
        raise refusal

    async def _load(self, path: str) -> Entry[ServedModel]:
        entry = await self._loaded(path, swaps=False)
        self._publish(entry, ())
        return entry

    async def _swap(self, path: str) -> SwapResult:
        entry = await self._loaded(path, swaps=True)
        old = [each for each in self._registry.catalog.entries if each.name == entry.name]
        self._publish(entry, old)
        await asyncio.gather(*map(self._retire, old))
        return SwapResult(entry, tuple(each.label for each in old))

    async def _unload(self, name: str, version: str) -> None:
        catalog = self._registry.catalog
        found = [entry for entry in catalog.entries if (entry.name, str(entry.version)) == (name, version)]
        if not found:
            label = f"{name}/{version}"[:128]
            raise UnknownModel(label, f"model {label!r} is not served; served: {catalog.listing()}")
        if len(catalog.entries) == 1:
            raise ChangeRefused(f"{found[0].label} is the only model; swap it for another, or stop the server")
        self._registry.publish([], instead_of=found)
        self._on_published()
        await self._retire(found[0])

    async def _loaded(self, path: str, *, swaps: bool) -> Entry[ServedModel]:
        """Load the bundle at a path, check it and warm it up, but do not publish it."""
        loading = asyncio.ensure_future(self._prepare(path, swaps=swaps))
        try:
            while not (await asyncio.wait({loading}, timeout=LOADING_LOG_INTERVAL))[0]:
                event(logger, logging.WARNING, "a model is still being loaded", path=path[:MAX_PATH])
            entry = loading.result()
        finally:
            self.loading = None
        if self._closing.is_set():
            entry.model.translator.engine.stop(0)
            raise Draining("the server is shutting down; try again")
        return entry

    async def _prepare(self, path: str, *, swaps: bool) -> Entry[ServedModel]:
        self._metrics.models_to_load.set(1)
        try:
            entry = await run_in_thread(partial(self._list, path, swaps=swaps), "loading")
            await self._pool.load_new(entry.model)
        finally:
            self._metrics.models_to_load.set(0)
        return entry

    def _list(self, path: str, *, swaps: bool) -> Entry[ServedModel]:
        bundle = open_below(path, self._roots)
        check_fits(bundle.manifest, self._registry.catalog, swaps=swaps)
        self.loading = bundle.manifest
        return self._registry.list_model(bundle)

    def _publish(self, entry: Entry[ServedModel], instead_of: Sequence[Entry[ServedModel]]) -> None:
        self._registry.publish([entry], instead_of)
        self._metrics.changes.labels("loaded").inc()
        self._on_published()

    async def _retire(self, entry: Entry[ServedModel]) -> None:
        await self._registry.retire(entry)
        self._retired.append(entry)
        self._metrics.changes.labels("unloaded").inc()


def open_below(path: str, roots: Sequence[Path]) -> Bundle:
    """Open the bundle at a path below one of the roots, or the highest version in a folder of versions.

    Raises InvalidRequest for a path outside the roots, whether or not it exists, and UnknownModel without a bundle.
    """
    if not 0 < len(path) <= MAX_PATH or "\0" in path:
        raise InvalidRequest("path", f"path must be 1 to {MAX_PATH} characters, none of them NUL")
    folder = _resolve_below(Path(path), roots)
    if (folder / MANIFEST).is_file():
        return open_bundle(folder)
    found = all_versions(folder)
    if not found:
        raise UnknownModel(path[:128], f"{path[:128]!r}: no bundle and no version of one is there")
    return open_version(_resolve_below(folder / str(found[-1]), roots), found[-1])


def check_fits(manifest: Manifest, catalog: Catalog[Any], *, swaps: bool) -> None:
    """Raise ChangeRefused if a bundle cannot be served with the served models, or instead of one of them."""
    label = f"{manifest.name}/{manifest.version}"
    same = [entry for entry in catalog.entries if entry.name == manifest.name]
    if manifest.version in [entry.version for entry in same]:
        raise ChangeRefused(f"{label} is served already; publish a changed bundle under a new version")
    if swaps and not same:
        served = catalog.listing()
        raise ChangeRefused(f"no version of {manifest.name} is served that {label} could replace; served: {served}")
    new = Entry.of(manifest, None)
    for entry in same:
        for offered, needed in zip(new.sides, entry.sides, strict=True):
            if missing := _canonical(needed) - _canonical(offered):
                raise ChangeRefused(
                    f"{new.listing()} does not translate {', '.join(sorted(missing))}, {entry.listing()} does"
                )


def _resolve_below(path: Path, roots: Sequence[Path]) -> Path:
    """Return the path with symbolic links and .. resolved. Raises InvalidRequest if it is outside the roots."""
    if is_link_loop(path):
        raise InvalidRequest("path", "path goes through a loop of symbolic links")
    found = path.resolve()
    if not any(found.is_relative_to(root.resolve()) for root in roots):
        allowed = ", ".join(map(str, roots))
        raise InvalidRequest(
            "path",
            f"path must be below {allowed} after symbolic links and .. are resolved, got {str(path)[:128]!r}"
            f"{_hint(found, roots)}",
        )
    return found


def _hint(path: Path, roots: Sequence[Path]) -> str:
    """Return advice for a server that was started with one version of a model and is asked for another one."""
    beside = (root for root in roots if (root / MANIFEST).is_file() and path.parent == root.resolve().parent)
    root = next(beside, None)
    return "" if root is None else f"; start the server with {root.parent} to change its versions"


def _canonical(tags: Iterable[str]) -> set[str]:
    try:
        return {canonical(tag, "a language") for tag in tags}
    except InvalidRequest as error:
        raise ChangeRefused(f"the bundle's manifest: {error}") from None


def _refusal(asked: Change, error: Exception) -> RequestError:
    """Log an error in one line and return the error for the client."""
    if isinstance(error, OSError) and error.filename:
        error = ChangeRefused(f"{str(error.filename)[:MAX_PATH]}: {error.strerror}")
    if isinstance(error, LingonError):
        message = error.public_message if isinstance(error, GraphLoadError) else str(error)
        found = error if isinstance(error, RequestError) else ChangeRefused(message)
        event(logger, logging.WARNING, "a model change was refused", **asked.fields, reason=str(found))
        return found
    fault(logger, "a model change was refused", error, **asked.fields)
    return ChangeRefused(f"the model cannot be loaded ({type(error).__name__}); the server's log has the traceback")
