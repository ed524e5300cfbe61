"""The languages of a bundle that serves several, and the tokens by which its model is told them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from lingon.bundle.schema import MaxLength, Pattern, Range
from lingon.errors import first_of
from lingon.text import EOS, LanguageTokens

MANY = "mul"  # of ISO 639: several languages; what a manifest names where there are several
MOST_LANGUAGES = 500  # on each side
MOST_SHOWN = 20  # languages in a line

Language = Annotated[str, Pattern(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,8}", "a BCP-47 language tag")]
TokenIds = Annotated[tuple[Annotated[int, Range(0, 2**20)], ...], MaxLength(16)]


def shown_languages(tags: Sequence[str]) -> str:
    """Return tags for a line of text, the first MOST_SHOWN of them."""
    return first_of(tags, MOST_SHOWN)


@dataclass(frozen=True, slots=True)
class SourceLanguage:
    """A language that is translated.

    before, after: source ids before the pieces of a text, and after its end token if the model reads one
    """

    language: Language
    before: TokenIds
    after: TokenIds


@dataclass(frozen=True, slots=True)
class TargetLanguage:
    """A language that is translated into.

    source: source ids before all others
    forced: target ids that every translation begins with, and that are not part of it
    """

    language: Language
    source: TokenIds
    forced: TokenIds


@dataclass(frozen=True, slots=True)
class Languages:
    """Every source language is translated into every other target language."""

    sources: Annotated[tuple[SourceLanguage, ...], MaxLength(MOST_LANGUAGES)]
    targets: Annotated[tuple[TargetLanguage, ...], MaxLength(MOST_LANGUAGES)]

    def tokens(self, source: str, target: str) -> LanguageTokens:
        """Return the tokens of a pair; raise KeyError for a language that is not there. The tags are as here."""
        of_source = {each.language: each for each in self.sources}[source]
        of_target = {each.language: each for each in self.targets}[target]
        return LanguageTokens((*of_target.source, *of_source.before), of_source.after, of_target.forced)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs that are served, as they are written here."""
        for source in self.sources:
            for target in self.targets:
                if source.language != target.language:
                    yield source.language, target.language

    @property
    def pair(self) -> tuple[str, str]:
        """The source and the target language, MANY for a side that has several."""
        sides = [each.language for each in self.sources], [each.language for each in self.targets]
        source, target = (side[0] if len(side) == 1 else MANY for side in sides)
        return source, target

    @property
    def most_source_tokens(self) -> int:
        """The largest number of tokens that a pair adds to a source."""
        of_sources = (len(each.before) + len(each.after) for each in self.sources)
        return max(of_sources, default=0) + max((len(each.source) for each in self.targets), default=0)

    @property
    def most_forced_tokens(self) -> int:
        """The largest number of tokens that a translation begins with and that are not part of it."""
        return max((len(each.forced) for each in self.targets), default=0)

    def __str__(self) -> str:
        """Return the languages of both sides for a line of text."""
        source, target = (shown_languages([each.language for each in side]) for side in (self.sources, self.targets))
        return f"{source} to {target}"

    def problems(self, source_vocab: int, target_vocab: int) -> Iterator[str]:
        """Yield messages about what contradicts the vocabularies or itself."""
        sides = [each.language for each in self.sources], [each.language for each in self.targets]
        for side, names in zip(("sources", "targets"), sides, strict=True):
            lower = [name.lower() for name in names]
            if len(set(lower)) < len(lower):
                yield f"languages.{side}: two have the same language"
        if next(self.pairs(), None) is None:
            yield "languages must have a pair of two different languages"
        read = [token for each in self.sources for token in (*each.before, *each.after)]
        read += [token for each in self.targets for token in each.source]
        written = [token for each in self.targets for token in each.forced]
        for name, ids, bound in (("source", read, source_vocab), ("target", written, target_vocab)):
            if max(ids, default=0) >= bound:
                yield f"languages: the {name} ids must be below {bound}, got {max(ids)}"
        for each in self.targets:
            if EOS in each.forced:  # every translation would end there
                yield f"languages: {each.language} must not force the end token"
