"""The plans of the texts and the pairs of a request: the strings to keep, the sentences, and the tokens of each.

Planning ends as soon as even an empty queue could not accept the request.
"""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from lingon.bundle.manifest import Limits, Manifest
from lingon.errors import InvalidRequest, MarkupError, RequestError, RequestTooLarge, TextTooLong
from lingon.moses import WORD_END, MosesPieces
from lingon.segments.boundaries import Span, has_letters, next_visible, without_blanks_around
from lingon.segments.capitals import is_in_capitals
from lingon.segments.characters import Alphabet, Reading, read_characters
from lingon.segments.kept_forms import Kind, ProtectedSpan, merge, without
from lingon.segments.layout import Split, TextLayout, cut
from lingon.segments.markup import PlainText, TooManyKept, read_html, read_xml
from lingon.segments.protection import TooManySpans, find_protected, uncut
from lingon.segments.sentence import Custom, Separators, kept_strings
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.event_loop import TimeSlice
from lingon.serving.runtime.runner import AttentionChoice
from lingon.serving.translation.attention import count_weights
from lingon.serving.translation.options import Format, ResolvedOptions, TextChoice, format_of
from lingon.serving.translation.plans import (
    Begin,
    Lexicon,
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
    source_of_pieces,
    target_ids,
    target_of_pieces,
)
from lingon.serving.translation.terms import NO_TERMS, PlannedTerm, RequestTerms, outside
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

_BEGINS_WORD = "\u2581"


def alphabet_of(tokenizer: Tokenizer) -> Alphabet:
    """Return the alphabet of a model. Its byte pieces do not count, because it has learned too little of them."""

    def reads(text: str) -> bool:
        ids = tokenizer.source.encode(text)
        if not tokenizer.unreadable.isdisjoint(ids):
            return False
        return any(
            piece.strip(_BEGINS_WORD) not in ("", WORD_END) for piece in tokenizer.source_pieces(ids)
        ) or not any(map(_is_seen, text))

    return Alphabet(
        reads,
        tokenizer.source_table,
        by_words=isinstance(tokenizer.source, MosesPieces),
    )


def _is_seen(character: str) -> bool:
    """Return whether dropping a character loses something. Control characters and formats lose nothing."""
    return not character.isspace() and unicodedata.category(character)[0] != "C"


@cache
def custom_of(source: str, target: str) -> Custom | None:
    """Return how numbers of one language are written in another, BCP-47, or None if it is equal or unknown."""
    separators = _separators(source), _separators(target)
    if separators[0] is None or separators[1] is None or separators[0] == separators[1]:
        return None
    return Custom(separators[0], separators[1])


def _separators(language: str) -> Separators | None:
    """Return the separators of a language with Latin figures. Without data for its region, the language decides."""
    from babel import Locale, UnknownLocaleError  # imported here, because few requests need it and it takes 0.1 s
    from babel.numbers import get_decimal_symbol, get_group_symbol

    parts = language.split("-")
    for count in range(len(parts), 0, -1):
        try:
            locale = Locale.parse("-".join(parts[:count]), sep="-")
        except (UnknownLocaleError, ValueError):
            continue
        return Separators(
            get_group_symbol(locale, numbering_system="latn"), get_decimal_symbol(locale, numbering_system="latn")
        )
    return None


MOST_SIGNS = 2**18  # characters without markup that are no letters, figures or blanks; each takes 2 µs
MOST_TAGS = 50_000  # tags and signs <; each takes 10 µs
MOST_INLINES = 10_000  # elements within parts of texts; the placement of each in the translation takes 50 µs
MOST_REFERENCES = 100_000  # signs & in texts with markup; each takes 3 µs
MOST_KEPT = 10_000  # kept strings, such as URLs and placeholders; each takes 20 µs
MOST_TERMS = 10_000  # places of terms in texts; each takes 10 µs, without the translation
MOST_WITHOUT_LETTERS = 50_000  # unchanged parts of texts without letters; each takes 10 µs
MOST_TWINS = 2**18  # characters that the model reads as twins; each takes 4 µs
_SIGN = re.compile(r"[^\w\s]")


