"""A text or a pair of a request during the work of the engine: its jobs, its deltas, its result."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from lingon.errors import Degenerate, EngineFault, Expired, RequestError
from lingon.segments.sentence import Means
from lingon.segments.stand_ins import lacks_figures
from lingon.segments.term_steps import satisfied
from lingon.serving.decoding.job import DecodeJob, Hypotheses, Hypothesis, Options, PrefixBias
from lingon.serving.event_loop import TimeSlice
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import AttentionChoice, Scored
from lingon.serving.translation.attention import covering_tokens, with_coverage
from lingon.serving.translation.detokenizer import IncrementalDetokenizer
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.options import Format, ResolvedOptions
from lingon.serving.translation.plans import PairPlan, Part, Steps, TextPlan, max_output, text_of, written
from lingon.serving.translation.replies import (
    Judged,
    PartHypothesis,
    judge_parts,
    pair_error,
    pair_result,
    pair_without_source,
    part_judgement,
    text_error,
    text_result,
    weights_of,
)
from lingon.serving.translation.scored_pairs import attention_of
from lingon.serving.translation.second_opinions import RequestSecond, SecondOpinions
from lingon.serving.translation.steps import PartPosition, SentenceTask, TextModel, better
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

Result_co = TypeVar("Result_co", covariant=True)


class RequestTask(Protocol[Result_co]):
    """One entry of a request."""

    index: int

    @property
    def pending(self) -> Sequence[PendingJob[Hypotheses] | PendingJob[Scored]]:
        """The jobs to submit."""

    async def result(self) -> Result_co:
        """Return the result when all jobs are done. A fault of this entry alone is its status.

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
        """time_slice: time slice of the request; attention: the matrices in the result."""
        self.index = index
        self._plan, self._tokenizer, self._time_slice, self._aligned = plan, tokenizer, time_slice, aligned
        self._job = client.score(plan.source_ids, plan.target_ids, attention=attention) if plan.source_ids else None

    @property
    def pending(self) -> Sequence[PendingJob[Scored]]:
        return [] if self._job is None else [self._job]

    async def result(self) -> pb.ScoreResult:
        if self._job is None:
            return pair_without_source()
        try:
            found = await self._job.answer()
        except EngineFault as error:
            return pair_error(error)
        return await self._time_slice.run(pair_result(self._plan, found, self._tokenizer, aligned=self._aligned))


SETTLED = frozenset({pb.SECOND_RESULT_TAKEN, pb.SECOND_RESULT_REJECTED})
"""What the second translator would do for the same sentence again, so that the result may be kept."""

_LETTER = re.compile(r"\w")
_NOT_DECODED = Hypothesis((), (), 0.0, finished=True)  # of a part whose translation is given


