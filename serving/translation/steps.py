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
from lingon.errors import InvalidRequest, TextTooLong, Unsupported
from lingon.segments.boundaries import Span
from lingon.segments.characters import Reading
from lingon.segments.kept_forms import DIVIDING, Kind, ProtectedSpan, replaced
from lingon.segments.memory_steps import with_earlier
from lingon.segments.placing_alignment import KeptCopy
from lingon.segments.sentence import (
    Align,
    Restored,
    Score,
    ScoredTarget,
    SentenceAnswer,
    SentenceOutput,
    SentenceRequest,
    SentenceSteps,
    TranslateStep,
    Weigh,
    kept_spans,
    translations,
)
from lingon.segments.steps import translate_sentence
from lingon.segments.term_steps import with_terms
from lingon.serving.decoding.job import Hypotheses, Hypothesis, Options, PrefixBias
from lingon.serving.decoding.rules import RequestRules, Vocabulary
from lingon.serving.guard import DEGENERATE, Guard, Judgement
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import SavedPast, Scored
from lingon.serving.translation.attention import WordWeights, covering_tokens, with_coverage, word_weights
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.options import ResolvedOptions
from lingon.serving.translation.plans import Begin, Lexicon, Part, parts_of, text_of
from lingon.serving.translation.replies import PartHypothesis, generated_spans, linked_tokens
from lingon.serving.translation.scored_pairs import PairScorer, ScoredPair, attention_of
from lingon.terms.annotation import AnnotationForm
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
    """The parts of a model that a text needs.

    aligns: whether it has attention heads for alignments
    terms: the form of the annotated sources that it was trained with, if it was
    keeps_attention: whether alignments are those of the search, if its graphs say where they look, and not of the
        scorer
    """

    limits: Limits
    tokenizer: Tokenizer
    guarding: Guarding
    aligns: bool
    lexicon: Lexicon
    vocabulary: Vocabulary
    terms: AnnotationForm | None = None
    keeps_attention: bool = True


def translate_whole(text: str, prefix: str = "") -> SentenceSteps:
    """Translate a text that the model reads unchanged; prefix: with which the translation begins."""
    request = TranslateStep(text, prefix)
    outputs = yield from translations(request)
    return Restored(outputs[0], outputs=((request, outputs[0]),)) if outputs else Restored(text)


_GIVEN = Hypothesis((), (), 0.0, finished=True)
WEIGHING = Options(max_output_tokens=1, prefix_log_probs=True, keep_encoded=True)
"""Of a search that is made for the log-probabilities of its prefix. It has the beam size of the request, to join its
batches.
"""


