"""The times at which the words of a text are spoken, made from the lengths of the words.

A word is spoken for a time in proportion to its characters, with one for the space after it. The proportion is the same
for all texts of a set and gives them WORDS_A_SECOND on average. A speech recognition has a word when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lingon.scoring import bleu_tokenizer
from lingon.translation.v1 import translation_pb2 as pb

WORDS_A_SECOND = 2.5


@dataclass(frozen=True, slots=True)
class Speech:
    """What a speaker says, and how a person translated it.

    words: with their times in milliseconds since the speaker began
    """

    words: tuple[pb.LiveWord, ...]
    reference: str

    @property
    def milliseconds(self) -> int:
        """When the last word ends; 0 without words."""
        return self.words[-1].end_ms if self.words else 0

    def text(self, language: str) -> str:
        """Return the words as one text."""
        return joined([word.text for word in self.words], language)


def units(text: str, language: str) -> list[str]:
    """Return the words of a text, of a language without blanks its characters. Lags are counted in them.

    language: code of the language, such as de or zh-Hans
    """
    words = text.split()
    return words if has_blanks(language) else list("".join(words))


def has_blanks(language: str) -> bool:
    """Whether a language has blanks between its words."""
    return bleu_tokenizer(language) == "13a"


def joined(words: Sequence[str], language: str) -> str:
    """Return the text of words, which `units` divides again."""
    return (" " if has_blanks(language) else "").join(words)


def speeches(pairs: Sequence[tuple[str, str]], language: str, words_a_second: float = WORDS_A_SECOND) -> list[Speech]:
    """Return a speech for each text with a word. The milliseconds of words are rounded, their sums are exact.

    pairs: of a text and its reference
    language: of the texts
    """
    divided = [(units(text, language), reference) for text, reference in pairs]
    lengths = [len(word) + 1 for words, _ in divided for word in words]
    if not lengths:
        return []
    character_ms = 1000 / words_a_second * len(lengths) / sum(lengths)
    return [Speech(tuple(_spoken(words, character_ms)), reference) for words, reference in divided if words]


def _spoken(words: Sequence[str], character_ms: float) -> list[pb.LiveWord]:
    spoken, characters = [], 0
    for word in words:
        begin, characters = characters, characters + len(word) + 1
        times = {"begin_ms": round(begin * character_ms), "end_ms": round(characters * character_ms)}
        spoken.append(pb.LiveWord(text=word, **times))
    return spoken
