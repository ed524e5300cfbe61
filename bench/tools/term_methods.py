"""Ways to get wanted words into translations, as `lingon.bench.tools.terms` compares them.

All but `terms` work with a service that knows no terms: they use its translations, links of words and target prefixes.
A sentence of these methods is one sentence, because a target prefix begins the first sentence of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from lingon.alignment import Span
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb

Item = TypeVar("Item")
TEXTS = 64  # in one request
ENDING = 3  # letters that an inflected form or the last part of a compound may have after the term
_WORD = re.compile(r"\w+(?:[-'’]\w+)*")


class Wanted(NamedTuple):
    """A term: a word of a sentence, and the word that its translation is to have."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its terms in the order of their places."""

    text: str
    terms: tuple[Wanted, ...]


class Linked(NamedTuple):
    """A translation with its links: spans in the source and in the translation, and their weights."""

    source: str
    text: str
    links: tuple[tuple[Span, Span, float], ...]


Method = Callable[[Sequence[Sentence]], list[str]]
"""Returns a translation of each sentence."""


def standing(text: str, target: str) -> Span | None:
    """Return where a translation has a term as a word, case aside, or None.

    Up to ENDING letters may follow it: inflections and compounds such as Schnellzugs. The rule is not that of the
    service, so that the service is not judged by itself.
    """
    found = re.search(rf"(?<!\w){re.escape(target)}\w{{0,{ENDING}}}(?!\w)", text, re.IGNORECASE)
    return None if found is None else found.span()


def looked_for(text: str, source: str) -> Span | None:
    """Return the first place of a term in a sentence, as a word, case aside, or None."""
    found = re.search(rf"(?<!\w){re.escape(source)}(?!\w)", text, re.IGNORECASE)
    return None if found is None else found.span()


def cased(target: str, found: str) -> str:
    """Return a term in the case of its source, as Amazon Translate does: HOUSE is GEBÄUDE."""
    if len(found) > 1 and found.isupper():
        return target.upper()
    return target[:1].upper() + target[1:] if found[:1].isupper() else target


def aligned_word(linked: Linked, source: str) -> Span | None:
    """Return the word of a translation to which the first place of a source word has most weight, or None."""
    place = looked_for(linked.source, source)
    if place is None:
        return None
    mass = dict[Span, float]()
    for word in _WORD.finditer(linked.text):
        for read, written, weight in linked.links:
            if _overlap(read, place) and _overlap(written, word.span()):
                mass[word.span()] = mass.get(word.span(), 0.0) + weight
    return max(mass, key=lambda span: mass[span], default=None)


def repair_prefix(linked: Linked, term: Wanted) -> str | None:
    """Return the begin of a translation up to the word of a missed term, with the term in its place.

    None if the translation has the term, or no word for its source.
    """
    place = None if standing(linked.text, term.target) else aligned_word(linked, term.source)
    read = looked_for(linked.source, term.source)
    if place is None or read is None:
        return None
    return linked.text[: place[0]] + cased(term.target, linked.source[slice(*read)])


def next_prefix(linked: Linked, terms: Sequence[Wanted]) -> tuple[Wanted, str] | None:
    """Return the missed term whose word is leftmost in a translation, with its prefix; None if there is none."""
    prefixes = ((term, repair_prefix(linked, term)) for term in terms)
    found = [(term, prefix) for term, prefix in prefixes if prefix is not None]
    return min(found, key=lambda each: len(each[1]) - len(each[0].target), default=None)


Decode = Callable[[Sequence[str], Sequence[str]], list[Linked]]
"""Translates texts, each from a prefix if there are any, and returns the links too. One that the engine refuses has an
empty translation."""


def repaired(decode: Decode, sentences: Sequence[Sentence]) -> list[str]:
    """Decode again from what is before the aligned word and the term, the leftmost first, once for each missed term."""
    found = decode([each.text for each in sentences], [])
    left = [list(each.terms) for each in sentences]
    while due := {
        index: prefix for index, linked in enumerate(found) if (prefix := next_prefix(linked, left[index])) is not None
    }:
        again = decode([sentences[index].text for index in due], [prefix for _, prefix in due.values()])
        for (index, (term, _)), linked in zip(due.items(), again, strict=True):
            left[index].remove(term)
            if linked.text:  # else the prefix leaves no room for the rest of the sentence
                found[index] = linked
    return [each.text for each in found]


