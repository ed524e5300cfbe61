"""The jobs of the engine and their results: plain values, no tensors, no sockets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lingon.errors import RequestError
from lingon.serving.decoding.rules import Rules
from lingon.serving.runtime.runner import AttentionChoice, SavedPast, Scored
from lingon.text import BOS, LanguageTokens

_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """The settings of sampling. The random numbers are a function of (seed, stream, step)."""

    temperature: float = 1.0  # divisor of the logits
    top_k: int = 0  # tokens; 0 means all
    top_p: float = 1.0  # probability of the nucleus
    seed: int = 0
    stream: int = 0  # random stream; differs between the texts of a request and the hypotheses of a text


class Alternative(NamedTuple):
    """The choice of the token after the prefix by its rank, from 0, if it is likely enough.

    min_probability: least probability of a token other than the likeliest; below it there is no translation
    """

    rank: int
    min_probability: float = 0.0


class PrefixBias(NamedTuple):
    """A soft prefix: a mixture with the distribution of the model (Arivazhagan et al. 2020, section 4.2).

    While a hypothesis begins with these tokens, the next of them has the probability (1 - weight) p + weight, and any
    other token (1 - weight) p, where p is the probability of the model.
    """

    tokens: tuple[int, ...]
    weight: float  # above 0, below 1


def ended_hypotheses(beam_size: int, patience: float) -> int:
    """Return the number of ended hypotheses that beam search compares with its live ones.

    Kasai et al. 2022, "A Call for Clarity in Beam Search: How It Works and When It Stops", section 3: the patience
    factor multiplies beam_size.
    """
    return max(math.floor(beam_size * patience + 0.5), 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of one sentence, already checked against the limits of the model."""

    beam_size: int = 1
    num_hypotheses: int = 1  # hypotheses; at most as many as the search ends with, see `enough`
    length_penalty: float = 0.0  # score = log-probability / length ** length_penalty; length includes the end token
    max_output_tokens: int = 256  # includes the end token, excludes the prefix
    sampling: Sampling | None = None  # requires beam_size 1
    shortlist: bool = False  # whether only target pieces of the source are chosen; requires no sampling and no rules
    rules: Rules | None = None  # words that the translation must have or must not have
    cut_loops: bool = False  # whether a repeating greedy translation ends; requires no sampling and no rules
    patience: float = 1.0  # see `ended_hypotheses`
    alternative: Alternative | None = None  # the token after the prefix; requires rules and no sampling
    prefix_log_probs: bool = False  # whether translations have those of their prefix; requires no shortlist
    attention: bool = False  # whether hypotheses say where the model looked, if its graphs say it
    keep_past: bool = False  # whether a greedy translation has its past, see Hypothesis
    keep_encoded: bool = False  # whether the same source may be decoded again, so that the encoder's output is kept

    @property
    def enough(self) -> int:
        """The number of ended hypotheses at which beam search stops if the best live one cannot exceed them.

        Without a length penalty scores only fall, so that num_hypotheses are enough.
        """
        if self.length_penalty == 0:
            return self.num_hypotheses
        return max(ended_hypotheses(self.beam_size, self.patience), self.num_hypotheses)

    @property
    def needs_logits(self) -> bool:
        """Whether the engine needs the logits of every step, and chooses the tokens in NumPy."""
        return self.sampling is not None or self.rules is not None

    @property
    def restricts(self) -> bool:
        """Whether the request restricts its translations. Sampled text is always restricted to valid UTF-8."""
        return self.rules is not None and (self.rules.restricts or self.sampling is None)

    @property
    def forces_words(self) -> bool:
        """Whether the request has forced words, which take the most work in NumPy for each row and step."""
        return self.rules is not None and self.rules.forced is not None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A translation in tokens.

    tokens: without begin and end token, the prefix first
    log_probs: log-probability of each token, and if finished of the end token; 0 in the prefix, unless its job asks for
        those of the prefix
    score: sum of log_probs / generated length ** length_penalty
    finished: whether the model ended it; False if it reached its maximum length
    missing: number of missing forced words
    past: the states after its input tokens, of which there is one for each of log_probs, if its job keeps them and the
        graphs can. Recurrent states are those after the first len(prefix) input tokens, if there is a prefix, because
        later ones are of no use to a translation that turns.
    attention: (log_probs, source tokens) float32, the mean of the heads for alignments: where the model looked when it
        predicted each token, and if finished the end token, as Scored.attention; source tokens as the encoder reads
        them, those of the languages included. None unless the options ask for it and Runner.steps_attend
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    score: float
    finished: bool
    missing: int = 0
    past: SavedPast | None = field(default=None, compare=False, repr=False)
    attention: np.ndarray | None = field(default=None, compare=False, repr=False)

    def attention_without(self, tokens: LanguageTokens) -> np.ndarray | None:
        """Return the attention without the columns of the tokens of the languages, as Scored.without does."""
        if self.attention is None:
            return None
        return self.attention[:, len(tokens.before) : self.attention.shape[1] - len(tokens.after)]

    @property
    def rank_key(self) -> tuple[int, float]:
        """The sort key of hypotheses, best first. Hypotheses that lack forced words come last."""
        return self.missing, -self.score


