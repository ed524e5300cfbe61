"""Words that translate to themselves, mined from pairs: they stand for protected strings while a model translates."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MOST_WORDS = 12
LEAST_PAIRS_OF_WORD = 50  # with the word in the source: models lose rarer words in other sentences
LEAST_SHARE = 0.85  # of these pairs that have it in the target too

_WORD = re.compile(r"[^\W_]+")
_NORMAL = 1.96  # of a normal distribution: a bound of 95 %


class SelfTranslatingWord(NamedTuple):
    """A word of pairs, how many have it in the source, and how many of these have it in the target too."""

    word: str
    pairs: int
    same: int

    @property
    def surety(self) -> float:
        """The lower bound of the share of `same` in `pairs` (Wilson 1927): a rare word needs a higher share."""
        share, square = self.same / self.pairs, _NORMAL**2
        spread = _NORMAL * math.sqrt(share * (1 - share) / self.pairs + square / (4 * self.pairs**2))
        return (share + square / (2 * self.pairs) - spread) / (1 + square / self.pairs)


def self_translating_words(
    pairs: Iterable[tuple[str, str]], *, least_pairs: int = LEAST_PAIRS_OF_WORD, most: int = MOST_WORDS
) -> list[SelfTranslatingWord]:
    """Return the words that most pairs with them have on both sides, the surest and most frequent first.

    A word has a capital letter or figures only, and at least three characters: other words that are the same in both
    languages are parts of their grammars. A pair counts once for each of its words.

    pairs: (source, target), such as those of training
    """
    sources, both = Counter[str](), Counter[str]()
    for source, target in pairs:
        words = {word for word in _WORD.findall(source) if _may_stand(word)}
        sources.update(words)
        both.update(words.intersection(_WORD.findall(target)))
    found = [SelfTranslatingWord(word, count, both[word]) for word, count in sources.items() if count >= least_pairs]
    found = [each for each in found if each.same >= LEAST_SHARE * each.pairs]
    return sorted(found, key=lambda each: (-each.surety * math.log(each.pairs), each.word))[:most]


def _may_stand(word: str) -> bool:
    return len(word) > 2 and (word.isdecimal() or (word[0].isupper() and word[1:].islower()))
