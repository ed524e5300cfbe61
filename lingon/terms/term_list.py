"""A list of terms of any length for requests, which have 200 at most: each gets the terms that its texts have."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, overload

from lingon.errors import SettingsError
from lingon.terms.matcher import Matcher
from lingon.terms.term import Term, TermError, check_terms

MOST_IN_REQUEST = 200  # terms, without those of glossaries; see translation.proto
_TAG = re.compile(r"<[^<>]*+>")


class TermList(Sequence[Term]):
    """Terms that were checked, for many requests. It does not change, and any thread may use it.

    Make one of a long list and give it to each call as `terms`: a call that is given the terms themselves checks all of
    them again, which takes a second for 100,000.
    """

    def __init__(self, terms: Iterable[Term] | Mapping[str, str]) -> None:
        """terms: in any number, or targets by their sources.

        Raises SettingsError for anything else, and for terms that are out of bounds or contradict each other.
        """
        try:
            self._terms = check_terms(_listed(terms))
        except TermError as error:
            raise SettingsError(f"terms: {error}") from None
        self._matchers = dict[str, Matcher]()
        self._making = Lock()

    @classmethod
    def of(cls, terms: TermList | Iterable[Term] | Mapping[str, str]) -> TermList:
        """Return terms as a list of this kind; see `__init__`."""
        return terms if isinstance(terms, TermList) else cls(terms)

    def __len__(self) -> int:
        return len(self._terms)

    @overload
    def __getitem__(self, index: int) -> Term: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Term]: ...

    def __getitem__(self, index: int | slice) -> Term | Sequence[Term]:
        return self._terms[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return TermList, (self._terms,)

    @property
    def digest(self) -> str:
        """The SHA-256 of the terms, in hexadecimal."""
        found = hashlib.sha256()
        for term in self._terms:
            written = term.message().SerializeToString(deterministic=True)
            found.update(len(written).to_bytes(4, "little") + written)
        return found.hexdigest()

    def for_texts(self, texts: Sequence[str], language: str = "", *, markup: bool = False) -> Sequence[Term]:
        """Return the terms that a request for these texts needs: all if they are few, else those that a text has.

        language: BCP-47, of the texts; empty if it is not known; markup: whether they are HTML or XML
        Raises SettingsError if there are stems to find in a language that has none.
        """
        if len(self) <= MOST_IN_REQUEST:
            return self._terms
        matcher = self._matcher(language)
        found = {id(term) for text in texts for read in _readings(text, markup) for term in matcher.occurring(read)}
        return [term for term in self._terms if id(term) in found]

    def _matcher(self, language: str) -> Matcher:
        with self._making:
            if language not in self._matchers:
                try:
                    self._matchers[language] = Matcher(self._terms, language)
                except TermError as error:
                    raise SettingsError(f"terms: {error}") from None
            return self._matchers[language]


def _readings(text: str, markup: bool) -> Iterator[str]:
    """Yield what a text with markup may read like: its tags may divide words, and the values of attributes are text."""
    yield text
    if markup:
        yield from (html.unescape(_TAG.sub(instead, text)) for instead in ("", " "))


def _listed(terms: object) -> list[Term]:
    """Return the terms of an argument. Raises SettingsError for one of another type."""
    if isinstance(terms, Mapping):
        return [Term(_text("a source", source), _text("a target", target)) for source, target in terms.items()]
    if isinstance(terms, str | bytes) or not isinstance(terms, Iterable):
        raise SettingsError(f"terms must be a list of lingon.Term, or a dict, got {type(terms).__name__}")
    found = list(terms)
    for position, term in enumerate(found):
        if not isinstance(term, Term):
            raise SettingsError(f"terms[{position}] must be a lingon.Term, got {type(term).__name__}")
    return found


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"terms: {name} must be a str, got {type(value).__name__}")
    return value