@dataclass(frozen=True, slots=True)
class ServiceMethods:
    """The methods with the service of a bundle, in this process.

    beam_size: of all searches
    """

    translator: LocalTranslator
    beam_size: int
    _usual: dict[str, str] = field(default_factory=dict)  # translations of single words

    def all(self) -> Mapping[str, Method]:
        """Return the methods by name, the one without any terms first."""
        return {
            "nothing": self.nothing,
            "word in the source": self.word_in_source,
            "naive replacement": self.naive_replacement,
            "replace in place": self.replace_in_place,
            "placeholder": self.placeholder,
            "repair by prefix": self.repair,
            "terms": self.terms,
        }

    def nothing(self, sentences: Sequence[Sentence]) -> list[str]:
        """Translate without terms."""
        return self._translate([each.text for each in sentences])

    def word_in_source(self, sentences: Sequence[Sentence]) -> list[str]:
        """Write the wanted word into the source in place of its word, and translate that."""
        return self._translate([_in_source(each, lambda term, _: term.target) for each in sentences])

    def naive_replacement(self, sentences: Sequence[Sentence]) -> list[str]:
        """Replace the usual translation of the source word, which is that of the word alone, wherever it stands."""
        sources = {term.source for each in sentences for term in each.terms} - self._usual.keys()
        texts = self._translate(sorted(sources))
        self._usual.update((source, text.rstrip(".!?")) for source, text in zip(sorted(sources), texts, strict=True))
        return [self._replaced(text, each.terms) for text, each in zip(self.nothing(sentences), sentences, strict=True)]

    def _replaced(self, text: str, terms: Sequence[Wanted]) -> str:
        for term in terms:
            place = looked_for(text, self._usual[term.source])
            if place is not None:
                text = text[: place[0]] + term.target + text[place[1] :]
        return text

    def replace_in_place(self, sentences: Sequence[Sentence]) -> list[str]:
        """Replace the word that is aligned to the source word."""
        return [
            _in_target(found, each.terms)
            for found, each in zip(self.linked([each.text for each in sentences]), sentences, strict=True)
        ]

    def placeholder(self, sentences: Sequence[Sentence]) -> list[str]:
        """Send a placeholder in place of each source word, and put the terms in place of the placeholders."""
        texts = [_in_source(each, lambda _, number: f"{{term{number}}}") for each in sentences]
        return [
            _without_placeholders(text, each.terms)
            for text, each in zip(self._translate(texts), sentences, strict=True)
        ]

    def repair(self, sentences: Sequence[Sentence]) -> list[str]:
        """Decode again from what is before the aligned word and the term, once for each missed term."""
        return repaired(self.linked, sentences)

    def terms(self, sentences: Sequence[Sentence]) -> list[str]:
        """Send the terms with the request."""
        return [result.hypotheses[0].text for result in self.results(sentences)]

    def results(self, sentences: Sequence[Sentence]) -> list[pb.TextResult]:
        """Return the results of requests with terms. Sentences with the same terms are in one request."""
        groups = dict[tuple[Wanted, ...], list[int]]()
        for index, each in enumerate(sentences):
            groups.setdefault(each.terms, []).append(index)
        waiting = [
            (indices, self.translator.begin("Translate", self._request([sentences[index] for index in indices])))
            for group in groups.values()
            for indices in _chunks(group)
        ]
        found = dict[int, pb.TextResult]()
        for indices, future in waiting:
            found.update(zip(indices, future.result().results, strict=True))
        return [found[index] for index in range(len(sentences))]

    def log_probs(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each translation, divided by its tokens; natural logarithm."""
        found = []
        for chunk in _chunks(pairs):
            request = pb.ScoreRequest(pairs=[pb.ScorePair(source=source, target=target) for source, target in chunk])
            found += [each.log_prob / max(len(each.tokens), 1) for each in self.translator.score(request).results]
        return found

    def _request(self, sentences: Sequence[Sentence]) -> pb.TranslateRequest:
        terms = [pb.Term(source=term.source, target=term.target) for term in sentences[0].terms]
        options = pb.DecodingOptions(beam_size=self.beam_size)
        return pb.TranslateRequest(texts=[each.text for each in sentences], options=options, terms=terms)

    def _translate(self, texts: Sequence[str]) -> list[str]:
        options = pb.DecodingOptions(beam_size=self.beam_size)
        requests = (pb.TranslateRequest(texts=chunk, options=options) for chunk in _chunks(texts))
        return [result.hypotheses[0].text for result in self._results(requests)]

    def linked(self, texts: Sequence[str], prefixes: Sequence[str] = ()) -> list[Linked]:
        options = pb.DecodingOptions(beam_size=self.beam_size, return_alignment=True)
        numbers = range(len(texts))
        requests = (
            pb.TranslateRequest(
                texts=[texts[number] for number in chunk],
                target_prefixes=[prefixes[number] for number in chunk] if prefixes else [],
                options=options,
            )
            for chunk in _chunks(numbers)
        )
        return [_linked(result) for result in self._results(requests)]

    def _results(self, requests: Iterator[pb.TranslateRequest]) -> Iterator[pb.TextResult]:
        waiting = [self.translator.begin("Translate", each) for each in requests]
        for future in waiting:
            yield from future.result().results


def _linked(result: pb.TextResult) -> Linked:
    if not result.hypotheses:
        return Linked(result.normalised_text, "", ())
    best = result.hypotheses[0]
    links = tuple(
        ((each.source.begin, each.source.end), (each.target.begin, each.target.end), each.weight)
        for each in best.alignment
    )
    return Linked(result.normalised_text, best.text, links)


def _in_source(sentence: Sentence, written: Callable[[Wanted, int], str]) -> str:
    """Return a sentence with other text in place of its terms. written: of a term and its number."""
    text = sentence.text
    for number, term in enumerate(sentence.terms):
        place = looked_for(text, term.source)
        if place is not None:
            text = text[: place[0]] + written(term, number) + text[place[1] :]
    return text


def _in_target(linked: Linked, terms: Sequence[Wanted]) -> str:
    """Return a translation with its terms in place of the words that are aligned to their sources."""
    missed = (term for term in terms if not standing(linked.text, term.target))
    places = [(place, term) for term in missed if (place := aligned_word(linked, term.source))]
    text = linked.text
    for (begin, end), term in sorted(places, reverse=True):
        text = text[:begin] + term.target + text[end:]
    return text


def _without_placeholders(text: str, terms: Sequence[Wanted]) -> str:
    for number, term in enumerate(terms):
        text = text.replace(f"{{term{number}}}", term.target)
    return text


def _overlap(first: Span, second: Span) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[begin : begin + TEXTS] for begin in range(0, len(items), TEXTS))
