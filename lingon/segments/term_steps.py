"""Terms in the translation of a sentence, as a generator around the one that translates it. Pure, see `steps`.

A translation that has the terms of its text stays as it is. In another one, each missed term takes the place of the
words that the attention of the model aligns with its source (as in Chatterjee et al. 2017, "Guiding Neural Machine
Translation Decoding with External Knowledge", section 3), and the model decodes again what follows. If the term is
unlikely after the determiner that is there, the likeliest of the determiner's forms is taken. The last means is the
constrained search.

Free translations are quick, so that each further run counts: what a search has found out about its own translation
(log-probabilities, attention) is all that is compared, and no other model run judges a translation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from lingon.segments.boundaries import Span
from lingon.segments.determiners import other_forms
from lingon.segments.sentence import (
    Restored,
    Score,
    ScoredTarget,
    SentenceAnswer,
    SentenceOutput,
    SentenceRequest,
    SentenceSteps,
    TermUse,
    TranslateStep,
    Weigh,
    scores,
    translations,
    weights,
)
from lingon.terms.annotation import AnnotationForm, Place, annotated
from lingon.terms.matcher import Found, Matcher, in_case, stands
from lingon.terms.term import Term
from lingon.text import normalise, to_nfc
from lingon.translation.v1 import translation_pb2 as pb

MOST_DROP = 2.0  # nats of the words between two terms; if a term makes them less likely by more, they do not stay
UNLIKELY = -6.0  # nats of the tokens of a term; a likelier one agrees with the determiner before it
LEAST_SHARE = 0.1  # of the attention of a word; a term has no place if no word pays as much to its source
OWN_SHARE = 0.5  # of the attention of a word; one that pays as much to the source of a term belongs to its place
MOST_FORBIDDEN = 64  # words of one search, as in DecodingOptions
MOST_FORCED = 8  # as well
LONGEST_FORCED = 64  # characters of a forced word, as there

_WORD = re.compile(
    r"(?:[^\W\u0e00-\U0010ffff]|[\u10a0-\u10ff\u1100-\u11ff\u1200-\u137f\uac00-\ud7a3])+|\w"
)  # a character alone in scripts without blanks between words
_FIRST_WORD = re.compile(r"\w+['’]?\s*")


@dataclass(frozen=True)
class SentenceTerms:
    """The terms that a sentence has, each once. Their numbers are the positions in `terms`.

    source_language, target_language: BCP-47
    text: the sentence, if it is known; found: its terms, in order
    """

    terms: tuple[Term, ...]
    source_language: str
    target_language: str
    text: str = ""
    found: tuple[Found, ...] = ()

    @classmethod
    def of(cls, terms: Sequence[Term], source_language: str, target_language: str) -> SentenceTerms:
        """Return the terms of any sentence; equal ones become one."""
        return cls(tuple(dict.fromkeys(terms)), source_language, target_language)

    @classmethod
    def in_sentence(cls, text: str, found: Sequence[Found], languages: tuple[str, str]) -> SentenceTerms:
        """Return the terms that were found in a sentence, in order; languages: source and target."""
        return cls(tuple(dict.fromkeys(each.term for each in found)), *languages, text, tuple(found))

    @cached_property
    def _finder(self) -> Matcher:
        """What finds the terms in another text that the model reads, such as a part of the sentence."""
        return Matcher(self.terms, self.source_language)

    @cached_property
    def _own(self) -> list[WantedTerm]:
        """The terms of the sentence."""
        return self._wanted(self.text, self.found)

    @cached_property
    def _checks(self) -> dict[str, TermCheck]:
        """The checks of translations for the terms of the sentence, because a repair asks for each several times."""
        return {}

    def wanted(self, text: str) -> list[WantedTerm]:
        """Return the terms that are in a text, in its order."""
        return self._own if text and text == self.text else self._wanted(text, self._finder.find(text))

    def _wanted(self, text: str, places: Sequence[Found]) -> list[WantedTerm]:
        found = []
        for begin, end, term in places:
            if not (term.target or term.forbid):
                continue  # a source that is left to the model
            head = not any(map(str.isalnum, text[:begin]))
            target = term.target if term.exact or not term.target else _cased(term, text[begin:end], head=head)
            found.append(WantedTerm(self.terms.index(term), term, begin, end, normalise(target)))
        return found

    def check(self, text: str, wanted: Sequence[WantedTerm]) -> TermCheck:
        """Return where a translation has the terms of its source: each at another place, the longest ones first."""
        if wanted is not self._own:
            return self._check(text, wanted)
        if text not in self._checks:
            self._checks[text] = self._check(text, wanted)
        return self._checks[text]

    def _check(self, text: str, wanted: Sequence[WantedTerm]) -> TermCheck:
        spans: list[Span | None] = [None] * len(wanted)
        taken = list[Span]()
        for number in sorted(range(len(wanted)), key=lambda number: -len(wanted[number].target)):
            each = wanted[number]
            free = (span for span in self._standing(text, each) if not _overlaps(span, taken))
            if each.target and (span := next(free, None)) is not None:
                spans[number] = span
                taken.append(span)
        wrong = tuple(tuple(self._forbidden(text, each.term, taken)) for each in wanted)
        return TermCheck(tuple(spans), wrong, tuple(each.target != "" for each in wanted))

    def with_blanks(self, translation: Restored) -> Restored:
        """Return a translation with the white space of the targets, which a model reads as blanks. Its length stays."""
        text = translation.text
        for term in self.terms:
            target = to_nfc(term.target)
            places = [at for at, each in enumerate(target) if each.isspace() and each != " "]
            if places and len(normalise(target)) == len(target):
                for begin, end in _stands(text, target, term.exact, self.target_language):
                    if end - begin >= len(target) and all(text[begin + at] == " " for at in places):
                        letters = list(text)
                        for at in places:
                            letters[begin + at] = target[at]
                        text = "".join(letters)
        return translation if text == translation.text else replace(translation, text=text)

    def _standing(self, text: str, wanted: WantedTerm) -> list[Span]:
        """Return where the target or a variant of a term stands, the target first, from left to right."""
        term, found = wanted.term, list[Span]()
        for each in dict.fromkeys((term.target, *term.variants)):
            found += _stands(text, each, term.exact, self.target_language)
        return found

    def _forbidden(self, text: str, term: Term, taken: Sequence[Span]) -> list[str]:
        """Return the forbidden words that stand in a translation, but for those within the targets of terms."""
        found = (
            span for each in term.forbid for span in stands(text, each, exact=term.exact, language=self.target_language)
        )
        return [text[slice(*span)] for span in found if not _overlaps(span, taken)]


@lru_cache(1024)
def _stands(text: str, wanted: str, exact: bool, language: str) -> tuple[Span, ...]:
    """Return where a target stands. A repair asks this several times of one text."""
    return tuple(stands(text, wanted, exact=exact, language=language))


class WantedTerm(NamedTuple):
    """A term at a place of a text that the model reads.

    number: see SentenceTerms; target: what is forced, with its case; empty if only words are forbidden
    """

    number: int
    term: Term
    begin: int
    end: int
    target: str


class TermCheck(NamedTuple):
    """Which of the wanted terms a translation has; all fields in their order.

    spans: where; None for one that it lacks, or that has no target
    wrong: the forbidden words that stand there, as they are written
    asked: whether the term has a target
    """

    spans: tuple[Span | None, ...]
    wrong: tuple[tuple[str, ...], ...]
    asked: tuple[bool, ...]

    @property
    def missed(self) -> list[int]:
        """The positions of the terms that the translation lacks, or has a wrong word for."""
        return [number for number in range(len(self.spans)) if not self.has(number)]

    @property
    def lacking(self) -> list[int]:
        """The positions of the terms whose target is not there."""
        return [number for number, asked in enumerate(self.asked) if asked and self.spans[number] is None]

    def has(self, number: int) -> bool:
        """Return whether a term is satisfied."""
        return not self.wrong[number] and (self.spans[number] is not None or not self.asked[number])


def _cased(term: Term, found: str, *, head: bool) -> str:
    """Return the target for a source as it was found.

    A capital at the begin of a sentence is not one of the term; see `_in_place`.
    """
    if head and found[:1].isupper() and not found[1:].isupper():
        found = term.source if term.source[:1].isupper() else found[0].lower() + found[1:]
    return in_case(term, found)


def _in_place(wanted: WantedTerm, before: str, replaced: str) -> str:
    """Return the target of a term after a begin of a translation, whose first letter is that of a sentence.

    replaced: what was there; a translation that began with a capital does so again
    """
    begins = not any(map(str.isalnum, before))
    if wanted.term.exact or not (begins and replaced[:1].isupper()):
        return wanted.target
    return wanted.target[0].upper() + wanted.target[1:]


def _overlaps(span: Span, others: Collection[Span]) -> bool:
    return any(span[0] < end and begin < span[1] for begin, end in others)


def with_terms(
    steps: SentenceSteps, terms: SentenceTerms, *, judges: bool = True, form: AnnotationForm | None = None
) -> SentenceSteps:
    """Translate a sentence by other steps, with the terms in each text that these have translated.

    judges: whether the likeliest translation is wanted; False if translations are drawn at random or restricted, so
        that only the search may write them
    form: of the annotated sources that the model was trained with, if it was; they are tried first
    """
    made: dict[SentenceOutput, _Made] = {}
    answer: SentenceAnswer | None = None
    while True:
        try:
            request = next(steps) if answer is None else steps.send(answer)
        except StopIteration as done:
            return terms.with_blanks(_told(done.value, made))
        answer = yield request
        if isinstance(request, TranslateStep) and answer:
            outputs = [each for each in answer if isinstance(each, str)]
            answer = yield from _with_terms(request, outputs, terms, made, judges=judges, form=form)


def satisfied(text: str, output: str, terms: SentenceTerms) -> tuple[TermUse, ...] | None:
    """Return how the terms of a text came into a translation by the model, or None if one is missed."""
    wanted = terms.wanted(text)
    check = terms.check(output, wanted)
    return None if check.missed else _uses(wanted, check, {})


class _Made(NamedTuple):
    """How an output was made: the output of the model that it is made of, and how the terms came into it."""

    output: SentenceOutput
    terms: tuple[TermUse, ...]


def _told(restored: Restored, made: dict[SentenceOutput, _Made]) -> Restored:
    """Return a translation with the outputs of the model instead of those with terms, and what became of the terms."""
    known = [made.get(output) or _Made(output, ()) for output in restored.outputs]
    return replace(
        restored, outputs=tuple(each.output for each in known), terms=tuple(use for each in known for use in each.terms)
    )


def _with_terms(
    request: TranslateStep,
    outputs: Sequence[str],
    terms: SentenceTerms,
    made: dict[SentenceOutput, _Made],
    *,
    judges: bool,
    form: AnnotationForm | None,
) -> Generator[SentenceRequest, SentenceAnswer, Sequence[str]]:
    """Return the outputs of a request, the first one with all terms of its text, if it can be had."""
    wanted = terms.wanted(request.text)
    if not wanted:
        return outputs
    for output in outputs:
        check = terms.check(output, wanted)
        made[request, output] = _Made((request, output), _uses(wanted, check, {}))
        if not check.missed:
            return [output, *(each for each in outputs if each != output)]
    repair = _Repair(request, wanted, terms, outputs[0], judges=judges)
    if form is not None and not form.is_in(request.text):
        yield from repair.by_training(form)
    yield from repair.run()
    best = repair.best
    if best.text == outputs[0]:
        return outputs
    made[request, best.text] = _Made(best.output, _uses(wanted, best.check, best.means))
    return [best.text, *(each for each in outputs if each != best.text)]


def _uses(
    wanted: Sequence[WantedTerm], check: TermCheck, means: dict[int, pb.TermMeans.ValueType]
) -> tuple[TermUse, ...]:
    """Return how terms came into a translation; means: of those that the model did not write by itself."""
    return tuple(
        TermUse(each.number, means.get(place, pb.TERM_MEANS_FREE) if check.has(place) else pb.TERM_MEANS_MISSED)
        for place, each in enumerate(wanted)
    )


class _Candidate(NamedTuple):
    """A translation that may be taken.

    output: the output of the model that it is made of; means: see `_uses`
    """

    text: str
    output: SentenceOutput
    check: TermCheck
    means: dict[int, pb.TermMeans.ValueType]


class _Placed(NamedTuple):
    """A term and its place in a translation.

    number: of the wanted term
    words: the span of the words that it replaces; span: with the determiner before them
    determiner: that is written before it, with the blank after it; empty without one
    forms: other forms of it that may be right
    target: as it is written there
    """

    number: int
    words: Span
    span: Span
    determiner: str
    forms: tuple[str, ...]
    target: str


class _Draft(NamedTuple):
    """A translation with terms in the places of words.

    text: with the terms
    spans: of each term, in order, with its determiner
    terms: of each term without it
    """

    text: str
    spans: tuple[Span, ...]
    terms: tuple[Span, ...]

    @classmethod
    def of(cls, text: str, placed: Sequence[_Placed]) -> _Draft:
        """Return a translation with terms in it; placed: in order, without overlap."""
        parts, spans, terms, at, length = list[str](), list[Span](), list[Span](), 0, 0
        for each in placed:
            parts += [text[at : each.span[0]], each.determiner, each.target]
            begin = length + each.span[0] - at
            length = begin + len(each.determiner) + len(each.target)
            spans.append((begin, length))
            terms.append((begin + len(each.determiner), length))
            at = each.span[1]
        return cls("".join([*parts, text[at:]]), tuple(spans), tuple(terms))


class _Written(NamedTuple):
    """Terms in their places, and the translation that the model has written with them.

    step: the request for it
    output: None if there is none, or if it has the replaced words beside the terms
    scored: what the model thinks of it; None if it cannot tell, or if nothing depends on it
    is_readable: whether the model has read the terms in their places
    """

    placed: list[_Placed]
    draft: _Draft
    step: TranslateStep
    output: str | None
    scored: ScoredTarget | None
    is_readable: bool


class _Repair:
    """The repair of one output: see the top of this file. Each translation that is made is compared with the best."""

    def __init__(
        self, request: TranslateStep, wanted: Sequence[WantedTerm], terms: SentenceTerms, output: str, *, judges: bool
    ) -> None:
        self._judges = judges
        self._request, self._wanted, self._terms = request, wanted, terms
        self._forbidden = _forbidden_words(wanted)
        self.best = _Candidate(output, (request, output), terms.check(output, wanted), {})
        self._first_missed = self.best.check.missed

    def run(self) -> Generator[SentenceRequest, SentenceAnswer, None]:
        """Take the means in their order, until the best translation misses no term.

        The constrained search is the last one. It has the terms, but often beside the words that they stand for.
        """
        if any(self.best.check.wrong):
            yield from self._constrained(())
        if self.best.check.lacking:
            yield from self._by_places()
        if self.best.check.missed:
            yield from self._constrained(self._forced_words())

    def by_training(self, form: AnnotationForm) -> Generator[SentenceRequest, SentenceAnswer, None]:
        """Decode again from the source with the targets of all its terms beside them, as the model has learnt it."""
        places = [Place(each.begin, each.end, each.target) for each in self._wanted if each.target]
        if not places:
            return
        source = annotated(self._request.text, places, form)
        step = replace(self._request, annotated=source, forbidden=self._forbidden)
        outputs = yield from translations(step)
        means = dict.fromkeys(self._first_missed, pb.TERM_MEANS_TRAINED)
        for output in outputs:
            self._offer(_Candidate(output, (step, output), self._check(output), means))

    def _constrained(self, forced: tuple[str, ...]) -> Generator[SentenceRequest, SentenceAnswer, None]:
        """Decode again with forbidden and forced words, if there are any."""
        if not (forced or self._forbidden):
            return
        step = replace(self._request, forced=forced, forbidden=self._forbidden)
        outputs = yield from translations(step)
        means = dict.fromkeys(self._first_missed, pb.TERM_MEANS_CONSTRAINED)
        for output in outputs:  # the likeliest first
            self._offer(_Candidate(output, (step, output), self._check(output), means))

    def _offer(self, made: _Candidate) -> None:
        """Take a translation if it misses fewer terms than the best one."""
        if len(made.check.missed) < len(self.best.check.missed):
            self.best = made

    def _forced_words(self) -> tuple[str, ...]:
        """Return the targets for a constrained search, those that are missed first, within the bounds of its words."""
        missed = set(self.best.check.lacking)
        ordered = sorted(range(len(self._wanted)), key=lambda number: number not in missed)
        targets = dict.fromkeys(self._wanted[number].target for number in ordered)
        return tuple(target for target in targets if 0 < len(target) <= LONGEST_FORCED)[:MOST_FORCED]

    def _check(self, text: str) -> TermCheck:
        return self._terms.check(text, self._wanted)

    def _by_places(self) -> Generator[SentenceRequest, SentenceAnswer, None]:
        """Put the missed terms in their places, at most one round a term.

        A round decodes the translation again from the end of its last term. Terms that are missed in the new rest have
        their places there in the next round.
        """
        text, output, means = self.best.text, self.best.output, dict(self.best.means)
        settled = len(self._request.prefix)  # characters at the begin that stay
        for _ in self.best.check.lacking:
            found = yield from self._scored(text)
            placed = self._places(text, found, settled) if found is not None else []
            if found is None or not placed:
                return
            written = yield from self._written(text, found, placed)
            draft, rest = written.draft, written.output
            means |= dict.fromkeys((each.number for each in written.placed), pb.TERM_MEANS_REPAIRED)
            if rest is not None:
                self._offer(_Candidate(rest, (written.step, rest), self._check(rest), dict(means)))
            if self.best.check.lacking and self._judges:
                if not written.is_readable and (yield from self._scored(draft.text, attention=False)) is None:
                    return  # the model cannot read it, or it is longer than it may be
                self._offer(_Candidate(draft.text, output, self._check(draft.text), dict(means)))
            if not self.best.check.lacking or (rest is None and not self._judges):
                return
            text, output = (draft.text, output) if rest is None else (rest, (written.step, rest))
            settled = draft.spans[-1][1]

    def _written(
        self, text: str, found: ScoredTarget, placed: list[_Placed]
    ) -> Generator[SentenceRequest, SentenceAnswer, _Written]:
        """Return terms in their places, and what the model writes after the last of them.

        What is between two terms stays if the first one does not make it unlikely. Otherwise the second one waits for
        another round.
        """
        while True:
            written = yield from self._continued(text, placed)
            agreeing = yield from self._agreeing(text, written)
            if agreeing != placed:
                written = yield from self._continued(text, agreeing)
            first = next(_drops(found, written), None) if self._judges else None
            if first is None:
                return written
            placed = written.placed[: first + 1]

    def _continued(self, text: str, placed: list[_Placed]) -> Generator[SentenceRequest, SentenceAnswer, _Written]:
        """Decode a translation with terms in their places again from the end of the last one."""
        draft = _Draft.of(text, placed)
        end = draft.spans[-1][1]
        ends = self._judges and _WORD.search(draft.text, end) is None  # signs alone stay as they are
        end = len(draft.text) if ends else end
        step = replace(self._request, prefix=draft.text[:end], forbidden=self._forbidden)
        outputs = yield from translations(step)
        output = next((each for each in outputs if each.startswith(step.prefix)), None)
        if output is None:
            return _Written(placed, draft, step, None, None, is_readable=False)
        weighed = len(placed) > 1 or any(each.forms for each in placed)
        scored = (yield from self._scored(output, attention=False)) if weighed else None
        again = self._judges and (output != draft.text if ends else _is_there_again(text, placed, output[end:]))
        readable = scored is not None or not weighed
        return _Written(placed, draft, step, None if again else output, scored, is_readable=readable)

    def _scored(
        self, text: str, *, attention: bool = True
    ) -> Generator[SentenceRequest, SentenceAnswer, ScoredTarget | None]:
        found = yield from scores(Score(self._request.text, (text,), attention))
        return found[0] if found else None

    def _agreeing(self, text: str, written: _Written) -> Generator[SentenceRequest, SentenceAnswer, list[_Placed]]:
        """Return the terms, each after the form of its determiner that is the likeliest with it.

        A term that is likely after the determiner that is there keeps it.
        """
        placed, draft, scored = written.placed, written.draft, written.scored
        if scored is None:
            return placed
        likeliest = {
            place: (_within(scored, draft.spans[place]), each)
            for place, each in enumerate(placed)
            if each.forms and _within(scored, draft.terms[place]) <= UNLIKELY
        }
        others = [
            (place, each._replace(determiner=form, forms=()))
            for place, (_, each) in likeliest.items()
            for form in each.forms
        ]
        if not others:
            return placed
        drafts = [_Draft.of(text, [*placed[:place], other]) for place, other in others]
        begins = tuple(each.text[: each.spans[-1][1]] for each in drafts)
        weighed = yield from weights(Weigh(self._request.text, begins))
        for (place, other), begun, each in zip(others, weighed, drafts, strict=False):
            likeliest[place] = max(likeliest[place], (_within(begun, each.spans[place]), other), key=itemgetter(0))
        return [likeliest[place][1] if place in likeliest else each for place, each in enumerate(placed)]

    def _places(self, text: str, scored: ScoredTarget, settled: int) -> list[_Placed]:
        """Return the missed terms that have a place after what is settled, in the order of their places.

        A place that several terms have goes to the one whose source it looks at most.
        """
        if scored.attention is None:
            return []
        check, found, words = self._check(text), list[_Placed](), _LookingWords(text, scored)
        taken = [span for span in check.spans if span is not None]
        spans = {number: (self._wanted[number].begin, self._wanted[number].end) for number in check.lacking}
        best = {number: words.most(words.shares(span), settled, taken)[1] for number, span in spans.items()}
        for number in sorted(spans, key=lambda number: -best[number]):
            place = words.place(spans[number], settled, taken)
            if place is not None:
                found.append(self._placed(number, text, place, settled, taken))
            elif (at := self._gap(text, words, number, settled, taken)) is not None:
                found.append(_Placed(number, (at, at), (at, at), " ", (), self._wanted[number].target))
                place = at, at
            else:
                continue
            taken += [place, found[-1].span]
        return sorted(found, key=lambda each: each.span)

    def _gap(self, text: str, words: _LookingWords, number: int, settled: int, taken: Sequence[Span]) -> int | None:
        """Return where a term is inserted that no word stands for: before the word for what follows in the source.

        It is the end of a word with a blank after it; None if there is no such place, or if what is settled stands for
        the term.
        """
        term = self._wanted[number]
        own, share = words.most(words.shares((term.begin, term.end)), 0, ())
        following = _WORD.search(self._request.text, term.end)
        if following is None or (own >= 0 and share >= LEAST_SHARE and words.spans[own][0] < settled):
            return None
        shares = words.shares(following.span())
        best, share = words.most(shares, settled, ())
        if best < 1 or share < LEAST_SHARE:
            return None
        at = words.spans[best - 1][1]
        inside = any(begin < at < end for begin, end in taken)
        return at if at >= settled and not inside and text[at : words.spans[best][0]] == " " else None

    def _placed(self, number: int, text: str, span: Span, settled: int, taken: Sequence[Span]) -> _Placed:
        """Return a term in the place of some words; settled, taken: where no determiner may change."""
        language = self._terms.target_language
        begin, end = _without_determiner(text, span, language)
        target = _in_place(self._wanted[number], text[:begin], text[begin:end])
        determiner = other_forms(text, begin, language)
        if determiner is None or determiner[0][0] < settled or _overlaps(determiner[0], taken):
            return _Placed(number, (begin, end), (begin, end), "", (), target)
        first = determiner[0][0]
        return _Placed(number, (begin, end), (first, end), text[first:begin], tuple(determiner[1]), target)


def _within(scored: ScoredTarget, span: Span) -> float:
    """Return the log-probability of the tokens in a span."""
    begin, end = span
    return sum(
        value
        for (first, last), value in zip(scored.spans, scored.log_probs, strict=True)
        if begin <= first and last <= end and first < last
    )


def _drops(before: ScoredTarget, written: _Written) -> Iterator[int]:
    """Yield the terms after which the words up to the next one are less likely than they were, by MOST_DROP."""
    if written.scored is None:
        return
    old, new = [each.span for each in written.placed], written.draft.spans
    for place in range(len(old) - 1):
        was, now = (old[place][1], old[place + 1][0]), (new[place][1], new[place + 1][0])
        if _within(before, was) - _within(written.scored, now) > MOST_DROP:
            yield place


def _is_there_again(text: str, placed: Sequence[_Placed], rest: str) -> bool:
    """Return whether a new rest of a translation has a word that a term replaced, and the old rest had not.

    A model that does not see the term as the translation of its source may write that once more.
    """
    replaced = {word for each in placed for word in _words(text[slice(*each.words)])}
    return not replaced.isdisjoint(_words(rest) - _words(text[placed[-1].span[1] :]))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


class _LookingWords:
    """The words of a translation, and where they look in the source.

    spans: of the words
    """

    def __init__(self, text: str, scored: ScoredTarget) -> None:
        assert scored.attention is not None
        self.spans = [found.span() for found in _WORD.finditer(text)]
        self._sources, self._attention = scored.sources, scored.attention
        self._shares: dict[Span, list[tuple[float, float]]] = {}  # of the words, by part of the source
        tokens = [*enumerate(scored.spans[: len(scored.attention)])]
        self._tokens = [
            [token for token, (first, last) in tokens if first < end and begin < last] for begin, end in self.spans
        ]

    def shares(self, source: Span) -> list[tuple[float, float]]:
        """Return the attention of each word to a part of the source: the sum and the mean of its tokens."""
        if source not in self._shares:
            columns = [at for at, (begin, end) in enumerate(self._sources) if begin < source[1] and source[0] < end]
            of_tokens = [sum([row[column] for column in columns]) for row in self._attention]
            sums = [sum([of_tokens[token] for token in tokens]) for tokens in self._tokens]
            self._shares[source] = [
                (own, own / len(tokens) if tokens else 0.0) for own, tokens in zip(sums, self._tokens, strict=True)
            ]
        return self._shares[source]

    def most(self, shares: Sequence[tuple[float, float]], settled: int, others: Collection[Span]) -> tuple[int, float]:
        """Return the word with the largest sum, -1 without any, and its mean; settled, others: see `place`."""
        free = [
            (own, -word)
            for word, ((own, _), span) in enumerate(zip(shares, self.spans, strict=True))
            if own > 0 and span[0] >= settled and not _overlaps(span, others)
        ]
        if not free:
            return -1, 0.0
        word = -max(free)[1]
        return word, shares[word][1]

    def place(self, source: Span, settled: int, others: Sequence[Span]) -> Span | None:
        """Return the words that look at a part of the source, or None if none looks there.

        settled: characters at the begin that stay; others: spans that stay too, because other terms are there
        """
        shares = self.shares(source)
        best, share = self.most(shares, settled, others)
        if best < 0 or share < LEAST_SHARE:
            return None
        free = [span[0] >= settled and not _overlaps(span, others) for span in self.spans]
        first = last = best
        while first > 0 and free[first - 1] and shares[first - 1][1] >= OWN_SHARE:
            first -= 1
        while last + 1 < len(free) and free[last + 1] and shares[last + 1][1] >= OWN_SHARE:
            last += 1
        return self.spans[first][0], self.spans[last][1]


def _without_determiner(text: str, place: Span, language: str) -> Span:
    """Return a place without a determiner at its begin, which stays before the term, perhaps in another form."""
    first = _FIRST_WORD.match(text, *place)
    if first is None or first.end() == place[1] or other_forms(text, first.end(), language) is None:
        return place
    return first.end(), place[1]


def _forbidden_words(wanted: Sequence[WantedTerm]) -> tuple[str, ...]:
    """Return the words that no output may have: as they are written, and with the other case of their first letter.

    A word that is in the target of a term is not among them, because the search would forbid that too.
    """
    targets = [text for each in wanted for text in (each.target, *each.term.variants) if text]
    found = dict.fromkeys(
        form
        for each in wanted
        for word in each.term.forbid
        for form in ((word,) if each.term.exact else (word, word[0].swapcase() + word[1:]))
    )
    return tuple(word for word in found if not any(word in target for target in targets))[:MOST_FORBIDDEN]
