"""The translation of one sentence that is still being spoken: drafts of its words so far, then the whole of it.

What is agreed is a prefix of every later draft, in tokens. The text of a draft is the agreed text and the text of the
tokens after it, so that agreed text never changes, whatever the tokenizer does at the seam.
"""

from __future__ import annotations

import asyncio
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lingon.errors import OutOfMemory, QueueFull
from lingon.segments.begun_steps import lacks_kept, translate_begun
from lingon.segments.boundaries import Span
from lingon.segments.characters import Reading
from lingon.segments.protection import TooManySpans
from lingon.segments.sentence import Restored, TranslateStep
from lingon.serving.decoding.job import Hypotheses, Hypothesis
from lingon.serving.live.complete_sentences import CompleteSentences, Request
from lingon.serving.live.policies import Draft
from lingon.serving.live.sources import Sentence, word_separator
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.replies import spans
from lingon.serving.translation.translator import Translator
from lingon.text import UNK, common_length, normalise
from lingon.translation.v1 import translation_pb2 as pb

PASSING = (QueueFull, OutOfMemory)
"""Errors after which the same work may succeed a moment later."""

SURE = math.log(0.5)
"""Log-probability from which a token is likelier than all others together.

A draft of such tokens is nearly always what a beam of 4 finds: of 393 sentences of Tatoeba with an agreed part, on
which this was chosen, 232 had such drafts, and each was the translation of the beam.
"""

_GREEDY = pb.DecodingOptions(beam_size=1)


class Whole(NamedTuple):
    """The translation of a complete sentence; words: their number in the target language."""

    text: str
    words: int


class _Read(NamedTuple):
    """A source as the model reads it; spans: of its tokens in the text, without those of languages and of the end."""

    ids: tuple[int, ...]
    spans: Sequence[Span]