class RequestSize:
    """The size of what a request has planned so far. A retry of a refused request would not help.

    Work that adds no sentence and no token is counted too, before it is done. No request is therefore planned for much
    more than half a second of CPU. By experiment, a megabyte of the worst signs took 2.4 s to cut into sentences.

    most_characters, most_sentences: bounds for all texts together; the sentences if each is translated once
    """

    def __init__(
        self, field: str, limits: EngineLimits, jobs: int = 1, check_queue: Callable[[int], None] = lambda jobs: None
    ) -> None:
        """field: field of the request with its texts; jobs: number for each sentence, several if it is sampled.

        check_queue: raises QueueFull if so many jobs do not fit in the queue now
        """
        self._field, self._jobs, self._check_queue = field, jobs, check_queue
        self._most, self._found = _most_of(limits), dict[str, int]()
        self._most_weights, self._weights = limits.max_attention_weights, 0
        self.most_characters, self.most_sentences = self._most["characters"], self._most["sentences"]

    def add_written(self, text: str, *, marked_up: bool) -> None:
        """Count a text as it was sent. Raises RequestTooLarge."""
        self._add("characters with markup", len(text))
        if marked_up:
            self._add("tags and signs <", text.count("<"))
            self._add("signs &", text.count("&"))

    def add_signs(self, text: str) -> None:
        """Count the signs of a text without markup, because kept strings and ends of sentences are searched at each."""
        self._add("signs beside letters, figures and blanks", len(_SIGN.findall(text)))

    def add_inlines(self, elements: int) -> None:
        """Count the elements that are placed in translations. Raises RequestTooLarge."""
        self._add("elements that do not split them", elements)

    def add_kept(self, strings: int) -> None:
        """Count the kept strings of a text. Raises RequestTooLarge."""
        self._add("strings to keep", strings)

    def add_terms(self, places: int) -> None:
        """Count the terms that were found in a text. Raises RequestTooLarge."""
        self._add("places of terms", places)

    def add_part_without_letters(self) -> None:
        """Count an unchanged line or another unchanged part of a text. Raises RequestTooLarge."""
        self._add("parts without letters", 1)

    def add_twins(self, characters: int) -> None:
        """Count characters that the model reads as twins. Raises RequestTooLarge."""
        self._add("characters that the model reads as others", characters)

    def add_characters(self, count: int) -> None:
        """Count text that will be normalised. Raises RequestTooLarge."""
        self._add("characters", count)

    def add_sentence(self, tokens: int) -> None:
        """Count a sentence to translate or a pair to score, of so many known tokens. Raises RequestTooLarge.

        Raises QueueFull, so that no more work is spent on a request that is refused later. Before the first sentence,
        the whole request was checked.
        """
        self._add("sentences", self._jobs)
        self._add("tokens", self._jobs * tokens)
        if self._found["sentences"] > 1:
            self._check_queue(self._found["sentences"])

    def add_attention(self, weights: int) -> None:
        """Count the attention weights in the result of a pair. Raises RequestTooLarge."""
        self._weights += weights
        if self._weights > self._most_weights:
            raise RequestTooLarge(
                "attention",
                f"attention comes to {self._weights} weights or more; a request may have {self._most_weights} at most; "
                f"select fewer kinds, layers or heads, set mean_of_heads, or send fewer {self._field}",
            )

    def _add(self, unit: str, count: int) -> None:
        found = self._found[unit] = self._found.get(unit, 0) + count
        if found > (most := self._most[unit]):
            raise RequestTooLarge(
                self._field,
                f"{self._field} come to {found} {unit} or more; a request may have {most} at most; send it in several",
            )


@cache
def _most_of(limits: EngineLimits) -> Mapping[str, int]:
    """Return the bound of each unit that a RequestSize counts."""
    return {
        "characters": most_characters(limits.max_queue_tokens),
        "characters with markup": 3 * most_characters(limits.max_queue_tokens) // 2,
        "signs beside letters, figures and blanks": max(4 * limits.max_queue_tokens, MOST_SIGNS),
        "tags and signs <": MOST_TAGS,
        "elements that do not split them": MOST_INLINES,
        "signs &": MOST_REFERENCES,
        "strings to keep": MOST_KEPT,
        "places of terms": MOST_TERMS,
        "parts without letters": MOST_WITHOUT_LETTERS,
        "characters that the model reads as others": MOST_TWINS,
        "sentences": limits.max_queue_texts,
        "tokens": limits.max_queue_tokens,
    }


