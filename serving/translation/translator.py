"""One served model, from messages to messages: plans texts, has the engine decode them, makes the results.

Runs on an event loop. The engine's threads post their outcomes through LoopCallbacks.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, TypedDict, TypeVar

import sentencex  # noqa: F401 # or the first text would load it, on the event loop

from lingon.bundle.manifest import Manifest
from lingon.bundle.store import Bundle
from lingon.errors import RequestError
from lingon.segments.characters import Reading, read_characters
from lingon.segments.protection import find_protected
from lingon.serving.decoding.rules import Vocabulary
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.event_loop import TimeSlice
from lingon.serving.guard import profiles_of
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import AttentionChoice
from lingon.serving.second.second_translator import SecondTranslator
from lingon.serving.translation.attention import choose_attention
from lingon.serving.translation.cache import TranslationCache
from lingon.serving.translation.engine_client import EngineClient, ValidUtf8
from lingon.serving.translation.matches import with_matches
from lingon.serving.translation.memories import NO_MEMORIES, RequestMemories, request_memories
from lingon.serving.translation.one_sentence import OneSentence, SentenceModel, has_one_plain_text, is_plain_search
from lingon.serving.translation.options import ResolvedOptions, check_alignment, resolve
from lingon.serving.translation.planner import (
    MOST_KEPT,
    Planner,
    Request,
    alphabet_of,
    check_prefixes,
    is_simple,
)
from lingon.serving.translation.plans import PairPlan, TextPlan, lexicon
from lingon.serving.translation.replies import pair_error, text_error
from lingon.serving.translation.second_opinions import RequestSecond
from lingon.serving.translation.steps import Guarding, TextModel
from lingon.serving.translation.tasks import PairTask, RequestTask, TextEvents, TextTask
from lingon.serving.translation.terms import (
    NO_TERMS,
    NOTHING_STORED,
    CallerStores,
    RequestTerms,
    own_terms,
    request_terms,
)
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

Event = tuple[int, str | pb.TextResult]
"""For the text with this index, more of its translation, or its result."""

Result = TypeVar("Result")
MAX_CACHED_OPTIONS = 256  # resolved options in the cache
MAX_CACHED_PAIRS = 256  # translators of language pairs in the cache
MAX_CACHED_BYTES = 256  # bytes of cached options, because a client can add unknown fields of any size


texts_read: ContextVar[bool] = ContextVar("texts_read", default=False)
"""Whether the texts of the request of this task were normalised and tokenised, even in part."""


class Header(TypedDict):
    """The fields of a reply that are the same for every request."""

    model: str
    version: str
    source_language_code: str
    target_language_code: str


def stream_message(event: Event) -> pb.TranslateStreamResponse:
    """Return the message of an event of a stream."""
    index, happened = event
    if isinstance(happened, str):
        return pb.TranslateStreamResponse(delta=pb.TextDelta(text_index=index, text=happened))
    return pb.TranslateStreamResponse(done=pb.TextDone(text_index=index, result=happened))


class Asked(NamedTuple):
    """A request, and all that its texts are translated with.

    deadline: on the clock of `time.monotonic`; caller: the key of fair queuing
    """

    request: Request
    options: ResolvedOptions
    deadline: float | None
    caller: str
    terms: RequestTerms
    memories: RequestMemories


class Translator:
    """A served model: its bundle, its engine and the limits of both."""

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
        vocabulary: Vocabulary | None = None,
        complete: Callable[[Translator], Iterator[bool]] = lambda translator: iter(()),
        cache: TranslationCache | None = None,
        second: SecondTranslator | None = None,
    ) -> None:
        """limits: limits of the engine; precision, provider: values for `describe`; graph_bytes: value for metrics.

        shortlist: the default for requests that do not set it, or None if the model has none
        vocabulary: of the tokenizer of the bundle, if it was read before
        complete: ends a load on demand, see lingon.serving.models.loading.LoadOptions
        cache: results of earlier requests; None decodes every text
        second: is asked about doubtful sentences; None leaves them as they are
        """
        self._complete = complete
        self.label, self.cache, self.second = bundle.label, cache, second
        self.identity = f"{bundle.label} {bundle.manifest_digest} {precision} {provider} {shortlist}"
        if second is not None:
            self.identity += f" {second.identity}"
        self.engine, self.precision, self.provider = engine, precision, provider
        self.graph_bytes = graph_bytes
        self.keeps_attention = True  # see TextModel; writable before the first request
        self._vocabulary = vocabulary or Vocabulary(bundle.tokenizer())
        tokenizer = self._vocabulary.tokenizer
        self._valid_utf8 = ValidUtf8(self._vocabulary)
        self._limits, self._lexicon = limits, lexicon(bundle.manifest, tokenizer)
        self._alphabet = alphabet_of(tokenizer)
        self._guarding = Guarding.of(bundle, tokenizer, self._vocabulary)
        pair = bundle.manifest.source_language, bundle.manifest.target_language
        self.profiles = tuple(zip(pair, profiles_of(bundle) or (), strict=False))  # empty without profiles
        self._shortlist = shortlist
        self._pairs: dict[tuple[str, str], Translator] = {}
        self._translate_between(bundle.manifest, tokenizer)

    def _translate_between(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        """Set the fields that depend on the pair of languages."""
        self.manifest, self._tokenizer = manifest, tokenizer
        self._header: Header = {
            "model": manifest.name,
            "version": str(manifest.version),
            "source_language_code": manifest.source_language,
            "target_language_code": manifest.target_language,
        }
        self._planner = Planner(tokenizer, manifest, self._limits, self._lexicon, self._alphabet)
        self._sentences = SentenceModel(manifest.limits, tokenizer, self._alphabet, self._guarding, self._valid_utf8)
        self._resolved: dict[tuple[bytes, bytes], ResolvedOptions] = {}

    def complete(self) -> Iterator[bool]:
        """End a load on demand, in several parts, and yield True between them. Raises the errors of a load."""
        return self._complete(self)

    def for_pair(self, source: str, target: str) -> Translator:
        """Return the translator of a pair of the bundle's languages, in the form of the manifest, with the same engine.

        A bundle of one pair has only that one.
        """
        if self.manifest.languages is None:
            return self
        found = self._pairs.get((source, target))
        if found is None:
            tokens = self.manifest.languages.tokens(source, target)
            found = copy.copy(self)
            found._translate_between(self.manifest.for_pair(source, target), self._tokenizer.for_languages(tokens))
            if len(self._pairs) >= MAX_CACHED_PAIRS:
                self._pairs.clear()
            self._pairs[source, target] = found
        return found

    def with_engine(self, engine: Engine, limits: EngineLimits, shortlist: bool | None) -> Translator:
        """Return a translator of the same model with another engine, and with its limits; shortlist: see `__init__`."""
        found = copy.copy(self)
        found.engine, found._limits, found._shortlist, found._pairs = engine, limits, shortlist, {}
        found._translate_between(self.manifest, self._tokenizer)
        return found

    def restart(self) -> None:
        """Replace a dead engine. Later requests use the new one."""
        self.engine = self.engine.restarted()
        self._pairs.clear()

    async def translate(
        self,
        request: pb.TranslateRequest,
        deadline: float | None = None,
        caller: str = "",
        stores: CallerStores = NOTHING_STORED,
    ) -> pb.TranslateResponse:
        """Return the reply to a request.

        deadline: on the clock of `time.monotonic`; caller: the key of fair queuing
        stores: with the glossaries and memories of the caller
        """
        options = self.resolve(request.options, request.text)
        terms = await self.terms(request, options, stores)
        asked = Asked(request, options, deadline, caller, terms, await self.memories(request, options, stores))
        second = self._second(request, deadline, caller)  # a wrong option is an error also of a text in the cache
        if self.cache is None or options.job.sampling is not None:  # sampled texts depend on their index
            results, _ = await self._results(asked, second, {})
        else:
            results = await self._with_cache(self.cache, asked, second)
        return pb.TranslateResponse(results=results, options=options.message, **self._header)

    def one_sentence(self, request: pb.TranslateRequest) -> OneSentence | None:
        """Return the only sentence of a request that one job may answer, or None for others: `translate` answers all.

        Raises InvalidRequest for wrong options, as `translate` does.
        """
        if self.cache is not None or self.second is not None or not has_one_plain_text(request):
            return None
        options = self.resolve(request.options, request.text)
        if request.terms and own_terms(request, options, self._languages).find(request.texts[0]):
            return None
        return self._sentences.read(request.texts[0], options) if is_plain_search(options) else None

    def reply_to(self, sentence: OneSentence, result: pb.TextResult) -> pb.TranslateResponse:
        """Return the reply to the request of `one_sentence`."""
        return pb.TranslateResponse(results=[result], options=sentence.options.message, **self._header)

    async def _with_cache(
        self, cache: TranslationCache, asked: Asked, second: RequestSecond | None
    ) -> list[pb.TextResult]:
        """Return the results of a request, stored ones of texts that were translated before."""
        request = asked.request
        if request.target_prefixes:
            check_prefixes(request)
        keys = cache.keys(
            f"{self.identity} {self._header['source_language_code']} {self._header['target_language_code']}",
            (
                *_options_key(request.options, request.text),
                asked.terms.key,
                asked.memories.key,
                request.second.SerializeToString(deterministic=True) if second is not None else b"never",
            ),
            request.texts,
            request.target_prefixes,
        )
        known = cache.find(keys)
        if len(known) == len(keys):
            texts_read.set(True)
            return [known[index] for index in range(len(keys))]
        results, settled = await self._results(asked, second, known)
        for index in settled:
            if not results[index].status.code:
                cache.store(self.label, keys[index], results[index])
        return results

    async def _results(
        self, asked: Asked, second: RequestSecond | None, known: Mapping[int, pb.TextResult]
    ) -> tuple[list[pb.TextResult], list[int]]:
        """Decode all texts but those of known results. Return all results, and the texts that were decoded.

        Texts whose result might differ at another time are not among the latter, see `TextTask.settled`.
        """
        time_slice = TimeSlice(asked.caller)
        plans = await self.plan(asked.request, asked.options, time_slice, known, asked.terms, asked.memories)
        client = self.open_client(asked.deadline, asked.caller)
        tasks = await self._tasks(plans, client, asked.options, time_slice, second=second)
        done = await self._run(client, tasks, at_once=any(task.submits_more for task in tasks))
        whole = len(done) == len(plans)
        results = [*done.values()] if whole else await _in_order({**known, **done}, plans, text_error, time_slice)
        return results, [task.index for task in tasks if task.settled]

    def resolve(self, asked: pb.DecodingOptions, text: pb.TextOptions | None = None) -> ResolvedOptions:
        """Return the options of a request with this model's defaults, checked."""
        text = text or pb.TextOptions()
        key = _options_key(asked, text)
        found = self._resolved.get(key)
        if found is None:
            found = resolve(asked, self.manifest, self._vocabulary, self._shortlist, text)
            if len(self._resolved) >= MAX_CACHED_OPTIONS:
                self._resolved.clear()
            if sum(map(len, key)) <= MAX_CACHED_BYTES:
                self._resolved[key] = found
        return found

    async def terms(
        self, request: Request, options: ResolvedOptions, stores: CallerStores = NOTHING_STORED
    ) -> RequestTerms:
        """Return the terms of a request, see `request_terms`. options: of the request, resolved."""
        return await request_terms(request, options, self._languages, stores)

    async def memories(
        self, request: Request, options: ResolvedOptions, stores: CallerStores = NOTHING_STORED
    ) -> RequestMemories:
        """Return the translation memories of a request, see `request_memories`. options: of the request, resolved."""
        return await request_memories(request, options, self._languages, stores.memories, stores.owner)

    @property
    def _languages(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.manifest.source_language, self.manifest.target_language

    def start(self, options: ResolvedOptions) -> pb.StreamStart:
        """Return the first message of a stream."""
        return pb.StreamStart(options=options.message, **self._header)

    async def stream(
        self,
        request: Request,
        options: ResolvedOptions,
        deadline: float | None = None,
        caller: str = "",
        terms: RequestTerms = NO_TERMS,
        memories: RequestMemories = NO_MEMORIES,
    ) -> AsyncGenerator[Event, None]:
        """Yield the deltas of every text and its result, as they arise.

        Closing this generator cancels the jobs of the request. Use it within `aclosing`.

        terms: see `terms`; memories: see `memories`
        """
        time_slice = TimeSlice(caller)
        plans = await self.plan(request, options, time_slice, terms=terms, memories=memories)
        client, second = self.open_client(deadline, caller), self._second(request, deadline, caller)
        events = TextEvents()
        tasks = await self._tasks(plans, client, options, time_slice, events if options.streams else None, second)
        try:
            self._submit(client, tasks)
            for task in tasks:
                events.watch(task)
            for index, plan in enumerate(plans):
                if isinstance(plan, RequestError):
                    yield index, await _refused(text_error, plan, time_slice)
            while events.open:
                task, result = await events.next()
                if delta := task.delta():
                    yield task.index, delta
                if result is not None:
                    yield task.index, result
        finally:
            client.cancel_all()
            await events.cancel_all()

    async def score(
        self, request: pb.ScoreRequest, deadline: float | None = None, caller: str = ""
    ) -> pb.ScoreResponse:
        """Return the model's probability of given translations."""
        aligned = request.return_alignment
        if aligned:
            check_alignment(self.manifest, "return_alignment")
        attention: AttentionChoice = ()
        if request.HasField("attention"):
            attention = choose_attention(request.attention, self.manifest, self.engine.attention)
        self.engine.check_texts(caller, len(request.pairs))
        time_slice = TimeSlice(caller)
        texts_read.set(True)
        plans = await self._planner.plan_pairs(request, attention, time_slice)
        client = self.open_client(deadline, caller)
        tasks = [
            PairTask(index, plan, client, self._tokenizer, time_slice, aligned=aligned, attention=attention)
            for index, plan in enumerate(plans)
            if isinstance(plan, PairPlan)
        ]
        done = await self._run(client, tasks)
        results = await _in_order(done, plans, pair_error, time_slice)
        return pb.ScoreResponse(results=results, model=self._header["model"], version=self._header["version"])

    def describe(self) -> pb.Model:
        """Return the model in the form of ListModels."""
        found = describe(self.manifest, self.precision, self.provider, self._shortlist)
        found.loaded = True
        return found

    async def plan(
        self,
        request: Request,
        options: ResolvedOptions,
        time_slice: TimeSlice,
        known: Collection[int] = (),
        terms: RequestTerms = NO_TERMS,
        memories: RequestMemories = NO_MEMORIES,
    ) -> list[TextPlan | RequestError | None]:
        """Return the plan of each text, or the error of the text. Raises RequestTooLarge and QueueFull.

        known: indices of texts that need no plan, and have None; terms: see `terms`; memories: see `memories`

        The engine has room for a request before its texts are read. QueueFull is raised as soon as it is certain.
        """
        self.engine.check_texts(time_slice.caller, len(request.texts) - len(known))
        texts_read.set(True)
        check_queue = partial(self.engine.check_texts, time_slice.caller)
        plans = await self._planner.plan_texts(request, options, time_slice, check_queue, known, terms)
        if not memories:
            return plans
        return [await with_matches(plan, memories) if isinstance(plan, TextPlan) else plan for plan in plans]

    def kept_of(self, sentence: str) -> Reading | None:
        """Return a normalised sentence with what is kept of it, or None if nothing is. Raises TooManySpans.

        The characters that the model cannot read are kept too.
        """
        spans = () if is_simple(sentence) else tuple(find_protected(sentence, most=MOST_KEPT))
        reading = None
        if not self._alphabet.knows(sentence):
            reading = read_characters(sentence, spans, self._alphabet, keeps=True, most=MOST_KEPT)
        reading = reading or Reading(sentence, spans)
        return reading if reading.spans else None

    @property
    def names(self) -> Sequence[str]:
        """Words that the model translates to themselves, the surest first, which stand for kept strings."""
        return self._lexicon.words

    @property
    def most_sentences(self) -> int:
        """The most sentences of a request."""
        return self._limits.max_queue_texts

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the pair of languages."""
        return self._tokenizer

    def open_client(self, deadline: float | None, caller: str) -> EngineClient:
        """Return a client of the engine for the jobs of one request, on the running event loop.

        deadline: on the clock of `time.monotonic`; caller: the key of fair queuing
        """
        return EngineClient(self.engine, self._valid_utf8, deadline, caller, self._tokenizer.languages)

    def _second(self, request: Request, deadline: float | None, caller: str) -> RequestSecond | None:
        """Return the second translator for a request, or None if it must not be asked. Raises InvalidRequest."""
        languages = self.manifest.source_language, self.manifest.target_language
        return RequestSecond.of(self.second, request.second, caller, deadline, languages)

    async def _tasks(
        self,
        plans: Sequence[TextPlan | RequestError | None],
        client: EngineClient,
        options: ResolvedOptions,
        time_slice: TimeSlice,
        events: TextEvents | None = None,
        second: RequestSecond | None = None,
    ) -> list[TextTask]:
        on_growth = events.grown if events is not None else None
        aligns = bool(self.manifest.alignment.heads)
        limits, tokenizer = self.manifest.limits, self._tokenizer
        model = TextModel(
            limits,
            tokenizer,
            self._guarding,
            aligns,
            self._lexicon,
            self._vocabulary,
            self.manifest.terms,
            self.keeps_attention,
        )
        tasks: list[TextTask] = []
        for index, plan in enumerate(plans):
            if isinstance(plan, TextPlan):
                if tasks and time.monotonic() > time_slice.end:
                    await time_slice.yield_if_due()
                tasks.append(TextTask(index, plan, client, options, model, time_slice, on_growth, second))
        return tasks

    def _submit(self, client: EngineClient, tasks: Sequence[RequestTask[Result]]) -> None:
        traced = [(task.index, pending) for task in tasks for pending in task.pending]
        pending = [each for _, each in traced]
        with current().trace_jobs((index, each.job, each.outcome) for index, each in traced):
            client.submit(pending)

    async def _run(
        self, client: EngineClient, tasks: Sequence[RequestTask[Result]], *, at_once: bool = False
    ) -> dict[int, Result]:
        """Return the result of each task by its index.

        at_once: whether to wait for all tasks at the same time, because each submits more jobs after its first ones
        """
        waiting: list[asyncio.Task[Result]] = []
        try:
            self._submit(client, tasks)
            if at_once and len(tasks) > 1:
                waiting = [asyncio.ensure_future(task.result()) for task in tasks]
                await asyncio.gather(*waiting)
                return {task.index: each.result() for task, each in zip(tasks, waiting, strict=True)}
            return {task.index: await task.result() for task in tasks}
        finally:
            client.cancel_all()
            for each in waiting:
                each.cancel()


def describe(manifest: Manifest, precision: str, provider: str, shortlist: bool | None) -> pb.Model:
    """Return a model that need not be loaded in the form of ListModels.

    shortlist: whether requests use it by default, or None if the model has none
    """
    limits, languages = manifest.limits, manifest.languages
    return pb.Model(
        name=manifest.name,
        version=str(manifest.version),
        source_language_code=manifest.source_language,
        target_language_code=manifest.target_language,
        precision=precision,
        provider=provider,
        max_source_tokens=limits.max_source_tokens,
        max_target_tokens=limits.max_target_tokens,
        output_factor=limits.output_factor,
        output_extra=limits.output_extra,
        max_beam_size=limits.max_beam_size,
        default_options=resolve(pb.DecodingOptions(), manifest, None, shortlist).message,
        has_shortlist=shortlist is not None,
        has_confidence=manifest.text is not None and manifest.text.confidence is not None,
        source_language_codes=[each.language for each in languages.sources] if languages else (),
        target_language_codes=[each.language for each in languages.targets] if languages else (),
    )


def _options_key(asked: pb.DecodingOptions, text: pb.TextOptions) -> tuple[bytes, bytes]:
    """Return the options of a request as bytes, which are the same for equal options."""
    return asked.SerializeToString(deterministic=True), text.SerializeToString(deterministic=True)


async def _in_order(
    done: Mapping[int, Result],
    plans: Sequence[TextPlan | PairPlan | RequestError | None],
    result_of: Callable[[RequestError], Result],
    time_slice: TimeSlice,
) -> list[Result]:
    """Return the results in the order of the request, of finished tasks and of texts without a plan."""
    return [
        done[index] if index in done else await _refused(result_of, plan, time_slice)
        for index, plan in enumerate(plans)
    ]


async def _refused(
    result_of: Callable[[RequestError], Result], plan: TextPlan | PairPlan | RequestError | None, time_slice: TimeSlice
) -> Result:
    assert isinstance(plan, RequestError)
    await time_slice.yield_if_due()
    return result_of(plan)
