"""The terms of `lingon live`: its options, and the sentences whose translation lacks one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingon.cli.options import KeepOption, OptionGroup, TermOptions

if TYPE_CHECKING:
    from lingon.cli.live_captions import SaidWords
    from lingon.client.results import LiveReady, LiveUpdate
    from lingon.terms.term import Term


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveTermOptions(OptionGroup):
    """What words and phrases are translated to. They hold in whole sentences alone."""

    listed: TermOptions
    keep: KeepOption = None

    @property
    def given(self) -> str:
        """The first flag that is given, or nothing."""
        flags = {"--terms": self.listed.terms, "--glossary": self.listed.glossary, "--keep": self.keep}
        return next((flag for flag, value in flags.items() if value), "")

    def read(self, source: str | None, target: str | None) -> list[Term]:
        """Return the terms of the file and the strings that are kept; source, target: the languages that were given.

        Raises SettingsError for a file that cannot be read.
        """
        from lingon.terms.term import Term

        found = self.listed.request(source, target)["terms"]
        return [*(Term(each, each, exact=True) for each in self.keep or ()), *(found or ())]


class MissedTerms:
    """Finds the sentences whose translation lacks a term. Terms of glossaries are known to the server only."""

    def __init__(self, terms: Sequence[Term], ready: LiveReady, said: SaidWords, blank: str) -> None:
        """ready: with the languages; blank: what is between two words of the source."""
        from lingon.segments.term_steps import SentenceTerms

        self._terms = SentenceTerms.of(terms, ready.source_language, ready.target_language)
        self._said, self._blank, self._agreed = said, blank, ""

    def read(self, update: LiveUpdate) -> Iterator[str]:
        """Yield a message for each term that is missed in the sentence that an update completes."""
        self._agreed += update.agreed
        if not update.is_complete:
            return
        translation, self._agreed = self._agreed, ""
        wanted = self._terms.wanted(self._said.text(update.first_word, update.words, self._blank))
        found = self._terms.check(translation, wanted)
        for number in found.missed:
            term, wrong = wanted[number].term, found.wrong[number]
            what = f"has {wrong[0]!r}, which is wrong" if wrong else f"lacks {term.target!r}"
            yield f"sentence {update.sentence + 1}: warning: the translation {what} for {term.source!r}"
