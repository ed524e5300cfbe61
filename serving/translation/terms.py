"""The terms of a request: its own and those of glossaries, where they are in a text, and what became of each.

How they come into a translation is in `lingon.segments.term_steps`.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from lingon.errors import InvalidRequest, Unsupported
from lingon.segments.boundaries import Span
from lingon.segments.kept_forms import Kind, ProtectedSpan
from lingon.segments.term_steps import SentenceTerms, WantedTerm
from lingon.serving.translation.memories import MemorySources, NoMemorySources
from lingon.serving.translation.options import Format, ResolvedOptions
from lingon.terms.matcher import Found, Matcher
from lingon.terms.term import Term, TermError, check_terms
from lingon.terms.term_list import MOST_IN_REQUEST
from lingon.text import printable
from lingon.translation.v1 import translation_pb2 as pb

MOST_GLOSSARIES = 5  # names in a request
MOST_CACHED = 64  # lists of terms of requests
MOST_CACHED_BYTES = 2**16  # of one of them
SHOWN_TERMS = 3  # in a warning
SHOWN_CHARACTERS = 40  # of a term in a warning


class TermSources(Protocol):
    """What keeps the glossaries of callers."""

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Matcher]]:
        """Return the dictionaries of these glossaries for a pair of languages, BCP-47, in the order of the names.

        caller: the owner; "" for callers without a key or certificate
        A glossary without a dictionary for the pair is left out. Raises RequestError for one that the caller lacks.
        """


class NoTermSources:
    """Keeps no glossaries."""

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Matcher]]:
        if names:
            raise Unsupported(f"glossaries: none are kept here, and the request names {printable(names[0])!r}")
        return []


class CallerStores(NamedTuple):
    """What a server keeps for the caller of a request. owner: see `TermSources.find`."""

    owner: str = ""
    glossaries: TermSources = NoTermSources()
    memories: MemorySources = NoMemorySources()


NOTHING_STORED = CallerStores()


class PlannedTerm(NamedTuple):
    """A term at a place of a text.

    begin, end: in the text without markup
    glossary: its name; empty for a term of the request
    sentence: the index of its sentence
    is_kept: whether it is its own target, and the text layer keeps it
    """

    begin: int
    end: int
    term: Term
    glossary: str
    sentence: int = 0
    is_kept: bool = False

    def in_sentence(self, sentence: int, *, keeps: bool) -> PlannedTerm:
        """Return the term of a sentence; keeps: whether strings of the sentence are kept at all."""
        return self._replace(sentence=sentence, is_kept=self.is_kept and keeps)

    def span_after(self, begin: int) -> Span:
        """Return its span, counted from a position."""
        return self.begin - begin, self.end - begin


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """All terms of a request, for one pair of languages.

    dictionaries: with the names of their glossaries, the terms of the request first, under an empty name
    languages: source and target, BCP-47
    key: what tells these terms from all others, of this process
    """

    dictionaries: Sequence[tuple[str, Matcher]] = ()
    languages: tuple[str, str] = ("", "")
    key: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.dictionaries)

    def find(self, text: str, first: int = 0, kept: Sequence[ProtectedSpan] = ()) -> list[PlannedTerm]:
        """Return the terms of a text in order, without overlap.

        first: the position of the text in the whole text, from which the results count; kept counts in the text

        No term is in a kept string, but a longer term may have some in it, see WITHIN.
        """
        found, taken = list[PlannedTerm](), [(begin, end) for begin, end, kind in kept if kind not in WITHIN]
        for name, matcher in self.dictionaries:
            own = matcher.find(text, taken)
            if own and len(self.dictionaries) > 1:
                taken = sorted([*taken, *((each.begin, each.end) for each in own)])
            found += (
                PlannedTerm(first + begin, first + end, term, name, is_kept=term.is_kept)
                for begin, end, term in own
                if term.target or term.forbid  # otherwise the source is left to the model
            )
        found.sort(key=lambda each: each.begin)
        inside = [span for span in kept if span.kind in WITHIN]
        return [each for each in found if all(_is_apart(each, first, span) for span in inside)] if inside else found

    def of_sentence(self, planned: Sequence[PlannedTerm], sentence: str, begin: int) -> SentenceTerms | None:
        """Return the terms of a sentence that the text layer does not keep, or None if there are none.

        sentence: with the planned terms; begin: its position in the text that they count in
        """
        found = [Found(*each.span_after(begin), each.term) for each in planned if not each.is_kept] if planned else ()
        return SentenceTerms.in_sentence(sentence, found, self.languages) if found else None


WITHIN = frozenset({Kind.NUMBER, Kind.FIGURE, Kind.EMOJI, Kind.LINE, Kind.CODE})
"""What a longer term may have in it, such as the number of "Form 1040"."""


def _is_apart(term: PlannedTerm, first: int, kept: ProtectedSpan) -> bool:
    """Return whether a term is outside a kept string, or around it and longer."""
    begin, end = term.span_after(first)
    if end <= kept.begin or kept.end <= begin:
        return True
    return begin <= kept.begin and kept.end <= end and end - begin > kept.end - kept.begin


def outside(spans: Sequence[ProtectedSpan], terms: Sequence[PlannedTerm], first: int = 0) -> list[ProtectedSpan]:
    """Return kept spans without those within terms; first: the position that the spans count from."""
    taken = [each.span_after(first) for each in terms]
    return [span for span in spans if not any(begin < span.end and span.begin < end for begin, end in taken)]


NO_TERMS = RequestTerms()


async def request_terms(
    request: pb.TranslateRequest | pb.TranslateStreamRequest,
    options: ResolvedOptions,
    languages: tuple[str, str],
    stores: CallerStores = NOTHING_STORED,
) -> RequestTerms:
    """Return the terms of a request; languages: source and target, BCP-47, as the model names them.

    Raises InvalidRequest for terms that are wrong or that an option excludes, and RequestError for a glossary that the
    caller does not have.
    """
    if not (request.terms or request.glossaries):
        return NO_TERMS
    own = own_terms(request, options, languages)
    if not request.glossaries:
        return own
    if len(request.glossaries) > MOST_GLOSSARIES:
        raise InvalidRequest(
            "glossaries", f"glossaries must be at most {MOST_GLOSSARIES} names, got {len(request.glossaries)}"
        )
    stored = await stores.glossaries.find(stores.owner, list(request.glossaries), *languages)
    versions = "".join(f" {_number(matcher)} {name}\0" for name, matcher in stored)
    return RequestTerms((*own.dictionaries, *stored), languages, own.key + versions.encode())


def own_terms(
    request: pb.TranslateRequest | pb.TranslateStreamRequest, options: ResolvedOptions, languages: tuple[str, str]
) -> RequestTerms:
    """Return the terms of a request without those of its glossaries; see `request_terms`. Raises InvalidRequest."""
    _check_options("terms" if request.terms else "glossaries", options)
    if not request.terms:
        return NO_TERMS
    if len(request.terms) > MOST_IN_REQUEST:
        raise InvalidRequest("terms", f"terms must be at most {MOST_IN_REQUEST}, got {len(request.terms)}")
    # One message, because each that is written by itself takes half a microsecond.
    written = pb.TranslateRequest(terms=request.terms).SerializeToString(deterministic=True)
    return RequestTerms([("", _matcher(written, languages[0]))], languages, written)


def _check_options(field: str, options: ResolvedOptions) -> None:
    """Raise InvalidRequest for an option that terms cannot be used with."""
    excluded = {
        "a text.format of pieces": options.text.format is Format.PIECES,
        "options.forced_words": bool(options.message.forced_words),
    }
    for name, given in excluded.items():
        if given:
            raise InvalidRequest(field, f"{field} cannot be used with {name}")


def _matcher(written: bytes, language: str) -> Matcher:
    """Return what finds the terms of a request. Raises InvalidRequest for a wrong one."""
    if len(written) > MOST_CACHED_BYTES:
        return _new_matcher(written, language)
    return _cached_matcher(written, language)


def _new_matcher(written: bytes, language: str) -> Matcher:
    try:
        return Matcher(check_terms(map(Term.of, pb.TranslateRequest.FromString(written).terms)), language)
    except TermError as error:
        field = f"terms[{error.number - 1}]"
        raise InvalidRequest(field, f"terms: {error}") from None


_cached_matcher = lru_cache(MOST_CACHED)(_new_matcher)

_numbers = itertools.count(1)
_known: weakref.WeakKeyDictionary[Matcher, int] = weakref.WeakKeyDictionary()


def _number(matcher: Matcher) -> int:
    """Return a number that no other dictionary of this process has or had. Each version of a glossary has its own."""
    number = _known.get(matcher)
    if number is None:
        number = _known[matcher] = next(_numbers)
    return number


class Outcome(NamedTuple):
    """What became of a term. target: in the translation of its sentence; None if it lacks the term."""

    planned: PlannedTerm
    target: Span | None
    means: pb.TermMeans.ValueType


def outcomes(
    sentence: str,
    planned: Sequence[PlannedTerm],
    terms: SentenceTerms | None,
    target: str,
    used: Iterable[tuple[int, pb.TermMeans.ValueType]],
) -> list[Outcome]:
    """Return what became of the terms of a sentence, in their order.

    sentence: of the text without markup; planned: its terms; terms: those of them that are not kept
    target: its translation; used: how they came into it, see `Restored.terms`
    """
    means: dict[int, deque[pb.TermMeans.ValueType]] = {}
    for number, way in used:
        if way != pb.TERM_MEANS_MISSED:
            means.setdefault(number, deque()).append(way)
    free = [each for each in planned if not each.is_kept]
    checked: dict[PlannedTerm, Outcome] = {}
    if terms is not None:
        wanted = [
            WantedTerm(terms.terms.index(each.term), each.term, each.begin, each.end, each.term.target) for each in free
        ]
        check = terms.check(target, wanted)
        for place, each in enumerate(free):
            ways = means.get(wanted[place].number)
            way = (ways.popleft() if ways else pb.TERM_MEANS_FREE) if check.has(place) else pb.TERM_MEANS_MISSED
            checked[each] = Outcome(each, check.spans[place], way)
    copies = _Copies(target)
    return [checked.get(each) or copies.next(each, sentence) for each in planned]


class _Copies:
    """Where kept strings are in a translation: equal ones in their order."""

    def __init__(self, target: str) -> None:
        self._target, self._ends = target, Counter[str]()

    def next(self, planned: PlannedTerm, sentence: str) -> Outcome:
        string = sentence[planned.begin : planned.end]
        at = self._target.find(string, self._ends[string])
        if at < 0:
            return Outcome(planned, None, pb.TERM_MEANS_MISSED)
        self._ends[string] = at + len(string)
        return Outcome(planned, (at, at + len(string)), pb.TERM_MEANS_KEPT)


def missed_warning(found: Sequence[pb.TermOutcome]) -> pb.Warning | None:
    """Return the warning about terms that a translation lacks, or None if it has all."""
    missed = [each for each in found if each.means == pb.TERM_MEANS_MISSED]
    if not missed:
        return None
    named = ", ".join(f"{_shown(each.target)} for {_shown(each.source)}" for each in missed[:SHOWN_TERMS])
    more = f" and {len(missed) - SHOWN_TERMS} more" if len(missed) > SHOWN_TERMS else ""
    message = f"{len(missed)} of {len(found)} terms are missed: {named}{more}"
    return pb.Warning(code=pb.WARNING_CODE_TERM_MISSED, message=message)


def _shown(text: str) -> str:
    if not text:
        return "another word"
    return repr(printable(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"))