MOST_INLINE_TAGS = 5_000  # elements inside one block, which are placed at once
SHORT = 1_000  # characters; sentences of longer texts may be cut
LONG = 20_000  # characters; shorter texts are read within some milliseconds


_FRACTIONS = "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u218b\u2460-\u24ff"  # figures, but not isdecimal
_WORD = rf"[^\W\d_{_FRACTIONS}]"
# One line of words without a mark of a list, a mark inside, a figure or a sign. It is no line of signs either.
_SIMPLE = re.compile(rf" *+(?={_WORD})(?:[A-Za-z ,'’]++|{_WORD}|-(?!-))*+[.!?]?+ *+")
_COLUMNS = "   "  # blanks between columns


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text to translate.

    text: without markup
    kept: the spans to keep, in order and without overlap
    plain: the plain text of a text with markup
    is_simple: whether it is certainly one sentence
    terms: in order; those that are their own targets are kept spans too
    """

    text: str
    kept: Sequence[ProtectedSpan] = ()
    plain: PlainText | None = None
    is_simple: bool = False
    terms: Sequence[PlannedTerm] = ()

    def sentences(self, options: TextChoice, language: str) -> Iterator[tuple[Span, tuple[ProtectedSpan, ...]]]:
        """Yield the sentences, each with its kept spans counted from its begin. A step takes milliseconds.

        An empty span is no sentence. It stands for a part without letters, which stays unchanged. No sentence ends
        within a term.
        """
        if self.is_simple:
            begin = len(self.text) - len(self.text.lstrip(" "))
            return iter((((begin, len(self.text.rstrip(" "))), ()),))
        translated = [ProtectedSpan(each.begin, each.end, Kind.KEEP) for each in self.terms if not each.is_kept]
        if not translated:
            return uncut(self._cut(options, language), self.kept)
        return self._uncut(options, language, translated)

    def _uncut(
        self, options: TextChoice, language: str, translated: Sequence[ProtectedSpan]
    ) -> Iterator[tuple[Span, tuple[ProtectedSpan, ...]]]:
        """Yield the sentences, which are not cut within terms either; translated: the spans of terms."""
        terms = {(begin, end) for begin, end, _ in translated}
        for segment, spans in uncut(self._cut(options, language), sorted([*self.kept, *translated])):
            first = segment[0]
            yield segment, tuple(span for span in spans if (first + span.begin, first + span.end) not in terms)

    def terms_in(self, segment: Span) -> Sequence[PlannedTerm]:
        """Return the terms of a sentence."""
        if not self.terms:
            return ()
        first = bisect_left(self.terms, segment[0], key=lambda each: each.begin)
        last = bisect_left(self.terms, segment[1], key=lambda each: each.begin)
        return self.terms[first:last]

    def _cut(self, options: TextChoice, language: str) -> Iterator[Span]:
        collapses = options.format is Format.HTML
        for first, last in _blocks(self.text, self.plain):
            for begin, end in cut(self.text[first:last], options.sentences, language, collapses=collapses):
                yield first + begin, first + end


async def read_source(
    text: str, field: str, options: TextChoice, size: RequestSize, terms: RequestTerms = NO_TERMS
) -> ReadText:
    """Read a text. Raises InvalidRequest and TextTooLong, which name the field, and RequestTooLarge.

    A long text is read on a thread, because it may take most of a second. It is bounded before that, because a thread
    continues after the caller has disconnected.
    """
    marked_up = options.format.is_markup
    if marked_up and text.count("<") > MOST_TAGS:
        raise TextTooLong(field, f"{field} has more than {MOST_TAGS} tags or signs <; send it in several texts")
    size.add_written(text, marked_up=marked_up)
    if not marked_up and not options.keep and is_simple(text):
        planned = terms.find(text) if terms else ()
        if not any(each.is_kept for each in planned):
            size.add_terms(len(planned))
            return ReadText(text, is_simple=True, terms=planned)
    if len(text) <= LONG:
        return _read(text, field, options, size, terms)
    return await asyncio.to_thread(_read, text, field, options, size, terms)


def is_simple(text: str) -> bool:
    """Return whether a short check proves that a text is one sentence without kept spans, as most short texts are."""
    if len(text) > SHORT or _SIMPLE.fullmatch(text) is None:
        return False
    inside = text.strip(" ")
    return inside[0].isalpha() and _COLUMNS not in inside


def _read(text: str, field: str, options: TextChoice, size: RequestSize, terms: RequestTerms) -> ReadText:
    plain = _plain(text, field, options)
    if plain is not None:
        _check_size(plain, field, size.most_sentences)
        size.add_inlines(sum(len(block.inlines) for block in plain.markup.blocks))
    seen = text if plain is None else plain.text
    size.add_signs(seen)
    stand_ins = () if plain is None else plain.kept()
    found, most = [ProtectedSpan(index, index + 1, Kind.TAG) for index in stand_ins], MOST_KEPT
    planned = list[PlannedTerm]()
    try:
        if len(found) > most:
            raise TooManySpans
        for first, last in _blocks(seen, plain) if options.protect or options.keep or terms else ():
            own, here = _kept_and_terms(seen[first:last], first, options, terms, most - len(found))
            found += (ProtectedSpan(first + begin, first + end, kind) for begin, end, kind in own)
            planned += here
    except TooManySpans:
        message = f"{field} has more than {MOST_KEPT} strings to keep; send it in several texts"
        message += "" if stand_ins else " or set text.protect to false"
        raise TextTooLong(field, message) from None
    size.add_kept(len(found))
    size.add_terms(len(planned))
    return ReadText(seen, merge(found) if stand_ins else found, plain, terms=planned)


def _kept_and_terms(
    text: str, first: int, options: TextChoice, terms: RequestTerms, most: int
) -> tuple[list[ProtectedSpan], list[PlannedTerm]]:
    """Return what is kept of a part of a text, counted from its begin, and its terms, counted from that of the text.

    first: the position of the part; most: see `find_protected`
    """
    found = terms.find(text, first) if terms else []
    kept = [each for each in found if each.is_kept]
    keep = options.keep.plus(text[each.begin - first : each.end - first] for each in kept) if kept else options.keep
    spans = find_protected(text, keep, patterns=options.protect, most=most) if options.protect or keep else []
    translated = [each for each in terms.find(text, first, spans) if not each.is_kept] if found else []
    if translated:
        spans = outside(spans, translated, first)
    return spans, sorted([*kept, *translated], key=lambda each: each.begin)


def _check_size(plain: PlainText, field: str, most_sentences: int) -> None:
    """Raise TextTooLong for a text with markup that would block other requests."""
    blocks = plain.markup.blocks
    if len(blocks) > most_sentences:
        message = f"{field} has {len(blocks)} parts between tags that split it; a request may have "
        raise TextTooLong(field, f"{message}{most_sentences} sentences at most; send it in several")
    tags = max((len(block.inlines) for block in blocks), default=0)
    if tags > MOST_INLINE_TAGS:
        message = f"{field} has {tags} elements that do not split it in one part, {MOST_INLINE_TAGS} are allowed"
        raise TextTooLong(field, message)


def _plain(text: str, field: str, options: TextChoice) -> PlainText | None:
    """Return a text without its markup, or None for a text without markup."""
    if not options.format.is_markup:
        return None
    try:
        return PlainText.of((read_html if options.format is Format.HTML else read_xml)(text, options.rules))
    except MarkupError as error:
        raise InvalidRequest(field, f"{field} is not well-formed XML: {error}") from None
    except TooManyKept:
        raise TextTooLong(field, f"{field} has too many elements that are left as they are") from None


def _blocks(text: str, plain: PlainText | None) -> Iterator[Span]:
    """Yield the parts of a text with borders that no sentence crosses."""
    if plain is None:
        yield 0, len(text)
    else:
        yield from map(plain.block, range(len(plain.begins)))


AT_ONCE = 4_000  # characters of a sentence that are checked at once, within some milliseconds

Request = pb.TranslateRequest | pb.TranslateStreamRequest


def check_prefixes(request: Request) -> None:
    """Raise InvalidRequest unless there is no target prefix, or one for each text."""
    texts, prefixes = len(request.texts), len(request.target_prefixes)
    if prefixes not in (0, texts):
        message = f"target_prefixes must be none or one for each of {texts} texts, got {prefixes}"
        raise InvalidRequest("target_prefixes", message)


class Planner:
    """The planner of requests for one model. Other requests run between sentences."""

    def __init__(
        self, tokenizer: Tokenizer, manifest: Manifest, limits: EngineLimits, lexicon: Lexicon, alphabet: Alphabet
    ) -> None:
        """limits: bounds of the jobs of one request; alphabet: the characters that the model reads."""
        self._tokenizer, self._manifest, self._limits, self._lexicon = tokenizer, manifest, limits, lexicon
        self._alphabet = alphabet

    async def plan_texts(
        self,
        request: Request,
        options: ResolvedOptions,
        time_slice: TimeSlice,
        check_queue: Callable[[int], None],
        known: Collection[int] = (),
        terms: RequestTerms = NO_TERMS,
    ) -> list[TextPlan | RequestError | None]:
        """Return the plan of each text, or the error of the text. Raises RequestTooLarge.

        check_queue: see RequestSize; known: indices of texts that need no plan, and have None
        terms: of the request and its glossaries
        """
        if request.target_prefixes:
            check_prefixes(request)
        prefixes = request.target_prefixes or [""] * len(request.texts)
        if any(prefixes) and options.text.format.is_markup:
            raise InvalidRequest("target_prefixes", "target_prefixes cannot be used with a text.format with markup")
        size = RequestSize("texts", self._limits, options.samples, check_queue)
        plans: list[TextPlan | RequestError | None] = []
        for index, (text, prefix) in enumerate(zip(request.texts, prefixes, strict=True)):
            if plans and time.monotonic() > time_slice.end:
                await time_slice.yield_if_due()
            if index in known:
                plans.append(None)
                continue
            try:
                begun = bool(prefix) or options.alternatives > 0
                if options.text.format is Format.PIECES:
                    plan = self._plan_pieces(text, f"texts[{index}]", options, size)
                else:
                    plan = await self._plan_text(text, f"texts[{index}]", options, time_slice, size, terms, begun=begun)
                if prefix and plan.parts:
                    plan = self._with_prefix(plan, prefix, f"target_prefixes[{index}]", options)
                plans.append(plan)
            except RequestTooLarge:
                raise
            except InvalidRequest as error:
                plans.append(error.with_traceback(None))  # its frames hold `plans`, a reference cycle
        return plans

    async def plan_pairs(
        self, request: pb.ScoreRequest, attention: AttentionChoice, time_slice: TimeSlice
    ) -> list[PairPlan | RequestError]:
        """Return the plan of each pair, or the error of the pair. Raises RequestTooLarge."""
        limits, size = self._manifest.limits, RequestSize("pairs", self._limits)
        if (written := format_of(request.format, "format")).is_markup:
            raise InvalidRequest("format", "format must be plain or pieces; the text of markup can be scored alone")
        plans: list[PairPlan | RequestError] = []
        for index, pair in enumerate(request.pairs):
            if plans and time.monotonic() > time_slice.end:
                await time_slice.yield_if_due()
            try:
                if written is Format.PIECES:
                    plan = self._pair_in_pieces(pair, f"pairs[{index}]", size)
                else:
                    plan = plan_pair(pair.source, pair.target, f"pairs[{index}]", self._tokenizer, limits)
            except InvalidRequest as error:
                plans.append(error.with_traceback(None))  # its frames hold `plans`, a reference cycle
            else:
                size.add_sentence(len(plan.source_ids) + len(plan.target_ids))
                size.add_attention(count_weights(attention, len(plan.source_ids), len(plan.target_ids) + 1))
                plans.append(plan)
        return plans

    async def _plan_text(
        self,
        text: str,
        field: str,
        options: ResolvedOptions,
        time_slice: TimeSlice,
        size: RequestSize,
        terms: RequestTerms,
        *,
        begun: bool,
    ) -> TextPlan:
        """Return the plan of a text without its prefix. It has no parts if there is nothing to translate.

        begun: whether the translation has a prefix, or alternatives at its begin
        """
        limits, whole = self._manifest.limits, options.text.sentences is Split.OFF
        splits = options.splits or not whole or options.text.format.is_markup
        check_size(text, field, limits, splits=splits, most=size.most_characters)
        source = await read_source(text, field, options.text, size, terms)
        segments, parts, planned = list[Span](), list[Part](), list[PlannedTerm]()
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
        sentences = source.sentences(options.text, self._manifest.source_language)
        for index, (segment, spans) in enumerate(sentences):
            if index and time.monotonic() > time_slice.end:
                await time_slice.yield_if_due()
            own_terms = source.terms_in(segment)
            if not (source.is_simple or own_terms or _is_read(source.text, segment, options.text)):
                size.add_part_without_letters()
                continue
            has = "has" if whole or segment[1] - segment[0] == longest else "has a sentence of"
            sentence = source.text[slice(*segment)]
            is_begun = begun and not segments
            own_terms = [each.in_sentence(len(segments), keeps=not is_begun) for each in own_terms]
            own_spans = [each.span_after(segment[0]) for each in own_terms if not each.is_kept]
            steps = await self._steps(sentence, spans, own_spans, field, options.text, size, begun=is_begun)
            if steps is not None:
                own: Sequence[Part] = [await reader.in_steps(steps, has)]
            else:
                own = await reader.parts(sentence, has)
            if not own:
                continue
            if before := source.text[segments[-1][1] if segments else 0 : segment[0]]:
                begin += len(normalised_separator(before, first=not segments))
            planned += own_terms
            sentence_terms = terms.of_sentence(own_terms, sentence, segment[0])
            if sentence_terms is not None:  # the sentence may be decoded again
                size.add_sentence(sum(len(part.source_ids) for part in own))
            parts += [part.of_sentence(len(segments), begin, sentence_terms) for part in own]
            begin = parts[-1].begin + len(parts[-1].text)
            segments.append(segment)
        if not parts:
            size.add_characters(len(text))
        elif options.alternatives:
            _add_alternatives(size, options, parts[0])
        if options.rules is not None:
            options.rules.check_parts(len(parts), field)
        tagged = source.plain.aligned(segments) if source.plain else ()
        document = TextLayout(source.text, tuple(segments))
        return TextPlan(document, tuple(parts), plain=source.plain, tagged=tagged, terms=planned)

    async def _steps(
        self,
        sentence: str,
        spans: tuple[ProtectedSpan, ...],
        terms: Sequence[Span],
        field: str,
        options: TextChoice,
        size: RequestSize,
        *,
        begun: bool,
    ) -> Steps | None:
        """Return the steps of a sentence that the model does not read unchanged, or None for other sentences.

        spans: spans to keep, whatever the model reads
        terms: spans of terms, in which nothing is kept because the model cannot read it
        begun: whether its translation has a begin, so that the sentence is translated unchanged
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
        if reading is not None and terms:
            reading = _without_terms(reading, terms)
        kept = spans if reading is None else reading.spans
        if reading is not None:
            size.add_twins(len(reading.changes))
            size.add_kept(max(len(kept) - len(spans), 0))
        if begun or not needs_steps(sentence, kept, options):
            return None
        languages = self._manifest.source_language, self._manifest.target_language
        custom = custom_of(*languages) if options.localise_numbers else None
        return Steps(sentence, spans, self._lexicon, reading, custom)

    def _plan_pieces(self, text: str, field: str, options: ResolvedOptions, size: RequestSize) -> TextPlan:
        """Return the plan of a text in pieces without its prefix."""
        size.add_characters(len(text))
        ids = source_of_pieces(text, field, self._tokenizer, self._manifest.limits.max_source_tokens)
        if not ids:
            return TextPlan(TextLayout(text, ()), ())
        size.add_sentence(len(ids))
        begin, read = len(text) - len(text.lstrip()), " ".join(text.split())
        part = Part(read, 0, tuple(ids))
        _add_alternatives(size, options, part)
        return TextPlan(TextLayout(text, ((begin, len(text.rstrip())),)), (part,))

    def _pair_in_pieces(self, pair: pb.ScorePair, field: str, size: RequestSize) -> PairPlan:
        """Return the plan of a pair in pieces."""
        limits = self._manifest.limits
        size.add_characters(len(pair.source) + len(pair.target))
        source = source_of_pieces(pair.source, f"{field}.source", self._tokenizer, limits.max_source_tokens)
        target = target_of_pieces(pair.target, f"{field}.target", self._tokenizer, limits.max_target_tokens - 1)
        written = " ".join(pair.source.split()), " ".join(pair.target.split())
        return PairPlan(written[0], written[1], tuple(source), target, in_pieces=True)

    def _with_prefix(self, plan: TextPlan, prefix: str, name: str, options: ResolvedOptions) -> TextPlan:
        if not (prefix := without_mark(plan, prefix)):
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
    for _ in range(options.jobs_of(0) - options.samples):
        size.add_sentence(len(first.source_ids))


