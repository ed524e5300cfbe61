"""Keeps translations in valid UTF-8, whatever search made them.

Plain search restricts no token, because rules need the logits of every step. A translation that has U+FFFD, or in which
byte pieces break a character, is decoded once more with the rules; greedy search goes on before that character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lingon.serving.constraints.pieces import BETWEEN
from lingon.serving.constraints.words import Vocabulary
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Options


class ValidUtf8:
    """The rule of valid UTF-8 for the translations of one model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._spelling = vocabulary.spelling
        self._rules = vocabulary.rules().of_part(0)

    def options(self, options: Options, prefix: Sequence[int]) -> Options:
        """Return the options for a translation that begins with these tokens.

        A prefix with byte pieces has the rules at once, because a model is likely to go on with another byte piece.
        """
        if options.rules is not None or not self._spelling.has_bytes(prefix):
            return options
        return self._ruled(options)

    def until_broken(self, on_token: Callable[[int], None], prefix: int) -> Callable[[int], None]:
        """Return what passes the tokens of a stream on, until one breaks a character.

        prefix: the number of tokens at the beginning that are passed on in any case
        """
        read = 0
        character: int | None = BETWEEN

        def pass_on(token: int) -> None:
            nonlocal read, character
            read += 1
            if read > prefix and character is not None:
                character = self._spelling.character_after(character, token)
            if character is not None:
                on_token(token)

        return pass_on

    def again(self, job: DecodeJob, found: Sequence[Hypothesis]) -> tuple[Options, tuple[int, ...]] | None:
        """Return the options and the prefix with which a job is decoded once more; None if it need not be."""
        prefix = job.shown_prefix
        whole = [self._spelling.whole(each.tokens, len(prefix)) for each in found]
        if job.options.rules is not None or all(map(_is_whole, found, whole)):
            return None
        kept = found[0].tokens[: whole[0]] if job.options.beam_size == 1 else prefix
        bound = job.options.max_output_tokens - (len(kept) - len(prefix))
        return replace(self._ruled(job.options), max_output_tokens=bound), kept

    def _ruled(self, options: Options) -> Options:
        return replace(options, rules=self._rules, shortlist=False, cut_loops=False)


def rejoined(job: DecodeJob, first: Hypothesis, kept: int, second: Hypothesis) -> Hypothesis:
    """Return a translation that was continued, with the log-probabilities that its beginning had before.

    first: the translation before; kept: the number of its tokens with which the second one begins
    """
    log_probs = first.log_probs[:kept] + second.log_probs[kept:]
    generated = max(len(log_probs) - len(job.shown_prefix), 1)
    score = sum(log_probs) / generated**job.options.length_penalty
    return replace(second, log_probs=log_probs, score=score)


def _is_whole(hypothesis: Hypothesis, whole: int) -> bool:
    return whole == len(hypothesis.tokens)