class OpenTranslation:
    """The translation of one sentence by one model. Belongs to the event loop.

    agreed: the text that is agreed, which every later text begins with
    usage: the tokens that were read and written
    """

    def __init__(
        self,
        translator: Translator,
        request: Request,
        agreed: str = "",
        complete: CompleteSentences | None = None,
    ) -> None:
        """agreed: text of the sentence that was agreed before, with another version of the model or another engine.

        complete: translates the whole sentence if nothing of it is agreed; None: for this sentence alone
        """
        self.agreed = agreed
        self._complete = complete or CompleteSentences(translator, request)
        self.usage = pb.Usage()
        self._translator, self._request, self._tokenizer = translator, request, translator.tokenizer
        self._limits = translator.manifest.limits
        self._aligns = bool(translator.manifest.alignment.heads)
        self._client: EngineClient = translator.open_client(request.deadline, request.caller)
        self._spaced = bool(word_separator(translator.manifest.target_language))
        self._prefix = tuple(self._tokenizer.encode_target(normalise(agreed))) if agreed else ()
        self._spelled = self._tokenizer.decode(self._prefix)
        self._newest: tuple[str, Hypothesis] | None = None  # the text of the newest draft, and its translation
        self._encoded: tuple[str, tuple[int, ...]] = "", ()  # the text that was encoded last, and its tokens
        self._latest_kept: tuple[str, Reading | None] = "", None
        self._decoded_text: tuple[Sequence[int], str] = (), ""  # the tokens that were decoded last, and their text

    def close(self) -> None:
        """Cancel the jobs that are not done, and forget the states of the decoder."""
        self._client.cancel_all()
        self._request.pasts.drop(self)

    def reads(self, text: str) -> bool:
        """Return whether the model reads a normalised text whole."""
        most = self._limits.max_source_tokens
        return len(text) <= most or len(self._source_ids(text)) <= most

    async def draft(self, sentence: Sentence, words_per_word: float, *, looks: bool) -> Draft:
        """Translate the words so far, after the tokens that are agreed. Raises RequestError.

        words_per_word: see Draft; looks: whether the draft says at which source words its tokens look

        Words without text have nothing to translate, so that the draft is what is agreed.
        """
        read = self._read(sentence.text, looks=looks)
        found = await self._decoded(read.ids, _GREEDY, keeps_past=True, attends=looks and self._aligns)
        self._request.pasts.keep(self, found.past)
        self._newest = sentence.text, found
        looks_at = await self._looks_at(sentence, read, found) if looks and self._aligns else None
        return Draft(
            tokens=found.tokens,
            word_ends=tuple(self._word_ends(found.tokens)),
            source_words=len(sentence.ends),
            looks_at=looks_at,
            words_per_word=words_per_word,
        )

    def agree(self, draft: Draft, tokens: int) -> str:
        """Make the first tokens of a draft agreed, and return the text that this adds. Fewer than before add nothing.

        A vocabulary whose text depends on later tokens may agree on fewer.
        """
        tokens = self._certain(draft.tokens, tokens)
        if tokens <= len(self._prefix):
            return ""
        before, prefix = self.agreed, draft.tokens[:tokens]
        text, spelled = self.text_of(prefix).rstrip(), self._text(prefix).rstrip()
        self.agreed, self._prefix, self._spelled = text, prefix, spelled
        assert text.startswith(before), "agreed text is never taken back"
        return text[len(before) :]

    def lacks_kept(self, sentence: Sentence, draft: Draft) -> bool:
        """Return whether a draft lacks a string that the whole sentence would keep, such as a URL or a number.

        What such a draft begins with is not agreed: more words may change where the string is.
        """
        try:
            kept = self._kept(sentence.text)
        except TooManySpans:
            return True
        if kept is None:
            return False
        text = self.text_of(draft.tokens)
        return any(kept.text[each.begin : each.end] not in text for each in kept.spans)

    def _kept(self, text: str) -> Reading | None:
        """Return a sentence with what is kept of it, or None if nothing is. Raises TooManySpans.

        The latest is remembered, because the end of a sentence asks for what its last draft had.
        """
        known, kept = self._latest_kept
        if known != text:
            kept = self._translator.kept_of(text)
            self._latest_kept = text, kept
        return kept

    @property
    def agreed_tokens(self) -> int:
        """The number of tokens that are agreed."""
        return len(self._prefix)

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of a draft's first tokens, at least of those that are agreed."""
        whole = self._text(tokens)
        return self.agreed + whole[common_length(whole, self._spelled) :]

    def _text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens on their own. The latest is kept, because an update asks for it several times."""
        known, text = self._decoded_text
        if known is not tokens:
            text = self._tokenizer.decode(tokens)
            self._decoded_text = tokens, text
        return text

    def _source_ids(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a source. The latest are kept, because `reads` asks for them before a translation."""
        known, ids = self._encoded
        if known != text:
            ids = tuple(self._tokenizer.encode_source(text))
            self._encoded = text, ids
        return ids

    async def whole(self, sentence: Sentence) -> Whole:
        """Translate a complete sentence. Raises RequestError.

        A sentence of which nothing is agreed is translated as any other text, with all that is kept in it. Otherwise
        its rest is decoded after the agreed tokens, unless the newest draft has all words and the model was sure of it.
        If the rest lacks what is kept, it is translated as other texts with kept strings are.
        """
        if self.agreed:
            text = await self._rest(sentence.text)
        else:
            text = self._counted(await self._complete.result(sentence))
        assert text.startswith(self.agreed), "agreed text is never taken back"
        return Whole(text, len(text.split()) if self._spaced else len(self._tokenizer.encode_target(text)))

    async def _rest(self, text: str) -> str:
        found = self._sure_draft(text)
        if found is None:
            found = await self._decoded(self._read(text, looks=False).ids, pb.DecodingOptions())
        rest = self.text_of(found.tokens).rstrip()
        try:
            kept = self._kept(text)
        except TooManySpans:
            return rest
        if kept is None or not lacks_kept(kept.text, kept.spans, self.agreed, rest):
            return rest
        return await self._rest_with_kept(kept)

    async def _rest_with_kept(self, kept: Reading) -> str:
        """Return the translation of a sentence that begins with the agreed text, and has behind it what is kept."""
        steps, outputs = translate_begun(kept.text, kept.spans, self._translator.names, self.agreed), None
        while True:
            try:
                request = next(steps) if outputs is None else steps.send(outputs)
            except StopIteration as done:
                restored: Restored = done.value
                return restored.text.rstrip()
            assert isinstance(request, TranslateStep), "no other step is needed"
            outputs = [await self._step(request)] if self.reads(request.text) else []

    async def _step(self, request: TranslateStep) -> str:
        if not request.prefix:
            return self._counted(await self._complete.alone(request.text))
        found = await self._decoded(self._source_ids(request.text), pb.DecodingOptions())
        return self.text_of(found.tokens).rstrip()

    def _sure_draft(self, text: str) -> Hypothesis | None:
        """Return the newest draft if it translates this text, and the model was sure of all that is not agreed."""
        if self._newest is None or self._newest[0] != text:
            return None
        found = self._newest[1]
        is_sure = found.finished and min(found.log_probs[len(self._prefix) :]) >= SURE
        return found if is_sure else None

    def _counted(self, result: pb.TextResult) -> str:
        """Return the text of a result, and count its tokens."""
        self.usage.source_tokens += result.usage.source_tokens
        self.usage.target_tokens += result.usage.target_tokens
        return result.hypotheses[0].text

    def _read(self, text: str, *, looks: bool) -> _Read:
        if not looks:
            return _Read(self._source_ids(text), ())
        pieces = self._tokenizer.source.encode(text, return_type="proto").pieces
        ids = self._tokenizer.framed([piece.id for piece in pieces])
        return _Read(tuple(ids), spans([piece.surface for piece in pieces]))

    async def _decoded(
        self,
        source_ids: tuple[int, ...],
        asked: pb.DecodingOptions,
        *,
        keeps_past: bool = False,
        attends: bool = False,
    ) -> Hypothesis:
        """Return the translation of a source that begins with the agreed tokens.

        Their states in the decoder are those of an earlier draft, if they are kept. They looked at fewer source words.

        attends: whether it says where the model looked, if the graphs say it
        """
        bound = self._limits.max_output(len(source_ids)) - len(self._prefix)
        if bound < 1 or not source_ids:  # a revision made the source much shorter than what is agreed
            return Hypothesis(self._prefix, (0.0,) * len(self._prefix), 0.0, finished=False)
        options = self._translator.resolve(asked)
        job = options.job_options(min(options.max_output_tokens, bound), 0)
        keeps_past = keeps_past and self._request.pasts.most_bytes > 0
        if keeps_past or attends:
            job = replace(job, keep_past=keeps_past, attention=attends)
        past = self._request.pasts.of(self)
        pending: PendingJob[Hypotheses] = self._client.decode(source_ids, job, self._prefix, past=past)
        found = (await self._answer(pending))[0]
        self.usage.source_tokens += len(source_ids)
        self.usage.target_tokens += len(found.tokens) - len(self._prefix) + found.finished
        return found

    async def _answer(self, pending: PendingJob[Hypotheses]) -> Hypotheses:
        # The jobs of a round are submitted one after the other, when all of them are made: the engine begins with those
        # that it finds.
        await asyncio.sleep(0)
        with current().trace_jobs([(0, pending.job, pending.outcome)]):
            self._client.submit([pending])
        return await pending.answer()

    async def _looks_at(self, sentence: Sentence, read: _Read, found: Hypothesis) -> list[int]:
        """Return for each token the source word that it looks at most.

        The end token and those of languages do not count: many heads look at them when they have nothing to do.
        """
        if not read.spans:
            return [0] * len(found.tokens)
        weights = await self._weights(read, found)
        looked = np.argmax(weights[: len(found.tokens), : len(read.spans)], axis=1)
        return [sentence.word_at(read.spans[token][0]) for token in looked.tolist()]

    async def _weights(self, read: _Read, found: Hypothesis) -> np.ndarray:
        """Return (target tokens, source tokens): the attention of each token, without the columns of languages."""
        if (attention := found.attention_without(self._tokenizer.languages)) is not None:
            return attention
        most = self._limits.max_target_tokens - 1
        pending: PendingJob[Scored] = self._client.score(read.ids, found.tokens[:most], follow_up=True)
        await self._client.submit_when_possible([pending])
        return (await pending.answer()).attention

    def _word_ends(self, tokens: Sequence[int]) -> Iterator[int]:
        """Yield the numbers of tokens after which a target word ends; see Draft.

        In languages without blanks each token is a word. The bytes of a character are one token.
        """
        texts = [self._tokenizer.piece_text(token) for token in tokens]
        last = len(tokens)
        while last and _is_mark(texts[last - 1]):
            last -= 1
        for end in range(1, last):
            if self._begins_word(tokens[end], texts[end]) or texts[end - 1].endswith(" "):
                yield end
        if last:
            yield last

    def _begins_word(self, token: int, text: str) -> bool:
        return text.startswith(" ") if self._spaced else bool(text) or token <= UNK

    def _certain(self, tokens: Sequence[int], count: int) -> int:
        """Return how many of the first `count` tokens have text that no later token changes."""
        moses = self._tokenizer.moses
        if moses is None:
            return count
        certain = moses.certain(tokens)
        while count and not certain.startswith(self._tokenizer.decode(tokens[:count])):
            count -= 1
        return count


def _is_mark(text: str) -> bool:
    """Return whether a piece has text, and only punctuation and blanks."""
    return bool(text.strip()) and all(unicodedata.category(each)[0] == "P" for each in text.strip())
