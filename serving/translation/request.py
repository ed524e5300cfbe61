"""A text while the engine works on it: its jobs, its growth, its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from lingon.bundle import Limits
from lingon.errors import EngineFault
from lingon.serving.decoding.job import Hypothesis, Job
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.detokenizer import JoinedGrowth
from lingon.serving.translation.engine_client import Asked, Flight
from lingon.serving.translation.input_processor import TextPlan, max_output
from lingon.serving.translation.options import ResolvedOptions
from lingon.serving.translation.output_processor import PartFound, refused, text_of, translated
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

Hypotheses = tuple[Hypothesis, ...]


class TextRun:
    """One text of a request."""

    def __init__(
        self, index: int, plan: TextPlan, options: ResolvedOptions, limits: Limits, tokenizer: Tokenizer
    ) -> None:
        """The text at place `index` of a request."""
        self.index = index
        self.growth: JoinedGrowth | None = None
        self._plan, self._options, self._limits, self._tokenizer = plan, options, limits, tokenizer
        self._asked: list[list[Asked[Hypotheses]]] = []  # by part; where sampling, one for each hypothesis

    def ask(self, flight: Flight, on_growth: Callable[[], None] | None = None) -> Sequence[Asked[Hypotheses]]:
        """The jobs to submit for this text; on_growth is called when there is more to take of it."""
        if on_growth is not None:
            self.growth = JoinedGrowth(self._tokenizer, len(self._plan.parts))
        self._asked = [self._ask_part(flight, place, on_growth) for place in range(len(self._plan.parts))]
        return self.asked

    @property
    def asked(self) -> list[Asked[Hypotheses]]:
        """All jobs of this text."""
        return [asked for part in self._asked for asked in part]

    def grown(self) -> str:
        """More of the text, since this was called last."""
        return self.growth.take() if self.growth else ""

    async def result(self, flight: Flight) -> pb.TextResult:
        """The result, once all is decoded; a fault in this text is its status. Raises what ends the whole request."""
        try:
            found = [await self._part(place) for place in range(len(self._asked))]
            if self._options.return_alignment:
                found = await self._aligned(found, flight)
        except EngineFault as error:
            return refused(error)
        return translated(self._plan, found, self._options, self._tokenizer)

    def _ask_part(self, flight: Flight, place: int, on_growth: Callable[[], None] | None) -> list[Asked[Hypotheses]]:
        plan, options = self._plan, self._options
        longest = max_output(self._limits, plan, place, options.max_output_tokens)
        samples = options.num_hypotheses if options.sampling else 1
        on_token = partial(self._grow, place, on_growth) if on_growth else None
        return [
            flight.decode(
                plan.parts[place].source_ids,
                options.job_options(longest, self._place(place, sample)),
                plan.prefix if place == 0 else (),
                on_token,
            )
            for sample in range(samples)
        ]

    def _place(self, part: int, sample: int) -> int:
        """Where random numbers are drawn for: a place of its own for every text, part and sample."""
        return self.index << 32 | part << 16 | sample

    def _grow(self, place: int, on_growth: Callable[[], None], token: int) -> None:
        assert self.growth is not None
        self.growth.add(place, token)
        on_growth()

    async def _part(self, place: int) -> list[PartFound]:
        answers = [await asked.answer() for asked in self._asked[place]]
        with current().phase("detokenise", self.index):
            found = [PartFound(one, text_of(self._tokenizer, one.tokens)) for answer in answers for one in answer]
        if self.growth is not None:
            self.growth.finish(place, found[0].text)
        return found

    async def _aligned(self, found: list[list[PartFound]], flight: Flight) -> list[list[PartFound]]:
        """The same with attention, by one run of the scorer for each hypothesis."""
        asked: list[list[Asked[Scored]]] = [
            [flight.score(part.source_ids, one.hypothesis.tokens, follows=True) for one in hypotheses]
            for part, hypotheses in zip(self._plan.parts, found, strict=True)
        ]
        flat = [one for part in asked for one in part]
        with current().trace_jobs((self.index, one.job, one.outcome) for one in flat):
            await flight.submit_patiently(flat)
        return [
            [PartFound(one.hypothesis, one.text, await ask.answer()) for one, ask in zip(ones, asks, strict=True)]
            for ones, asks in zip(found, asked, strict=True)
        ]


class Crowd:
    """The texts of a request until all are done, whichever comes first."""

    def __init__(self, runs: Sequence[TextRun], flight: Flight) -> None:
        self._flight = flight
        self._change = asyncio.Event()
        self._runs = runs
        self._asked: list[Asked[Hypotheses]] = []
        self._tasks: dict[asyncio.Task[pb.TextResult], TextRun] = {}

    def ask(self, *, streams: bool) -> list[Job]:
        """The jobs of all texts; with `streams`, they tell their tokens."""
        on_growth = self._change.set if streams else None
        self._asked = [asked for run in self._runs for asked in run.ask(self._flight, on_growth)]
        return [asked.job for asked in self._asked]

    def submit(self) -> None:
        """Hand all to the engine or none."""
        with current().trace_jobs((run.index, one.job, one.outcome) for run in self._runs for one in run.asked):
            self._flight.submit(self._asked)
        for run in self._runs:
            task = asyncio.create_task(run.result(self._flight))
            task.add_done_callback(lambda _: self._change.set())
            self._tasks[task] = run

    @property
    def open(self) -> bool:
        """Whether a text is not done yet."""
        return bool(self._tasks)

    async def changed(self) -> None:
        """Wait until something has grown or is done."""
        await self._change.wait()
        self._change.clear()

    def growing(self) -> list[TextRun]:
        """The texts that are not done yet."""
        return list(self._tasks.values())

    def done(self) -> list[tuple[TextRun, pb.TextResult]]:
        """The texts done since this was asked last; raises what ends the whole request."""
        return [(self._tasks.pop(task), task.result()) for task in [task for task in self._tasks if task.done()]]

    async def disperse(self) -> None:
        """Let go of whatever is not done."""
        self._flight.abandon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
