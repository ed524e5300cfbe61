"""The models that a server has: loaded, published in a catalog, looked after, let go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lingon.bundle import Bundle
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.inflight import InFlight
from lingon.serving.models.loading import load_translator
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import Metrics, ModelMetrics
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.runtime.failpoints import Failpoints
from lingon.serving.settings import Settings
from lingon.serving.translation.translator import Translator

LAST_WORDS = 1.0  # seconds for calls that were cut off to tell their clients
logger = logging.getLogger(__name__)


class ModelRegistry:
    """Loading happens on any thread, everything else on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics, load: Callable[..., Translator] = load_translator) -> None:
        """load: makes a model of a bundle."""
        self.catalog: Catalog[ServedModel] = Catalog([])
        self.leaving: list[Entry[ServedModel]] = []  # no request goes there any more; some may be inside
        self._settings, self._metrics, self._load = settings, metrics, load
        self._faults = Failpoints.parse(settings.failpoints) if settings.failpoints else None

    def load(self, bundle: Bundle) -> Entry[ServedModel]:
        """A model that is proven, warm and not yet published."""
        manifest = bundle.manifest
        metrics = self._metrics.model(manifest.name, manifest.version)
        try:
            served = ServedModel(self._loaded(bundle, metrics), metrics, bundle.folder)
        except BaseException:
            self._metrics.remove(metrics)
            raise
        return Entry(manifest.name, manifest.version, manifest.source_language, manifest.target_language, served)

    def _loaded(self, bundle: Bundle, metrics: ModelMetrics) -> Translator:
        settings, limits, start = self._settings, self._settings.engine_limits(), time.perf_counter()
        if self._faults is not None:
            self._faults.trigger("load")
        translator = self._load(
            bundle,
            device=settings.device,
            precision=settings.precision,
            engines=settings.engines,
            threads=settings.threads,
            shortlist=settings.shortlist,
            limits=limits,
            observer=metrics,
            faults=self._faults,
            golden=True,
            beside=bool(self.catalog.entries),
        )
        seconds = time.perf_counter() - start
        metrics.fallback.set(settings.device == "auto" and _has_fallen_back(bundle, translator.provider))
        metrics.loaded(translator.describe(), bundle.manifest.architecture, limits, seconds, translator.graph_bytes)
        event(
            logger,
            logging.INFO,
            "loaded",
            model=bundle.label,
            folder=bundle.folder,
            precision=translator.precision,
            seconds=round(seconds, 2),
            graph_bytes=translator.graph_bytes,
            state_bytes=translator.engine.state_bytes(bundle.manifest.defaults.beam_size),
        )
        return translator

    def load_all(self, bundles: Sequence[Bundle]) -> list[Entry[ServedModel]]:
        """One after the other."""
        return [self.load(bundle) for bundle in bundles]

    def publish(self, entries: Sequence[Entry[ServedModel]], instead_of: Sequence[Entry[ServedModel]] = ()) -> None:
        """Serve these, and what is served already save `instead_of`, all at once; what leaves is to be retired."""
        stay = [entry for entry in self.catalog.entries if entry not in instead_of]
        self.catalog = Catalog([*stay, *entries])
        self.leaving += instead_of

    async def retire(self, entry: Entry[ServedModel]) -> None:
        """Let the requests inside a model that leaves end, then free what it holds."""
        served, patience = entry.model, self._settings.drain_seconds
        if not await served.visitors.empty(patience):
            event(logger, logging.WARNING, "calls are cut off", model=entry.label, after_seconds=patience)
        await self._end(served)
        if not await served.visitors.empty(LAST_WORDS):
            served.visitors.dismiss()  # they write to clients who do not read, and would keep the model for ever
            await served.visitors.empty(LAST_WORDS)
        self.leaving.remove(entry)
        self._metrics.remove(served.metrics)
        event(logger, logging.INFO, "unloaded", model=entry.label)

    @property
    def watched(self) -> list[Entry[ServedModel]]:
        """The models whose engines have to live."""
        return [entry for entry in (*self.catalog.entries, *self.leaving) if not entry.model.gone]

    @property
    def names(self) -> list[str]:
        """What health calls the models that are served."""
        return sorted({f"model/{entry.name}" for entry in self.catalog.entries})

    async def stop(self) -> None:
        """Cut off whatever is still decoded."""
        for entry in self.watched:
            try:
                await self._end(entry.model)
            except Exception as error:  # the others are ended all the same
                fault(logger, "an engine was not stopped", error, model=entry.label)
                entry.model.translator.engine.abandon()

    async def _end(self, served: ServedModel) -> None:
        """End an engine for good."""
        async with served.care:
            served.gone = True
            await asyncio.to_thread(served.translator.engine.stop, 0)


def _has_fallen_back(bundle: Bundle, provider: str) -> bool:
    return provider == CPU and any(each.provider == CUDA for each in bundle.manifest.precisions.values())


@dataclass(eq=False, slots=True)
class ServedModel:
    """A model that is served, its figures, and who is inside.

    care: held while its engine is started anew or ended for good, so that neither happens amid the other
    gone: its engine was ended for good
    """

    translator: Translator
    metrics: ModelMetrics
    folder: Path
    visitors: InFlight = field(default_factory=InFlight)
    care: asyncio.Lock = field(default_factory=asyncio.Lock)
    gone: bool = False
