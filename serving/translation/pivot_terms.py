"""Terms of a request that is translated through a pivot language.

A term is translated into the pivot language by itself. This *bridge* is a term of the first translation, and where it
came into the text between it is a term of the second one: from German to French, Haus to logis is Haus to house, and
then house to logis. That is certain only if the bridge is nowhere else in the text between, where it is the word for
something else. What became of a term is said of the last translation; a term that could not be held is missed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lingon.language_tags import primary
from lingon.serving.translation.terms import RequestTerms, missed_warning
from lingon.terms.matcher import Matcher
from lingon.terms.term import MOST_CHARACTERS, Term, TermError, check_terms, sought
from lingon.translation.v1 import translation_pb2 as pb

_TAG = re.compile(r"<[^<>]*+>")
_ENDS = ".!?,;: "
_ARTICLES = {"en": re.compile(r"(?:the|an?|to) +(?=\w)", re.IGNORECASE)}
"""What is written before a word that is alone, by language."""
_MISSED = pb.TERM_MEANS_MISSED


class _Owned(NamedTuple):
    """A term; glossary: its name, empty for a term of the request."""

    term: Term
    glossary: str


class Bridge(NamedTuple):
    """A term and what stands for it in the pivot language."""

    owned: _Owned
    pivot: str

    def into(self) -> Term:
        """The term of the first translation."""
        term = self.owned.term
        return Term(term.source, self.pivot, exact=term.exact, stems=term.stems)


class Bridges:
    """The terms of a request with their bridges."""

    def __init__(self, bridges: Iterable[Bridge]) -> None:
        self._bridges = {sought(each.owned.term): each for each in bridges}

    def __bool__(self) -> bool:
        return bool(self._bridges)

    def first_terms(self) -> list[Term]:
        """Return the terms of the first translation."""
        return [each.into() for each in self._bridges.values()]

    def second_terms(self, text: str, first: Sequence[pb.TermOutcome], language: str) -> list[Term]:
        """Return the terms of the second translation of one text.

        text: in the pivot language; first: what became of the terms there; language: of the text
        """
        wanted = defaultdict[str, list[Term]](list)
        for outcome in first:
            if outcome.means != _MISSED:
                written = text[outcome.target_span.begin : outcome.target_span.end]
                term = self._of(outcome).owned.term
                target, exact = (written, True) if term.is_kept else (term.target, term.exact)
                found = Term(written, target, term.variants, exact=exact, forbid=term.forbid)
                wanted[sought(Term(written))[0]].append(found)
        certain = [own for own in wanted.values() if all(sought_target(each) == sought_target(own[0]) for each in own)]
        terms = [own[0] for own in certain]
        try:
            there = Matcher(check_terms(terms), language).find(text)
        except TermError:
            return []
        counts = defaultdict[str, int](int)
        for found_term in there:
            counts[sought(Term(text[found_term.begin : found_term.end]))[0]] += 1
        return [own[0] for own in certain if counts[sought(Term(own[0].source))[0]] == len(own)]

    def outcomes(self, first: Sequence[pb.TermOutcome], second: Sequence[pb.TermOutcome]) -> list[pb.TermOutcome]:
        """Return what became of the terms of a text; first, second: of those of the two translations."""
        reached = {(each.source_span.begin, each.source_span.end): each for each in second}
        found = list[pb.TermOutcome]()
        for outcome in first:
            owned = self._of(outcome).owned
            whole = pb.TermOutcome(source=owned.term.source, target=owned.term.target, glossary=owned.glossary)
            whole.source_span.CopyFrom(outcome.source_span)
            place = (outcome.target_span.begin, outcome.target_span.end)
            last = reached.get(place) if outcome.means != _MISSED else None
            whole.means = _MISSED if last is None else last.means
            if last is not None and last.HasField("target_span"):
                whole.target_span.CopyFrom(last.target_span)
            found.append(whole)
        return found

    def _of(self, outcome: pb.TermOutcome) -> Bridge:
        exact = sought(Term(outcome.source, exact=True))
        return self._bridges.get(exact) or self._bridges[sought(Term(outcome.source))]


def sought_target(term: Term) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return what two terms have in common that are translated the same way."""
    return term.target, term.variants, term.forbid


class GivenTerms:
    """The only glossary of a request within this process, which may have more terms than a request."""

    def __init__(self, terms: Sequence[Term]) -> None:
        """terms: checked."""
        self._terms = terms

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Matcher]]:
        """See TermSources."""
        return [("", Matcher(self._terms, source))] if names else []


def occurring(terms: RequestTerms, texts: Iterable[str]) -> list[_Owned]:
    """Return the terms that may be in some texts, of several with one source the first. It may take seconds."""
    found = dict[tuple[str, str], _Owned]()
    for name, matcher in terms.dictionaries:
        for text in texts:
            for form in dict.fromkeys([text, _TAG.sub("", text), _TAG.sub(" ", text)] if "<" in text else [text]):
                for term in matcher.occurring(form):
                    if term.target or term.forbid:
                        found.setdefault(sought(term), _Owned(term, name))
    return list(found.values())


def bridged(owned: Sequence[_Owned], translations: Sequence[str], language: str) -> Bridges:
    """Return terms with their bridges.

    translations: of their sources, alone, into the pivot language; language: that one

    A term without a usable translation stays as it is in the text between.
    """
    article = _ARTICLES.get(primary(language))
    return Bridges(
        Bridge(each, _pivot(each.term, text, article)) for each, text in zip(owned, translations, strict=True)
    )


def _pivot(term: Term, translation: str, article: re.Pattern[str] | None) -> str:
    """Return the bridge of a term: its translation without what a model adds to a word that is alone."""
    if term.is_kept:
        return term.target
    text = translation.strip()
    if article is not None and len(term.source.split()) == 1 and (found := article.match(text)):
        text = text[found.end() :]
    if term.source[-1:] not in _ENDS:
        text = text.rstrip(_ENDS)
    try:
        check_terms([Term(term.source, text)])
    except TermError:
        return term.source
    return text if text and len(text) <= MOST_CHARACTERS else term.source


def set_outcomes(result: pb.TextResult, found: Sequence[pb.TermOutcome]) -> None:
    """Set what became of the terms of a text, and the warning about those that are missed."""
    result.ClearField("terms")
    result.terms.extend(found)
    kept = [each for each in result.warnings if each.code != pb.WARNING_CODE_TERM_MISSED]
    result.ClearField("warnings")
    result.warnings.extend(kept)
    warning = missed_warning(found)
    if warning is not None:
        result.warnings.append(warning)