class TextTask:
    """A text to translate, with a job for each part, or for each part and hypothesis if the request samples.

    If the request wants alternatives, the first part has a job for each.

    settled: whether the result is the only possible one; False if another attempt failed, for example because the queue
        was full, so that the first one stays
    """

    def __init__(
        self,
        index: int,
        plan: TextPlan,
        client: EngineClient,
        options: ResolvedOptions,
        model: TextModel,
        time_slice: TimeSlice,
        on_growth: Callable[[TextTask], None] | None = None,
        second: RequestSecond | None = None,
    ) -> None:
        """time_slice: time slice of the request; second: the second translator, if it may be asked.

        on_growth: called on the loop when `delta` may have more text; None for a request that does not stream
        """
        self.index = index
        self._plan, self._client, self._options = plan, client, options
        self._limits, self._tokenizer, self._guarding, self._aligns, self._lexicon, *_ = self._model = model
        self._time_slice, self._on_growth = time_slice, on_growth
        self._in_pieces = options.text.format is Format.PIECES
        grows = on_growth is not None and plan.plain is None and bool(plan.parts)
        self._detokenizer = self._new_detokenizer() if grows else None
        self._opinions = SecondOpinions(second, index, plan, options, client, model)
        self.settled = True
        self._announced = False  # whether on_growth was called since the last `delta`
        self._judged: Judged | None = None
        self._written = ""  # a translation that is one delta: with markup, or of a text with nothing to translate
        self._in_steps = {number: self._steps_of(number) for number, part in enumerate(plan.parts) if part.steps}
        self._jobs: list[Sequence[PendingJob[Hypotheses]]] = [
            () if part.steps or part.given is not None else self._jobs_of(number)
            for number, part in enumerate(plan.parts)
        ]

    @property
    def pending(self) -> Sequence[PendingJob[Hypotheses]]:
        steps = (pending for tasks in self._in_steps.values() for task in tasks for pending in task.pending)
        return [*(pending for jobs in self._jobs for pending in jobs), *steps]

    @property
    def submits_more(self) -> bool:
        """Whether further jobs are submitted when the first ones are done."""
        scored = self._options.return_alignment or self._options.coverage_penalty > 0
        scored = scored or bool(self._opinions)
        return scored or bool(self._in_steps) or any(self._plan.tagged) or any(map(_is_reviewed, self._plan.parts))

    def delta(self) -> str:
        """Return the text that was decoded since the last call."""
        self._announced = False
        if self._detokenizer is not None:
            return self._detokenizer.take()
        written, self._written = self._written, ""
        return written

    async def result(self) -> pb.TextResult:
        try:
            found = await self._hypotheses()
            steps = text_result(self._plan, found, self._options, self._tokenizer, self._guarding.guard, self._judged)
            result = await self._time_slice.run(steps)
        except (Degenerate, EngineFault) as error:
            return text_error(error)
        if self._on_growth is not None and self._detokenizer is None:
            self._written = result.hypotheses[0].text
        return result

    async def _hypotheses(self) -> list[list[PartHypothesis]]:
        """Return the hypotheses of each part when all jobs are done, as many for each. Raises EngineFault."""
        in_steps = {
            index: [asyncio.ensure_future(_alone(task)) for task in tasks] for index, tasks in self._in_steps.items()
        }
        for index, part in enumerate(self._plan.parts):
            if _is_reviewed(part):
                in_steps[index] = [
                    asyncio.ensure_future(self._reviewed(index, sample)) for sample in range(len(self._jobs[index]))
                ]
        if self._detokenizer is not None:  # later sentences are asked about before the earlier ones are answered
            for index in filter(self._opinions.may_ask, range(len(self._jobs))):
                in_steps[index] = [asyncio.ensure_future(self._then_asked(index, in_steps.get(index)))]
        try:
            found = [await self._part(part, in_steps.get(part)) for part in range(len(self._jobs))]
            if self._may_repair:
                found = await self._with_figures(found)
            if self._options.text.guard == pb.GUARD_POLICY_RETRY and self._on_growth is None:
                found = await self._retried(found)
            if self._opinions and self._detokenizer is None:
                found = await self._asked(found)
            if self._options.return_alignment or self._options.coverage_penalty or any(self._plan.tagged):
                found = await self._scored(found)
        finally:
            if in_steps:
                await _ended([each for futures in in_steps.values() for each in futures])
        most = max(map(len, found), default=1)
        return [part * most if len(part) == 1 else part for part in found]

    def _new_detokenizer(self) -> IncrementalDetokenizer:
        plan, sentences = self._plan, [each.sentence for each in self._plan.parts]
        return IncrementalDetokenizer(self._tokenizer, plan.document, sentences, plan.begin, in_pieces=self._in_pieces)

    def _jobs_of(self, part: int) -> list[PendingJob[Hypotheses]]:
        plan, options = self._plan, self._options
        longest = max_output(self._limits, plan, part, options.max_output_tokens)
        may_change = _is_reviewed(plan.parts[part]) or self._opinions.may_ask(part)  # when it is complete
        on_token = partial(self._add_token, part) if self._detokenizer and not may_change else None
        return [
            self._client.decode(
                plan.parts[part].source_ids,
                self._attending(options.job_options(longest, self._stream(part, number), part, number), part),
                plan.prefix if part == 0 else (),
                on_token,
                bias=self._bias(part),
            )
            for number in range(options.jobs_of(part))
        ]

    def _attending(self, options: Options, part: int) -> Options:
        """Return the options of a job, whose hypotheses say where they looked if that is read.

        What the engine knows of a part that may be decoded again is kept.
        """
        reviewed = _is_reviewed(self._plan.parts[part])
        read = self._needs_attention(self._plan.parts[part]) or self._plan.parts[part].terms is not None
        if not (read or reviewed):
            return options
        attention = read and self._model.keeps_attention
        return replace(options, attention=attention, keep_past=reviewed, keep_encoded=reviewed)

    def _steps_of(self, index: int) -> list[SentenceTask]:
        part = self._plan.parts[index]
        streams = [self._stream(index, sample) for sample in range(self._options.samples)]
        positions = [PartPosition(self.index, index, stream) for stream in streams]
        tagged = self._plan.is_tagged(part)
        return [SentenceTask(part, each, self._client, self._options, self._model, tagged=tagged) for each in positions]

    def _stream(self, part: int, sample: int) -> int:
        """Return the stream of random numbers of a job. It differs for every text, part and sample."""
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

    async def _part(
        self, part: int, in_steps: Sequence[asyncio.Future[list[PartHypothesis]]] | None
    ) -> list[PartHypothesis]:
        """Return the hypotheses of a part; in_steps: of one that more is done for than to decode it."""
        found = await self._complete(part, in_steps)
        if self._detokenizer is not None:
            self._detokenizer.finish(part, found[0].text)
            if part + 1 < len(self._jobs):
                self._announce()  # text of the next part may have waited for the end of this one
        return found

    async def _complete(
        self, part: int, in_steps: Sequence[asyncio.Future[list[PartHypothesis]]] | None
    ) -> list[PartHypothesis]:
        """Return the hypotheses of a part when they are complete; in_steps: see `_part`."""
        answers = [await pending.answer() for pending in self._jobs[part]] if in_steps is None else []
        found = [one for each in in_steps or () for one in await each]
        if (given := self._plan.parts[part].given) is not None:
            found.append(PartHypothesis(_NOT_DECODED, given))
        if (part or self.index) and time.monotonic() > self._time_slice.end:
            await self._time_slice.yield_if_due()
        with current().phase("detokenise", self.index):
            found += [self._with_text(part, one) for answer in answers for one in answer]
        return found

    async def _then_asked(
        self, part: int, in_steps: Sequence[asyncio.Future[list[PartHypothesis]]] | None
    ) -> list[PartHypothesis]:
        """Return the translation of a part of a stream after the second translator was asked; in_steps: see `_part`."""
        try:
            (found,) = await self._complete(part, in_steps)
        finally:
            await _ended(in_steps or ())
        judgement = part_judgement(self._plan, part, found, self._guarding.guard, self._tokenizer)
        reason = self._opinions.reason(part, judgement)
        return [found if reason is None else self._noted(await self._opinions.opinion(part, found, reason))]

    async def _asked(self, found: list[list[PartHypothesis]]) -> list[list[PartHypothesis]]:
        """Ask the second translator about all doubtful sentences at once, those with the most to gain first."""
        guard, tokenizer, plan = self._guarding.guard, self._tokenizer, self._plan
        parts = [part for (part,) in found]
        judged = self._judged or Judged(await self._time_slice.run(judge_parts(plan, parts, guard, tokenizer)))
        judgements = list(judged.parts)
        reasons = {part: self._opinions.reason(part, judgement) for part, judgement in enumerate(judgements)}
        gains = {part: self._opinions.gain(part, judgements[part]) for part, reason in reasons.items() if reason}
        asked = {
            part: asyncio.ensure_future(self._opinions.opinion(part, parts[part], reason))
            for part in sorted(gains, key=gains.__getitem__, reverse=True)
            if (reason := reasons[part]) is not None
        }
        try:
            for part, opinion in asked.items():
                parts[part] = self._noted(await opinion)
                judgements[part] = part_judgement(plan, part, parts[part], guard, tokenizer)
        finally:
            await _ended([*asked.values()])
        retried = frozenset(part for part in judged.retried if not parts[part].is_taken)
        self._judged = Judged(judgements, retried)
        return [[part] for part in parts]

    def _noted(self, found: PartHypothesis) -> PartHypothesis:
        """Note that a result may differ at another time if the second translator gave no translation to judge."""
        if found.second is not None and found.second.outcome.result not in SETTLED:
            self.settled = False
        return found

    async def _reviewed(self, index: int, sample: int) -> list[PartHypothesis]:
        """Return the hypotheses of a part that has terms or an earlier translation.

        If the best one misses a term, one with it is made, and one that begins as the earlier translation.
        """
        part = self._plan.parts[index]
        found = await self._jobs[index][sample].answer()
        if self._options.coverage_penalty and len(found) > 1:
            found = await self._ranked(part, found)
        own = [self._with_text(index, one) for one in found]
        if not own:
            return own
        if part.earlier is None and part.terms is not None:
            uses = satisfied(part.read_text, own[0].text, part.terms)
            if uses is not None:
                return [replace(own[0], terms=uses), *own[1:]]
        begin = "" if index else self._begin_of(own[0])
        task = SentenceTask(
            part,
            PartPosition(self.index, index, self._stream(index, sample)),
            self._client,
            self._options,
            self._model,
            found=own,
            prefix=begin,
            bias=self._bias(index),
        )
        try:
            again = await task.result()
        except Expired:
            raise
        except RequestError:
            self.settled = False
            return own  # the first translations stay
        if self._options.alternatives and _LETTER.match(again.text, len(begin)):
            return own  # the word of the alternative has become a longer one
        same = next((one for one in own if one.text == again.text), None)
        if same is None:
            return [again]
        with_uses = replace(same, terms=again.terms)
        return [with_uses, *own[1:]] if same is own[0] else [with_uses]

    async def _ranked(self, part: Part, found: Hypotheses) -> Hypotheses:
        """Return the wanted ones of some hypotheses, those with the best scores with the coverage penalty."""
        pairs = [(part.source_ids, one) for one in found]
        attention = await attention_of(pairs, covering_tokens, self._client, self._tokenizer, self._submit)
        keys = [
            with_coverage(one, each, self._options.coverage_penalty).rank_key
            for one, each in zip(found, attention, strict=True)
        ]
        ranked = sorted(range(len(found)), key=keys.__getitem__)[: self._options.num_hypotheses]
        return tuple(found[place] for place in ranked)

    def _begin_of(self, found: PartHypothesis) -> str:
        """Return the begin of a translation of the text that stays: the target prefix, and the first word of an
        alternative.
        """
        if not self._options.alternatives:
            return self._plan.prefix_text(self._tokenizer)
        tokens = found.hypothesis.tokens[: len(self._plan.prefix) + 1]
        begin = text_of(self._tokenizer, tokens, self._plan.begin)
        if not found.text.startswith(begin):
            return found.text
        end = len(begin)
        while _LETTER.match(found.text, end):
            end += 1
        return found.text[:end]

    def _bias(self, part: int) -> PrefixBias | None:
        soft = self._plan.soft_prefix if part == 0 else ()
        return PrefixBias(soft, self._options.prefix_bias) if soft else None

    def _with_text(self, part: int, found: Hypothesis) -> PartHypothesis:
        """Return a hypothesis of a part with its text, or with its pieces if texts are in pieces."""
        if self._in_pieces:
            return PartHypothesis(found, written(self._tokenizer, found.tokens))
        return PartHypothesis(found, text_of(self._tokenizer, found.tokens, None if part else self._plan.begin))

    @property
    def _may_repair(self) -> bool:
        """Whether another translation may replace the requested one."""
        options, plan = self._options, self._plan
        searched = options.rules is None and options.job.sampling is None and options.num_hypotheses == 1
        asked = bool(options.alternatives or plan.prefix or plan.soft_prefix)
        return options.text.protect and searched and not asked and self._on_growth is None

    async def _with_figures(self, found: list[list[PartHypothesis]]) -> list[list[PartHypothesis]]:
        """Translate those parts again whose translations lack small numbers. Each part is checked separately."""
        tasks = {
            index: SentenceTask(
                replace(part, steps=Steps(part.text, (), self._lexicon)),
                PartPosition(self.index, index, self._stream(index, 0)),
                self._client,
                self._options,
                self._model,
                tagged=False,
                follow_up=True,
            )
            for index, (part, ones) in enumerate(zip(self._plan.parts, found, strict=True))
            if part.steps is None and part.given is None and len(ones) == 1 and lacks_figures(part.text, ones[0].text)
        }
        for index, task in tasks.items():
            try:
                again = await task.submitted()
            except Expired:
                raise
            except RequestError:
                self.settled = False
                continue  # the first translation stays
            restored = again.restored
            if restored is None or restored.means >= Means.SPLIT or self._loses_terms(index, found[index][0], again):
                continue
            found[index] = [replace(again, restored=None)]
        return found

    async def _retried(self, found: list[list[PartHypothesis]]) -> list[list[PartHypothesis]]:
        """Judge each part separately, and make another attempt at degenerate ones."""
        guard, tokenizer, plan = self._guarding.guard, self._tokenizer, self._plan
        parts = [part for (part,) in found]
        judgements = await self._time_slice.run(judge_parts(plan, parts, guard, tokenizer))
        suspect = [index for index, each in enumerate(judgements) if each.flags and each.degenerate]
        again = {index: self._attempt(index) for index in suspect if plan.parts[index].steps is None}
        if again:
            with current().trace_jobs((self.index, each.job, each.outcome) for each in again.values()):
                await self._client.submit_when_possible(list(again.values()))
        replaced = set()
        for index, pending in again.items():
            try:
                (best,) = await pending.answer()
            except Expired:
                raise
            except RequestError:
                self.settled = False
                continue  # the first attempt stays
            second = self._with_text(index, best)
            judgement = part_judgement(plan, index, second, guard, tokenizer)
            if better(judgements[index], judgement) and not self._loses_terms(index, parts[index], second):
                parts[index], judgements[index] = second, judgement
                replaced.add(index)
        self._judged = Judged(judgements, frozenset(replaced))
        return [[part] for part in parts]

    def _loses_terms(self, index: int, first: PartHypothesis, second: PartHypothesis) -> bool:
        """Return whether another translation of a part misses more of its terms."""
        part = self._plan.parts[index]
        if part.terms is None:
            return False
        wanted = part.terms.wanted(part.read_text)
        missed = [len(part.terms.check(each.text, wanted).missed) for each in (first, second)]
        return missed[0] < missed[1]

    def _attempt(self, index: int) -> PendingJob[Hypotheses]:
        first, source = self._jobs[index][0].job, self._plan.parts[index].source_ids
        assert isinstance(first, DecodeJob)
        options = self._guarding.options(first.options, len(source), self._limits)
        return self._client.decode(source, options, first.shown_prefix, follow_up=True, optional=True)

    async def _submit(self, jobs: Sequence[PendingJob[Scored]]) -> None:
        with current().trace_jobs((self.index, each.job, each.outcome) for each in jobs):
            await self._client.submit_when_possible(jobs)

    async def _scored(self, found: list[list[PartHypothesis]]) -> list[list[PartHypothesis]]:
        """Add the attention of each hypothesis that needs it, or its penalty.

        It is that of the search, or of a run of the scorer for a hypothesis whose search has not kept it. The scorer
        reads all tokens but the last one without a coverage penalty, because where the model looked when it chose that
        token depends only on the tokens before it. A translation of max_target_tokens would otherwise exceed the
        scorer's length.
        """
        read = covering_tokens if self._options.coverage_penalty else lambda found: found.tokens[:-1]
        needing = [
            (part.source_ids, one.hypothesis)
            for part, ones in zip(self._plan.parts, found, strict=True)
            if self._needs_attention(part)
            for one in ones
        ]
        attention = iter(await attention_of(needing, read, self._client, self._tokenizer, self._submit))
        scored = [
            [self._with_attention(part, one, next(attention)) for one in ones] if self._needs_attention(part) else ones
            for part, ones in zip(self._plan.parts, found, strict=True)
        ]
        return [self._best(ones) for ones in scored] if self._options.coverage_penalty else scored

    def _best(self, found: list[PartHypothesis]) -> list[PartHypothesis]:
        ranked = sorted(found, key=lambda each: each.hypothesis.rank_key)
        return ranked[: self._options.num_hypotheses]

    def _needs_attention(self, part: Part) -> bool:
        """Return whether it matters where the translation of a part that is decoded unchanged looked."""
        wanted = (
            self._options.return_alignment
            or self._options.coverage_penalty > 0
            or (self._plan.is_tagged(part) and self._aligns)
        )
        return wanted and part.steps is None and part.given is None

    def _with_attention(self, part: Part, found: PartHypothesis, attention: np.ndarray) -> PartHypothesis:
        """Return a hypothesis with what is wanted of its attention, a row for each of its log-probabilities."""
        tagged = self._plan.is_tagged(part)
        if penalty := self._options.coverage_penalty:
            found = replace(found, hypothesis=with_coverage(found.hypothesis, attention, penalty))
        attention = attention[: max(len(found.hypothesis.tokens), 1)]
        return replace(
            found,
            attention=attention if self._options.return_alignment else None,
            weights=weights_of(part, found, attention, self._tokenizer) if tagged else None,
        )


