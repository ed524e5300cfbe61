"""Whether an answer may be a translation of its sentence, by the probabilities and the translation of our model. Pure.

The checks of the guard pass a fluent text of the right length that translates another sentence. Our model gives its
tokens low probabilities, and it has little in common with our translation. How much is enough depends on the answers
before: a good translator's are rarely rejected twice in a row, and those of one that lies nearly always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

LEAST_TOKEN = -10.0  # nats; a name that our model does not know does not count for more
LESS_LIKELY = (2.4, 1.7, 1.0, 0.4)
"""Nats a token by which an answer may be less likely than our translation, if they share nothing.

By the number of answers that were rejected in a row before it: 0, 1, 2, and 3 or more. Of people's translations of the
Tatoeba test set, `en-de/10` rejects 0.5, 1.6, 3.9 and 7.4 % with them, and takes 1.6, 0.4, 0.1 and 0.1 % of those of
other sentences of the same length.
"""
SHARED = 4.7  # nats a token more, if they share everything; a logistic regression on validation sets gives it
LEAST_LIKELY = -3.5  # nats a token; the bound where our translation is suspect, and says nothing
GRAM = 3  # characters


def mean_likelihood(log_probs: Sequence[float]) -> float:
    """Return the mean log-probability of the tokens of a text, in nats, with a bound for each of them.

    log_probs: (tokens), with the end token
    """
    return sum(max(each, LEAST_TOKEN) for each in log_probs) / len(log_probs)


def least_likely(ours: Sequence[float], shared: float, rejected: int) -> float:
    """Return the least mean log-probability that an answer must have.

    ours: log-probabilities of our translation, (tokens); shared: see `shared_grams`
    rejected: answers that were rejected in a row before this one
    """
    return mean_likelihood(ours) - LESS_LIKELY[min(rejected, len(LESS_LIKELY) - 1)] - SHARED * shared


def shared_grams(one: str, other: str) -> float:
    """Return how much two texts have in common, 0 to 1: the Dice coefficient of their runs of GRAM characters."""
    counts, others = _grams(one), _grams(other)
    return 2 * (counts & others).total() / (counts.total() + others.total())


def _grams(text: str) -> Counter[str]:
    """Return the runs of a text in lower case, with a blank around it, so that a text of one character has one."""
    read = f" {' '.join(text.lower().split())} "
    return Counter(read[at : at + GRAM] for at in range(max(len(read) - GRAM + 1, 1)))
