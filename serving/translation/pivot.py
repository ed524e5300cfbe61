"""Translation between languages without a model: into a pivot language, and from there into the target."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from google.rpc import code_pb2

from lingon.errors import QueueFull, RequestTooLarge, Unsupported
from lingon.serving.translation.engine_client import RETRY_SECONDS
from lingon.serving.translation.memories import NO_MEMORIES, RequestMemories, request_memories
from lingon.serving.translation.options import ResolvedOptions
from lingon.serving.translation.pivot_memories import (
    TakenSentences,
    first_options,
    first_stores,
    set_matches,
    warn_of_fuzzy,
)
from lingon.serving.translation.pivot_terms import Bridges, GivenTerms, bridged, occurring, set_outcomes
from lingon.serving.translation.planner import Request, check_prefixes
from lingon.serving.translation.terms import NO_TERMS, NOTHING_STORED, CallerStores, RequestTerms, request_terms
from lingon.serving.translation.translator import Asked, Event, Header, Translator
from lingon.terms.term import Term
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb


def pivoted(first: pb.TextResult, second: pb.TextResult, *, sentences: bool) -> pb.TextResult:
    """Return the second result with the additions of the first one. Both have their sentences.

    sentences: whether the returned result has them
    """
    codes = {warning.code for warning in second.warnings}
    second.warnings.extend(warning for warning in first.warnings if warning.code not in codes)
    second.usage.source_tokens += first.usage.source_tokens
    second.usage.target_tokens += first.usage.target_tokens
    if first.hypotheses[0].finish_reason == pb.FINISH_REASON_LENGTH:
        for hypothesis in second.hypotheses:
            hypothesis.finish_reason = pb.FINISH_REASON_LENGTH
    found = pivoted_sentences(first.sentences, second.sentences)
    confidences = [each.confidence for each in found if each.HasField("confidence")]
    second.ClearField("confidence")
    if confidences:
        second.confidence = min(confidences)
    second.ClearField("sentences")
    if sentences:
        second.sentences.extend(found)
    return second


def pivoted_sentences(first: Iterable[pb.Sentence], second: Iterable[pb.Sentence]) -> list[pb.Sentence]:
    """Return the sentences of a text. Sentences that the second translation joins or divides differently become one.

    The targets of the first sentences and the sources of the second ones are spans of the same text.
    """
    spans = [(each.target, 0, each) for each in first] + [(each.source, 1, each) for each in second]
    spans.sort(key=lambda found: (found[0].begin, found[1]))
    groups: list[tuple[list[pb.Sentence], list[pb.Sentence]]] = []
    reached = -1
    for span, side, sentence in spans:
        if span.begin >= reached or not groups:
            groups.append(([], []))
        groups[-1][side].append(sentence)
        reached = max(reached, span.end)
    found: list[pb.Sentence] = []
    for ones, others in groups:
        if ones:  # text without a sentence of the first translation has none here
            found.append(_joined(ones, others, found[-1].target.end if found else 0))
    return found


def _joined(first: Sequence[pb.Sentence], second: Sequence[pb.Sentence], end: int) -> pb.Sentence:
    """Return a sentence of the text; end: end of the previous translation, for a sentence without one."""
    judged = second or first
    whole = pb.Sentence(
        source=_span([each.source for each in first]),
        target=_span([each.target for each in second]) if second else pb.Span(begin=end, end=end),
        score=sum(each.score for each in judged),
        warnings=dict.fromkeys(code for side in (first, second) for each in side for code in each.warnings),
    )
    if all(each.HasField("confidence") for each in (*first, *second)):
        whole.confidence = min(each.confidence for each in first) * min((each.confidence for each in second), default=0)
    return whole


def _span(spans: Sequence[pb.Span]) -> pb.Span:
    return pb.Span(begin=min(each.begin for each in spans), end=max(each.end for each in spans))


NEVER = pb.SecondOptions(never=True)
"""No second translator: it would translate between other languages than those of the request."""

GIVEN = ("terms",)
"""The name of the glossary of GivenTerms."""
BATCH = 32  # terms that are translated into the pivot language at once

Answered = Callable[[Iterable[pb.TextResult]], None]


class Hop(NamedTuple):
    """One of the two models; answered: counts its results."""

    translator: Translator
    answered: Answered


class _Header(Header):
    """The fields of a reply that are the same for every request."""

    pivot_language_code: str


class _Intermediate(NamedTuple):
    """A request between its two translations.

    results: result of the first one for each text
    indices: texts whose translation has text
    request: into the target language, for these texts
    bridges: the terms; outcomes: of them in the first translations of these texts
    taken: the sentences of these texts that are from memories
    """

    results: Sequence[pb.TextResult]
    indices: Sequence[int]
    request: pb.TranslateRequest
    bridges: Bridges
    outcomes: Sequence[Sequence[pb.TermOutcome]]
    taken: TakenSentences


class PivotTranslator:
    """The methods of a Translator for a pair of models."""

    def __init__(self, into: Hop, out_of: Hop) -> None:
        """into, out_of: translate into the pivot language and out of it."""
        self._into, self._out_of = into, out_of
        self._first, self._second = into.translator, out_of.translator
        first, second = self._first.manifest, self._second.manifest
        self._header: _Header = {
            "model": f"{first.name}+{second.name}",
            "version": f"{first.version}+{second.version}",
            "source_language_code": first.source_language,
            "target_language_code": second.target_language,
            "pivot_language_code": second.source_language,
        }

    def resolve(self, asked: pb.DecodingOptions, text: pb.TextOptions) -> ResolvedOptions:
        """Return the checked options of the second translation. The first one derives its options from them."""
        if asked.return_alignment:
            pair = f"{self._first.manifest.source_language} to {self._second.manifest.target_language}"
            message = f"options.return_alignment needs a model that translates {pair}; {self._header['model']} are two"
            raise Unsupported(message)
        if text.format == pb.TEXT_FORMAT_PIECES:
            pair = f"{self._first.manifest.source_language} to {self._second.manifest.target_language}"
            message = f"text.format PIECES needs a model that translates {pair}; {self._header['model']} are two"
            raise Unsupported(message)
        return self._second.resolve(asked, _with_sentences(text))

    async def terms(
        self, request: Request, options: ResolvedOptions, stores: CallerStores = NOTHING_STORED
    ) -> RequestTerms:
        """Return the terms of a request from the source to the target language, see `request_terms`."""
        languages = self._first.manifest.source_language, self._second.manifest.target_language
        return await request_terms(request, options, languages, stores)

    async def memories(
        self, request: Request, options: ResolvedOptions, stores: CallerStores = NOTHING_STORED
    ) -> RequestMemories:
        """Return the memories of a request from the source to the target language, see `request_memories`.

        Nothing is taken from them if the begin of a translation is given, which may be in another sentence.
        """
        languages = self._first.manifest.source_language, self._second.manifest.target_language
        found = await request_memories(request, options, languages, stores.memories, stores.owner)
        return replace(found, takes=False) if any(request.target_prefixes) else found

    async def translate(
        self,
        request: pb.TranslateRequest,
        deadline: float | None = None,
        caller: str = "",
        stores: CallerStores = NOTHING_STORED,
    ) -> pb.TranslateResponse:
        options = self.resolve(request.options, request.text)
        terms = await self.terms(request, options, stores)
        asked = Asked(request, options, deadline, caller, terms, await self.memories(request, options, stores))
        results = await self._results(asked)
        return pb.TranslateResponse(results=results, options=options.message, **self._header)

    async def _results(self, asked: Asked) -> list[pb.TextResult]:
        """Return the results of all texts. One with a sentence from a memory that is uncertain is translated twice."""
        request, intermediate = asked.request, await self._to_pivot(asked)
        results, uncertain = [*intermediate.results], list[int]()
        if intermediate.indices:
            found = await self._out_of_pivot(intermediate, asked.deadline, asked.caller)
            self._out_of.answered(found)
            for place, (index, result) in enumerate(zip(intermediate.indices, found, strict=True)):
                if result.status.code == code_pb2.OK and not intermediate.taken.are_in(place, result):
                    uncertain.append(index)
                results[index] = self._whole(intermediate.results[index], result, request)
        if uncertain:
            again = pb.TranslateRequest(
                texts=[request.texts[index] for index in uncertain],
                options=request.options,
                text=request.text,
                memory=request.memory,
            )
            without = replace(asked.memories, takes=False)
            rest = await self._results(asked._replace(request=again, memories=without))
            for index, result in zip(uncertain, rest, strict=True):
                results[index] = result
        if request.memory.use_fuzzy:
            for index in {*range(len(results))} - {*uncertain}:
                warn_of_fuzzy(results[index])
        return results

    def start(self, options: ResolvedOptions) -> pb.StreamStart:
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
        """See Translator. The first translation of all texts is complete before the first event.

        With terms or memories the second one is complete, too: each text is one delta.
        """
        asked = Asked(request, options, deadline, caller, terms, memories)
        if terms or memories:
            found = await self._results(asked)
            for number, result in enumerate(found):
                if result.hypotheses and result.hypotheses[0].text:
                    yield number, result.hypotheses[0].text
                yield number, result
            return
        intermediate = await self._to_pivot(asked)
        for number in sorted({*range(len(intermediate.results))} - {*intermediate.indices}):
            result = intermediate.results[number]
            if result.hypotheses and result.hypotheses[0].text:  # blanks, which are their own translation
                yield number, result.hypotheses[0].text
            yield number, result
        if not intermediate.indices:
            return
        async with aclosing(self._patient_stream(intermediate.request, options, deadline, caller)) as events:
            async for position, happened in events:
                number = intermediate.indices[position]
                if isinstance(happened, str):
                    yield number, happened
                    continue
                self._out_of.answered([happened])
                yield number, self._whole(intermediate.results[number], happened, request)

    async def _to_pivot(self, asked: Asked) -> _Intermediate:
        """Translate the texts into the pivot language. Terms and memories are from the source to the target."""
        request, options, deadline, caller, terms, memories = asked
        check_prefixes(request)
        self._second.engine.check_texts(caller, len(request.texts))  # avoids work on texts that are refused later
        text, bridges = _with_sentences(request.text), await self._bridges(request, terms, deadline, caller)
        reply = await self._first.translate(
            pb.TranslateRequest(
                texts=request.texts,
                options=self._first_options(request.options),
                text=text,
                second=NEVER,
                glossaries=GIVEN if bridges else (),
                memory=first_options(memories),
            ),
            deadline,
            caller,
            first_stores(memories, GivenTerms(bridges.first_terms())),
        )
        outcomes = [[*result.terms] for result in reply.results]
        for result, first in zip(reply.results, outcomes, strict=True):
            set_outcomes(result, bridges.outcomes(first, ()))
        self._into.answered(reply.results)
        indices = [index for index, result in enumerate(reply.results) if _has_text(result)]
        if not request.text.return_sentences:
            for result in reply.results:
                if not _has_text(result):
                    result.ClearField("sentences")
        prefixes, language = request.target_prefixes, self._second.manifest.source_language
        taken = TakenSentences([reply.results[index] for index in indices], options.text, language)
        rest = pb.TranslateRequest(
            texts=[reply.results[index].hypotheses[0].text for index in indices],
            options=request.options,
            target_prefixes=[prefixes[index] for index in indices] if prefixes else (),
            text=text,
            second=NEVER,
            memory=taken.options,
        )
        return _Intermediate(reply.results, indices, rest, bridges, [outcomes[index] for index in indices], taken)

    async def _bridges(self, request: Request, terms: RequestTerms, deadline: float | None, caller: str) -> Bridges:
        """Return the terms that may be in the texts, with their translations into the pivot language.

        Raises RequestTooLarge for more than a request may have sentences: each is translated, and terms within each
        other may be many more than the words of the texts.
        """
        owned = await asyncio.to_thread(occurring, terms, request.texts) if terms else []
        if len(owned) > (most := self._first.most_sentences):
            raise RequestTooLarge(
                "texts",
                f"texts have {len(owned)} different terms; a request through a pivot language may have {most} at most; "
                "send it in several",
            )
        options, found = self._first_options(request.options), list[str]()
        for begin in range(0, len(owned), BATCH):
            batch = pb.TranslateRequest(
                texts=[each.term.source for each in owned[begin : begin + BATCH]], options=options, second=NEVER
            )
            reply = await self._first.translate(batch, deadline, caller)
            found += [each.hypotheses[0].text if _has_text(each) else "" for each in reply.results]
        return bridged(owned, found, self._first.manifest.target_language)

    async def _out_of_pivot(
        self, intermediate: _Intermediate, deadline: float | None, caller: str
    ) -> Sequence[pb.TextResult]:
        """Return the second translations. Texts with the same terms are one request, because terms are of a request."""
        if not intermediate.bridges:
            stores = intermediate.taken.stores(GivenTerms(()))
            return (await self._patiently(intermediate.request, deadline, caller, stores)).results
        request, bridges, language = intermediate.request, intermediate.bridges, self._second.manifest.source_language
        groups = defaultdict[tuple[Term, ...], list[int]](list)
        for place, (text, first) in enumerate(zip(request.texts, intermediate.outcomes, strict=True)):
            groups[tuple(bridges.second_terms(text, first, language))].append(place)
        results = [pb.TextResult() for _ in request.texts]

        async def translate(terms: Sequence[Term], places: Sequence[int]) -> None:
            part = pb.TranslateRequest(glossaries=GIVEN if terms else ())
            part.MergeFrom(request)
            for name in ("texts", "target_prefixes") if request.target_prefixes else ("texts",):
                part.ClearField(name)
                getattr(part, name).extend(getattr(request, name)[place] for place in places)
            stores = intermediate.taken.stores(GivenTerms(terms))
            reply = await self._patiently(part, deadline, caller, stores)
            for place, result in zip(places, reply.results, strict=True):
                set_outcomes(result, bridges.outcomes(intermediate.outcomes[place], result.terms))
                results[place] = result

        tasks = [asyncio.ensure_future(translate(terms, places)) for terms, places in groups.items()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for each in tasks:
                each.cancel()
        return results

    def _first_options(self, asked: pb.DecodingOptions) -> pb.DecodingOptions:
        """Return the options of the first translation: the requested options of the search, not of its results."""
        options = pb.DecodingOptions(long_text=asked.long_text)
        for name in ("length_penalty", "coverage_penalty", "patience"):
            if asked.HasField(name):
                setattr(options, name, getattr(asked, name))
        beam_size = asked.beam_size if asked.HasField("beam_size") else self._first.manifest.defaults.beam_size
        options.beam_size = min(beam_size, self._first.manifest.limits.max_beam_size)
        options.num_hypotheses = 1
        return options

    async def _patiently(
        self,
        request: pb.TranslateRequest,
        deadline: float | None,
        caller: str,
        stores: CallerStores,
    ) -> pb.TranslateResponse:
        """Return the second translation. A full queue delays it, because the texts were admitted before."""
        while True:
            try:
                return await self._second.translate(request, deadline, caller, stores)
            except QueueFull:
                await asyncio.sleep(RETRY_SECONDS)

    async def _patient_stream(
        self, request: pb.TranslateRequest, options: ResolvedOptions, deadline: float | None, caller: str
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the second translation. A full queue delays the first event, see `_patiently`."""
        while True:
            try:
                async with aclosing(self._second.stream(request, options, deadline, caller)) as events:
                    async for event in events:
                        yield event
                return
            except QueueFull:
                await asyncio.sleep(RETRY_SECONDS)

    def _whole(self, first: pb.TextResult, second: pb.TextResult, request: Request) -> pb.TextResult:
        if second.status.code == code_pb2.OK:
            set_outcomes(first, ())  # those of the whole are in the second one
            set_matches(second, first)
            return pivoted(first, second, sentences=request.text.return_sentences)
        second.status.message = f"translated to {self._second.manifest.source_language}: {second.status.message}"
        return second


def joined(hops: Sequence[Hop]) -> tuple[Translator | PivotTranslator, Answered]:
    """Return the translator for one model or two, and the function that receives its results."""
    if len(hops) == 1:
        return hops[0]
    return PivotTranslator(*hops), lambda results: None  # each hop has received its own results


def _has_text(result: pb.TextResult) -> bool:
    return result.status.code == code_pb2.OK and bool(normalise(result.hypotheses[0].text))


def _with_sentences(text: pb.TextOptions) -> pb.TextOptions:
    """Return the options with sentences in the results, because the sentences of both translations are joined."""
    found = pb.TextOptions()
    found.CopyFrom(text)
    found.return_sentences = True
    return found
