"""Translation memories of a request that is translated through a pivot language.

The memories are of the whole pair of languages. The first translation takes what they have for a sentence, so that no
model reads it, and the text between then has the final translation of that sentence. The second translation takes it as
it is. That is certain only if the second translation finds these sentences at their places, and no other one that reads
the same; else the text is translated again, and what the memories have is only shown.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from lingon.memories.given import GivenMemory
from lingon.memories.keys import EXACT
from lingon.memories.segment import MOST_TEXT, Segment
from lingon.segments.boundaries import Span
from lingon.segments.layout import TextLayout
from lingon.serving.translation.memories import FoundMemories, RequestMemories
from lingon.serving.translation.options import TextChoice
from lingon.serving.translation.terms import CallerStores, TermSources
from lingon.translation.v1 import translation_pb2 as pb

GIVEN = ("memories",)
"""The name of FoundMemories in a request."""


def first_options(memories: RequestMemories) -> pb.MemoryOptions | None:
    """Return the options of the first translation for memories of the whole pair."""
    if not memories:
        return None
    return pb.MemoryOptions(
        memories=GIVEN, min_score=memories.min_score, max_matches=memories.most, always_translate=not memories.takes
    )


def first_stores(memories: RequestMemories, glossaries: TermSources) -> CallerStores:
    """Return what the first translation looks up."""
    return CallerStores(glossaries=glossaries, memories=FoundMemories(memories.memories, memories.looked_up))


class TakenSentences:
    """The sentences of the texts between that are from a memory."""

    def __init__(self, results: Sequence[pb.TextResult], options: TextChoice, language: str) -> None:
        """Keep the sentences of texts, whose language is that between.

        results: of the first translation, of texts with text; options: of their reading
        """
        self._spans = [list(_taken(result)) for result in results]
        segments = dict[str, Segment]()
        for result, spans in zip(results, self._spans, strict=True):
            for begin, end in spans:
                written = result.hypotheses[0].text[begin:end]
                text = html.unescape(written) if options.format.is_markup else written
                layout = TextLayout.of(text, options.sentences, language)
                for own in (layout.segment(index) for index in range(len(layout.segments))):
                    if len(own) <= MOST_TEXT:
                        segments[own] = Segment(own, own)
        self._memory = GivenMemory(segments.values())
        self.options = pb.MemoryOptions(memories=GIVEN, min_score=EXACT) if segments else None
        """Of the second translation."""

    def stores(self, glossaries: TermSources) -> CallerStores:
        """Return what the second translation looks up."""
        return CallerStores(glossaries=glossaries, memories=FoundMemories([("", self._memory)]))

    def are_in(self, place: int, result: pb.TextResult) -> bool:
        """Return whether exactly these sentences of a text are in its second translation.

        place: of the text; result: of the second translation, with sentences
        """
        spans = self._spans[place]
        for each in result.sentences:
            begin, end = each.source.begin, each.source.end
            inside = any(first <= begin and end <= last for first, last in spans)
            apart = all(end <= first or last <= begin for first, last in spans)
            if not (inside if pb.WARNING_CODE_FROM_MEMORY in each.warnings else apart):
                return False
        return True


def _taken(result: pb.TextResult) -> Iterator[Span]:
    """Yield the spans of the translations of a text that are from a memory."""
    for each in result.sentences:
        if pb.WARNING_CODE_FROM_MEMORY in each.warnings:
            yield each.target.begin, each.target.end


def set_matches(result: pb.TextResult, first: pb.TextResult) -> None:
    """Set what memories have for a text, and the warning about what is from them: those of the first translation."""
    result.ClearField("matches")
    result.matches.extend(first.matches)
    kept = [each for each in result.warnings if each.code != pb.WARNING_CODE_FROM_MEMORY]
    result.ClearField("warnings")
    result.warnings.extend(kept)


def warn_of_fuzzy(result: pb.TextResult) -> None:
    """Add the warning about a similar sentence that guides no translation, if there is one."""
    if any(match.score < EXACT for match in result.matches):
        message = "a similar sentence of a memory is only shown: the text is translated through a pivot language"
        result.warnings.add(code=pb.WARNING_CODE_NOT_GUIDED, message=message)
