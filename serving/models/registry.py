"""The models of a server: loaded, published in a catalog, drained and unloaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingon.bundle.manifest import Defaults
from lingon.bundle.store import Bundle, check_trusted, use_highest_whole
from lingon.errors import BundleError, DamagedBundle, RequestError
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.inflight import InFlight
from lingon.serving.models.loading import LoadFunction, LoadOptions, load_translator
from lingon.serving.models.memory import memory_need, report_memory
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import LoadProgress, Metrics, ModelMetrics
from lingon.serving.runtime.device import cuda_missing, expects_cuda, has_fallen_back, instruction_set_of
from lingon.serving.runtime.failpoints import Failpoints
from lingon.serving.settings import HTTP_CONNECTIONS, Settings
from lingon.serving.translation.translator import Translator

ABORT_SECONDS = 1.0  # seconds for cancelled calls to send their status
logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class ServedModel:
    """A served model: its translator, its metrics, its requests in flight, and the life of its engine."""

    translator: Translator
    metrics: ModelMetrics
    folder: Path
    in_flight: InFlight = field(default_factory=InFlight)
    stopped: bool = False  # whether the engine ended permanently
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while the engine is restarted or stopped

    @asynccontextmanager
    async def unless_stopped(self) -> AsyncIterator[bool]:
        """Prevent a stop of the engine inside the block. Yields False if it is already stopped."""
        async with self._lock:
            yield not self.stopped

    async def stop(self) -> None:
        """End the engine permanently. Its jobs end with Cancelled."""
        async with self._lock:
            self.stopped = True
            await asyncio.to_thread(self.translator.engine.stop, 0)


class ModelRegistry:
    """The models that are served or drained. `load` runs on any thread, everything else on the event loop."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        load: LoadFunction = load_translator,
        gpu_expected: Callable[[], bool] = expects_cuda,
    ) -> None:
        """load: makes the translator of a bundle; gpu_expected: whether a model on the CPU may be a fallback."""
        self.catalog: Catalog[ServedModel] = Catalog([], settings.pivot_language or "", settings.preferred_models)
        self.draining: list[Entry[ServedModel]] = []  # unpublished; requests may be in flight
        self._settings, self._metrics, self._load, self._gpu_expected = settings, metrics, load, gpu_expected
        self._faults = Failpoints.parse(settings.failpoints) if settings.failpoints else None
        self.progress: LoadProgress | None = None  # progress of the current or the last load
        self._left_out: dict[str, int] = {}  # by name of a model: versions that were skipped at the start

    def load(self, bundle: Bundle) -> Entry[ServedModel]:
        """Return a model that is trusted, has passed its golden sentences and is warm, but is not published."""
        self._metrics.models_to_load.set(1)
        try:
            return self._load_next(bundle)
        finally:
            self._metrics.models_to_load.set(0)

    def load_all(self, folders: Sequence[Path]) -> list[Entry[ServedModel]]:
        """Load the highest complete version of each model in the folders, one after the other; see `load`."""
        self._metrics.models_to_load.set(len(folders))
        try:
            return [self._load_highest_whole(folder) for folder in folders]
        finally:
            self._metrics.models_to_load.set(0)

    def _load_highest_whole(self, folder: Path) -> Entry[ServedModel]:
        left_out: list[DamagedBundle] = []

        def leave_out(error: DamagedBundle) -> None:
            event(logger, logging.ERROR, "a version is not whole and is left out", folder=folder, reason=str(error))
            left_out.append(error)

        entry = use_highest_whole(folder, self._load_next, leave_out)
        self._count_left_out(entry.name, len(left_out))
        return entry

    def _count_left_out(self, name: str, versions: int) -> None:
        self._left_out[name] = versions
        self._metrics.versions_left_out.set(sum(self._left_out.values()))

    def _check_trusted(self, bundle: Bundle) -> None:
        if self._settings.trust is not None:
            try:
                check_trusted(bundle, self._settings.trust)
            except BundleError:
                bundle.verify()  # a bundle that is still being copied gets the error of its missing files instead
                raise

    def _load_next(self, bundle: Bundle) -> Entry[ServedModel]:
        manifest = bundle.manifest
        self._check_trusted(bundle)
        metrics = self._metrics.model(manifest.name, manifest.version)
        progress = self.progress = LoadProgress(bundle.label)
        metrics.loading(progress, self._settings.engine_limits())
        try:
            served = ServedModel(self._loaded(bundle, metrics, progress), metrics, bundle.folder)
        except BaseException:
            progress.fail()
            self._metrics.forget(metrics)
            raise
        self._metrics.models_to_load.dec()
        return Entry.of(manifest, served)

    def _loaded(self, bundle: Bundle, metrics: ModelMetrics, progress: LoadProgress) -> Translator:
        settings, limits = self._settings, self._settings.engine_limits()
        if self._faults is not None:
            self._faults.trigger("load")
        options = LoadOptions(
            device=settings.device,
            precision=settings.precision,
            engines=settings.engines,
            threads=settings.threads,
            shortlist=settings.shortlist,
            cuda_graphs=settings.cuda_graphs,
            limits=limits,
            observer=metrics,
            failpoints=self._faults,
            golden=True,
            low_priority=bool(self.catalog.entries),
            on_phase=progress.begin,
        )
        translator = self._load(bundle, options)
        fallback = has_fallen_back(
            bundle, translator.provider, settings.device, settings.precision, expects_cuda=self._gpu_expected()
        )
        metrics.fallback.set(fallback)
        if fallback:
            event(logger, logging.WARNING, "falls back to the CPU", model=bundle.label, reason=cuda_missing())
        instructions = instruction_set_of(translator.precision)
        metrics.loaded(translator.describe(), bundle.manifest.architecture, translator.graph_bytes, instructions)
        progress.end(
            folder=bundle.folder,
            manifest_sha256=bundle.manifest_digest,
            precision=translator.precision,
            **({"instruction_set": instructions} if instructions else {}),
            graph_bytes=translator.graph_bytes,
            state_bytes=translator.engine.state_bytes,
        )
        return translator

    def publish(self, entries: Sequence[Entry[ServedModel]], instead_of: Sequence[Entry[ServedModel]] = ()) -> None:
        """Serve these models and the present ones except `instead_of`, which the caller must retire."""
        kept = [entry for entry in self.catalog.entries if entry not in instead_of]
        if self.catalog.entries:  # after the start, a skipped version matters until its model is changed
            for entry in entries:
                self._count_left_out(entry.name, 0)
        self.catalog = self.catalog.replaced([*kept, *entries])
        self.draining += instead_of
        self._report_memory()

    def _report_memory(self) -> None:
        translators = [entry.model.translator for entry in self.catalog.entries]
        settings = self._settings
        connections = 0 if settings.http_port is None else HTTP_CONNECTIONS
        need = memory_need(translators, settings.max_message_bytes, http_connections=connections)
        report_memory(need, self._metrics)

    async def retire(self, entry: Entry[ServedModel]) -> None:
        """Wait until the requests of an unpublished model end, then free its memory."""
        served, patience = entry.model, self._settings.drain_seconds
        if not await served.in_flight.wait_until_idle(patience):
            event(logger, logging.WARNING, "calls are cut off", model=entry.label, after_seconds=patience)
        await served.stop()
        if not await served.in_flight.wait_until_idle(ABORT_SECONDS):
            # They write to clients that do not read, and would keep the model in memory without end.
            served.in_flight.cancel_all()
            await served.in_flight.wait_until_idle(ABORT_SECONDS)
        self.draining.remove(entry)
        self._metrics.remove(served.metrics)
        if self.catalog.entries:
            self._report_memory()  # its memory is free now
        event(logger, logging.INFO, "unloaded", model=entry.label)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no request is in flight in any model, for at most so many seconds, and return whether none is."""
        end = time.monotonic() + seconds
        for entry in (*self.catalog.entries, *self.draining):
            if not await entry.model.in_flight.wait_until_idle(max(end - time.monotonic(), 0.0)):
                return False
        return True

    def defaults_of(self, request: Any) -> list[Defaults]:
        """Return the default options of each model that serves a request, or general ones if no model does."""
        try:
            found = self.catalog.route(request.model, request.source_language_code, request.target_language_code)
        except RequestError:
            return [Defaults()]
        return [each.model.translator.manifest.defaults for each in found]

    @property
    def running(self) -> list[Entry[ServedModel]]:
        """The models with engines that must be alive."""
        return [entry for entry in (*self.catalog.entries, *self.draining) if not entry.model.stopped]

    @property
    def names(self) -> list[str]:
        """The names of the served models and of their versions."""
        return [name for entry in self.catalog.entries for name in (entry.name, entry.label)]

    async def stop(self) -> None:
        """Stop all engines. The requests in flight end."""
        for entry in self.running:
            try:
                await entry.model.stop()
            except Exception as error:  # one error must not keep the other engines running
                fault(logger, "an engine was not stopped", error, model=entry.label)
                entry.model.translator.engine.fail_all()
