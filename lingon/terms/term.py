"""A term: how a word or phrase is translated. Its bounds, and the contradictions between several of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lingon.errors import LingonError
from lingon.terms.words import as_written, words_of
from lingon.text import printable
from lingon.translation.v1 import translation_pb2 as pb

MOST_CHARACTERS = 256  # of a source, a target, a variant or a forbidden translation
MOST_TEXTS = 16  # variants of a term, and forbidden translations
SHOWN = 64  # characters of a text in a message

_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\u2028\u2029\ud800-\udfff]")


class TermError(LingonError):
    """An entry of a list of terms is out of bounds, or contradicts another one.

    number: of the entry; the first one is 1
    other: the number of the entry that it contradicts, 0 if it is wrong by itself
    """

    def __init__(self, number: int, problem: str, other: int = 0, *, name: str = "") -> None:
        """problem: what is wrong, without the number of the entry; name: of the file, if there is one."""
        entries = f"entries {other} and {number}" if other else f"entry {number}"
        super().__init__(f"{name and f'{name}: '}{entries}: {problem}")
        self.problem = problem
        self.number = number
        self.other = other


@dataclass(frozen=True, slots=True)
class Term:
    """How a word or phrase is translated wherever it is in a text; translation.proto says what each field does.

    source: what is looked for. In characters, as all texts here, at most MOST_CHARACTERS
    target: its translation; empty if the model chooses
    variants: other texts that are right as well, at most MOST_TEXTS
    exact: whether the source is found only as it is written, and the target stays as it is written
    forbid: translations that are wrong, at most MOST_TEXTS
    stems: whether inflected forms of the source are found
    """

    source: str
    target: str = ""
    variants: tuple[str, ...] = ()
    exact: bool = False
    forbid: tuple[str, ...] = ()
    stems: bool = False

    @classmethod
    def of(cls, message: pb.Term) -> Term:
        """Return the term of a message, unchecked."""
        exact = message.case == pb.TERM_CASE_EXACT
        return cls(message.source, message.target, tuple(message.variants), exact, tuple(message.forbid), message.stems)

    def message(self) -> pb.Term:
        """Return the term as a message."""
        case = pb.TERM_CASE_EXACT if self.exact else pb.TERM_CASE_UNSPECIFIED
        return pb.Term(
            source=self.source,
            target=self.target,
            variants=self.variants,
            case=case,
            forbid=self.forbid,
            stems=self.stems,
        )

    @property
    def is_kept(self) -> bool:
        """Whether the source is its own translation, so that it is kept byte for byte."""
        return self.target == self.source


def check_terms(terms: Iterable[Term]) -> list[Term]:
    """Return terms without the blanks around their texts, in their order. Terms that say the same are one.

    Those with one source and one target are joined: they have the variants and the forbidden translations of all.
    Raises TermError for a term that is out of bounds, and for two with one source and different targets. One whose
    case counts does not contradict one whose case does not: the first is taken where it is found as it is written.
    """
    return check_numbered(enumerate(terms, start=1))


def check_numbered(terms: Iterable[tuple[int, Term]]) -> list[Term]:
    """Return terms as `check_terms` does, each with the number of the entry that it is from."""
    found: dict[tuple[str, str], tuple[int, Term]] = {}
    for number, term in terms:
        term = _checked(number, term)
        key = sought(term)
        other, earlier = found.setdefault(key, (number, term))
        if earlier.target != term.target:
            raise TermError(number, _contradiction(earlier, term), other)
        if earlier is not term:
            found[key] = other, _joined(number, earlier, term)
    return [term for _, term in found.values()]


def sought(term: Term) -> tuple[str, str]:
    """Return what two terms have in common that are found at the same places, if their case counts or not."""
    return "".join(words_of(term.source)), as_written(term.source) if term.exact else ""


def _joined(number: int, earlier: Term, later: Term) -> Term:
    variants = tuple(dict.fromkeys([*earlier.variants, *later.variants]))
    forbid = tuple(dict.fromkeys([*earlier.forbid, *later.forbid]))
    joined = replace(earlier, variants=variants, forbid=forbid, stems=earlier.stems or later.stems)
    return _checked(number, joined)


def _contradiction(earlier: Term, later: Term) -> str:
    first, second = ({"": "without a translation"}.get(each.target, shown(each.target)) for each in (earlier, later))
    return f"contradict each other: {shown(later.source)} is {first} in the one and {second} in the other"


def _checked(number: int, term: Term) -> Term:
    """Return a term without the blanks around its texts. Raises TermError if it is out of bounds."""
    if any(text != text.strip() for _, text in _texts(term)):
        term = replace(
            term,
            source=term.source.strip(),
            target=term.target.strip(),
            variants=tuple(map(str.strip, term.variants)),
            forbid=tuple(map(str.strip, term.forbid)),
        )
    for name, text in _texts(term):
        _check_text(number, name, text)
    for name, texts in (("variants", term.variants), ("forbidden translations", term.forbid)):
        if len(texts) > MOST_TEXTS:
            raise TermError(number, f"{shown(term.source)} has {len(texts)} {name}; at most {MOST_TEXTS}")
    if term.variants and not term.target:
        raise TermError(number, f"{shown(term.source)} has variants, but no target")
    if both := {term.target, *term.variants}.intersection(term.forbid):
        raise TermError(number, f"{shown(term.source)} has {shown(min(both))} both as a target and as forbidden")
    return term


def _texts(term: Term) -> Iterator[tuple[str, str]]:
    yield "source", term.source
    if term.target:
        yield "target", term.target
    yield from (("variant", each) for each in term.variants)
    yield from (("forbidden translation", each) for each in term.forbid)


def _check_text(number: int, name: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise TermError(number, f"its {name} {shown(text)} has {len(text):,} characters; at most {MOST_CHARACTERS}")
    if control := _CONTROL.search(text):
        raise TermError(
            number, f"its {name} {shown(text)} has the control character U+{ord(control[0]):04X} at {control.start()}"
        )
    if not (any(map(str.isalnum, text)) or words_of(text)):
        raise TermError(number, f"its {name} is empty")


def shown(text: str) -> str:
    """Return a text for a message of one line, in quotation marks and cut."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return f'"{printable(cut)}"'