def _is_reviewed(part: Part) -> bool:
    """Return whether the translation of a part that is decoded unchanged is looked at, and may be made again."""
    return part.steps is None and part.given is None and (part.terms is not None or part.earlier is not None)


async def _alone(task: SentenceTask) -> list[PartHypothesis]:
    """Return the only hypothesis of a sentence in steps."""
    return [await task.result()]


async def _ended(futures: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel the unfinished futures, and read every outcome, even if this wait is cancelled."""
    unread = [each for each in futures if not each.done() or each.cancelled() or each.exception() is not None]
    for each in unread:
        each.cancel()
    if unread:
        await asyncio.gather(*unread, return_exceptions=True)


class TextEvents:
    """The events of a stream in the order of their occurrence: a text has grown, or has its result.

    Every text reports for itself, so that a token of one text costs nothing for the others.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[TextTask | asyncio.Task[pb.TextResult]] = asyncio.Queue()
        self._results: dict[asyncio.Task[pb.TextResult], TextTask] = {}

    def grown(self, task: TextTask) -> None:
        """Report that a text has more to show."""
        self._queue.put_nowait(task)

    def watch(self, task: TextTask) -> None:
        """Wait for the result of a text after its jobs were submitted."""
        result = asyncio.create_task(task.result())
        self._results[result] = task
        result.add_done_callback(self._queue.put_nowait)

    @property
    def open(self) -> bool:
        """Whether a text has no result yet."""
        return bool(self._results)

    async def next(self) -> tuple[TextTask, pb.TextResult | None]:
        """Return the next text that has grown, or that is done, with its result. Raises what ends the whole request."""
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