Hypotheses = tuple[Hypothesis, ...]
"""The translations of a job, best first."""


@dataclass(slots=True)
class PhaseTimes:
    """The times of the phases of a job, in seconds of `time.monotonic`.

    submitted: when the caller submitted the job; set by the caller, the others by the engine's thread
    started: when the encoder, or the scorer, began
    encoded: when the encoder finished and decoding began
    """

    submitted: float
    started: float | None = None
    encoded: float | None = None
    ended: float | None = None


@dataclass(eq=False, kw_only=True, slots=True)
class _QueuedJob:
    """The fields of every job.

    source_ids: token ids of the source, framed by the tokenizer of the model
    follow_up: whether earlier work of its request caused it; such a job is neither dropped from a full queue nor
        rejected because of its deadline
    deadline: seconds of `time.monotonic`, or None
    caller, call: the caller and the number of the call; queuing is fair between callers, and between the calls of one
    phase_times: filled in by the engine if given
    party: unit of fair service: its caller, unless the engine changes it, see `lingon.serving.engine.policy`
    rows: rows that it takes in a batch
    tokens: known tokens: of its source, and of the target that it scores
    width: tokens of its row in the encoder, or in the scorer, which computes logits of all target tokens
    cost: units of `lingon.serving.engine.cost`, which computes it once; 0 until then
    submitted, started: when the engine accepted it, and when a worker started it, on the clock of the scheduler
    worker, lane: None while it is queued; lane stays None if it never joins one
    """

    source_ids: tuple[int, ...]
    follow_up: bool = False
    deadline: float | None = None
    caller: str = ""
    call: int = 0
    phase_times: PhaseTimes | None = None
    party: str = field(init=False)
    rows: int = field(init=False)
    tokens: int = field(init=False)
    width: int = field(init=False)
    cost: int = field(default=0, init=False)
    submitted: float = field(default=0.0, init=False)
    started: float = field(default=math.inf, init=False)
    worker: int | None = field(default=None, init=False)
    lane: int | None = field(default=None, init=False)
    number: int = field(default_factory=_numbers.__next__)


@dataclass(eq=False, kw_only=True, slots=True)
class DecodeJob(_QueuedJob):
    """One sentence to translate.

    prefix: target tokens with which the translation begins
    past: states of an earlier translation, which are cut to the first tokens of BOS and the prefix that they have.
        These are not computed. Without a past, and in batches that cannot restore it, the whole prefix is computed.
        If the log-probabilities of the prefix are asked for, those of the past are taken, if it has them.
        States of another source, such as one with fewer words, are an approximation, see SavedPast.
    bias: towards further tokens, after the prefix; requires rules
    hidden: the number of first tokens of the prefix that only name its language
    on_tokens: called with every decided token, for streaming greedy jobs; on the thread of the engine
    on_done: called once, with the hypotheses (best first) or the error that ended the job; on the thread of the engine
    """

    options: Options
    on_done: Callable[[Hypotheses | RequestError], None]
    on_tokens: Callable[[int], None] | None = None
    prefix: tuple[int, ...] = ()
    hidden: int = 0
    bias: PrefixBias | None = None
    past: SavedPast | None = None

    def __post_init__(self) -> None:
        assert self.source_ids, "a sentence has tokens"
        if self.past is not None:
            self.past = self._usable(self.past)
        self.party, self.rows = self.caller, self.options.beam_size
        self.tokens = self.width = len(self.source_ids)

    def _usable(self, past: SavedPast) -> SavedPast | None:
        """Return the part of a past that the prefix continues, with the log-probabilities that are asked for."""
        found = past.of((BOS, *self.prefix)[: len(self.prefix)])
        if found is None or not self.options.prefix_log_probs:
            return found
        # The step after it gives the log-probability of the next token: the past must have read another one before.
        if found.log_probs is None or found.length < 2 or not found.can_cut:
            return None
        return found.cut(found.length - 1)

    def biased_token(self, tokens: Sequence[int]) -> int | None:
        """Return the next token of the soft prefix for a hypothesis, or None after its end or off it.

        tokens: tokens of the hypothesis, the prefix first
        """
        if self.bias is None:
            return None
        generated, wanted = tuple(tokens[len(self.prefix) :]), self.bias.tokens
        follows = len(generated) < len(wanted) and generated == wanted[: len(generated)]
        return wanted[len(generated)] if follows else None

    @property
    def shown_prefix(self) -> tuple[int, ...]:
        """The tokens of the prefix that are part of the translation."""
        return self.prefix[self.hidden :]


@dataclass(eq=False, kw_only=True, slots=True)
class ScoreJob(_QueuedJob):
    """A translation to score.

    target_ids: token ids of the translation, without begin and end token
    on_done: as for DecodeJob, with the scores
    attention: the attention matrices to return
    """

    target_ids: tuple[int, ...]
    on_done: Callable[[Scored | RequestError], None]
    attention: AttentionChoice = ()

    def __post_init__(self) -> None:
        assert self.source_ids, "a sentence has tokens"
        self.party, self.rows, self.tokens = self.caller, 1, len(self.source_ids) + len(self.target_ids)
        self.width = max(len(self.source_ids), len(self.target_ids) + 1)


Job = DecodeJob | ScoreJob
