"""Sets of equivalent terms of Google's API: one term in each of several languages, kept as terms of every pair of them.

    en,de,fr        [{"en": "sea", "de": "Meer", "fr": "mer"}]
    sea,Meer,mer    en to de: sea is Meer; de to en: Meer is sea; en to fr: sea is mer; ...

Sets that have a term in common are one set. No two sets have a term of a language in common after that, and none has
two terms of one language, so that the sets are found again in the terms of the pairs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, permutations

from lingon.errors import InvalidRequest
from lingon.google.codes import tag_of_google
from lingon.language_tags import canonical
from lingon.terms.term import Term, TermError, check_numbered, shown, sought
from lingon.translation.v1 import translation_pb2 as pb

MOST_LANGUAGES = 32  # of a glossary, which has at most 1,000 pairs of them
IGNORED = frozenset({"pos", "description"})  # columns of a table that are no languages

TermSet = Mapping[str, str]
"""The term of each language, by its tag."""
Pair = tuple[str, str]


def check_languages(codes: Sequence[str], field: str) -> list[str]:
    """Return the languages of a glossary of sets as tags, sorted. Raises InvalidRequest."""
    tags = sorted({tag_of(code, field) for code in codes})
    if not 2 <= len(tags) <= MOST_LANGUAGES:
        raise InvalidRequest(field, f"{field} must have 2 to {MOST_LANGUAGES} languages, got {len(tags)}")
    return tags


def tag_of(code: str, field: str) -> str:
    """Return the canonical tag of a code of a language. Raises InvalidRequest."""
    return canonical(tag_of_google(code), field)


def read_sets(content: bytes, languages: Sequence[str], field: str, *, delimiter: str = ",") -> list[TermSet]:
    """Return the sets of a table, whose first row names the language of each column. Raises InvalidRequest.

    languages: of the glossary, as tags, which all columns must have
    """
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        raise InvalidRequest(field, f"{field} is not UTF-8") from None
    except csv.Error as error:
        raise InvalidRequest(field, f"{field} is no table: {error}") from None
    header = [cell.strip() for cell in rows[0]] if rows else []
    tags = ["" if cell.lower() in IGNORED else tag_of(cell, f"{field}: a column") for cell in header]
    named = [tag for tag in tags if tag]
    unknown = next((cell for cell, tag in zip(header, tags, strict=True) if tag and tag not in languages), None)
    if unknown is not None or len(named) < 2 or len(set(named)) < len(named):
        got = f"got {shown(unknown)}" if unknown is not None else f"got {len(set(named))} in {len(named)} columns"
        raise InvalidRequest(field, f"{field}: the first row must name languages of the glossary, each once; {got}")
    sets = list[TermSet]()
    for number, row in enumerate(rows[1:], start=1):
        if len(row) > len(tags):
            message = f"{field}: entry {number} has {len(row)} columns, and the first row has {len(tags)}"
            raise InvalidRequest(field, message)
        sets.append({tag: cell.strip() for tag, cell in zip(tags, row, strict=False) if tag and cell.strip()})
    return sets


def joined(sets: Iterable[TermSet], field: str) -> list[TermSet]:
    """Return sets, of which those with a common term are one, in their order.

    A set of one term, which has no equivalent, is left out. Raises InvalidRequest, which names the entries, for a term
    that is out of bounds, and for two terms of one language in one set.
    """
    found = dict[int, dict[str, str]]()  # by the number of the first entry of each
    numbers = dict[tuple[str, str], int]()  # by language and term
    for number, each in enumerate(sets, start=1):
        keys = {tag: (tag, _checked(number, text, field)) for tag, text in each.items()}
        own = sorted({numbers[key] for key in keys.values() if key in numbers})
        first = own[0] if own else number
        whole = found.setdefault(first, {})
        for other in (*own[1:], number):
            for tag, text in (each if other == number else found.pop(other)).items():
                earlier = whole.setdefault(tag, text)
                if _key(earlier) != _key(text):
                    message = f"{field}: entries {first} and {number} have a term in common, and in {tag} the terms "
                    raise InvalidRequest(field, f"{message}{shown(earlier)} and {shown(text)}")
        numbers.update({(tag, _key(text)): first for tag, text in whole.items()})
    return [whole for _, whole in sorted(found.items()) if len(whole) > 1]


def _checked(number: int, text: str, field: str) -> str:
    """Return what a term is found by. Raises InvalidRequest if it is out of bounds."""
    try:
        check_numbered([(number, Term(text, text))])
    except TermError as error:
        raise InvalidRequest(field, f"{field}: {error}") from None
    return _key(text)


def _key(text: str) -> str:
    return sought(Term(text))[0]


def terms_of(sets: Iterable[TermSet], languages: Iterable[str]) -> dict[Pair, list[pb.Term]]:
    """Return the terms of sets for every pair of languages, which may have none."""
    terms: dict[Pair, list[pb.Term]] = {pair: [] for pair in permutations(languages, 2)}
    for each in sets:
        for source, target in permutations(each, 2):
            terms[source, target].append(pb.Term(source=each[source], target=each[target]))
    return terms


def holding(sets: Iterable[TermSet], wanted: TermSet) -> TermSet:
    """Return the first of some sets with a term of another set, of which one has one."""
    keys = {(tag, _key(text)) for tag, text in wanted.items()}
    return next(each for each in sets if not keys.isdisjoint((tag, _key(text)) for tag, text in each.items()))


def is_of_sets(pairs: Iterable[Pair]) -> bool:
    """Return whether a glossary has every pair of two languages or more, so that its terms may be those of sets."""
    found = set(pairs)
    return len(found) > 1 and found == set(permutations(set(chain.from_iterable(found)), 2))


def sets_of(terms: Mapping[Pair, Sequence[pb.Term]]) -> list[TermSet] | None:
    """Return the sets whose terms those of every pair are, or None if they are no terms of sets."""
    found = ({source: term.source, target: term.target} for (source, target), own in terms.items() for term in own)
    try:
        sets = joined(found, "terms")
    except InvalidRequest:
        return None
    regained = terms_of(sets, dict.fromkeys(chain.from_iterable(terms)))
    same = all(
        sorted(each.SerializeToString() for each in own) == sorted(each.SerializeToString() for each in regained[pair])
        for pair, own in terms.items()
    )
    return sets if same else None
