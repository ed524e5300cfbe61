"""Plans the texts and the pairs of a request: where each is split, normalised, and in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lingon.bundle import Manifest
from lingon.errors import EmptyText, InvalidRequest, RequestError, RequestTooLarge
from lingon.segments.boundaries import Span, has_space
from lingon.segments.document import Document, Split, cut
from lingon.sentences import WordTooLong
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.runner import AttentionChoice
from lingon.serving.system.event_loop import TimeSlice
from lingon.serving.translation.planning.attention import count_weights
from lingon.serving.translation.planning.input_processor import (
    PairPlan,
    Part,
    TextPlan,
    blocks,
    check_prefix,
    check_size,
    most_characters,
    parts_of,
    plan_pair,
    target_ids,
    word_too_long,
)
from lingon.serving.translation.planning.options import ResolvedOptions
from lingon.serving.translation.planning.request_size import RequestSize
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

Request = pb.TranslateRequest | pb.TranslateStreamRequest


class Planner:
    """Plans requests for one model; gives way to other requests between sentences."""

    def __init__(self, tokenizer: Tokenizer, manifest: Manifest, limits: EngineLimits) -> None:
        """limits: of what one request may queue."""
        self._tokenizer, self._manifest, self._limits = tokenizer, manifest, limits

    async def plan_texts(
        self, request: Request, options: ResolvedOptions, time_slice: TimeSlice
    ) -> list[TextPlan | RequestError]:
        """Return what is to be decoded for each text, or why it cannot be; raises RequestTooLarge."""
        prefixes = request.target_prefixes or [""] * len(request.texts)
        if len(prefixes) != len(request.texts):
            message = f"target_prefixes must be none or one for each of {len(request.texts)} texts, got {len(prefixes)}"
            raise InvalidRequest("target_prefixes", message)
        size = RequestSize("texts", self._limits, options.samples)
        plans: list[TextPlan | RequestError] = []
        for index, (text, prefix) in enumerate(zip(request.texts, prefixes, strict=True)):
            try:
                plan = await self._plan_text(text, f"texts[{index}]", options, time_slice, size)
                plans.append(self._with_prefix(plan, prefix, f"target_prefixes[{index}]", options))
            except RequestTooLarge:
                raise
            except InvalidRequest as error:
                plans.append(error.with_traceback(None))  # its frames hold `plans`: no reference cycle
            await time_slice.yield_if_due()
        return plans

    async def plan_pairs(
        self, request: pb.ScoreRequest, attention: AttentionChoice, time_slice: TimeSlice
    ) -> list[PairPlan | RequestError]:
        """Return what is to be scored for each pair, or why it cannot be; raises RequestTooLarge."""
        limits, size = self._manifest.limits, RequestSize("pairs", self._limits)
        plans: list[PairPlan | RequestError] = []
        for index, pair in enumerate(request.pairs):
            try:
                plan = plan_pair(pair.source, pair.target, f"pairs[{index}]", self._tokenizer, limits)
            except InvalidRequest as error:
                plans.append(error.with_traceback(None))  # its frames hold `plans`: no reference cycle
            else:
                size.add_sentence(len(plan.source_ids) + len(plan.target_ids))
                size.add_attention(count_weights(attention, len(plan.source_ids), len(plan.target_ids) + 1))
                plans.append(plan)
            await time_slice.yield_if_due()
        return plans

    async def _plan_text(
        self, text: str, field: str, options: ResolvedOptions, time_slice: TimeSlice, size: RequestSize
    ) -> TextPlan:
        limits, whole = self._manifest.limits, options.sentences is Split.OFF
        check_size(text, field, limits, splits=options.splits or not whole, most=size.most_characters)
        size.add_characters(len(text))
        segments: list[Span] = []
        parts: list[Part] = []
        begin, longest = 0, len(text.strip())  # begin: of the next sentence in the normalised text
        for segment in cut(text, options.sentences, self._manifest.source_language):
            if segments and has_space(text[segments[-1][1] : segment[0]]):
                begin += 1
            has = "has" if whole or segment[1] - segment[0] == longest else "has a sentence of"
            for part in await self._parts(text[slice(*segment)], field, options, time_slice, size, has):
                parts.append(replace(part, begin=begin + part.begin, sentence=len(segments)))
            begin = parts[-1].begin + len(parts[-1].text)
            segments.append(segment)
            await time_slice.yield_if_due()
        if not parts:
            raise EmptyText(field, f"{field} is empty")
        if options.rules is not None:
            options.rules.check_parts(len(parts), field)
        return TextPlan(Document(text, tuple(segments)), tuple(parts))

    def _with_prefix(self, plan: TextPlan, prefix: str, name: str, options: ResolvedOptions) -> TextPlan:
        if not prefix:
            return plan
        limits = self._manifest.limits
        if options.rules is not None:
            options.rules.check_prefix(prefix, name)
        plan = replace(plan, prefix=target_ids(prefix, name, self._tokenizer, limits.max_target_tokens - 1))
        check_prefix(limits, plan, name)
        return plan

    async def _parts(
        self, sentence: str, field: str, options: ResolvedOptions, time_slice: TimeSlice, size: RequestSize, has: str
    ) -> Sequence[Part]:
        """Return the parts of a sentence; has: see `check_size`."""
        limits, done, parts = self._manifest.limits, list[str](), list[Part]()
        check_size(sentence, field, limits, splits=options.splits, most=len(sentence), has=has)
        try:
            for block in blocks(sentence, most_characters(limits.max_source_tokens)):
                done.append(normalise(block))
                await time_slice.yield_if_due()
        except WordTooLong:
            raise word_too_long(field, limits) from None
        normalised = " ".join(filter(None, done))
        for part in parts_of(normalised, field, self._tokenizer, limits, splits=options.splits, has=has):
            size.add_sentence(len(part.source_ids))
            parts.append(part)
            await time_slice.yield_if_due()
        return parts