class SentenceTask:
    """One translation of a sentence in steps, or with terms.

    The score is that of the first text that the model reads instead of the sentence; of a sentence that the model reads
    unchanged it is that of the translation.
    """

    def __init__(
        self,
        part: Part,
        index: PartPosition,
        client: EngineClient,
        options: ResolvedOptions,
        model: TextModel,
        *,
        tagged: bool = False,
        follow_up: bool = False,
        found: Sequence[PartHypothesis] | None = None,
        prefix: str = "",
        bias: PrefixBias | None = None,
    ) -> None:
        """tagged: whether tags are placed in the sentence; follow_up: value for its first jobs, see DecodeJob.

        found: translations of a part without steps, which has terms or an earlier translation
        prefix: with which these begin; bias: for the translations of the whole part without a prefix
        """
        self._part, self._place, self._client, self._options, self._model = part, index, client, options, model
        self._limits, self._tokenizer, _, self._aligns, *_ = model
        self._tagged, self._begun, self._bias = tagged, prefix, bias
        self._scores: list[float] = []
        self._parts = 1  # the largest number of parts in which the model reads one of the texts
        self._log_probs: tuple[float, ...] = ()
        self._pasts: dict[tuple[int, ...], SavedPast] = {}  # of the first translation of each source
        self._prefixes: dict[str, tuple[int, ...]] = {}  # tokens of the begins of translations
        self._begins: dict[str, Begin | None] = {}
        self._ended: dict[SentenceOutput, bool] = {}  # whether the model ended each of its outputs
        self._scorer = PairScorer(client, self._tokenizer, self._limits, self._submit)
        self._steps = self._translation(prefix)
        self._restored = Restored("")
        self._first = self._advance(None)
        first, self._found = self._first, found
        self._given: Sequence[str] = ()  # the texts of the translations that were given
        self.pending: Jobs = ()
        if isinstance(first, TranslateStep) and found is None:
            self.pending = self._jobs(first, follow_up=follow_up)
        """The jobs of the first step, which are submitted with the jobs of the other sentences."""

    def _translation(self, prefix: str) -> SentenceSteps:
        """Return the steps of this sentence."""
        part = self._part
        if part.steps is None:
            steps = partial(translate_whole, part.read_text, prefix)
        else:
            read, lexicon = part.steps.read, part.steps.lexicon
            steps = partial(translate_sentence, read.text, read.spans, lexicon.words, lexicon.names, part.steps.custom)
        if part.earlier is not None:
            return with_earlier(steps, part.earlier)
        if part.terms is None:
            return steps()
        return with_terms(steps(), part.terms, judges=not self._options.restricts, form=self._model.terms)

    async def submitted(self) -> PartHypothesis:
        """Submit the first jobs when the engine has room for them, and take all steps."""
        await self._submit(self.pending)
        return await self.result()

    async def result(self) -> PartHypothesis:
        """Take all steps and return the hypothesis. Raises the error that ended a job."""
        request, jobs = self._first, self.pending
        while request is not None:
            if isinstance(request, TranslateStep):
                if self._found is not None:
                    texts, self._found = self._given_translations(request, self._found), None
                else:
                    texts = await self._translations(request, jobs, [await job.answer() for job in jobs])
                request = self._advance(texts)
            elif isinstance(request, Score):
                request = self._advance(await self._scored_targets(request))
            elif isinstance(request, Weigh):
                request = self._advance(await self._weighed(request))
            else:
                request = self._advance(await self._links(request))
            if isinstance(request, TranslateStep):
                jobs = self._jobs(request, follow_up=True)
                await self._submit(jobs)
        return await (self._hypothesis() if self._part.steps is not None else self._plain_hypothesis())

    async def with_translation(self, restored: Restored) -> PartHypothesis:
        """Return the hypothesis of a sentence in steps with a translation that no step made, without its own score."""
        self._restored = restored
        return await self._hypothesis()

    def _advance(self, answer: SentenceAnswer | None) -> SentenceRequest | None:
        """Take the next step of the text layer and return its next request, or None at the end."""
        try:
            return next(self._steps) if answer is None else self._steps.send(answer)
        except StopIteration as done:
            self._restored = done.value
            return None

    def _jobs(self, request: TranslateStep, *, follow_up: bool = False) -> Jobs:
        """Return the jobs of a text, one for each readable part, or none if the model cannot do what is asked."""
        try:
            parts = self._read_parts(request)
            rules = self._rules(request, len(parts))
        except (InvalidRequest, Unsupported):  # no word of the text can be read, or a forced one not be written
            return ()
        self._parts = max(self._parts, len(parts))
        prefix = self._prefix(request.prefix)
        if self._part.terms is not None and not self._options.restricts and self._is_spelled_badly(request):
            return ()  # the model goes on worse than it did without this prefix
        jobs = []
        for index, part in enumerate(parts):
            begin = prefix if index == 0 else ()
            bound = self._limits.max_output(len(part.source_ids)) - len(begin)
            most = min(self._options.max_output_tokens - self._repaired(request, begin), bound)
            if most < 1:
                return ()
            options = self._job_options(request, most, rules, begins=bool(begin))
            past = self._pasts.get(part.source_ids) if begin else None
            bias = None if begin or index else self._bias
            jobs.append(self._client.decode(part.source_ids, options, begin, past=past, bias=bias, follow_up=follow_up))
        return jobs

    def _job_options(self, request: TranslateStep, most: int, rules: RequestRules | None, *, begins: bool) -> Options:
        """Return the options of a job; most: tokens that it may write; begins: whether it has a prefix."""
        options = self._options.job_options(most, self._place.stream, self._place.part)
        weighs = begins and self._is_judged
        # The shortlist of an annotated source has translations of the source alone.
        whole = rules is not None or bool(request.annotated) or weighs
        beam_size = options.beam_size
        if request.forced and options.sampling is None:  # a greedy search writes them at the end
            beam_size = max(beam_size, self._model.guarding.attempt.beam_size)
        return replace(
            options,
            rules=options.rules if rules is None else rules.of_part(self._place.part),
            alternative=None,
            cut_loops=options.cut_loops and rules is None,
            shortlist=options.shortlist and not whole,
            attention=self._part.terms is not None or self._options.coverage_penalty > 0,
            prefix_log_probs=weighs,
            keep_encoded=self._is_judged,
            keep_past=self._is_judged and not begins,
            beam_size=beam_size,
            num_hypotheses=max(beam_size, options.num_hypotheses),
        )

    @property
    def _is_judged(self) -> bool:
        """Whether the text layer asks what the model thinks of its translations: see `Score`."""
        return self._part.terms is not None or self._part.earlier is not None

    def _read_parts(self, request: TranslateStep) -> list[Part]:
        """Return the parts in which the model reads a text. Raises InvalidRequest if it cannot.

        An annotated source is not normalised, which would remove its markers, and not split.
        """
        part = self._part
        if part.steps is None and request.text == part.read_text and not request.annotated:
            return [part]
        if not request.annotated:
            return list(parts_of(request.text, "text", self._tokenizer, self._limits, splits=True))
        tokens, most = self._tokenizer.encode_source(request.annotated), self._limits.max_source_tokens
        if len(tokens) > most:
            raise TextTooLong("text", f"text has {len(tokens)} tokens with its terms, the model reads {most} at most")
        return [Part(request.text, 0, tuple(tokens))]

    def _rules(self, request: TranslateStep, parts: int) -> RequestRules | None:
        """Return the rules of a step with words, or None for one that has those of the request.

        Raises InvalidRequest and Unsupported for words that the model cannot write.
        """
        if self._options.rules is not None and request.prefix:
            self._options.rules.check_prefix(request.prefix, "prefix")
        if not (request.forced or request.forbidden):
            return None
        rules = self._options.rules_with(self._model.vocabulary, request.forced, request.forbidden)
        rules.check_parts(parts, "text")
        return rules

    def _prefix(self, text: str) -> tuple[int, ...]:
        """Return the tokens of the begin of a translation."""
        if text and text not in self._prefixes:
            self._prefixes[text] = tuple(self._tokenizer.encode_target(normalise(text)))
        return self._prefixes[text] if text else ()

    def _repaired(self, request: TranslateStep, prefix: Sequence[int]) -> int:
        """Return the number of tokens of a prefix that are an earlier translation with terms, not the request's."""
        if self._part.terms is None or request.prefix == self._begun:
            return 0
        return max(len(prefix) - len(self._prefix(self._begun)), 0)

    def _begin(self, text: str) -> Begin | None:
        """Return the begin of the translations, if the tokens of the prefix spell another text."""
        if text and text not in self._begins:
            self._begins[text] = Begin.of(normalise(text), self._prefix(text), self._tokenizer)
        return self._begins[text] if text else None

    def _is_spelled_badly(self, request: TranslateStep) -> bool:
        """Return whether the tokens of a prefix spell another text, or spell rare characters in bytes."""
        prefix = self._prefix(request.prefix)
        return self._begin(request.prefix) is not None or not all(map(self._tokenizer.piece_text, prefix))

    async def _submit(self, jobs: Sequence[PendingJob[Hypotheses] | PendingJob[Scored]]) -> None:
        with current().trace_jobs((self._place.text, each.job, each.outcome) for each in jobs):
            await self._client.submit_when_possible(jobs)

    async def _translations(self, request: TranslateStep, jobs: Jobs, found: Sequence[Hypotheses]) -> Sequence[str]:
        if self._options.coverage_penalty:
            found = await self._ranked(jobs, found)
        whole = list(zip(*found, strict=False))
        if whole:
            if not self._scores:
                self._log_probs = tuple(value for one in whole[0] for value in one.log_probs)
            self._scores.append(sum(one.score for one in whole[0]))
        begin = self._begin(request.prefix)
        texts = []
        for first, *others in whole:
            later = (text_of(self._tokenizer, one.tokens) for one in others)
            texts.append(" ".join((text_of(self._tokenizer, first.tokens, begin), *later)).strip())
        for text, parts in zip(texts, whole, strict=True):
            ended = all(one.finished for one in parts)
            self._ended[request, text] = self._ended.get((request, text), False) or ended
        if self._is_judged and len(jobs) == 1 and begin is None and not request.annotated:
            source_ids = jobs[0].job.source_ids
            for text, one in zip(texts, found[0], strict=True):
                self._scorer.remember(request.text, source_ids, text, one)
                self._keep_past(source_ids, one)
        return texts

    def _keep_past(self, source_ids: tuple[int, ...], found: Hypothesis) -> None:
        """Keep the states of the first translation of a source, for others that begin as it does."""
        if found.past is not None:
            self._pasts.setdefault(source_ids, found.past)

    def _given_translations(self, request: TranslateStep, found: Sequence[PartHypothesis]) -> Sequence[str]:
        """Return the translations of the whole part that were given."""
        self._given = [each.text for each in found]
        self._log_probs = found[0].hypothesis.log_probs
        self._scores.append(found[0].hypothesis.score)
        for each in found:
            self._ended[request, each.text] = each.hypothesis.finished
            if not request.prefix:
                self._scorer.remember(request.text, self._part.source_ids, each.text, each.hypothesis)
                self._keep_past(self._part.source_ids, each.hypothesis)
        return self._given

    async def _ranked(self, jobs: Jobs, found: Sequence[Hypotheses]) -> Sequence[Hypotheses]:
        """Return the hypotheses of some jobs with the coverage penalty in their scores, best first."""
        penalty, ranked = self._options.coverage_penalty, list[Hypotheses]()
        pairs = [(each.job.source_ids, one) for each, own in zip(jobs, found, strict=True) for one in own]
        attention = iter(await attention_of(pairs, covering_tokens, self._client, self._tokenizer, self._submit))
        for own in found:
            rescored = [with_coverage(one, next(attention), penalty) for one in own]
            ranked.append(tuple(sorted(rescored, key=lambda one: one.rank_key)))
        return ranked

    async def _links(self, request: Align) -> SentenceAnswer:
        """Return the links between two texts, or none if the model cannot read them or has no attention."""
        pair = await self._scored(request.source, request.target) if self._aligns else None
        if pair is None:
            return []
        linked = linked_tokens(pair.found.attention, pair.sources, pair.targets)
        return [(pair.sources[source], pair.targets[target]) for source, target in linked]

    async def _scored(self, source: str, target: str, *, attention: bool = True) -> ScoredPair | None:
        found = await self._scorer.score(normalise(source), (normalise(target),), attention=attention)
        return found[0] if found else None

    async def _scored_targets(self, request: Score) -> Sequence[ScoredTarget]:
        """Return what the model thinks of translations, or nothing if one is longer than it may be."""
        pairs = await self._scorer.score(request.source, request.targets, attention=request.attention)
        if any(pair.target_tokens > self._options.max_output_tokens for pair in pairs):
            return []
        return [
            ScoredTarget(
                self._score(pair.found),
                pair.targets,
                pair.found.log_probs[: len(pair.targets)].tolist(),
                pair.sources,
                pair.found.attention[: len(pair.targets)].tolist() if self._aligns and request.attention else None,
            )
            for pair in pairs
        ]

    async def _weighed(self, request: Weigh) -> Sequence[ScoredTarget]:
        """Return what the model thinks of begins of translations, or nothing if it cannot read a text or write one."""
        prefixes = [self._prefix(each) for each in request.begins]
        known = self._part.steps is None and request.source == self._part.read_text
        source_ids = self._part.source_ids if known else tuple(self._tokenizer.encode_source(request.source))
        longest = self._limits.max_output(len(source_ids))
        fits = len(source_ids) <= self._limits.max_source_tokens and max(map(len, prefixes)) < longest
        if not fits or any(map(self._begin, request.begins)):
            return []
        beam_size, past = self._options.job.beam_size, self._pasts.get(source_ids)
        options = replace(WEIGHING, beam_size=beam_size)
        jobs = [self._client.decode(source_ids, options, prefix, past=past, follow_up=True) for prefix in prefixes]
        await self._submit(jobs)
        return [
            ScoredTarget(
                0.0,
                generated_spans(self._tokenizer, prefix),
                (await job.answer())[0].log_probs[: len(prefix)],
                (),
                None,
            )
            for prefix, job in zip(prefixes, jobs, strict=True)
        ]

    def _score(self, scored: Scored) -> float:
        """Return the score that the search would give to a translation."""
        length = max(len(scored.log_probs), 1)
        return float(scored.log_probs.sum()) / float(length**self._options.job.length_penalty)

    async def _plain_hypothesis(self) -> PartHypothesis:
        """Return the translation of a part that the model reads unchanged.

        One that was given stays without a score, because the caller has it.
        """
        text = self._restored.text.strip()
        if text in self._given:
            return PartHypothesis(_GIVEN, text, terms=self._restored.terms)
        pair = await self._scored(self._part.read_text, text, attention=False)
        score = self._score(pair.found) if pair is not None else self._scores[0]
        if pair is not None and pair.hypothesis is not None:
            found = replace(pair.hypothesis, score=score)
        else:
            tokens = tuple(self._tokenizer.encode_target(text))
            log_probs = tuple(pair.found.log_probs.tolist()) if pair is not None else (0.0,) * (len(tokens) + 1)
            finished = all(self._ended[output] for output in self._restored.outputs)
            found = Hypothesis(tokens, log_probs, score, finished=finished)
        return PartHypothesis(
            found,
            text,
            read_log_probs=self._log_probs,
            terms=self._restored.terms,
            is_encoded=pair is None or pair.hypothesis is None,
            is_guided=self._restored.is_guided,
        )

    async def _hypothesis(self) -> PartHypothesis:
        text, options = self._restored.text.strip(), self._options
        tokens = tuple(self._tokenizer.encode_target(normalise(text)))
        scored = None
        if (options.return_alignment or options.return_tokens) and normalise(text) == text:
            pair = await self._scored(self._part.text, text)
            scored = None if pair is None else pair.found
        log_probs = tuple(scored.log_probs.tolist()) if scored is not None else (0.0,) * (len(tokens) + 1)
        score = self._scores[0] if self._scores else 0.0
        finished = all(self._ended[output] for output in self._restored.outputs)
        found = Hypothesis(tokens, log_probs, score, finished=finished)
        weights = await self._weights() if self._tagged and self._aligns else None
        aligned = scored.attention if scored is not None and options.return_alignment else None
        kept = self._kept() if self._tagged else ()
        return PartHypothesis(
            found,
            text,
            aligned,
            self._restored,
            weights,
            kept,
            self._log_probs,
            self._parts,
            self._restored.terms,
            is_encoded=True,
            is_guided=self._restored.is_guided,
        )

    @property
    def _read(self) -> Reading:
        assert self._part.steps is not None
        return self._part.steps.read

    def _kept(self) -> tuple[KeptCopy, ...]:
        """Return the kept strings of the sentence as sent, without blanks at its begin, and of its translation."""
        text, read = self._restored.text, self._read
        blanks = len(text) - len(text.lstrip())
        return tuple(
            KeptCopy(read.sent(*each.source), each.target, [read.sent(*span) for span in each.whole]).moved(0, -blanks)
            for each in kept_pairs(read.text, read.spans, self._restored)
        )

    async def _weights(self) -> WordWeights | None:
        """Return the share of each source word in each target word. A known word replaces each kept string for this."""
        text, kept, restored = self._read.text, self._read.spans, self._restored
        if restored.lowered is not None:
            lower = restored.lowered
            text, kept, restored = lower.source, tuple(lower.spans), lower.translation
        words = self._model.lexicon.words
        marks = {text[begin:end] for begin, end, kind in kept if kind in (Kind.OPENING, Kind.CLOSING)}
        source = normalise(_masked(text, kept_spans(text, kept), words, marks))
        target = normalise(_masked(restored.text, restored.kept, words, marks))
        pair = await self._scored(source, target)
        if pair is None:
            return None
        return word_weights(pair.found.attention, pair.sources, pair.targets, source, target)


def _masked(text: str, spans: Sequence[Span], words: Sequence[str], marks: Container[str]) -> str:
    """Return a text with a word in place of each word of a span, but not of marks around words."""
    return replaced(text, spans, lambda kept: kept if kept in marks else _WORD.sub(words[0], kept)) if words else text
