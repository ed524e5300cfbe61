"""The gRPC service: it admits a request, finds its model, and passes it to the model's Translator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from functools import partial

from lingon.bundle.store import Bundle
from lingon.errors import BundleError
from lingon.serving.auth.callers import caller_of
from lingon.serving.event_loop import TimeSlice
from lingon.serving.guard import profiles_of
from lingon.serving.models.catalog import Catalog, Selected
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.models.pool import ModelPool
from lingon.serving.models.registry import ServedModel
from lingon.serving.observability.logs import event
from lingon.serving.observability.metrics import Metrics, TextOutcomes
from lingon.serving.observability.tracing import current
from lingon.serving.rpc.calls import Context, check_count, deadline_of, is_late
from lingon.serving.rpc.live import LiveCalls
from lingon.serving.translation.detection import Detector
from lingon.serving.translation.memories import MemorySources
from lingon.serving.translation.pivot import Hop, joined
from lingon.serving.translation.terms import NOTHING_STORED, CallerStores, TermSources
from lingon.serving.translation.translator import stream_message
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)
Request = pb.TranslateRequest | pb.TranslateStreamRequest | pb.ScoreRequest


class TranslationService(pb_grpc.TranslationServiceServicer):
    """The methods of TranslationService, available while the gate is open."""

    def __init__(
        self,
        gate: AdmissionGate,
        metrics: Metrics,
        max_texts: int,
        catalog: Callable[[], Catalog[ServedModel]],
        pool: ModelPool,
        glossaries: TermSources = NOTHING_STORED.glossaries,
        memories: MemorySources = NOTHING_STORED.memories,
        live: LiveCalls | None = None,
    ) -> None:
        """max_texts: texts or pairs of one request; catalog: returns the models that are served now.

        pool: loads those of them that are cold; glossaries, memories: that the server keeps
        live: translates for speakers; None for the default limits
        """
        self._live = live or LiveCalls(gate, metrics, catalog, pool)
        self._glossaries, self._memories = glossaries, memories
        self._gate, self._metrics, self._max_texts, self._catalog, self._pool = gate, metrics, max_texts, catalog, pool
        self._detected: tuple[Catalog[ServedModel], Detector] | None = None  # a catalog and its detector

    async def Translate(self, request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
        async with self._admitted(request, "texts", len(request.texts), context) as (hops, texts):
            translator, answered = joined(hops)
            caller, stores = caller_of(context), self._stores(context)
            response = await translator.translate(request, deadline_of(context), caller, stores)
            answered(response.results)
            texts.ended([result.status.code for result in response.results])
            return response

    async def TranslateStream(
        self, request: pb.TranslateStreamRequest, context: Context
    ) -> AsyncIterator[pb.TranslateStreamResponse]:
        async with self._admitted(request, "texts", len(request.texts), context) as (hops, texts):
            translator, answered = joined(hops)
            options = translator.resolve(request.options, request.text)
            stores = self._stores(context)
            terms = await translator.terms(request, options, stores)
            memories = await translator.memories(request, options, stores)
            yield pb.TranslateStreamResponse(start=translator.start(options))
            stream = translator.stream(request, options, deadline_of(context), caller_of(context), terms, memories)
            async with aclosing(stream) as events:
                async for event in events:
                    message = stream_message(event)
                    if message.HasField("done"):
                        answered([message.done.result])
                        texts.ended([message.done.result.status.code])
                    yield message

    async def TranslateLive(
        self, requests: AsyncIterator[pb.TranslateLiveRequest], context: Context
    ) -> AsyncIterator[pb.TranslateLiveResponse]:
        async with aclosing(self._live.translate(requests, context, self._stores(context))) as replies:
            async for reply in replies:
                yield reply

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        async with self._admitted(request, "pairs", len(request.pairs), context) as (hops, texts):
            response = await hops[0].translator.score(request, deadline_of(context), caller_of(context))
            texts.ended([result.status.code for result in response.results])
            return response

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        self._gate.check()
        models = [entry.model.describe() for entry in self._catalog().entries]
        pivots = self._catalog().pivots
        return pb.ListModelsResponse(
            models=models,
            max_texts=self._max_texts,
            pivot_language_code=next(iter(pivots), ""),
            pivot_language_codes=pivots,
        )

    async def DetectLanguages(self, request: pb.DetectLanguagesRequest, context: Context) -> pb.DetectLanguagesResponse:
        self._gate.check()
        check_count("texts", len(request.texts), self._max_texts)
        detector = await self._detector()
        return await detector.detect_all(request, TimeSlice(caller_of(context)))

    async def _detector(self) -> Detector:
        """Return the detector of the languages of the models that are served now, cold ones too."""
        catalog = self._catalog()
        if self._detected is None or self._detected[0] is not catalog:
            profiles = await asyncio.to_thread(_profiles, [entry.model.bundle for entry in catalog.entries])
            self._detected = catalog, Detector(profiles, catalog.language_codes())
        return self._detected[1]

    def _stores(self, context: Context) -> CallerStores:
        """Return what the server keeps for the caller of a call."""
        return CallerStores(caller_of(context), self._glossaries, self._memories)

    @asynccontextmanager
    async def _admitted(
        self, request: Request, field: str, count: int, context: Context
    ) -> AsyncIterator[tuple[Sequence[Hop], TextOutcomes]]:
        """Admit a request. Yields its model, which stays loaded inside the block, and the counter of its texts.

        A language pair without a model has two models, see `Catalog.route`.
        """
        with self._metrics.count_texts(count, partial(is_late, context)) as texts:
            self._gate.check()
            check_count(field, count, self._max_texts)
            wanted = request.model, request.source_language_code, request.target_language_code
            catalog = self._catalog()
            found = (catalog.find(*wanted),) if isinstance(request, pb.ScoreRequest) else catalog.route(*wanted)
            models = [each.model for each in found]
            current().about(texts=count, model="+".join(model.label for model in models))
            with ExitStack() as kept:
                for model in models:
                    kept.enter_context(model.in_flight)  # from here on it is not unloaded
                if not self._pool.touch(models):
                    await self._pool.load_all(models, deadline_of(context))
                yield [_hop(each) for each in found], texts


def _profiles(bundles: Iterable[Bundle]) -> list[tuple[str, bytes]]:
    """Return the languages of bundles with their profiles, each language once. It reads files of the bundles."""
    found: dict[str, bytes] = {}
    for bundle in bundles:
        pair = bundle.manifest.source_language, bundle.manifest.target_language
        if found.keys() >= {*pair}:
            continue
        try:
            profiles = profiles_of(bundle) or ()
        except BundleError as error:  # of a model that is not loaded, or whose file was changed later
            event(logger, logging.WARNING, "a bundle's profiles are left out", model=bundle.label, reason=str(error))
            continue
        for tag, content in zip(pair, profiles, strict=False):
            found.setdefault(tag, content)
    return list(found.items())


def _hop(found: Selected[ServedModel]) -> Hop:
    return Hop(found.model.translator.for_pair(found.source, found.target), found.model.metrics.answered)
