"""Sentences with placeholders, how they came out, and their scores beside the sentences with names."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lingon.bench.tools.quality.protection.answers import Answers
from lingon.scoring import score
from lingon.segments.protection.find import find_protected
from lingon.segments.protection.requests import Restored, Rung
from lingon.segments.steps import translate_sentence

KINDS = (
    "https://example.org/a?b=1",
    "user@example.org",
    "/usr/share/doc.txt",
    "{name}",
    "{{name}}",
    "${name}",
    "%s",
    "%(name)s",
    '<x id="1"/>',
    "__1__",
    ":name",
    "47110815",
)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence with placeholders and its reference, and the same with a name in their places.

    reference: None where there is none, because a string was put where no translator would have it
    """

    text: str
    strings: tuple[str, ...]
    reference: str | None = None
    name: str = ""

    @property
    def named(self) -> Pair:
        """The sentence and its reference with the name."""
        return self.masked(self.text), self.masked(self.reference or "")

    def masked(self, text: str) -> str:
        """Return a text with the name in place of the strings."""
        for string in self.strings:
            text = text.replace(string, self.name)
        return text


def usable_pairs(pairs: Sequence[Pair], name: str) -> list[Pair]:
    """Return the pairs of four words and more with the name once on both sides, in the source as a whole word."""
    word = re.compile(rf"\b{re.escape(name)}\b(?!['’-])")
    return [
        pair
        for pair in pairs
        if pair[0].count(name) == pair[1].count(name) == 1 and word.search(pair[0]) and len(pair[0].split()) > 3
    ]


def in_place_of_the_name(pair: Pair, words: Sequence[str], strings: Sequence[str], _: random.Random) -> Case:
    """Return the sentence with the first string in the place of the first word."""
    source, target = (side.replace(words[0], strings[0]) for side in pair)
    return Case(source, (strings[0],), target, words[0])


def at_the_end(pair: Pair, words: Sequence[str], strings: Sequence[str], _: random.Random) -> Case:
    """Return the sentence with a string before its last full stop, compared with the second word there."""
    source, target = (re.sub(r"\W*$", lambda end: f" {strings[0]}{end[0]}", side, count=1) for side in pair)
    return Case(source, (strings[0],), target, words[1])


def between_words(pair: Pair, words: Sequence[str], strings: Sequence[str], chance: random.Random) -> Case:
    """Return the sentence with strings between its words."""
    text = pair[0].split()
    for string in strings:
        text.insert(chance.randrange(1, len(text)), string)
    return Case(" ".join(text), tuple(strings))


Make = Callable[[Pair, Sequence[str], Sequence[str], random.Random], Case]
POSITIONS: tuple[tuple[str, Make, int], ...] = (
    ("a name's place", in_place_of_the_name, 1),
    ("the end", at_the_end, 1),
    ("between words", between_words, 1),
    ("between words", between_words, 2),
    ("between words", between_words, 3),
    ("between words", between_words, 4),
)


def measure_placeholders(
    answers: Answers, pairs: Sequence[Pair], words: Sequence[str], position: tuple[str, Make, int]
) -> dict[str, Any]:
    """Return the shares of the rungs, the strings that are not as often in the result, and scores, of all kinds.

    words: self-translating ones, of which the first is the name in the pairs
    """
    place, make, count = position
    chance = random.Random(0)
    cases = [
        make(pair, words, [KINDS[(kind + more) % len(KINDS)] for more in range(count)], chance)
        for pair in pairs
        for kind in range(len(KINDS))
    ]
    results = answers.run([translate_sentence(case.text, find_protected(case.text), words, {}) for case in cases])
    rungs = Counter(result.rung for result in results)
    shares = {rung.name.lower(): round(100 * rungs[rung] / len(cases), 2) for rung in Rung}
    row = {"place": place, "strings": count, "sentences": len(cases), "lost": sum(map(_lost, cases, results)), **shares}
    return {**row, **_scores(answers, cases, results)}


def _lost(case: Case, result: Restored) -> bool:
    return any(result.text.count(string) != case.text.count(string) for string in case.strings)


def _scores(answers: Answers, cases: Sequence[Case], results: Sequence[Restored]) -> dict[str, float]:
    """Return chrF of the results with the strings replaced by the name, and of the sentences that have the name."""
    if any(case.reference is None for case in cases):
        return {}
    masked = [case.masked(result.text) for case, result in zip(cases, results, strict=True)]
    named = sorted({case.named for case in cases})
    plain = answers.translate([source for source, _ in named])
    return {
        "chrf": round(score(masked, [case.named[1] for case in cases]).chrf, 2),
        "chrf_of_names": round(score(plain, [target for _, target in named]).chrf, 2),
    }
