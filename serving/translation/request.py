"""A text or a pair of a request while the engine works on it: its jobs, its deltas, its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from lingon.bundle import Limits
from lingon.errors import Degenerate, EngineFault
from lingon.serving.decoding.job import DecodeJob, Hypothesis
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import AttentionChoice, Scored
from lingon.serving.system.event_loop import TimeSlice
from lingon.serving.translation.detokenizer import IncrementalDetokenizer
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.guarding import Guarding, better
from lingon.serving.translation.input_processor import PairPlan, TextPlan, max_output
from lingon.serving.translation.options import ResolvedOptions
from lingon.serving.translation.output_processor import (
    PartHypothesis,
    pair_error,
    pair_result,
    part_judgement,
    text_error,
    text_of,
    text_result,
)
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

Hypotheses = tuple[Hypothesis, ...]
Result_co = TypeVar("Result_co", covariant=True)


class RequestTask(Protocol[Result_co]):
    """One entry of a request."""

    index: int

    @property
    def pending(self) -> Sequence[PendingJob[Hypotheses] | PendingJob[Scored]]:
        """The jobs to submit."""

    async def result(self) -> Result_co:
        """Return the result when all jobs are done; a fault of this entry alone is its status.

        Raises the error that ends the whole request.
        """


class PairTask:
    """A pair to score."""

    def __init__(
        self,
        index: int,
        plan: PairPlan,
        client: EngineClient,
        tokenizer: Tokenizer,
        time_slice: TimeSlice,
        *,
        aligned: bool,
        attention: AttentionChoice,
    ) -> None:
        """time_slice: of the request; attention: the matrices that the result has."""
        self.index = index
        self._plan, self._tokenizer, self._time_slice, self._aligned = plan, tokenizer, time_slice, aligned
        self._job = client.score(plan.source_ids, plan.target_ids, attention=attention)

    @property
    def pending(self) -> Sequence[PendingJob[Scored]]:
        """See RequestTask."""
        return [self._job]

    async def result(self) -> pb.ScoreResult:
        """See RequestTask."""
        try:
            found = await self._job.answer()
        except EngineFault as error:
            return pair_error(error)
        return await self._time_slice.run(pair_result(self._plan, found, self._tokenizer, aligned=self._aligned))


class TextModel(NamedTuple):
    """What a text needs of its model."""

    limits: Limits
    tokenizer: Tokenizer
    guarding: Guarding


class TextTask:
    """A text to translate: a job for each part, or one for each part and hypothesis if the request samples."""

    def __init__(
        self,
        index: int,
        plan: TextPlan,
        client: EngineClient,
        options: ResolvedOptions,
        model: TextModel,
        time_slice: TimeSlice,
        on_growth: Callable[[TextTask], None] | None = None,
    ) -> None:
        """time_slice: of the request.

        on_growth: called on the loop when `delta` may have more text; None for a request that does not stream
        """
        self.index = index
        self._plan, self._client, self._options = plan, client, options
        self._limits, self._tokenizer, self._guarding = model
        self._time_slice, self._on_growth = time_slice, on_growth
        self._detokenizer = IncrementalDetokenizer(model.tokenizer, len(plan.parts)) if on_growth else None
        self._announced = False  # whether on_growth was called since the last `delta`
        self._jobs = [self._jobs_of(part) for part in range(len(plan.parts))]

    @property
    def pending(self) -> Sequence[PendingJob[Hypotheses]]:
        """See RequestTask."""
        return [pending for jobs in self._jobs for pending in jobs]

    def delta(self) -> str:
        """Return the text that was decoded since the last call."""
        self._announced = False
        return self._detokenizer.take() if self._detokenizer else ""

    async def result(self) -> pb.TextResult:
        """See RequestTask."""
        try:
            found = [await self._part(part) for part in range(len(self._jobs))]
            if self._options.guard == pb.GUARD_POLICY_RETRY and self._on_growth is None:
                found = await self._retried(found)
            if self._options.return_alignment:
                found = await self._aligned(found)
            guard = self._guarding.guard
            return await self._time_slice.run(text_result(self._plan, found, self._options, self._tokenizer, guard))
        except (EngineFault, Degenerate) as error:
            return text_error(error)

    def _jobs_of(self, part: int) -> list[PendingJob[Hypotheses]]:
        plan, options = self._plan, self._options
        longest = max_output(self._limits, plan, part, options.max_output_tokens)
        on_token = partial(self._add_token, part) if self._on_growth else None
        return [
            self._client.decode(
                plan.parts[part].source_ids,
                options.job_options(longest, self._stream(part, sample), part),
                plan.prefix if part == 0 else (),
                on_token,
            )
            for sample in range(options.samples)
        ]

    def _stream(self, part: int, sample: int) -> int:
        """Return the stream of random numbers of a job: another one for every text, part and sample."""
        return self.index << 32 | part << 16 | sample

    def _add_token(self, part: int, token: int) -> None:
        assert self._detokenizer is not None
        self._detokenizer.add(part, token)
        self._announce()

    def _announce(self) -> None:
        """Report that there may be more text, once until `delta` is called."""
        if self._on_growth is not None and not self._announced:
            self._announced = True
            self._on_growth(self)

    async def _part(self, part: int) -> list[PartHypothesis]:
        answers = [await pending.answer() for pending in self._jobs[part]]
        await self._time_slice.yield_if_due()
        with current().phase("detokenise", self.index):
            found = [PartHypothesis(one, text_of(self._tokenizer, one.tokens)) for answer in answers for one in answer]
        if self._detokenizer is not None:
            self._detokenizer.finish(part, found[0].text)
            if part + 1 < len(self._jobs):
                self._announce()  # the next part may have text that waits for the end of this one
        return found

    async def _retried(self, found: list[list[PartHypothesis]]) -> list[list[PartHypothesis]]:
        """Judge each part, and make another attempt at those that are degenerate; each part is judged by itself."""
        judged = []
        for place, (part,) in enumerate(found):
            judged.append(self._judged(place, part))
            await self._time_slice.yield_if_due()
        again = {place: self._attempt(place) for place, part in enumerate(judged) if _degenerate(part)}
        if again:
            with current().trace_jobs((self.index, each.job, each.outcome) for each in again.values()):
                await self._client.submit_when_possible(list(again.values()))
        for place, pending in again.items():
            (best,) = await pending.answer()
            second = self._judged(place, PartHypothesis(best, text_of(self._tokenizer, best.tokens)))
            if better(judged[place].judgement, second.judgement):
                judged[place] = replace(second, retried=True)
        return [[part] for part in judged]

    def _judged(self, place: int, part: PartHypothesis) -> PartHypothesis:
        return replace(part, judgement=part_judgement(self._plan, place, part, self._guarding.guard))

    def _attempt(self, place: int) -> PendingJob[Hypotheses]:
        """Return another attempt at the part with this index."""
        first, source = self._jobs[place][0].job, self._plan.parts[place].source_ids
        assert isinstance(first, DecodeJob)
        options = self._guarding.options(first.options, len(source), self._limits)
        return self._client.decode(source, options, first.prefix)

    async def _aligned(self, found: list[list[PartHypothesis]]) -> list[list[PartHypothesis]]:
        """Add the attention of each hypothesis, by one run of the scorer for each.

        The last token is left out: what the model attended to when it chose it depends on the tokens before it alone,
        and a translation of max_target_tokens would have one more than the scorer reads.
        """
        jobs = [
            [self._client.score(part.source_ids, one.hypothesis.tokens[:-1], follow_up=True) for one in hypotheses]
            for part, hypotheses in zip(self._plan.parts, found, strict=True)
        ]
        flat = [pending for part in jobs for pending in part]
        with current().trace_jobs((self.index, pending.job, pending.outcome) for pending in flat):
            await self._client.submit_when_possible(flat)
        return [
            [PartHypothesis(one.hypothesis, one.text, await job.answer()) for one, job in zip(ones, part, strict=True)]
            for ones, part in zip(found, jobs, strict=True)
        ]


def _degenerate(part: PartHypothesis) -> bool:
    return part.judgement is not None and part.judgement.degenerate


class TextEvents:
    """The events of a stream in the order in which they arise: a text has grown, or has its result.

    Every text reports for itself, so that a token of one text costs nothing for the others.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[TextTask | asyncio.Task[pb.TextResult]] = asyncio.Queue()
        self._results: dict[asyncio.Task[pb.TextResult], TextTask] = {}

    def grown(self, task: TextTask) -> None:
        """Report that a text has more to show."""
        self._queue.put_nowait(task)

    def watch(self, task: TextTask) -> None:
        """Wait for a text's result, whose jobs are submitted."""
        result = asyncio.create_task(task.result())
        self._results[result] = task
        result.add_done_callback(self._queue.put_nowait)

    @property
    def open(self) -> bool:
        """Whether a text has no result yet."""
        return bool(self._results)

    async def next(self) -> tuple[TextTask, pb.TextResult | None]:
        """Return the next text that has grown or, with its result, is done; raises what ends the whole request."""
        event = await self._queue.get()
        if isinstance(event, TextTask):
            return event, None
        return self._results.pop(event), event.result()

    async def cancel_all(self) -> None:
        """Stop waiting for results."""
        for result in self._results:
            result.cancel()
        if self._results:
            await asyncio.gather(*self._results, return_exceptions=True)
