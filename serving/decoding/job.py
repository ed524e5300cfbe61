"""What is asked of the engine, and what it answers: plain values, no tensors, no sockets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from lingon.errors import RequestError
from lingon.serving.runtime.runner import Scored

_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn where they are not chosen. Randomness is a function of (seed, place, step)."""

    temperature: float = 1.0  # divides the logits
    top_k: int = 0  # 0 is all
    top_p: float = 1.0
    seed: int = 0
    place: int = 0  # of the text, and of the hypothesis within it: the same seed draws otherwise elsewhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How one sentence is translated; every value is already checked against the model's limits."""

    beam_size: int = 1
    num_hypotheses: int = 1  # at most beam_size
    length_penalty: float = 0.0  # score = log-probability / length ** length_penalty, the end token counted
    max_output_tokens: int = 256  # the end token counted, a prefix not
    sampling: Sampling | None = None  # beam_size is 1 then
    shortlist: bool = False  # choose among the pieces that the source calls for; never where tokens are drawn


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A translation in tokens.

    tokens: without begin and end token, the prefix first
    log_probs: of each of tokens, 0 in the prefix; then, if finished, of the end token
    score: sum of log_probs / generated length ** length_penalty
    finished: whether the model ended it, rather than the bound on its length
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    score: float
    finished: bool


@dataclass(slots=True)
class Stamps:
    """When the phases of a job began and it ended, on the clock of `time.monotonic`; on the engine's thread.

    asked: by whoever asked for it
    begun: its run of the encoder, or of the scorer
    encoded: and decoding began
    """

    asked: float
    begun: float | None = None
    encoded: float | None = None
    ended: float | None = None


@dataclass(eq=False, kw_only=True, slots=True)
class DecodeJob:
    """One sentence to translate.

    source_ids: ends with EOS
    prefix: target tokens that the translation begins with
    deadline: on the clock of `time.monotonic`, in seconds; None is never
    caller, call: whose it is, and of which of his calls: those take turns
    on_tokens: called with every token as it is decided, for greedy jobs that stream; on the engine's thread
    on_done: called once, with the hypotheses (best first) or the error that ended the job; on the engine's thread
    stamps: where somebody wants to know when what happened
    """

    source_ids: tuple[int, ...]
    options: Options
    on_done: Callable[[tuple[Hypothesis, ...] | RequestError], None]
    on_tokens: Callable[[int], None] | None = None
    prefix: tuple[int, ...] = ()
    deadline: float | None = None
    caller: str = ""
    call: int = 0
    stamps: Stamps | None = None
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(eq=False, kw_only=True, slots=True)
class ScoreJob:
    """A translation to score.

    source_ids: ends with EOS
    target_ids: without begin and end token
    follows: whether it belongs to a text that was translated already, and gives way to nobody
    stamps: as of a DecodeJob
    """

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    on_done: Callable[[Scored | RequestError], None]
    follows: bool = False
    deadline: float | None = None
    caller: str = ""
    call: int = 0
    stamps: Stamps | None = None
    number: int = field(default_factory=lambda: next(_numbers))


Job = DecodeJob | ScoreJob