async def read_as(
    alphabet: Alphabet, text: str, spans: Sequence[ProtectedSpan] = (), *, keeps: bool, lowers: bool = False
) -> Reading | None:
    """See `read_characters`. A long text is read on a thread."""
    read = partial(read_characters, text, spans, alphabet, keeps=keeps, lowers=lowers, most=MOST_KEPT)
    return read() if len(text) <= AT_ONCE else await asyncio.to_thread(read)


def without_mark(plan: TextPlan, prefix: str) -> str:
    """Return a target prefix without the list mark of the text, because the translation gets the mark anyway."""
    mark = without_blanks_around(plan.document.separator(0))
    rest = prefix[next_visible(prefix, 0, len(prefix)) :]
    return rest.removeprefix(mark) if mark else prefix


def _is_read(text: str, segment: Span, options: TextChoice) -> bool:
    """Return whether the model reads a segment: one with letters, or any text if the model reads all of it."""
    begin, end = segment
    reads_all = options.sentences is Split.OFF and not options.protect
    return begin < end and (reads_all or has_letters(text, begin, end))


def _without_terms(reading: Reading, terms: Sequence[Span]) -> Reading:
    """Return what the model reads without the kept spans that are in terms."""

    def is_kept(span: ProtectedSpan) -> bool:
        first, last = reading.sent(span.begin, span.end)
        return not any(begin < last and first < end for begin, end in terms)

    return replace(reading, spans=tuple(filter(is_kept, reading.spans)))


