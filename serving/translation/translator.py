"""One served model, from messages to messages: plans texts, has the engine decode them, makes the results.

Runs on an event loop; the engine's thread answers through a Bridge.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lingon.bundle import Bundle
from lingon.errors import EngineFault, InvalidRequest, RequestError
from lingon.serving.decoding.job import Job
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.policy import EngineLimits
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import Scored
from lingon.serving.system.event_loop import TimeSlice
from lingon.serving.translation.engine_client import Asked, Flight
from lingon.serving.translation.input_processor import (
    PairPlan,
    TextPlan,
    blocks,
    check_prefix,
    check_size,
    most_characters,
    parts_of,
    plan_pair,
    target_ids,
)
from lingon.serving.translation.options import ResolvedOptions, check_alignment, choose
from lingon.serving.translation.output_processor import refused, scored
from lingon.serving.translation.request import Crowd, TextRun
from lingon.status import to_status
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

Request = pb.TranslateRequest | pb.TranslateStreamRequest
Event = tuple[int, str | pb.TextResult]
"""Of the text at this place: more of its translation, or its result."""


class Translator:
    """A model that is served: its bundle, its engine and what both allow."""

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine,
        limits: EngineLimits,
        *,
        precision: str = "",
        provider: str = "",
        graph_bytes: int = 0,
        shortlist: bool | None = None,
    ) -> None:
        """limits: those of the engine; precision, provider, graph_bytes: what it runs on, for those who ask.

        shortlist: whether one is used where a request does not say; None is where there is none
        """
        self.manifest = bundle.manifest
        self.label = bundle.label
        self.engine, self.precision, self.provider = engine, precision, provider
        self.graph_bytes = graph_bytes
        self._tokenizer = Tokenizer(*bundle.tokenizer_files())
        self._queue, self._shortlist = limits, shortlist

    def restart(self) -> None:
        """Put a new engine in the place of one that died; who asks from now on finds the new one."""
        self.engine = self.engine.restarted()

    async def translate(
        self, request: pb.TranslateRequest, deadline: float | None = None, caller: str = ""
    ) -> pb.TranslateResponse:
        """The reply to a request; deadline is on the clock of `time.monotonic`; callers take turns."""
        options = self.choose(request.options)
        results = [pb.TextResult()] * len(request.texts)
        async with aclosing(self.run(request, options, deadline, caller)) as events:
            async for index, result in events:
                assert isinstance(result, pb.TextResult)
                results[index] = result
        return pb.TranslateResponse(
            results=results,
            model=self.manifest.name,
            version=str(self.manifest.version),
            source_language_code=self.manifest.source_language,
            target_language_code=self.manifest.target_language,
            options=options.message(),
        )

    def choose(self, asked: pb.DecodingOptions) -> ResolvedOptions:
        """The options of a request with this model's defaults, checked."""
        return choose(asked, self.manifest, self._shortlist)

    def start(self, options: ResolvedOptions) -> pb.StreamStart:
        """What a stream begins with."""
        return pb.StreamStart(
            model=self.manifest.name,
            version=str(self.manifest.version),
            source_language_code=self.manifest.source_language,
            target_language_code=self.manifest.target_language,
            options=options.message(),
        )

    async def run(
        self,
        request: Request,
        options: ResolvedOptions,
        deadline: float | None = None,
        caller: str = "",
        *,
        streams: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """The results of a request as they come; with `streams`, the growth of each text before its result.

        However this generator ends, the engine lets go of the request's texts: use it within `aclosing`.
        """
        self.engine.check_texts(caller, len(request.texts))
        plans = await self.plan(request, options)
        runs = [
            TextRun(index, plan, options, self.manifest.limits, self._tokenizer)
            for index, plan in enumerate(plans)
            if isinstance(plan, TextPlan)
        ]
        crowd = Crowd(runs, Flight(self.engine, deadline, caller))
        try:
            self._check_room("texts", crowd.ask(streams=streams and options.streams))
            crowd.submit()
            for index, plan in enumerate(plans):
                if isinstance(plan, RequestError):
                    yield index, refused(plan)
            while crowd.open:
                await crowd.changed()
                for run in crowd.growing():
                    if text := run.grown():
                        yield run.index, text
                for run, result in crowd.done():
                    if text := run.grown():
                        yield run.index, text
                    yield run.index, result
        finally:
            await crowd.disperse()

    async def plan(self, request: Request, options: ResolvedOptions) -> list[TextPlan | RequestError]:
        """What is to be decoded for each text, or why it cannot be."""
        prefixes = request.target_prefixes or [""] * len(request.texts)
        if len(prefixes) != len(request.texts):
            message = f"target_prefixes must be none or one for each of {len(request.texts)} texts, got {len(prefixes)}"
            raise InvalidRequest("target_prefixes", message)
        breath = TimeSlice()
        plans: list[TextPlan | RequestError] = []
        for index, (text, prefix) in enumerate(zip(request.texts, prefixes, strict=True)):
            try:
                plans.append(await self._plan_text(text, prefix, index, options, breath))
            except InvalidRequest as error:
                plans.append(error)
        return plans

    async def score(
        self, request: pb.ScoreRequest, deadline: float | None = None, caller: str = ""
    ) -> pb.ScoreResponse:
        """The model's probability of given translations."""
        if request.return_alignment:
            check_alignment(self.manifest, "return_alignment")
        self.engine.check_texts(caller, len(request.pairs))
        plans = await self._plan_pairs(request)
        flight = Flight(self.engine, deadline, caller)
        runs = [
            plan if isinstance(plan, RequestError) else (plan, flight.score(plan.source_ids, plan.target_ids))
            for plan in plans
        ]
        asked = [run[1] for run in runs if isinstance(run, tuple)]
        self._check_room("pairs", [one.job for one in asked])
        try:
            with current().trace_jobs(
                (at, run[1].job, run[1].outcome) for at, run in enumerate(runs) if isinstance(run, tuple)
            ):
                flight.submit(asked)
            results = [await self._scored(run, aligned=request.return_alignment) for run in runs]
        finally:
            flight.abandon()
        return pb.ScoreResponse(results=results, model=self.manifest.name, version=str(self.manifest.version))

    def describe(self) -> pb.Model:
        """The model as ListModels tells it."""
        manifest, limits = self.manifest, self.manifest.limits
        return pb.Model(
            name=manifest.name,
            version=str(manifest.version),
            source_language_code=manifest.source_language,
            target_language_code=manifest.target_language,
            precision=self.precision,
            provider=self.provider,
            max_source_tokens=limits.max_source_tokens,
            max_target_tokens=limits.max_target_tokens,
            output_factor=limits.output_factor,
            output_extra=limits.output_extra,
            max_beam_size=limits.max_beam_size,
            default_options=self.choose(pb.DecodingOptions()).message(),
            has_shortlist=self._shortlist is not None,
        )

    async def _plan_text(
        self, text: str, prefix: str, index: int, options: ResolvedOptions, breath: TimeSlice
    ) -> TextPlan:
        field, limits = f"texts[{index}]", self.manifest.limits
        normalised = await self._normalised(text, field, breath, splits=options.splits)
        parts = []
        for part in parts_of(normalised, field, self._tokenizer, limits, splits=options.splits):
            parts.append(part)
            await breath.take()
        name = f"target_prefixes[{index}]"
        plan = TextPlan(tuple(parts), target_ids(prefix, name, self._tokenizer, limits.max_target_tokens - 1))
        check_prefix(limits, plan, name)
        return plan

    async def _normalised(self, text: str, field: str, breath: TimeSlice, *, splits: bool) -> str:
        limits = self.manifest.limits
        most = most_characters(self._queue.max_queue_tokens)
        check_size(text, field, limits, splits=splits, most=most)
        done = []
        for block in blocks(text, most_characters(limits.max_source_tokens)):
            done.append(normalise(block))
            await breath.take()
        return " ".join(filter(None, done))

    async def _plan_pairs(self, request: pb.ScoreRequest) -> list[PairPlan | RequestError]:
        breath, limits = TimeSlice(), self.manifest.limits
        plans: list[PairPlan | RequestError] = []
        for index, pair in enumerate(request.pairs):
            try:
                plans.append(plan_pair(pair.source, pair.target, f"pairs[{index}]", self._tokenizer, limits))
            except InvalidRequest as error:
                plans.append(error)
            await breath.take()
        return plans

    async def _scored(self, run: RequestError | tuple[PairPlan, Asked[Scored]], *, aligned: bool) -> pb.ScoreResult:
        if isinstance(run, RequestError):
            return pb.ScoreResult(status=to_status(run))
        plan, asked = run
        try:
            found = await asked.answer()
        except EngineFault as error:
            return pb.ScoreResult(status=to_status(error))
        return scored(plan, found, self._tokenizer, aligned=aligned)

    def _check_room(self, field: str, jobs: Sequence[Job]) -> None:
        """Refuse what would never find room, however empty the queue; coming back later would not help."""
        tokens = sum(len(job.source_ids) for job in jobs)
        for name, needed, most in (
            ("sentences", len(jobs), self._queue.max_queue_texts),
            ("source tokens", tokens, self._queue.max_queue_tokens),
        ):
            if needed > most:
                message = f"{field} come to {needed} {name}; a request may have {most} at most; send it in several"
                raise InvalidRequest(field, message)
