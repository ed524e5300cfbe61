"""What the model thinks of translations of a sentence: each pair is scored once, and remembered while it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from lingon.bundle.manifest import Limits
from lingon.errors import InvalidRequest, TextTooLong
from lingon.segments.boundaries import Span
from lingon.serving.runtime.runner import Scored
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.plans import SHORTEN, most_characters, parts_of
from lingon.serving.translation.replies import encoded_target, source_spans
from lingon.text import Tokenizer


class ScoredPair(NamedTuple):
    """A pair with its scores; sources, targets: the spans of its tokens, without the end tokens."""

    found: Scored
    sources: Sequence[Span]
    targets: Sequence[Span]


class _Source(NamedTuple):
    ids: tuple[int, ...]
    spans: Sequence[Span]


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
        self._sources: dict[str, _Source] = {}
        self._pairs: dict[tuple[str, str], ScoredPair] = {}

    async def score(self, source: str, targets: Sequence[str]) -> list[ScoredPair]:
        """Return the scores of translations of a normalised text, or none if the model cannot read one of the texts."""
        jobs: dict[str, tuple[PendingJob[Scored], Sequence[Span]]] = {}
        try:
            read = self._read(source)
            for target in targets:
                if (source, target) not in self._pairs and target not in jobs:
                    ids, spans = self._target(target)
                    jobs[target] = self._client.score(read.ids, ids, follow_up=True), spans
        except InvalidRequest:
            return []
        await self._submit([job for job, _ in jobs.values()])
        for target, (job, spans) in jobs.items():
            self._pairs[source, target] = ScoredPair(await job.answer(), read.spans, spans)
        return [self._pairs[source, target] for target in targets]

    def _read(self, source: str) -> _Source:
        """Return the tokens of a source. Raises InvalidRequest for one that the model does not read whole."""
        known = self._sources.get(source)
        if known is None:
            parts = list(parts_of(source, "source", self._tokenizer, self._limits, splits=False, advice=SHORTEN))
            known = _Source(parts[0].source_ids if parts else (), source_spans(self._tokenizer, source))
            self._sources[source] = known
        return known

    def _target(self, target: str) -> tuple[tuple[int, ...], Sequence[Span]]:
        """Return the tokens of a translation. Raises InvalidRequest for one that is too long for the scorer."""
        most = self._limits.max_target_tokens - 1
        ids, spans = encoded_target(self._tokenizer, target) if len(target) <= most_characters(most) else ((), ())
        if len(ids) > most or not spans:
            raise TextTooLong("target", f"target has {len(target)} characters, at most {most} tokens are allowed")
        return ids, spans
