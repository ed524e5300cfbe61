"""The settings of a model of several languages: which, and the pieces by which it is told them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from lingon.bundle import Language, Languages, SourceLanguage, TargetLanguage
from lingon.errors import SettingsError
from lingon.text import UNK, Tokenizer
from lingon.training.config.blocks import LanguagePair
from lingon.training.config.model import Settings, bundle_rule

Tag = Annotated[str, bundle_rule(Language)]
Pieces = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=16)]


class SourceSettings(Settings):
    """A language that is translated."""

    language: Tag
    before: Pieces = ()  # pieces of the source vocabulary before those of a text
    after: Pieces = ()  # pieces after the end token


class TargetSettings(Settings):
    """A language that is translated into."""

    language: Tag
    source: Pieces = ()  # pieces of the source vocabulary before all others
    forced: Pieces = ()  # pieces of the target vocabulary that every translation begins with


class LanguageSettings(Settings):
    """Every source language is translated into every other target language.

    A run trains the pairs of its corpora. The other pairs are served too, without any text that taught them.
    """

    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)]
    targets: Annotated[tuple[TargetSettings, ...], Field(min_length=1)]

    @classmethod
    def of(cls, pairs: Sequence[LanguagePair]) -> Self:
        """Return the languages of these pairs, with a piece of the target language before the source.

        Johnson et al. (2017), section 3, tell a model the target language in this way. The pieces have the form that
        the models of OPUS-MT have.
        """
        sources, targets = (dict.fromkeys(side) for side in zip(*pairs, strict=True))
        return cls(
            sources=tuple(SourceSettings(language=tag) for tag in sources),
            targets=tuple(TargetSettings(language=tag, source=(f">>{tag}<<",)) for tag in targets),
        )

    @property
    def pairs(self) -> tuple[LanguagePair, ...]:
        """The pairs that a model serves."""
        every = ((source.language, target.language) for source in self.sources for target in self.targets)
        return tuple(pair for pair in every if pair[0] != pair[1])

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """The pieces of the source vocabulary, each once."""
        read = [piece for each in self.sources for piece in (*each.before, *each.after)]
        return tuple(dict.fromkeys([*read, *(piece for each in self.targets for piece in each.source)]))

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The pieces of the target vocabulary, each once."""
        return tuple(dict.fromkeys(piece for each in self.targets for piece in each.forced))

    def resolve(self, tokenizer: Tokenizer) -> Languages:
        """Return the languages with the ids of their pieces.

        Raises SettingsError for a piece that is not there, and for languages that no bundle could have.
        """

        def ids(pieces: Sequence[str], *, target: bool = False) -> tuple[int, ...]:
            model = tokenizer.target if target else tokenizer.source
            found = tuple(model.piece_to_id(piece) for piece in pieces)
            if UNK in found:
                side = "target" if target else "source"
                raise SettingsError(f"languages: {pieces[found.index(UNK)]!r} is no piece of the {side} vocabulary")
            return found

        found = Languages(
            tuple(SourceLanguage(each.language, ids(each.before), ids(each.after)) for each in self.sources),
            tuple(
                TargetLanguage(each.language, ids(each.source), ids(each.forced, target=True)) for each in self.targets
            ),
        )
        if problem := next(found.problems(tokenizer.source_vocab, tokenizer.target_vocab), None):
            raise SettingsError(problem)
        return found
