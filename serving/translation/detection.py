"""Tells in which of the served languages a text is written, by the profiles that bundles have for their guard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lingon.serving.guard.languages import Languages, trigrams
from lingon.serving.system.event_loop import TimeSlice
from lingon.translation.v1 import translation_pb2 as pb

MAX_CHARACTERS = 2000  # of a text that are looked at: more of them make no difference


class Detector:
    """The languages of several models. Without profiles of two languages it finds none."""

    def __init__(self, profiles: Iterable[tuple[str, bytes]]) -> None:
        """profiles: language tags with their profiles; of several for one language, the first is taken."""
        found: dict[str, bytes] = {}
        for tag, content in profiles:
            found.setdefault(tag, content)
        self.tags = tuple(found)
        self._languages = Languages(list(found.values())) if len(found) > 1 else None

    def detect(self, text: str) -> pb.DetectedLanguages:
        """Return the languages of a text, the likeliest first; none for a text without letters."""
        start = text[:MAX_CHARACTERS]
        if self._languages is None or not len(trigrams(start)):
            return pb.DetectedLanguages()
        pairs = zip(self._languages.probabilities(start), self.tags, strict=True)
        languages = [
            pb.DetectedLanguage(language_code=tag, confidence=probability)
            for probability, tag in sorted(pairs, reverse=True)
        ]
        return pb.DetectedLanguages(languages=languages)

    async def detect_all(self, texts: Sequence[str], time_slice: TimeSlice) -> pb.DetectLanguagesResponse:
        """Return the languages of all texts of a request."""
        results = []
        for text in texts:
            results.append(self.detect(text))
            await time_slice.yield_if_due()
        return pb.DetectLanguagesResponse(results=results)
