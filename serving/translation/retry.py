"""Another attempt at a sentence whose translation the guard suspects."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lingon.bundle import Bundle, Limits
from lingon.serving.constraints.words import Vocabulary
from lingon.serving.decoding.job import Options
from lingon.serving.guard.judge import DEGENERATE, Guard, Judgement
from lingon.text import Tokenizer

BEAM = 4
NGRAM = 4  # tokens; no run of so many occurs twice in another attempt
FACTOR = 1.5  # target tokens of another attempt for each source token, besides `Limits.output_extra`


@dataclass(frozen=True, slots=True)
class Guarding:
    """The guard of a model, and how it makes another attempt at a sentence."""

    guard: Guard
    attempt: Options

    @classmethod
    def of(cls, bundle: Bundle, tokenizer: Tokenizer, vocabulary: Vocabulary) -> Guarding:
        """Return the guard of a bundle; raises BundleError if its profiles do not have the right size."""
        rules = vocabulary.rules(no_repeat_ngram=NGRAM)
        beam_size = min(BEAM, bundle.manifest.limits.max_beam_size)
        return cls(Guard.of(bundle, tokenizer), Options(beam_size=beam_size, rules=rules.of_part(0)))

    def options(self, first: Options, source_tokens: int, limits: Limits) -> Options:
        """Return the options of another attempt.

        first: of the first attempt; source_tokens: with the end token
        """
        most = min(first.max_output_tokens, int(FACTOR * source_tokens) + limits.output_extra)
        return replace(self.attempt, length_penalty=first.length_penalty, max_output_tokens=max(most, 1))


def better(first: Judgement, second: Judgement) -> bool:
    """Whether another attempt has fewer of the flags for which it was made, or as many and fewer in all."""
    return _badness(second) < _badness(first)


def _badness(judgement: Judgement) -> tuple[int, int]:
    return len(DEGENERATE.intersection(judgement.flags)), len(judgement.flags)
