"""The token gate: the engine and the reference search find the same tokens for real sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lingon.bundle import Limits
from lingon.errors import ParityError
from lingon.export.gates.reference import expected_log_probs
from lingon.export.gates.translations.decode import engine_search
from lingon.export.gates.translations.quality import NEAR_TIE, max_near_ties
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import BatchShape, Runner, width_for
from lingon.text import BOS, EOS, Tokenizer
from lingon.training.models.interface import AnyModel
from lingon.training.search import Hypothesis as ReferenceHypothesis
from lingon.training.search import SearchSettings, translate


@dataclass(frozen=True, slots=True)
class TokenReport:
    """The number of sentences with identical tokens, and the sentences that differ by a near tie.

    excused: the sentences that differ by a near tie
    """

    beam_size: int
    sentences: int
    identical: int
    excused: tuple[str, ...]

    def __str__(self) -> str:
        identical = f"{self.identical} of {self.sentences} sentences identical"
        if not self.excused:
            return identical
        return f"{identical}, {len(self.excused)} near ties (at most {max_near_ties(self.sentences)})"


def check_tokens(
    model: AnyModel,
    runner: Runner,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    beam_size: int,
    length_penalty: float,
    found: Sequence[tuple[Hypothesis, ...]] | None = None,
) -> TokenReport:
    """Compare the best hypotheses of engine and reference search for every text.

    found: the hypotheses of the engine, if it has found them already

    Raises ParityError at the first difference that is no near tie, or if there are too many near ties.
    """
    sources, forced = [tuple(tokenizer.encode_source(text)) for text in texts], tokenizer.languages.forced
    if found is None:
        found = engine_search(runner, sources, beam_size, length_penalty, forced=forced)
    settings = replace(reference_settings(runner.limits, beam_size, length_penalty), forced=forced)
    expected = translate(model, sources, settings)
    excused = []
    for text, source, mine, theirs in zip(texts, sources, found, expected, strict=True):
        if mine[0].tokens == theirs[0].tokens and mine[0].finished == theirs[0].finished:
            continue
        if not is_near_tie(model, runner, source, (mine[0], theirs[0]), settings):
            raise ParityError(
                f"beam size {beam_size}: {text!r} becomes {tokenizer.decode(mine[0].tokens)!r} in the engine and "
                f"{tokenizer.decode(theirs[0].tokens)!r} in the reference"
            )
        excused.append(text)
    if len(excused) > max_near_ties(len(texts)):
        raise ParityError(
            f"beam size {beam_size}: {len(excused)} of {len(texts)} sentences are near ties, at most "
            f"{max_near_ties(len(texts))} may be; the first is {excused[0]!r}"
        )
    return TokenReport(beam_size, len(texts), len(texts) - len(excused), tuple(excused))


def reference_settings(limits: Limits, beam_size: int, length_penalty: float) -> SearchSettings:
    """Return the settings of the reference search with the limits of a bundle."""
    return SearchSettings(
        beam_size=beam_size,
        length_penalty=length_penalty,
        length_factor=limits.output_factor,
        length_extra=limits.output_extra,
    )


def is_near_tie(
    model: AnyModel,
    runner: Runner,
    source: tuple[int, ...],
    pair: tuple[Hypothesis, ReferenceHypothesis],
    settings: SearchSettings,
) -> bool:
    """Whether the two results differ by a decision whose candidates are within NEAR_TIE in both implementations.

    In beam search the decision is the ranking of the two hypotheses, in greedy search the first token that differs.
    pair: the best hypothesis of the engine, and that of the reference search
    """
    mine, theirs = pair
    if settings.beam_size > 1:
        return _near(mine.score, theirs.score) and _near(_rescored(model, source, mine, settings), theirs.score)
    both = [(*tokens, EOS) for tokens in (mine.tokens, theirs.tokens)]
    position = next((step for step, (one, other) in enumerate(zip(*both, strict=False)) if one != other), None)
    if position is None:
        return False
    target = (*settings.forced, *mine.tokens[:position])
    candidates = [tokens[position] for tokens in both]
    expected, found = expected_log_probs(model, source, target)[len(target)], _last_logits(runner, source, target)
    return _near(*expected[candidates]) and _near(*found[candidates])


def _last_logits(runner: Runner, source: tuple[int, ...], target: tuple[int, ...]) -> np.ndarray:
    """Return the logits (vocab) of the graph after a target."""
    buffers = runner.open(BatchShape(1, 1, width_for(len(source)), len(target) + 1))
    buffers.place(0, runner.encode(np.array([source]), np.array([len(source)])), 0)
    for step, token in enumerate([BOS, *target]):
        buffers.token_ids[0], buffers.positions[0] = token, step
        found = buffers.step(1, logits=True)
    assert found.logits is not None
    row: np.ndarray = found.logits[0]
    return row


def _rescored(model: AnyModel, source: tuple[int, ...], mine: Hypothesis, settings: SearchSettings) -> float:
    """Return the score that the checkpoint gives to the hypothesis of the engine."""
    labels = [*mine.tokens, EOS][: len(mine.log_probs)]
    log_probs = expected_log_probs(model, source, (*settings.forced, *mine.tokens))[len(settings.forced) :]
    return float(log_probs[np.arange(len(labels)), labels].sum() / len(labels) ** settings.length_penalty)


def _near(one: float, other: float) -> bool:
    return abs(float(one) - float(other)) <= NEAR_TIE
