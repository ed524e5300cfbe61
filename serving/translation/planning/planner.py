"""Plans the texts and the pairs of a request: where each is split, normalised, and in tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lingon.bundle import Limits, Manifest
from lingon.errors import InvalidRequest, RequestError, RequestTooLarge, TextTooLong
from lingon.segments.boundaries import Span, has_letters, next_visible, without_blanks_around
from lingon.segments.capitals import is_in_capitals
from lingon.segments.characters.alphabet import Alphabet
from lingon.segments.characters.read import read_characters
from lingon.segments.characters.reading import Reading
from lingon.segments.document import Document, Split
from lingon.segments.protection.find import TooManySpans
from lingon.segments.protection.sentence import kept_strings
from lingon.segments.protection.separators import Custom
from lingon.segments.protection.spans import ProtectedSpan, without
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.runner import AttentionChoice
from lingon.serving.system.event_loop import TimeSlice
from lingon.serving.translation.pieces import source_of_pieces, target_of_pieces
from lingon.serving.translation.planning.attention import count_weights
from lingon.serving.translation.planning.customs import custom_of
from lingon.serving.translation.planning.input_processor import (
    PairPlan,
    Part,
    Steps,
    TextPlan,
    as_sent,
    blocks,
    check_prefix,
    check_size,
    joined,
    most_characters,
    normalised_separator,
    parts_of,
    plan_pair,
    target_ids,
)
from lingon.serving.translation.planning.lexicon import Lexicon
from lingon.serving.translation.planning.options import ResolvedOptions
from lingon.serving.translation.planning.request_size import MOST_KEPT, RequestSize
from lingon.serving.translation.planning.source import read_source
from lingon.serving.translation.planning.text_options import Format, TextChoice, format_of
from lingon.serving.translation.target_prefix import Begin
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

AT_ONCE = 4_000  # characters of a sentence whose characters are looked at in one go, within some milliseconds

Request = pb.TranslateRequest | pb.TranslateStreamRequest


def check_prefixes(request: Request) -> None:
    """Raise InvalidRequest unless there is no target prefix, or one for each text."""
    texts, prefixes = len(request.texts), len(request.target_prefixes)
    if prefixes not in (0, texts):
        message = f"target_prefixes must be none or one for each of {texts} texts, got {prefixes}"
        raise InvalidRequest("target_prefixes", message)


class Planner:
    """Plans requests for one model; gives way to other requests between sentences."""

    def __init__(
        self, tokenizer: Tokenizer, manifest: Manifest, limits: EngineLimits, lexicon: Lexicon, alphabet: Alphabet
    ) -> None:
        """limits: of what one request may queue; alphabet: what the model reads."""
        self._tokenizer, self._manifest, self._limits, self._lexicon = tokenizer, manifest, limits, lexicon
        self._alphabet = alphabet

    async def plan_texts(
        self, request: Request, options: ResolvedOptions, time_slice: TimeSlice, check_queue: Callable[[int], None]
    ) -> list[TextPlan | RequestError]:
        """Return what is to be decoded for each text, or why it cannot be; raises RequestTooLarge.

        check_queue: see RequestSize
        """
        check_prefixes(request)
        prefixes = request.target_prefixes or [""] * len(request.texts)
        if any(prefixes) and options.text.format.is_markup:
            raise InvalidRequest("target_prefixes", "target_prefixes cannot be used with a text.format with markup")
        size = RequestSize("texts", self._limits, options.samples, check_queue)
        plans: list[TextPlan | RequestError] = []
        for index, (text, prefix) in enumerate(zip(request.texts, prefixes, strict=True)):
            try:
                begun = bool(prefix) or options.alternatives > 0
                if options.text.format is Format.PIECES:
                    plan = self._plan_pieces(text, f"texts[{index}]", options, size)
                else:
                    plan = await self._plan_text(text, f"texts[{index}]", options, time_slice, size, begun=begun)
                prefix = without_mark(plan, prefix)
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
        if (written := format_of(request.format, "format")).is_markup:
            raise InvalidRequest("format", "format must be plain or pieces; the text of markup can be scored alone")
        plans: list[PairPlan | RequestError] = []
        for index, pair in enumerate(request.pairs):
            try:
                if written is Format.PIECES:
                    plan = self._pair_in_pieces(pair, f"pairs[{index}]", size)
                else:
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
        self,
        text: str,
        field: str,
        options: ResolvedOptions,
        time_slice: TimeSlice,
        size: RequestSize,
        *,
        begun: bool,
    ) -> TextPlan:
        """Return the plan of a text without its prefix; without parts if there is nothing to translate.

        begun: whether it has a prefix, or alternatives at its begin
        """
        limits, whole = self._manifest.limits, options.text.sentences is Split.OFF
        splits = options.splits or not whole or options.text.format.is_markup
        check_size(text, field, limits, splits=splits, most=size.most_characters)
        source = await read_source(text, field, options.text, size)
        segments, parts = list[Span](), list[Part]()
        reader = _Reader(
            self._tokenizer,
            self._alphabet if options.text.twins else None,
            limits,
            field,
            options.splits,
            time_slice,
            size,
        )
        begin, longest = 0, len(source.text.strip())  # begin: of the next sentence in the normalised text
        for segment, spans in source.sentences(options.text, self._manifest.source_language):
            if not _is_read(source.text, segment, options.text):
                size.add_part_without_letters()
                await time_slice.yield_if_due()
                continue
            has = "has" if whole or segment[1] - segment[0] == longest else "has a sentence of"
            sentence = source.text[slice(*segment)]
            steps = await self._steps(sentence, spans, field, options.text, size, begun=begun and not segments)
            if steps is not None:
                own: Sequence[Part] = [await reader.in_steps(steps, has)]
            else:
                own = await reader.parts(sentence, has)
            await time_slice.yield_if_due()
            if not own:
                continue
            before = source.text[segments[-1][1] if segments else 0 : segment[0]]
            begin += len(normalised_separator(before, first=not segments))
            parts += [part.of_sentence(len(segments), begin) for part in own]
            begin = parts[-1].begin + len(parts[-1].text)
            segments.append(segment)
        if parts:
            _add_alternatives(size, options, parts[0])
        else:
            size.add_characters(len(text))
        if options.rules is not None:
            options.rules.check_parts(len(parts), field)
        tagged = source.plain.aligned(segments) if source.plain else ()
        return TextPlan(Document(source.text, tuple(segments)), tuple(parts), plain=source.plain, tagged=tagged)

    async def _steps(
        self,
        sentence: str,
        spans: tuple[ProtectedSpan, ...],
        field: str,
        options: TextChoice,
        size: RequestSize,
        *,
        begun: bool,
    ) -> Steps | None:
        """Return how a sentence is translated that the model does not get as it is; None for others.

        spans: what is kept of it whatever the model reads
        begun: whether its translation has a begin, so that it is translated as it is
        """
        keeps = options.protect and not begun
        reading = None
        try:
            if options.twins and not self._alphabet.knows(sentence):
                lowers = options.lower_capitals and not begun and is_in_capitals(sentence, spans)
                reading = await read_as(self._alphabet, sentence, spans, keeps=keeps, lowers=lowers)
        except TooManySpans:
            message = (
                f"{field} has a sentence with more than {MOST_KEPT} strings that the model cannot read; send it in"
            )
            raise TextTooLong(field, f"{message} several texts or set text.protect to false") from None
        kept = spans if reading is None else reading.spans
        if reading is not None:
            size.add_twins(len(reading.changes))
            size.add_kept(max(len(kept) - len(spans), 0))
        if begun or not needs_steps(sentence, kept, options):
            return None
        custom = self._custom() if options.localise_numbers else None
        return Steps(sentence, spans, self._lexicon, reading, custom)

    def _custom(self) -> Custom | None:
        """Return how numbers are written in translations; None if both languages write them alike."""
        return custom_of(self._manifest.source_language, self._manifest.target_language)

    def _plan_pieces(self, text: str, field: str, options: ResolvedOptions, size: RequestSize) -> TextPlan:
        """Return the plan of a text in pieces without its prefix."""
        size.add_characters(len(text))
        ids = source_of_pieces(text, field, self._tokenizer, self._manifest.limits.max_source_tokens)
        if not ids:
            return TextPlan(Document(text, ()), ())
        size.add_sentence(len(ids))
        begin, read = len(text) - len(text.lstrip()), " ".join(text.split())
        part = Part(read, 0, tuple(ids))
        _add_alternatives(size, options, part)
        return TextPlan(Document(text, ((begin, len(text.rstrip())),)), (part,))

    def _pair_in_pieces(self, pair: pb.ScorePair, field: str, size: RequestSize) -> PairPlan:
        """Return the plan of a pair in pieces."""
        limits = self._manifest.limits
        size.add_characters(len(pair.source) + len(pair.target))
        source = source_of_pieces(pair.source, f"{field}.source", self._tokenizer, limits.max_source_tokens)
        target = target_of_pieces(pair.target, f"{field}.target", self._tokenizer, limits.max_target_tokens - 1)
        written = " ".join(pair.source.split()), " ".join(pair.target.split())
        return PairPlan(written[0], written[1], tuple(source), target, in_pieces=True)

    def _with_prefix(self, plan: TextPlan, prefix: str, name: str, options: ResolvedOptions) -> TextPlan:
        if not prefix or not plan.parts:
            return plan
        limits = self._manifest.limits
        if options.text.format is Format.PIECES:
            ids, begin = target_of_pieces(prefix, name, self._tokenizer, limits.max_target_tokens - 1), None
            prefix = self._tokenizer.decode(ids)
        else:
            ids = target_ids(prefix, name, self._tokenizer, limits.max_target_tokens - 1)
            begin = Begin.of(normalise(prefix), ids, self._tokenizer)
        if options.prefix_bias < 1:
            return replace(plan, soft_prefix=ids)
        if begin is not None and self._tokenizer.moses is not None:
            raise begin.refusal(name, "the text of Moses tokens depends on those after them")
        if options.rules is not None:
            options.rules.check_prefix(prefix, name)
            if begin is not None and (options.rules.forbidden or options.rules.forced):
                raise begin.refusal(name, "leave out forbidden_words and forced_words, which are looked for in tokens")
        plan = replace(plan, prefix=ids, begin=begin)
        check_prefix(limits, plan, name)
        return plan


def _add_alternatives(size: RequestSize, options: ResolvedOptions, first: Part) -> None:
    """Count the further jobs of the first part of a text with alternatives."""
    for _ in range(options.jobs_of(0) - options.samples):
        size.add_sentence(len(first.source_ids))


async def read_as(
    alphabet: Alphabet, text: str, spans: Sequence[ProtectedSpan] = (), *, keeps: bool, lowers: bool = False
) -> Reading | None:
    """See `read_characters`; a long text is read on a thread."""
    read = partial(read_characters, text, spans, alphabet, keeps=keeps, lowers=lowers, most=MOST_KEPT)
    return read() if len(text) <= AT_ONCE else await asyncio.to_thread(read)


def without_mark(plan: TextPlan, prefix: str) -> str:
    """Return a target prefix without the mark of a list that the text begins with: the translation gets it anyway."""
    mark = without_blanks_around(plan.document.separator(0))
    rest = prefix[next_visible(prefix, 0, len(prefix)) :]
    return rest.removeprefix(mark) if mark and plan.parts else prefix


def _is_read(text: str, segment: Span, options: TextChoice) -> bool:
    """Whether the model reads a segment: not an empty one, nor one without letters, unless it reads all of the text."""
    begin, end = segment
    reads_all = options.sentences is Split.OFF and not options.protect
    return begin < end and (reads_all or has_letters(text, begin, end))


def needs_steps(sentence: str, spans: Sequence[ProtectedSpan], options: TextChoice) -> bool:
    """Whether a sentence is not given to the model as it is."""
    return bool(spans) or (options.lower_capitals and is_in_capitals(sentence))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns the sentences of a text into parts; field, and has of its methods: see `check_size`.

    alphabet: None if the model reads characters that it lacks as they are
    """

    tokenizer: Tokenizer
    alphabet: Alphabet | None
    limits: Limits
    field: str
    splits: bool
    time_slice: TimeSlice
    size: RequestSize

    async def parts(self, sentence: str, has: str) -> Sequence[Part]:
        """Return the parts of a sentence that the model reads as it is."""
        limits, done, parts = self.limits, list[tuple[str, str]](), list[Part]()
        check_size(sentence, self.field, limits, splits=self.splits, most=len(sentence), has=has)
        for block in blocks(sentence, most_characters(limits.max_source_tokens)):
            self.size.add_characters(len(block))
            done.append((block, normalise(block)))
            await self.time_slice.yield_if_due()
        text = joined(done)
        reading = None
        if self.alphabet is not None and not self.alphabet.knows(text):
            reading = await read_as(self.alphabet, text, keeps=False)
        read = text if reading is None else reading.text
        for part in parts_of(read, self.field, self.tokenizer, limits, splits=self.splits, has=has):
            self.size.add_sentence(len(part.source_ids))
            parts.append(part if reading is None else as_sent(part, text, reading))
            await self.time_slice.yield_if_due()
        return parts

    async def in_steps(self, steps: Steps, has: str) -> Part:
        """Return a sentence as one part; without what is kept, it is bounded as any other sentence.

        Each string that is kept counts as one more sentence, since the model may have to read the sentence again.
        """
        read = steps.read
        self.size.add_characters(sum(end - begin for begin, end, _ in read.spans))
        for _ in kept_strings(read.text, read.spans):
            self.size.add_sentence(1)
        rest = without_blanks_around(without(read.text, read.spans))
        parts = await self.parts(rest, has) if rest else ()
        ids = [token for part in parts for token in self.tokenizer.unframed(part.source_ids)]
        short = len(steps.text) <= most_characters(self.limits.max_source_tokens)
        text = normalise(steps.text) if short else " ".join(steps.text.split())
        return Part(text, 0, tuple(self.tokenizer.framed(ids)), steps=steps)
