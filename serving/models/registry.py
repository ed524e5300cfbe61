"""The models of a server: listed, loaded, published in a catalog, drained and unloaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lingon.bundle.store import Bundle, check_trusted, use_highest_whole
from lingon.errors import BundleError, DamagedBundle, RequestError, SettingsError, first_of
from lingon.serving.engine.cost import UNKNOWN_MODEL, ChargedModel
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.inflight import InFlight
from lingon.serving.models.loading import LoadFunction, LoadOptions, list_bundle, load_translator
from lingon.serving.models.memory import MIB, memory_need, report_memory
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import LoadProgress, Metrics, ModelMetrics
from lingon.serving.runtime.device import cuda_missing, expects_cuda, has_fallen_back, instruction_set_of
from lingon.serving.runtime.failpoints import Failpoints
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.choice import SecondChoice
from lingon.serving.second.second_translator import SecondBounds, SecondTranslator
from lingon.serving.settings import HTTP_CONNECTIONS, Settings
from lingon.serving.translation.cache import TranslationCache
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb

ABORT_SECONDS = 1.0  # seconds for cancelled calls to send their status
MOST_NAMED = 5  # models in a message
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a model has while it is loaded."""

    translator: Translator
    metrics: ModelMetrics
    digest: str = ""  # of the manifest


@dataclass(eq=False, slots=True)
class ServedModel:
    """A model of the catalog: its bundle, its requests in flight and, while it is loaded, its translator and metrics.

    A model without a translator is cold. `lingon.serving.models.pool` loads it for the first request.

    description: the model in the form of ListModels, while it is cold
    memory_bytes: memory that it takes while it is loaded, see `lingon.serving.models.loading.Listing`
    pinned: whether it stays loaded
    last_use: number of the latest request; a higher number is later
    """

    bundle: Bundle
    description: pb.Model
    memory_bytes: int = 0
    pinned: bool = False
    last_use: int = 0
    in_flight: InFlight = field(default_factory=InFlight)
    stopped: bool = False  # whether the engine ended permanently
    _loaded: Loaded | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while the engine is restarted or stopped

    @property
    def label(self) -> str:
        """Name and version, as in "en-de/1"."""
        return self.bundle.label

    @property
    def folder(self) -> Path:
        return self.bundle.folder

    @property
    def charged(self) -> ChargedModel:
        """The model as quotas charge it. Whether its steps say where they look is known once it is loaded."""
        attends = self._loaded is not None and self._loaded.translator.engine.steps_attend
        return ChargedModel(self.bundle.manifest.defaults, attends)

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    @property
    def loaded(self) -> Loaded | None:
        """What a loaded model has."""
        return self._loaded

    @property
    def translator(self) -> Translator:
        """The translator of a loaded model."""
        assert self._loaded is not None, f"{self.label} is cold"
        return self._loaded.translator

    @property
    def metrics(self) -> ModelMetrics:
        """The metrics of a loaded model."""
        assert self._loaded is not None, f"{self.label} is cold"
        return self._loaded.metrics

    def describe(self) -> pb.Model:
        """Return the model in the form of ListModels."""
        return self.description if self._loaded is None else self._loaded.translator.describe()

    def become_loaded(self, loaded: Loaded) -> None:
        """Serve with a translator from now on."""
        self._loaded = loaded

    @asynccontextmanager
    async def unless_stopped(self) -> AsyncIterator[bool]:
        """Prevent a stop of the engine inside the block. Yields False if it is already stopped, or cold."""
        async with self._lock:
            yield self.is_loaded and not self.stopped

    async def stop(self) -> None:
        """End the engine permanently. Its jobs end with Cancelled."""
        async with self._lock:
            self.stopped = True
            if self._loaded is not None:
                await asyncio.to_thread(self._loaded.translator.engine.stop, 0)

    async def become_cold(self, *, while_used: bool = False) -> Loaded | None:
        """End the engine of a model and return what was loaded, or None if requests are in flight or it is cold.

        Requests from now on find a cold model.

        while_used: whether requests in flight end with Cancelled instead
        """
        async with self._lock:
            if (self.in_flight.count and not while_used) or self._loaded is None:
                return None
            loaded, self._loaded = self._loaded, None
            await asyncio.to_thread(loaded.translator.engine.stop, 0)
            return loaded


