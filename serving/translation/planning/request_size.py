"""The size of a request while it is planned: planning ends as soon as an empty queue could not take the request."""

from __future__ import annotations

import re
from collections.abc import Callable

from lingon.errors import RequestTooLarge
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.translation.planning.input_processor import most_characters

MOST_SIGNS = 2**18  # of a text without markup that are neither letters, figures nor blanks: they take 2 µs each
MOST_TAGS = 50_000  # tags and signs <, which take 10 µs each
MOST_INLINES = 10_000  # elements within parts of texts, which take 50 µs each to be placed in the translation
MOST_REFERENCES = 100_000  # signs & in texts with markup, which take 3 µs each
MOST_KEPT = 10_000  # strings that are kept, such as URLs and placeholders, which take 20 µs each
MOST_WITHOUT_LETTERS = 50_000  # parts of texts that have no letters and stay as they are, which take 10 µs each
MOST_TWINS = 2**18  # characters that the model reads as others, which take 4 µs each
_SIGN = re.compile(r"[^\w\s]")


class RequestSize:
    """Counts what a request has planned so far. A retry of what it refuses would not help.

    What takes time without becoming a sentence or a token is counted too, before the work: so no request is planned for
    much more than half a second of CPU. By experiment, a megabyte of the worst signs took 2.4 s to cut into sentences.
    """

    def __init__(
        self, field: str, limits: EngineLimits, jobs: int = 1, check_queue: Callable[[int], None] = lambda jobs: None
    ) -> None:
        """field: of the request that holds its texts; jobs: for each sentence, more than one if it is sampled.

        check_queue: raises QueueFull if the engine has no place for so many jobs now
        """
        self._field, self._jobs, self._check_queue = field, jobs, check_queue
        self._most = {
            "characters": most_characters(limits.max_queue_tokens),
            "characters with markup": 3 * most_characters(limits.max_queue_tokens) // 2,
            "signs beside letters, figures and blanks": max(4 * limits.max_queue_tokens, MOST_SIGNS),
            "tags and signs <": MOST_TAGS,
            "elements that do not split them": MOST_INLINES,
            "signs &": MOST_REFERENCES,
            "strings to keep": MOST_KEPT,
            "parts without letters": MOST_WITHOUT_LETTERS,
            "characters that the model reads as others": MOST_TWINS,
            "sentences": limits.max_queue_texts,
            "tokens": limits.max_queue_tokens,
        }
        self._most_weights, self._weights = limits.max_attention_weights, 0
        self._found = dict.fromkeys(self._most, 0)

    @property
    def most_characters(self) -> int:
        """Characters of all texts together."""
        return self._most["characters"]

    @property
    def most_sentences(self) -> int:
        """Sentences of all texts together, if each is translated once."""
        return self._most["sentences"]

    def add_written(self, text: str, *, marked_up: bool) -> None:
        """Count a text as it was sent; raises RequestTooLarge."""
        self._add("characters with markup", len(text))
        if marked_up:
            self._add("tags and signs <", text.count("<"))
            self._add("signs &", text.count("&"))

    def add_signs(self, text: str) -> None:
        """Count the signs of a text without markup; strings to keep and ends of sentences are looked for at each."""
        self._add("signs beside letters, figures and blanks", len(_SIGN.findall(text)))

    def add_inlines(self, elements: int) -> None:
        """Count the elements that are placed in translations; raises RequestTooLarge."""
        self._add("elements that do not split them", elements)

    def add_kept(self, strings: int) -> None:
        """Count the strings that are kept of a text; raises RequestTooLarge."""
        self._add("strings to keep", strings)

    def add_part_without_letters(self) -> None:
        """Count a line or another part of a text that stays as it is; raises RequestTooLarge."""
        self._add("parts without letters", 1)

    def add_twins(self, characters: int) -> None:
        """Count characters that the model reads as others; raises RequestTooLarge."""
        self._add("characters that the model reads as others", characters)

    def add_characters(self, count: int) -> None:
        """Count text that will be normalised; raises RequestTooLarge."""
        self._add("characters", count)

    def add_sentence(self, tokens: int) -> None:
        """Count a sentence to translate or a pair to score, of so many known tokens; raises RequestTooLarge.

        Raises QueueFull, so that no more work is spent on what would be refused when it is complete.
        """
        self._add("sentences", self._jobs)
        self._add("tokens", self._jobs * tokens)
        self._check_queue(self._found["sentences"])

    def add_attention(self, weights: int) -> None:
        """Count the attention weights that the result of a pair will have; raises RequestTooLarge."""
        self._weights += weights
        if self._weights > self._most_weights:
            raise RequestTooLarge(
                "attention",
                f"attention comes to {self._weights} weights or more; a request may have {self._most_weights} at most; "
                f"select fewer kinds, layers or heads, set mean_of_heads, or send fewer {self._field}",
            )

    def _add(self, unit: str, count: int) -> None:
        self._found[unit] += count
        if self._found[unit] > self._most[unit]:
            raise RequestTooLarge(
                self._field,
                f"{self._field} come to {self._found[unit]} {unit} or more; a request may have {self._most[unit]} at "
                "most; send it in several",
            )
