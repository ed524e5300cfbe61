"""The models that a server has: loaded, published in a catalog, looked after, let go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from lingon.bundle import Bundle
from serving.catalog import Catalog, Entry
from serving.faults import Faults
from serving.loading import load_translator
from serving.logs import event
from serving.metrics import Metrics
from serving.onnx_runner import CPU, CUDA
from serving.service import Served
from serving.settings import Settings
from serving.translator import Translator

logger = logging.getLogger(__name__)


class Fleet:
    """Loading happens on any thread, everything else on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics, load: Callable[..., Translator] = load_translator) -> None:
        """load: makes a model of a bundle."""
        self.catalog: Catalog[Served] = Catalog([])
        self._settings, self._metrics, self._load = settings, metrics, load
        self._faults = Faults.parse(settings.failpoints) if settings.failpoints else None

    def load(self, bundle: Bundle) -> Entry[Served]:
        """A model that is warm and not yet published."""
        manifest, settings, start = bundle.manifest, self._settings, time.perf_counter()
        metrics, limits = self._metrics.model(manifest.name, manifest.version), settings.engine_limits()
        if self._faults is not None:
            self._faults.reach("load")
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
        )
        seconds = time.perf_counter() - start
        metrics.fallback.set(settings.device == "auto" and _has_fallen_back(bundle, translator.provider))
        metrics.loaded(translator.describe(), manifest.architecture, limits, seconds, translator.graph_bytes)
        event(
            logger,
            logging.INFO,
            "loaded",
            model=bundle.label,
            folder=bundle.folder,
            precision=translator.precision,
            seconds=round(seconds, 2),
            graph_bytes=translator.graph_bytes,
            state_bytes=translator.engine.state_bytes(manifest.defaults.beam_size),
        )
        served = Served(translator, metrics)
        return Entry(manifest.name, manifest.version, manifest.source_language, manifest.target_language, served)

    def load_all(self, bundles: Sequence[Bundle]) -> list[Entry[Served]]:
        """One after the other."""
        return [self.load(bundle) for bundle in bundles]

    def publish(self, entries: Sequence[Entry[Served]]) -> None:
        """Serve these, and what is served already."""
        self.catalog = Catalog([*self.catalog.entries, *entries])

    async def stop(self) -> None:
        """Cut off whatever is still decoded."""
        for entry in self.catalog.entries:
            await asyncio.to_thread(entry.model.translator.engine.stop, 0)


def _has_fallen_back(bundle: Bundle, provider: str) -> bool:
    return provider == CPU and any(each.provider == CUDA for each in bundle.manifest.precisions.values())
