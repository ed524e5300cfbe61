"""Finds terms in texts, writes a target in the case of what was found, and finds targets in translations."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from lingon.language_tags import primary
from lingon.terms.stems import has_stems, stemmer
from lingon.terms.term import Term, TermError, shown
from lingon.terms.words import NONE, as_written, is_turkic, pieces_of, words_of

Span: TypeAlias = tuple[int, int]  # code points; the end is exclusive
_Node: TypeAlias = "dict[str, _Node | tuple[Term, ...]]"

_HERE = ""  # the key of a node for the terms that end there; no word has it


class Found(NamedTuple):
    """A term at a place of a text, in code points; the end is exclusive."""

    begin: int
    end: int
    term: Term


class Matcher:
    """Finds terms in texts of one language. It does not change, and any thread may use it.

    The words of the terms are a tree, which is followed from each word of a text that begins a term. The time is linear
    in the text, and does not depend on the number of terms. A sentence of 25 words takes 10 µs if it has none of
    100,000 terms. Those take a second to build.

    size_bytes: what it takes in memory, its terms included
    """

    def __init__(self, terms: Sequence[Term], language: str) -> None:
        """language: BCP-47, of the texts; empty if it is not known.

        Raises TermError for a term with stems if Snowball does not know the language.
        """
        self._turkic = is_turkic(language)
        self._stem: Callable[[str], str] | None = None
        self._words: _Node = {}
        self._stems: _Node = {}
        shared: dict[str, str] = {}
        for number, term in enumerate(terms, start=1):
            words = [shared.setdefault(word, word) for word in words_of(term.source, turkic=self._turkic)]
            _insert(self._words, words, term)
            if term.stems:
                stem = self._stem = self._stem or _stemmer_for(number, term, language)
                _insert(self._stems, [shared.setdefault(each, each) for each in map(stem, words)], term)
        self.size_bytes = (
            sum(map(_bytes_of_node, (self._words, self._stems)))
            + sum(map(sys.getsizeof, shared))
            + sum(map(_bytes_of_term, terms))
        )

    def find(self, text: str, kept: Sequence[Span] = ()) -> list[Found]:
        """Return where terms are in a text, in order. The longest one at the first place is taken; none overlap.

        Of several terms at one place, the one whose case counts is taken before others, and the one whose words these
        are before one with their stems.

        kept: spans of the text, in which nothing is looked for
        """
        written, trees, firsts = self._begun(text)
        if not firsts:
            return []
        begins = [0, *accumulate(map(len, written))]
        if kept:
            trees = [(tree, _without(each, begins, kept)) for tree, each in trees]
        found, last = list[Found](), 0
        for first in firsts:
            if first >= last and (longest := _longest(trees, first, text, begins)):
                last, term = longest
                found.append(Found(begins[first], begins[last], term))
        return found

    def occurring(self, text: str) -> Iterator[Term]:
        """Yield the terms that are anywhere in a text, also where others are or where their case is another one."""
        _, trees, firsts = self._begun(text)
        yield from (term for at in firsts for each in trees for _, terms in _ends(*each, at) for term in terms)

    def _begun(self, text: str) -> tuple[list[str], list[tuple[_Node, list[str]]], list[int]]:
        """Return the pieces of a text, the trees with the keys of the pieces in each, and where terms begin."""
        written, keys = pieces_of(text, turkic=self._turkic)
        trees = [(self._words, keys)]
        if self._stem is not None:
            trees.append((self._stems, list(map(self._stem, keys))))
        places = [_begins(*each) for each in trees]
        return written, trees, places[0] if len(places) == 1 else sorted({*places[0], *places[1]})


def _stemmer_for(number: int, term: Term, language: str) -> Callable[[str], str]:
    if not has_stems(language):
        of = f"in {language}" if language else "in a language that is not named"
        raise TermError(number, f"there are no stems of words {of}, but {shown(term.source)} is looked for by them")
    return stemmer(language)


def _insert(tree: _Node, words: Sequence[str], term: Term) -> None:
    """Add a term to a tree. A node without others below it is the terms alone, which saves 200 bytes each."""
    if not words:
        return
    for word in words[:-1]:
        child = tree.get(word)
        if not isinstance(child, dict):
            child = tree[word] = {} if child is None else {_HERE: child}
        tree = child
    child = tree.get(words[-1], ())
    if isinstance(child, dict):
        tree, word, child = child, _HERE, child.get(_HERE, ())
    else:
        word = words[-1]
    assert isinstance(child, tuple)
    tree[word] = (*child, term)


def _without(keys: Sequence[str], begins: Sequence[int], kept: Iterable[Span]) -> list[str]:
    """Return the keys of pieces, with NONE for those that are in a kept span or touch one from inside."""
    left = list(keys)
    for begin, end in (span[:2] for span in kept):
        first = bisect_right(begins, begin) - 1
        for at in range(first, len(left)):
            if begins[at] >= end:
                break
            left[at] = NONE
    return left


def _begins(tree: _Node, keys: Sequence[str]) -> list[int]:
    """Return where terms of a tree begin in pieces. Most pieces begin none, and most that may do go on otherwise."""
    firsts = [at for at, key in enumerate(keys) if key in tree]
    return [at for at in firsts if _has_end(tree, keys, at)]


def _has_end(tree: _Node, keys: Sequence[str], at: int) -> bool:
    child: _Node | tuple[Term, ...] | None = tree
    while isinstance(child, dict) and _HERE not in child:
        if at == len(keys):
            return False
        child = child.get(keys[at])
        at += 1
    return child is not None


def _longest(
    trees: Iterable[tuple[_Node, Sequence[str]]], first: int, text: str, begins: Sequence[int]
) -> tuple[int, Term] | None:
    """Return the end of the longest term that begins at a piece, as the number of a piece, and the term."""
    longest: tuple[int, Term] | None = None
    for by_stems, (tree, keys) in enumerate(trees):
        for last, terms in _ends(tree, keys, first):
            if longest is None or last > longest[0]:
                there = text[begins[first] : begins[last]]
                term = _chosen(terms, there, _has_same_case if by_stems else _is_written_so)
                longest = longest if term is None else (last, term)
    return longest


def _ends(tree: _Node, keys: Sequence[str], at: int) -> Iterator[tuple[int, tuple[Term, ...]]]:
    """Yield the ends of the terms in a tree that begin at a piece, the shortest first."""
    for last in range(at + 1, len(keys) + 1):
        child = tree.get(keys[last - 1])
        if child is None:
            return
        if isinstance(child, tuple):
            yield last, child
            return
        tree = child
        if (here := tree.get(_HERE)) is not None:
            assert isinstance(here, tuple)
            yield last, here


def _chosen(terms: Iterable[Term], there: str, is_exact: Callable[[str, str], bool]) -> Term | None:
    """Return the first of these terms whose case counts and is right, else the first whose case does not count."""
    exact = next((term for term in terms if term.exact and is_exact(term.source, there)), None)
    return exact or next((term for term in terms if not term.exact), None)


def _is_written_so(source: str, there: str) -> bool:
    return source == there or as_written(source) == as_written(there)


def _has_same_case(source: str, there: str) -> bool:
    """Return whether the letters that a source and an inflected form of it have at the same places of their words have
    one case.
    """
    words = zip(as_written(source).split(), as_written(there).split(), strict=False)
    pairs = (pair for one, other in words for pair in zip(one, other, strict=False))
    return all(one == other or one.casefold() != other.casefold() for one, other in pairs)


def _bytes_of_node(node: _Node | tuple[Term, ...]) -> int:
    size = sys.getsizeof(node)
    return size + (sum(map(_bytes_of_node, node.values())) if isinstance(node, dict) else 0)


def _bytes_of_term(term: Term) -> int:
    texts = (term.source, term.target, *term.variants, *term.forbid)
    return sys.getsizeof(term) + sum(map(sys.getsizeof, (*texts, term.variants, term.forbid)))


def in_case(term: Term, found: str) -> str:
    """Return the target of a term in the case in which its source was found.

    A source in capitals gets its target in capitals, one that begins with a capital letter a target that does. The
    target is as written for a source that is found as the term has it, such as USA, and for a term whose case counts.
    """
    if term.exact or not term.target or _is_written_so(term.source, found):
        return term.target
    letters = [each for each in found if each.isalpha()]
    if len(letters) > 1 and found.isupper():
        return term.target.upper()
    return _with_capital(term.target) if letters and letters[0] != letters[0].lower() else term.target


def _with_capital(text: str) -> str:
    first = next((at for at, each in enumerate(text) if each.isalpha()), 0)
    return text[:first] + text[first : first + 1].title() + text[first + 1 :]


WITHOUT_ENDINGS = frozenset({"bo", "km", "lo", "my", "th", "vi", "wuu", "yue", "zh"})
"""Languages whose words have no endings."""

LONGEST_ENDING = 3  # letters of an ending, and of what a compound has after its first word, such as Schnellzug-s
REMEMBERED = 2**12  # targets whose words are remembered, and languages
SHORTEST_WORD = 3  # letters of a word that may have an ending; a syllable of Hangul counts two


def stands(text: str, wanted: str, *, exact: bool, language: str, kept: Sequence[Span] = ()) -> list[Span]:
    """Return where a target stands in a translation as a word or phrase, in code points and in order.

    Each of its words may have an ending of at most three letters, such as Zug-es, in languages that have endings. If
    Snowball knows the language, the word with the ending must have the stem of the word: Zugang is no form of Zug.

    exact: whether the case of letters counts
    language: BCP-47, of the translation
    kept: spans of the text, in which nothing is looked for
    """
    words, is_form = _wanted_words(wanted, exact, language), _form_in(language)
    written, keys = pieces_of(text, turkic=is_turkic(language))
    begins = [0, *accumulate(map(len, written))]
    if exact:
        keys = [as_written(text[slice(*span)]) or " " for span in pairwise(begins)]
    if kept:
        keys = _without(keys, begins, kept)
    found, last = list[Span](), 0
    for first in [at for at, key in enumerate(keys) if key.startswith(words[0])] if words else ():
        end = first + len(words)
        if last <= first and end <= len(keys) and all(map(is_form, keys[first:end], words)):
            last = end
            found.append((begins[first], begins[last]))
    return found


@lru_cache(maxsize=REMEMBERED)
def _wanted_words(wanted: str, exact: bool, language: str) -> tuple[str, ...]:
    """Return what is compared of each piece of a target."""
    if not exact:
        return tuple(words_of(wanted, turkic=is_turkic(language)))
    wanted = as_written(wanted)
    begins = accumulate(map(len, pieces_of(wanted).written), initial=0)
    return tuple(wanted[slice(*span)] for span in pairwise(begins))


@lru_cache(maxsize=REMEMBERED)
def _form_in(language: str) -> Callable[[str, str], bool]:
    """Return what tells whether the key of a piece is a word or an inflected form of it."""
    has_endings = primary(language) not in WITHOUT_ENDINGS
    stem = stemmer(language) if has_stems(language) else None

    def is_form(key: str, word: str) -> bool:
        if key == word or not has_endings or not key.startswith(word):
            return key == word
        if len(key) - len(word) > LONGEST_ENDING or not key.isalpha() or _weight(word) < SHORTEST_WORD:
            return False
        return stem is None or stem(key.casefold()) == stem(word.casefold())

    return is_form


def _weight(word: str) -> int:
    return sum(2 if "\uac00" <= each <= "\ud7af" else 1 for each in word)
