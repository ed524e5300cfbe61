"""The translation of a sentence in steps, while the engine works on the requests of the text layer.

Tags are placed in its translation by the strings that both keep. A sentence that the guard suspects is decoded again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from lingon.bundle.manifest import Limits
from lingon.bundle.store import Bundle
from lingon.errors import InvalidRequest, TextTooLong
from lingon.segments.boundaries import Span
from lingon.segments.kept_forms import DIVIDING, Kind, ProtectedSpan, replaced
from lingon.segments.placing_alignment import KeptCopy
from lingon.segments.sentence import (
    Align,
    Restored,
    SentenceAnswer,
    SentenceOutput,
    SentenceRequest,
    TranslateStep,
    kept_spans,
)
from lingon.segments.steps import translate_sentence
from lingon.serving.decoding.job import Hypotheses, Hypothesis, Options
from lingon.serving.decoding.rules import Vocabulary
from lingon.serving.guard import DEGENERATE, Guard, Judgement
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.attention import WordWeights, covering_tokens, with_coverage, word_weights
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.options import ResolvedOptions
from lingon.serving.translation.plans import Begin, Lexicon, Part, parts_of, plan_pair, text_of
from lingon.serving.translation.replies import PartHypothesis, linked_tokens, source_spans, target_spans
from lingon.text import Tokenizer, normalise

_READ = frozenset(
    {
        Kind.URL,
        Kind.EMAIL,
        Kind.PATH,
        Kind.NUMBER,
        Kind.FIGURE,
        Kind.EMOJI,
        Kind.LINE,
        Kind.CODE,
        Kind.KEEP,
        Kind.UNKNOWN,
    }
)
"""Markers that a reader sees, so that a tag may be inside, as in 10<sup>1000</sup>. In all others no tag may be."""


def kept_pairs(text: str, spans: Sequence[ProtectedSpan], restored: Restored) -> list[KeptCopy]:
    """Return the kept strings of a sentence and its translation, in the order of the sentence; see `Aligned.kept`.

    Equal strings are in the same order. A string that is missing in the translation has an empty target. An additional
    string of the translation has an empty source at its begin.

    spans: the protected spans of the sentence, in order and without overlap
    """
    sources = kept_spans(text, spans)
    whole = [span for span in spans if span.kind not in _READ]
    dividing = [span for span in whole if span.kind in DIVIDING]
    copies: dict[str, deque[Span]] = {}
    for copy in restored.kept:
        copies.setdefault(restored.text[slice(*copy)], deque()).append(copy)
    found = dict[Span, Span]()
    for source in sources:
        if same := copies.get(text[slice(*source)]):
            found[source] = same.popleft()
    rest = sorted(copy for same in copies.values() for copy in same if copy[0] < copy[1])
    left = [source for source in sources if source not in found]
    if len(rest) == len(left):  # such as numbers with the separators of the target
        found.update(zip(left, rest, strict=True))
        rest = []
    pairs = [KeptCopy((0, 0), copy) for copy in rest]
    for source in sources:
        divides = any(True for _ in _inside(dividing, source))
        pairs.append(KeptCopy(source, found.get(source, (0, 0)), [*_inside(whole, source)], divides))
    return pairs


def _inside(spans: Sequence[ProtectedSpan], around: Span) -> Iterator[Span]:
    first = bisect_left(spans, around[0], key=lambda span: span.begin)
    for span in spans[first : bisect_right(spans, around[1], key=lambda span: span.end)]:
        yield span.begin, span.end


BEAM = 4
NGRAM = 4  # tokens; no run of so many occurs twice in another attempt
FACTOR = 1.5  # target tokens of another attempt per source token, in addition to `Limits.output_extra`


@dataclass(frozen=True, slots=True)
class Guarding:
    """The guard of a model, and the options of another attempt at a sentence."""

    guard: Guard
    attempt: Options

    @classmethod
    def of(cls, bundle: Bundle, tokenizer: Tokenizer, vocabulary: Vocabulary) -> Guarding:
        """Return the guard of a bundle. Raises BundleError if its profiles do not have the right size."""
        rules = vocabulary.rules(no_repeat_ngram=NGRAM)
        beam_size = min(BEAM, bundle.manifest.limits.max_beam_size)
        return cls(Guard.of(bundle, tokenizer), Options(beam_size=beam_size, rules=rules.of_part(0)))

    def options(self, first: Options, source_tokens: int, limits: Limits) -> Options:
        """Return the options of another attempt.

        first: options of the first attempt; source_tokens: their number with the end token
        """
        most = min(first.max_output_tokens, int(FACTOR * source_tokens) + limits.output_extra)
        return replace(self.attempt, length_penalty=first.length_penalty, max_output_tokens=max(most, 1))


def better(first: Judgement, second: Judgement) -> bool:
    """Return whether another attempt has fewer of its causing flags, or as many of them and fewer in all."""
    return _badness(second) < _badness(first)


def _badness(judgement: Judgement) -> tuple[int, int]:
    return len(DEGENERATE.intersection(judgement.flags)), len(judgement.flags)


_WORD = re.compile(r"\S+")

Jobs = Sequence[PendingJob[Hypotheses]]


@dataclass(frozen=True, slots=True)
class PartPosition:
    """The position of a sentence: the indices of its text and of its part, and the number of its random stream."""

    text: int
    part: int
    stream: int


class TextModel(NamedTuple):
    """The parts of a model that a text needs; aligns: whether it has attention heads for alignments."""

    limits: Limits
    tokenizer: Tokenizer
    guarding: Guarding
    aligns: bool
    lexicon: Lexicon


class SentenceTask:
    """One translation of a sentence in steps.

    The score is the score of the first text that the model reads instead of the sentence.
    """

    def __init__(
        self,
        part: Part,
        index: PartPosition,
        client: EngineClient,
        options: ResolvedOptions,
        model: TextModel,
        *,
        tagged: bool,
        follow_up: bool = False,
    ) -> None:
        """tagged: whether tags are placed in the sentence; follow_up: value for its first jobs, see DecodeJob."""
        assert part.steps is not None
        self._part, self._place, self._client, self._options = part, index, client, options
        self._limits, self._tokenizer, _, self._aligns, _ = model
        self._lexicon, self._sentence, self._tagged = part.steps.lexicon, part.steps.read, tagged
        self._scores: list[float] = []
        self._parts = 1  # the largest number of parts in which the model reads one of the texts
        self._log_probs: tuple[float, ...] = ()
        self._ended: dict[SentenceOutput, bool] = {}  # whether the model ended each of its outputs
        words, names = self._lexicon.words, self._lexicon.names
        self._steps = translate_sentence(self._sentence.text, self._sentence.spans, words, names, part.steps.custom)
        self._restored = Restored("")
        self._first = self._advance(None)
        first = self._first
        self.pending: Jobs = self._jobs(first, follow_up=follow_up) if isinstance(first, TranslateStep) else ()
        """The jobs of the first step, which are submitted with the jobs of the other sentences."""

    async def submitted(self) -> PartHypothesis:
        """Submit the first jobs when the engine has room for them, and take all steps."""
        await self._submit(self.pending)
        return await self.result()

    async def result(self) -> PartHypothesis:
        """Take all steps and return the hypothesis. Raises the error that ended a job."""
        request, jobs = self._first, self.pending
        while request is not None:
            if isinstance(request, TranslateStep):
                request = self._advance(await self._translations(request, jobs))
            else:
                request = self._advance(await self._links(request))
            if isinstance(request, TranslateStep):
                jobs = self._jobs(request, follow_up=True)
                await self._submit(jobs)
        return await self._hypothesis()

    def _advance(self, answer: SentenceAnswer | None) -> SentenceRequest | None:
        """Take the next step of the text layer and return its next request, or None at the end."""
        try:
            return next(self._steps) if answer is None else self._steps.send(answer)
        except StopIteration as done:
            self._restored = done.value
            return None

    def _jobs(self, request: TranslateStep, *, follow_up: bool = False) -> Jobs:
        """Return the jobs of a text, one for each readable part, or none if the model can read no word of it."""
        try:
            parts = list(parts_of(request.text, "text", self._tokenizer, self._limits, splits=True))
        except TextTooLong:
            return ()
        self._parts = max(self._parts, len(parts))
        prefix = self._prefix(request)
        jobs = []
        for index, part in enumerate(parts):
            begin = prefix if index == 0 else ()
            bound = self._limits.max_output(len(part.source_ids)) - len(begin)
            if bound < 1:
                return ()
            options = self._options.job_options(
                min(self._options.max_output_tokens, bound), self._place.stream, self._place.part
            )
            options = replace(options, num_hypotheses=max(options.beam_size, options.num_hypotheses))
            jobs.append(self._client.decode(part.source_ids, options, begin, follow_up=follow_up))
        return jobs

    def _prefix(self, request: TranslateStep) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode_target(normalise(request.prefix))) if request.prefix else ()

    async def _submit(self, jobs: Sequence[PendingJob[Hypotheses] | PendingJob[Scored]]) -> None:
        with current().trace_jobs((self._place.text, each.job, each.outcome) for each in jobs):
            await self._client.submit_when_possible(jobs)

    async def _translations(self, request: TranslateStep, jobs: Jobs) -> Sequence[str]:
        found: Sequence[Hypotheses] = [await job.answer() for job in jobs]
        if self._options.coverage_penalty:
            found = await self._ranked(jobs, found)
        whole = list(zip(*found, strict=False))
        if whole:
            if not self._scores:
                self._log_probs = tuple(value for one in whole[0] for value in one.log_probs)
            self._scores.append(sum(one.score for one in whole[0]))
        begin = Begin.of(normalise(request.prefix), self._prefix(request), self._tokenizer) if request.prefix else None
        texts = []
        for first, *others in whole:
            later = (text_of(self._tokenizer, one.tokens) for one in others)
            texts.append(" ".join((text_of(self._tokenizer, first.tokens, begin), *later)).strip())
        for text, parts in zip(texts, whole, strict=True):
            ended = all(one.finished for one in parts)
            self._ended[request, text] = self._ended.get((request, text), False) or ended
        return texts

    async def _ranked(self, jobs: Jobs, found: Sequence[Hypotheses]) -> Sequence[Hypotheses]:
        """Return the hypotheses of some jobs with the coverage penalty in their scores, best first."""
        score = partial(self._client.score, follow_up=True)
        scored = [
            [score(each.job.source_ids, covering_tokens(one)) for one in own]
            for each, own in zip(jobs, found, strict=True)
        ]
        await self._submit([pending for own in scored for pending in own])
        penalty, ranked = self._options.coverage_penalty, list[Hypotheses]()
        for own, pending in zip(found, scored, strict=True):
            attention = [(await each.answer()).attention for each in pending]
            rescored = (with_coverage(one, each, penalty) for one, each in zip(own, attention, strict=True))
            ranked.append(tuple(sorted(rescored, key=lambda one: one.rank_key)))
        return ranked

    async def _links(self, request: Align) -> SentenceAnswer:
        """Return the links between two texts, or none if the model cannot read them or has no attention."""
        scored = await self._scored(request.source, request.target) if self._aligns else None
        if scored is None:
            return []
        sources = source_spans(self._tokenizer, request.source)
        targets = target_spans(self._tokenizer, request.target)
        linked = linked_tokens(scored.attention, sources, targets)
        return [(sources[source], targets[target]) for source, target in linked]

    async def _scored(self, source: str, target: str) -> Scored | None:
        try:
            plan = plan_pair(source, target, "pair", self._tokenizer, self._limits)
        except InvalidRequest:
            return None
        job = self._client.score(plan.source_ids, plan.target_ids, follow_up=True)
        await self._submit([job])
        return await job.answer()

    async def _hypothesis(self) -> PartHypothesis:
        text, options = self._restored.text.strip(), self._options
        tokens = tuple(self._tokenizer.encode_target(normalise(text)))
        scored = None
        if (options.return_alignment or options.return_tokens) and normalise(text) == text:
            scored = await self._scored(self._part.text, text)
        log_probs = tuple(scored.log_probs.tolist()) if scored is not None else (0.0,) * (len(tokens) + 1)
        score = self._scores[0] if self._scores else 0.0
        finished = all(self._ended[output] for output in self._restored.outputs)
        found = Hypothesis(tokens, log_probs, score, finished=finished)
        weights = await self._weights() if self._tagged and self._aligns else None
        aligned = scored if options.return_alignment else None
        kept = self._kept() if self._tagged else ()
        return PartHypothesis(found, text, aligned, self._restored, weights, kept, self._log_probs, self._parts)

    def _kept(self) -> tuple[KeptCopy, ...]:
        """Return the kept strings of the sentence as sent, without blanks at its begin, and of its translation."""
        text, read = self._restored.text, self._sentence
        blanks = len(text) - len(text.lstrip())
        return tuple(
            KeptCopy(read.sent(*each.source), each.target, [read.sent(*span) for span in each.whole]).moved(0, -blanks)
            for each in kept_pairs(read.text, read.spans, self._restored)
        )

    async def _weights(self) -> WordWeights | None:
        """Return the share of each source word in each target word. A known word replaces each kept string for this."""
        text, kept, restored = self._sentence.text, self._sentence.spans, self._restored
        if restored.lowered is not None:
            lower = restored.lowered
            text, kept, restored = lower.source, tuple(lower.spans), lower.translation
        words = self._lexicon.words
        marks = {text[begin:end] for begin, end, kind in kept if kind in (Kind.OPENING, Kind.CLOSING)}
        source = normalise(_masked(text, kept_spans(text, kept), words, marks))
        target = normalise(_masked(restored.text, restored.kept, words, marks))
        scored = await self._scored(source, target)
        if scored is None:
            return None
        spans = source_spans(self._tokenizer, source), target_spans(self._tokenizer, target)
        return word_weights(scored.attention, *spans, source, target)


def _masked(text: str, spans: Sequence[Span], words: Sequence[str], marks: Container[str]) -> str:
    """Return a text with a word in place of each word of a span, but not of marks around words."""
    return replaced(text, spans, lambda kept: kept if kept in marks else _WORD.sub(words[0], kept)) if words else text