class ModelRegistry:
    """The models that are served or drained. `load` runs on any thread, everything else on the event loop."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        load: LoadFunction = load_translator,
        gpu_expected: Callable[[], bool] = expects_cuda,
        second_hourly: Callable[[str], int | None] = lambda caller: None,
    ) -> None:
        """load: makes the translator of a bundle; gpu_expected: whether a model on the CPU may be a fallback.

        second_hourly: returns how many sentences of a caller the second translator gets in an hour, None for the
            setting
        """
        self.catalog: Catalog[ServedModel] = Catalog([], settings.pivots, settings.preferred_models)
        self.draining: list[Entry[ServedModel]] = []  # unpublished; requests may be in flight
        self._settings, self._metrics, self._load, self._gpu_expected = settings, metrics, load, gpu_expected
        self._cache, self._second = _cache_of(settings, metrics), _second_of(settings, metrics, second_hourly)
        self._faults = Failpoints.parse(settings.failpoints) if settings.failpoints else None
        self.progress: LoadProgress | None = None  # progress of the current or the last load
        self._left_out: dict[str, int] = {}  # by name of a model: versions that were skipped at the start
        self._proven: set[str] = set()  # digests of the manifests of bundles that passed all checks of a load on demand
        self._pinned_bytes = 0  # memory of the pinned models that were listed at the start

    def load(self, bundle: Bundle) -> Entry[ServedModel]:
        """Return a model that is trusted, has passed its golden sentences and is warm, but is not published."""
        self._metrics.models_to_load.set(1)
        try:
            return self._load_next(bundle)
        finally:
            self._metrics.models_to_load.set(0)

    def load_all(self, folders: Sequence[Path]) -> list[Entry[ServedModel]]:
        """Load the highest complete version of each model in the folders, one after the other; see `load`.

        With a bound of the memory of models, only pinned models are loaded. The others are listed. Raises SettingsError
        if the pinned models exceed the bound, or if one of them is not there.
        """
        self._metrics.models_to_load.set(len(folders))
        try:
            entries = [self._load_highest_whole(folder) for folder in folders]
        finally:
            self._metrics.models_to_load.set(0)
        missing = set(self._settings.pinned_models) - {entry.name for entry in entries}
        if missing:
            known = first_of([entry.name for entry in entries], MOST_NAMED)
            raise SettingsError(f"pinned_models: no model is named {min(missing)}; there are {known}")
        return entries

    def _load_highest_whole(self, folder: Path) -> Entry[ServedModel]:
        left_out: list[DamagedBundle] = []

        def leave_out(error: DamagedBundle) -> None:
            event(logger, logging.ERROR, "a version is not whole and is left out", folder=folder, reason=str(error))
            left_out.append(error)

        entry = use_highest_whole(folder, self._load_or_list, leave_out)
        self._count_left_out(entry.name, len(left_out))
        return entry

    def _load_or_list(self, bundle: Bundle) -> Entry[ServedModel]:
        if self._settings.model_memory is None:
            return self._load_next(bundle)
        if bundle.manifest.name not in self._settings.pinned_models:
            self._metrics.models_to_load.dec()
            return self.list_model(bundle)
        self._pinned_bytes += self.list_model(bundle).model.memory_bytes
        if self._pinned_bytes > self._settings.model_memory * MIB:
            raise SettingsError(
                f"model_memory: the pinned models need {self._pinned_bytes / MIB:.0f} MiB up to {bundle.label}, the "
                f"bound is {self._settings.model_memory} MiB"
            )
        return self._load_next(bundle)

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

    def list_model(self, bundle: Bundle) -> Entry[ServedModel]:
        """Return a cold model that is trusted. Only its manifest is read."""
        self._check_trusted(bundle)
        listing = list_bundle(bundle, self._load_options())
        pinned = bundle.manifest.name in self._settings.pinned_models
        model = ServedModel(bundle, listing.description, listing.memory_bytes, pinned=pinned)
        return Entry.of(bundle.manifest, model)

    def _load_next(self, bundle: Bundle) -> Entry[ServedModel]:
        entry = self.list_model(bundle)
        entry.model.become_loaded(self.load_listed(bundle))
        self._metrics.models_to_load.dec()
        return entry

    def load_listed(self, bundle: Bundle, *, one_thread: bool = False) -> Loaded:
        """Load a bundle, which must be trusted, check its golden sentences and warm it up. Runs on any thread.

        one_thread: see LoadOptions
        """
        self._check_trusted(bundle)  # the file may have changed since the model was listed
        manifest = bundle.manifest
        metrics = self._metrics.model(manifest.name, manifest.version)
        progress = self.progress = LoadProgress(bundle.label)
        metrics.loading(progress, self._settings.engine_limits())
        try:
            translator = self._loaded(bundle, metrics, progress, one_thread=one_thread)
            loaded = Loaded(translator, metrics, bundle.manifest_digest)
        except BaseException:
            progress.fail()
            self._metrics.forget(metrics)
            raise
        return loaded

    def complete(self, loaded: Loaded) -> Iterator[bool]:
        """End a load on demand, see `LoadOptions.on_demand`, in several parts, and yield True between them.

        Runs on any thread. Raises the errors of a load.
        """
        yield from loaded.translator.complete()
        self._proven.add(loaded.digest)

    def _load_options(self) -> LoadOptions:
        settings = self._settings
        return LoadOptions(
            device=settings.device,
            precision=settings.precision,
            engines=settings.engines,
            threads=settings.threads,
            shortlist=settings.shortlist,
            cuda_graphs=settings.cuda_graphs,
            limits=settings.engine_limits(),
            failpoints=self._faults,
            golden=True,
        )

    def _loaded(self, bundle: Bundle, metrics: ModelMetrics, progress: LoadProgress, *, one_thread: bool) -> Translator:
        settings = self._settings
        if self._faults is not None:
            self._faults.trigger("load")
        on_demand = settings.model_memory is not None
        options = replace(
            self._load_options(),
            observer=metrics,
            low_priority=self._serves_others,
            one_thread=one_thread,
            cache=self._cache,
            second=self._second,
            on_demand=on_demand,
            proven=on_demand and bundle.manifest_digest in self._proven,
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

    @property
    def _serves_others(self) -> bool:
        """Whether a model is served, to which a load must leave the cores."""
        return any(entry.model.is_loaded for entry in self.catalog.entries)

    def publish(self, entries: Sequence[Entry[ServedModel]], instead_of: Sequence[Entry[ServedModel]] = ()) -> None:
        """Serve these models and the present ones except `instead_of`, which the caller must retire."""
        kept = [entry for entry in self.catalog.entries if entry not in instead_of]
        if self.catalog.entries:  # after the start, a skipped version matters until its model is changed
            for entry in entries:
                self._count_left_out(entry.name, 0)
        self.catalog = self.catalog.replaced([*kept, *entries])
        self.draining += instead_of
        self.count_states()
        self._report_memory()

    def _report_memory(self) -> None:
        translators = [entry.model.translator for entry in self.catalog.entries if entry.model.is_loaded]
        settings = self._settings
        connections = 0 if settings.http_port is None else HTTP_CONNECTIONS
        need = memory_need(
            translators,
            settings.max_message_bytes,
            http_connections=connections,
            keeps_glossaries=settings.data_dir is not None,
        )
        report_memory(need, self._metrics)

    @property
    def all_loaded(self) -> bool:
        """Whether every served model has an engine."""
        return all(entry.model.is_loaded for entry in self.catalog.entries)

    def count_states(self, loading: int = 0) -> None:
        """Set the gauges of the models by state, and of the memory of those that are loaded.

        loading: models that are being loaded for requests
        """
        models = [entry.model for entry in (*self.catalog.entries, *self.draining)]
        loaded = [model for model in models if model.is_loaded]
        counts = {"loaded": len(loaded), "loading": loading, "cold": len(models) - len(loaded) - loading}
        for state, number in counts.items():
            self._metrics.models.labels(state).set(number)
        self._metrics.model_memory.set(sum(model.memory_bytes for model in loaded))

    async def retire(self, entry: Entry[ServedModel]) -> None:
        """Wait until the requests of an unpublished model end, then free its memory."""
        served, patience = entry.model, self._settings.drain_seconds
        if not await served.in_flight.wait_until_idle(patience):
            event(logger, logging.WARNING, "calls are cut off", model=entry.label, after_seconds=patience)
        await served.stop()  # one that is cold is not loaded any more
        if not await served.in_flight.wait_until_idle(ABORT_SECONDS):
            # They write to clients that do not read, and would keep the model in memory without end.
            served.in_flight.cancel_all()
            await served.in_flight.wait_until_idle(ABORT_SECONDS)
        self.draining.remove(entry)
        if self._cache is not None:
            self._cache.drop(entry.label)
        if served.is_loaded:
            self._metrics.remove(served.metrics)
        else:
            self._metrics.remove_cold(entry.name, entry.version)
        self.count_states()
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

    def charged_models(self, request: Any) -> list[ChargedModel]:
        """Return each model that serves a request as quotas charge it, or an unknown one if no model does."""
        try:
            found = self.catalog.route(request.model, request.source_language_code, request.target_language_code)
        except RequestError:
            return [UNKNOWN_MODEL]
        return [each.model.charged for each in found]

    @property
    def running(self) -> list[Entry[ServedModel]]:
        """The models with engines that must be alive."""
        known = (*self.catalog.entries, *self.draining)
        return [entry for entry in known if entry.model.is_loaded and not entry.model.stopped]

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
        if self._second is not None:
            await self._second.close()


def _second_of(
    settings: Settings, metrics: Metrics, own_hourly: Callable[[str], int | None]
) -> SecondTranslator | None:
    """Return the second translator of all models, which counts in the metrics, or None if the settings have none.

    own_hourly: see SecondTranslator

    Raises SettingsError for a key that cannot be used, and LingonError if the extra `second` is not installed.
    """
    if settings.second_url is None:
        return None
    server = ChatServer(
        settings.second_url, settings.second_model, settings.second_key, connections=settings.second_concurrency
    )
    bounds = SecondBounds(
        seconds=settings.second_timeout,
        at_once=settings.second_concurrency,
        hourly=settings.second_hourly,
        total_hourly=settings.second_total_hourly,
    )
    choice = SecondChoice(settings.second_below, settings.second_sentences, settings.second_characters)
    return SecondTranslator(
        server,
        choice,
        bounds,
        on_end=metrics.second_ended,
        on_answer=metrics.second_duration.observe,
        on_circuit=metrics.second_suspended.set,
        own_hourly=own_hourly,
    )


def _cache_of(settings: Settings, metrics: Metrics) -> TranslationCache | None:
    """Return the cache of all models, which counts in the metrics, or None if the settings have none."""
    if settings.cache is None:
        return None
    hits, misses = metrics.cache_lookups.labels("hit"), metrics.cache_lookups.labels("miss")

    def count_lookup(found: int, missed: int) -> None:
        hits.inc(found)
        misses.inc(missed)

    def count_change(size: int, evicted: int) -> None:
        metrics.cache_bytes.set(size)
        metrics.cache_evictions.inc(evicted)

    return TranslationCache(settings.cache, on_lookup=count_lookup, on_change=count_change)