def needs_steps(sentence: str, spans: Sequence[ProtectedSpan], options: TextChoice) -> bool:
    """Return whether a sentence is not passed to the model unchanged."""
    return bool(spans) or (options.lower_capitals and is_in_capitals(sentence))


@dataclass(frozen=True, slots=True)
class _Reader:
    """A maker of the parts of a text's sentences; field, and has of its methods: see `check_size`.

    alphabet: None if characters that the model lacks stay unchanged
    """

    tokenizer: Tokenizer
    alphabet: Alphabet | None
    limits: Limits
    field: str
    splits: bool
    time_slice: TimeSlice
    size: RequestSize

    async def parts(self, sentence: str, has: str) -> Sequence[Part]:
        """Return the parts of a sentence that the model reads unchanged."""
        limits, parts = self.limits, list[Part]()
        if len(sentence) <= most_characters(limits.max_source_tokens):
            self.size.add_characters(len(sentence))
            text = normalise(sentence)
        else:
            check_size(sentence, self.field, limits, splits=self.splits, most=len(sentence), has=has)
            text = await self._normalised(sentence)
        reading = None
        if self.alphabet is not None and not self.alphabet.knows(text):
            reading = await read_as(self.alphabet, text, keeps=False)
        read = text if reading is None else reading.text
        for part in parts_of(read, self.field, self.tokenizer, limits, splits=self.splits, has=has):
            if parts and time.monotonic() > self.time_slice.end:
                await self.time_slice.yield_if_due()
            self.size.add_sentence(len(part.source_ids))
            parts.append(part if reading is None else as_sent(part, text, reading))
        return parts

    async def _normalised(self, sentence: str) -> str:
        """Return a long sentence in NFC with single blanks."""
        done = list[tuple[str, str]]()
        for block in blocks(sentence, most_characters(self.limits.max_source_tokens)):
            if time.monotonic() > self.time_slice.end:
                await self.time_slice.yield_if_due()
            self.size.add_characters(len(block))
            done.append((block, normalise(block)))
        return joined(done)

    async def in_steps(self, steps: Steps, has: str) -> Part:
        """Return a sentence as one part. Without its kept strings it is bounded as any other sentence.

        Each kept string counts as one more sentence, because the model may have to read the sentence again.
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
