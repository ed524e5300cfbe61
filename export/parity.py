"""The promise of an export: the graphs answer as the checkpoint does. Tensors over a grid of shapes, then the tokens of
real sentences, the reference search against the engine that will serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lingon.bundle import Limits
from lingon.errors import ParityError, RequestError
from lingon.export.decode import decode_all
from lingon.serving.decoding.job import Hypothesis, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.policy import EngineLimits
from lingon.serving.runtime.runner import Runner, width_for
from lingon.text import BOS, EOS, UNK, Tokenizer
from lingon.training.data.batches import pad
from lingon.training.models.transformer import Transformer
from lingon.training.search import Hypothesis as Reference
from lingon.training.search import SearchSettings, translate

TOLERANCE = {"float32": 1e-4, "float16": 5e-2}  # of a log-probability
NEAR_TIE = 1e-4  # two candidates this close in both are a toss-up
MAX_EXCUSED = 0.005  # of the sentences
ROWS, SOURCES, PASTS = (1, 2, 5), (1, 7, 16, 33), (0, 1, 6)


@dataclass(frozen=True, slots=True)
class TensorReport:
    """The largest difference of a log-probability, over how many shapes."""

    shapes: int
    step_difference: float
    scorer_difference: float
    tolerance: float


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
            f"{said}, {len(self.excused)} toss-ups (at most {_most_excused(self.sentences)})" if self.excused else said
        )


def check_tensors(model: Transformer, runner: Runner, dtype: str) -> TensorReport:
    """Compare steps and scores over a grid of (rows, source_length, past), ragged lengths and pasts among them.

    dtype: of the graphs' arithmetic. Raises ParityError where values are too far apart, or where any is not finite.
    """
    steps, scores = [], []
    random = np.random.default_rng(0)
    for rows in ROWS:
        for longest in sorted({min(length, runner.limits.max_source_tokens) for length in SOURCES}):
            for past in PASTS:
                case = _Case.draw(random, model, rows, longest, past)
                steps.append(_step_difference(model, runner, case, dtype))
                scores.append(_score_difference(model, runner, case, dtype))
    report = TensorReport(len(steps), max(steps), max(scores), TOLERANCE[dtype])
    largest = max(report.step_difference, report.scorer_difference)
    if largest > report.tolerance:
        raise ParityError(f"{dtype}: log-probabilities differ by {largest:.2e}, more than {report.tolerance:.0e}")
    return report


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
        if not _is_toss_up(model, runner, source, (mine[0], theirs[0]), beam_size, length_penalty):
            raise ParityError(
                f"beam size {beam_size}: {text!r} becomes {tokenizer.decode(mine[0].tokens)!r} in the engine and "
                f"{tokenizer.decode(theirs[0].tokens)!r} in the reference"
            )
        excused.append(text)
    if len(excused) > _most_excused(len(texts)):
        raise ParityError(
            f"beam size {beam_size}: {len(excused)} of {len(texts)} sentences are toss-ups, at most "
            f"{_most_excused(len(texts))} may be; the first is {excused[0]!r}"
        )
    return TokenReport(beam_size, len(texts), len(texts) - len(excused), tuple(excused))


def _most_excused(sentences: int) -> int:
    """Of few sentences one may be a toss-up: that so few have none is chance."""
    return max(int(MAX_EXCUSED * sentences), 1)


def engine_search(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    *,
    shortlist: bool = False,
) -> list[tuple[Hypothesis, ...]]:
    """What the serving engine finds for each source."""
    engine = Engine(runner, EngineLimits(max_rows=64 * beam_size))
    engine.start()
    try:
        options = [
            Options(
                beam_size=beam_size,
                length_penalty=length_penalty,
                max_output_tokens=runner.limits.max_output(len(source)),
                shortlist=shortlist,
            )
            for source in sources
        ]
        outcomes = decode_all(engine, sources, options)
    finally:
        engine.stop(timeout=0)
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise ParityError(f"the engine failed on a sentence: {outcome}")
    return [outcome for outcome in outcomes if not isinstance(outcome, RequestError)]


def reference_settings(limits: Limits, beam_size: int, length_penalty: float) -> SearchSettings:
    """The reference search with the bounds of a bundle."""
    return SearchSettings(
        beam_size=beam_size,
        length_penalty=length_penalty,
        length_factor=limits.output_factor,
        length_extra=limits.output_extra,
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """Random sources, and targets to feed; the last row's past is as long as the case says, the others' shorter."""

    sources: list[list[int]]
    targets: list[list[int]]

    @classmethod
    def draw(cls, random: np.random.Generator, model: Transformer, rows: int, longest: int, past: int) -> _Case:
        source_vocab = model.source_embedding.pieces.num_embeddings
        target_vocab = model.target_embedding.pieces.num_embeddings

        def ids(length: int, vocab: int) -> list[int]:
            return list(random.integers(UNK + 1, vocab, length).tolist())

        lengths = [longest, *random.integers(min(2, longest), longest + 1, rows - 1)]
        pasts = [past, *random.integers(0, past + 1, rows - 1)]
        return cls(
            [[*ids(int(length) - 1, source_vocab), EOS] for length in lengths],
            [ids(int(length), target_vocab) for length in pasts],
        )

    @property
    def source_lengths(self) -> np.ndarray:
        return np.array([len(source) for source in self.sources])

    @property
    def target_lengths(self) -> np.ndarray:
        return np.array([len(target) for target in self.targets])


@torch.inference_mode()
def _expected(model: Transformer, case: _Case) -> list[np.ndarray]:
    """Log-probabilities (target_length + 1, vocab) of each row, decoded at once and alone."""
    rows = []
    for source, target in zip(case.sources, case.targets, strict=True):
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target]]))
        rows.append(_finite(model.log_probs(logits)[0].numpy(), "the checkpoint's log-probabilities"))
    return rows


def _step_difference(model: Transformer, runner: Runner, case: _Case, dtype: str) -> float:
    """Feed all rows in one batch, each from its own step on, so that their pasts differ in length."""
    rows, longest = len(case.sources), int(case.target_lengths.max())
    encoded = runner.encode(pad(case.sources).numpy(), case.source_lengths)
    buffers = runner.open(rows, 1, width_for(int(case.source_lengths.max())), longest + 1)
    for row in range(rows):
        buffers.place(row, encoded, row)
    expected, differences = _expected(model, case), []
    for step in range(longest + 1):
        positions = np.maximum(step - (longest - case.target_lengths), 0)
        buffers.positions[:] = positions
        buffers.token_ids[:] = [[BOS, *target][place] for target, place in zip(case.targets, positions, strict=True)]
        found = buffers.step(rows, logits=False)
        log_probs = _finite(found.candidate_log_probs, f"a step's log-probabilities in {dtype}")  # else ids are none
        for row, place in enumerate(positions):
            likely = expected[row][place][found.candidate_ids[row]]
            differences.append(float(np.abs(likely - log_probs[row]).max()))
    return max(differences)


def _score_difference(model: Transformer, runner: Runner, case: _Case, dtype: str) -> float:
    targets = pad([target or [EOS] for target in case.targets]).numpy()
    scored = runner.score(pad(case.sources).numpy(), case.source_lengths, targets, case.target_lengths)
    differences = []
    for target, row, log_probs in zip(case.targets, scored, _expected(model, case), strict=True):
        likely = log_probs[np.arange(len(target) + 1), [*target, EOS]]
        found = _finite(row.log_probs, f"the scorer's log-probabilities in {dtype}")
        differences.append(float(np.abs(likely - found).max()))
    return max(differences)


def _finite(values: np.ndarray, what: str) -> np.ndarray:
    """The values; raises ParityError where one is NaN or infinite, which no comparison would tell from a good one."""
    strange = values[~np.isfinite(values)]
    if strange.size:
        raise ParityError(f"{what} are not all finite: {strange.flat[0]} is among them")
    return values


def _is_toss_up(
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
    case = _Case([list(source)], [list(mine.tokens[:place])])
    candidates = [tokens[place] for tokens in both]
    return all(_near(*row[candidates]) for row in (_expected(model, case)[0][place], _last_logits(runner, case)))


def _last_logits(runner: Runner, case: _Case) -> np.ndarray:
    """The graph's logits (vocab) after the target of a case of one row."""
    source, target = case.sources[0], case.targets[0]
    buffers = runner.open(1, 1, width_for(len(source)), len(target) + 1)
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
    log_probs = _expected(model, _Case([list(source)], [list(mine.tokens)]))[0]
    return float(log_probs[np.arange(len(labels)), labels].sum() / len(labels) ** length_penalty)


def _near(one: float, other: float) -> bool:
    return abs(float(one) - float(other)) <= NEAR_TIE
