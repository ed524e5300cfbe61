"""Rules of requests, over the pieces of the random models."""

from __future__ import annotations

from lingon.serving.decoding.rules import ForcedWords, Rules
from lingon.serving.decoding.spelling import Pieces, Spelling
from tests.support.naive_search import NaiveRules
from tests.support.random_models import VOCAB

BYTES = [0xC3, 0xA9, 0xA4, 0xE2, 0x82, 0xAC, 0x62, 0x20]
LETTERS = ["a", "b", "c", "d", "ab", "bc", "abc", "dd", "é"]
TEXTS = [b""] * 4 + [f"{space}{letters}".encode() for space in ("", " ") for letters in LETTERS]
TEXTS += [letters.encode() for letters in (" cd", "cd", " e", "e", "da", "€", "ee", " ea", "ac", ".")]
PIECES = Pieces([*TEXTS, *(bytes([byte]) for byte in BYTES)], {32 + at: byte for at, byte in enumerate(BYTES)})
CASES = [
    NaiveRules(),
    NaiveRules(min_tokens=20),
    NaiveRules(no_repeat_ngram=1),
    NaiveRules(no_repeat_ngram=2),
    NaiveRules(repetition_penalty=1.8),
    NaiveRules(forbidden=("a",)),
    NaiveRules(forbidden=("ab", "c d", "é", "dd a")),
    NaiveRules(forbidden=("a", "b", "c", "d", "e")),
    NaiveRules(forbidden=("bc", "e"), min_tokens=12, no_repeat_ngram=3, repetition_penalty=1.3),
]
WORDS = {b"cd a": (22, 13), b"dd": (20,), "é€".encode(): (32, 33, 35, 36, 37)}


def rules_of(case: NaiveRules, forced: ForcedWords | None = None) -> Rules:
    words = [word.encode() for word in case.forbidden]
    return Rules(
        spelling=Spelling(PIECES, words),
        vocab=VOCAB,
        min_tokens=case.min_tokens,
        no_repeat_ngram=case.no_repeat_ngram,
        repetition_penalty=case.repetition_penalty,
        forced=forced,
    )
