"""The token gate: the engine and the reference search find the same tokens for real sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingon.bundle import Limits
from lingon.errors import ParityError
from lingon.export.gates.decode import engine_search
from lingon.export.gates.tensors import Case, expected_log_probs
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import BatchShape, Runner, width_for
from lingon.text import BOS, EOS, Tokenizer
from lingon.training.models.transformer import Transformer
from lingon.training.search import Hypothesis as Reference
from lingon.training.search import SearchSettings, translate

NEAR_TIE = 1e-4  # two candidates this close in both are a toss-up
MAX_NEAR_TIES = 0.005  # of the sentences


@dataclass(frozen=True, slots=True)
class TokenReport:
    """How many sentences came out alike, and which differences were toss-ups."""

    beam_size: int
    sentences: int
    identical: int
    excused: tuple[str, ...]

    def __str__(self) -> str:
        said = f"{self.identical} of {self.sentences} sentences identical"
        return (
            f"{said}, {len(self.excused)} toss-ups (at most {_max_near_ties(self.sentences)})" if self.excused else said
        )


def check_tokens(
    model: Transformer,
    runner: Runner,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    beam_size: int,
    length_penalty: float,
) -> TokenReport:
    """Compare the tokens of the best hypothesis of every text; raises ParityError at the first real difference."""
    sources = [tuple(tokenizer.encode_source(text)) for text in texts]
    found = engine_search(runner, sources, beam_size, length_penalty)
    expected = translate(model, sources, reference_settings(runner.limits, beam_size, length_penalty))
    excused = []
    for text, source, mine, theirs in zip(texts, sources, found, expected, strict=True):
        if mine[0].tokens == theirs[0].tokens and mine[0].finished == theirs[0].finished:
            continue
        if not is_near_tie(model, runner, source, (mine[0], theirs[0]), beam_size, length_penalty):
            raise ParityError(
                f"beam size {beam_size}: {text!r} becomes {tokenizer.decode(mine[0].tokens)!r} in the engine and "
                f"{tokenizer.decode(theirs[0].tokens)!r} in the reference"
            )
        excused.append(text)
    if len(excused) > _max_near_ties(len(texts)):
        raise ParityError(
            f"beam size {beam_size}: {len(excused)} of {len(texts)} sentences are toss-ups, at most "
            f"{_max_near_ties(len(texts))} may be; the first is {excused[0]!r}"
        )
    return TokenReport(beam_size, len(texts), len(texts) - len(excused), tuple(excused))


def _max_near_ties(sentences: int) -> int:
    """Of few sentences one may be a toss-up: that so few have none is chance."""
    return max(int(MAX_NEAR_TIES * sentences), 1)


def reference_settings(limits: Limits, beam_size: int, length_penalty: float) -> SearchSettings:
    """The reference search with the bounds of a bundle."""
    return SearchSettings(
        beam_size=beam_size,
        length_penalty=length_penalty,
        length_factor=limits.output_factor,
        length_extra=limits.output_extra,
    )


def is_near_tie(
    model: Transformer,
    runner: Runner,
    source: tuple[int, ...],
    pair: tuple[Hypothesis, Reference],
    beam_size: int,
    length_penalty: float,
) -> bool:
    """Whether the two candidates of the first differing decision lie within NEAR_TIE of each other in both.

    In beam search the decision is the ranking of the two hypotheses, in greedy search the first token that differs.
    """
    mine, theirs = pair
    if beam_size > 1:
        return _near(mine.score, theirs.score) and _near(_rescored(model, source, mine, length_penalty), theirs.score)
    both = [(*tokens, EOS) for tokens in (mine.tokens, theirs.tokens)]
    place = next((step for step, (one, other) in enumerate(zip(*both, strict=False)) if one != other), None)
    if place is None:
        return False
    case = Case([list(source)], [list(mine.tokens[:place])])
    candidates = [tokens[place] for tokens in both]
    return all(
        _near(*row[candidates]) for row in (expected_log_probs(model, case)[0][place], _last_logits(runner, case))
    )


def _last_logits(runner: Runner, case: Case) -> np.ndarray:
    """The graph's logits (vocab) after the target of a case of one row."""
    source, target = case.sources[0], case.targets[0]
    buffers = runner.open(BatchShape(1, 1, width_for(len(source)), len(target) + 1))
    buffers.place(0, runner.encode(np.array([source]), case.source_lengths), 0)
    for step, token in enumerate([BOS, *target]):
        buffers.token_ids[0], buffers.positions[0] = token, step
        found = buffers.step(1, logits=True)
    assert found.logits is not None
    row: np.ndarray = found.logits[0]
    return row


def _rescored(model: Transformer, source: tuple[int, ...], mine: Hypothesis, length_penalty: float) -> float:
    """What the checkpoint scores the engine's hypothesis."""
    labels = [*mine.tokens, EOS][: len(mine.log_probs)]
    log_probs = expected_log_probs(model, Case([list(source)], [list(mine.tokens)]))[0]
    return float(log_probs[np.arange(len(labels)), labels].sum() / len(labels) ** length_penalty)


def _near(one: float, other: float) -> bool:
    return abs(float(one) - float(other)) <= NEAR_TIE
