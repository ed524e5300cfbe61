"""What the model thinks of translations of a sentence. Each pair is scored once, and remembered while it is made.

A translation that the search has written needs no run of the scorer: its hypothesis has the log-probabilities, and the
attention if that was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from lingon.bundle.manifest import Limits
from lingon.errors import InvalidRequest, TextTooLong
from lingon.segments.boundaries import Span
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.plans import SHORTEN, most_characters, parts_of
from lingon.serving.translation.replies import encoded_target, generated_spans, source_spans, spans_in
from lingon.text import Tokenizer


@dataclass(frozen=True)
class ScoredPair:
    """A pair with its scores.

    source: the tokens of the source
    spanned: returns the spans of the tokens of the translation
    hypothesis: of the search that has written the translation, if one has
    """

    found: Scored
    source: SourceTokens
    spanned: Callable[[], Sequence[Span]]
    hypothesis: Hypothesis | None = None

    @property
    def sources(self) -> Sequence[Span]:
        """The spans of the tokens of the source, without the end token."""
        return self.source.spans

    @cached_property
    def targets(self) -> Sequence[Span]:
        """The spans of the tokens of the translation, without the end token."""
        return self.spanned()

    @property
    def target_tokens(self) -> int:
        """The tokens of the translation, without the end token."""
        return len(self.targets) if self.hypothesis is None else len(self.hypothesis.tokens)


@dataclass(frozen=True)
class SourceTokens:
    """A source as the model reads it. ids: with the end token and those of the languages."""

    text: str
    ids: tuple[int, ...]
    tokenizer: Tokenizer

    @cached_property
    def spans(self) -> Sequence[Span]:
        """The spans of the tokens, without the end token."""
        pieces = [*map(self.tokenizer.source_piece_text, self.tokenizer.unframed(self.ids))]
        found = spans_in(self.text, pieces)
        return source_spans(self.tokenizer, self.text) if found is None else found


class PairScorer:
    """Scores pairs of one sentence and its translations."""

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer,
        limits: Limits,
        submit: Callable[[Sequence[PendingJob[Scored]]], Awaitable[None]],
    ) -> None:
        """submit: hands jobs to the engine when it has room for them."""
        self._client, self._tokenizer, self._limits, self._submit = client, tokenizer, limits, submit
        self._sources: dict[str, SourceTokens] = {}
        self._pairs: dict[tuple[str, str], ScoredPair] = {}
        self._written: dict[tuple[str, str], tuple[tuple[int, ...], Hypothesis]] = {}

    def remember(self, source: str, source_ids: tuple[int, ...], target: str, found: Hypothesis) -> None:
        """Take the scores of a translation from the hypothesis that the search has written.

        source: the normalised text; source_ids: its tokens, with the end token and those of the languages
        target: the text of its tokens; found: with log-probabilities of all its tokens, those of a prefix too
        """
        self._written.setdefault((source, target), (source_ids, found))

    async def score(self, source: str, targets: Sequence[str], *, attention: bool = True) -> list[ScoredPair]:
        """Return the scores of translations of a normalised text, or none if the model cannot read one of the texts.

        attention: whether it is needed; without it, the attention of a pair may be empty
        """
        jobs: dict[str, tuple[PendingJob[Scored], Sequence[Span]]] = {}
        try:
            for target in targets:
                if not (self._is_known(source, target, attention=attention) or target in jobs):
                    ids, spans = self._target(target)
                    jobs[target] = self._client.score(self._read(source).ids, ids, follow_up=True), spans
        except InvalidRequest:
            return []
        if jobs:
            await self._submit([job for job, _ in jobs.values()])
        for target, (job, spans) in jobs.items():
            self._pairs[source, target] = ScoredPair(await job.answer(), self._read(source), partial(_given, spans))
        return [self._pairs[source, target] for target in targets]

    def _is_known(self, source: str, target: str, *, attention: bool) -> bool:
        """Return whether the scores of a pair are there; a hypothesis becomes scores."""
        pair = self._pairs.get((source, target))
        if pair is None and (source, target) in self._written:
            pair = self._pairs[source, target] = self._scored(source, target, *self._written[source, target])
        return pair is not None and (pair.found.attention.size > 0 or not attention)

    def _scored(self, source: str, target: str, source_ids: tuple[int, ...], found: Hypothesis) -> ScoredPair:
        """Return the scores of a translation that the search has written."""
        known = self._sources.setdefault(source, SourceTokens(source, source_ids, self._tokenizer))
        log_probs = np.array(found.log_probs, np.float32)
        attention = found.attention_without(self._tokenizer.languages)
        return ScoredPair(
            Scored(log_probs, np.zeros((0, 0), np.float32) if attention is None else attention),
            known,
            partial(_spans_of_generated, self._tokenizer, found.tokens, target),
            found,
        )

    def _read(self, source: str) -> SourceTokens:
        """Return the tokens of a source. Raises InvalidRequest for one that the model does not read whole."""
        known = self._sources.get(source)
        if known is None:
            parts = list(parts_of(source, "source", self._tokenizer, self._limits, splits=False, advice=SHORTEN))
            known = SourceTokens(source, parts[0].source_ids if parts else (), self._tokenizer)
            self._sources[source] = known
        return known

    def _target(self, target: str) -> tuple[tuple[int, ...], Sequence[Span]]:
        """Return the tokens of a translation. Raises InvalidRequest for one that is too long for the scorer."""
        most = self._limits.max_target_tokens - 1
        ids, spans = encoded_target(self._tokenizer, target) if len(target) <= most_characters(most) else ((), ())
        if len(ids) > most or not spans:
            raise TextTooLong("target", f"target has {len(target)} characters, at most {most} tokens are allowed")
        return ids, spans


def _spans_of_generated(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> Sequence[Span]:
    """Return the spans of generated tokens, whose text is known."""
    pieces = [*map(tokenizer.piece_text, tokens)]
    found = spans_in(text, pieces)
    return generated_spans(tokenizer, tokens) if found is None else found


def _given(spans: Sequence[Span]) -> Sequence[Span]:
    return spans


async def attention_of(
    found: Sequence[tuple[tuple[int, ...], Hypothesis]],
    read: Callable[[Hypothesis], tuple[int, ...]],
    client: EngineClient,
    tokenizer: Tokenizer,
    submit: Callable[[Sequence[PendingJob[Scored]]], Awaitable[None]],
) -> list[np.ndarray]:
    """Return where the model looked in each translation, (log_probs, source tokens), without the tokens of languages.

    The search has kept it if it was asked to and the graphs of the model say it; else the scorer runs once for each.

    found: the source tokens of each translation, and the translation
    read: the tokens of a translation that the scorer reads
    submit: submits jobs of the scorer
    """
    kept = [one.attention_without(tokenizer.languages) for _, one in found]
    jobs = {
        index: client.score(source_ids, read(one), follow_up=True)
        for index, (source_ids, one) in enumerate(found)
        if kept[index] is None
    }
    if jobs:
        await submit([*jobs.values()])
    return [
        (await jobs[index].answer()).attention if attention is None else attention
        for index, attention in enumerate(kept)
    ]
