"""Terms in sentences, with a scripted model: the n-th word of a translation is aligned to the n-th of its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lingon.segments.kept_forms import Kind, ProtectedSpan
from lingon.segments.sentence import (
    Align,
    Restored,
    Score,
    ScoredTarget,
    SentenceSteps,
    TermUse,
    TranslateStep,
    Weigh,
)
from lingon.segments.steps import translate_sentence
from lingon.segments.term_steps import SentenceTerms, with_terms
from lingon.serving.translation.steps import translate_whole
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.sentence_steps import run_steps

MISSED, FREE, REPAIRED, CONSTRAINED = (
    pb.TERM_MEANS_MISSED,
    pb.TERM_MEANS_FREE,
    pb.TERM_MEANS_REPAIRED,
    pb.TERM_MEANS_CONSTRAINED,
)
DICTIONARY = {"the": "das", "house": "Haus", "dog": "Hund", "is": "ist", "big": "groß", "and": "und", "old": "alt"}


def word_for_word(text: str) -> str:
    found = " ".join(DICTIONARY.get(word.lower(), word) for word in re.findall(r"\w+|[^\w\s]", text))
    found = re.sub(r" ([.,!?])", r"\1", found)
    return found[:1].upper() + found[1:]


@dataclass
class Model:
    """A model that translates word for word.

    free: its translation of a text without a prefix
    goes_on: a translation that begins with a prefix; default: the free one goes on after as many words
    log_prob: of a word after the words before it
    shift: words at the begin of a translation that are aligned to the first one of the source
    skipped: the word of the source that no word of a translation stands for, -1 for none
    also: the attention that the word after it pays to it
    """

    free: Callable[[str], str] = word_for_word
    goes_on: Callable[[str, str], str] | None = None
    constrained: Callable[[TranslateStep], Sequence[str]] = lambda step: ()
    log_prob: Callable[[str, str], float] = lambda before, word: -1.0
    aligned: bool = True
    shift: int = 0
    skipped: int = -1
    also: float = 0.0
    asked: list[object] = field(default_factory=list)

    def run(self, steps: SentenceSteps) -> Restored:
        return run_steps(steps, self._answer)

    def _answer(self, request: object) -> object:
        self.asked.append(request)
        match request:
            case TranslateStep(text, prefix, (), ()):
                return [self._continued(text, prefix) if prefix else self.free(text)]
            case TranslateStep():
                return list(self.constrained(request))
            case Score(source, targets):
                return [self._scored(source, target) for target in targets]
            case Weigh(source, begins):
                return [self._scored(source, begin) for begin in begins]
        assert isinstance(request, Align)
        return []

    def _continued(self, text: str, prefix: str) -> str:
        if self.goes_on is not None:
            return self.goes_on(text, prefix)
        return " ".join([prefix, *self.free(text).split()[len(prefix.split()) :]])

    def _scored(self, source: str, target: str) -> ScoredTarget:
        sources, spans = ([found.span() for found in re.finditer(r"\w+|[^\w\s]", text)] for text in (source, target))
        values = [self.log_prob(target[:begin].rstrip(), target[begin:end]) for begin, end in spans]
        attention = [[0.0] * len(sources) for _ in spans]
        for row, weights in enumerate(attention):
            column = row - self.shift + (0 <= self.skipped <= row - self.shift)
            weights[min(max(column, 0), len(sources) - 1)] = 1.0
            if column == self.skipped + 1 and self.skipped >= 0:
                weights[self.skipped] = self.also
        return ScoredTarget(sum(values), spans, values, sources, attention if self.aligned else None)


def translated(model: Model, text: str, *terms: Term, prefix: str = "", judges: bool = True) -> Restored:
    own = SentenceTerms.of(terms, "en", "de")
    return model.run(with_terms(translate_whole(text, prefix), own, judges=judges))


def steps_of(model: Model) -> list[TranslateStep]:
    return [each for each in model.asked if isinstance(each, TranslateStep)]


def test_a_translation_with_its_terms_stays_and_nothing_more_is_asked() -> None:
    model = Model()
    found = translated(model, "The house is big.", Term("house", "haus"))
    assert found.text == "Das Haus ist groß."
    assert found.terms == (TermUse(0, FREE),)
    assert len(model.asked) == 1


def test_a_variant_satisfies_a_term() -> None:
    found = translated(Model(), "The house is big.", Term("house", "Gebäude", variants=("Haus",)))
    assert (found.text, found.terms) == ("Das Haus ist groß.", (TermUse(0, FREE),))


def test_a_missed_term_takes_the_place_of_the_aligned_word_and_the_model_goes_on_after_it() -> None:
    model = Model(goes_on=lambda text, prefix: f"{prefix} sind groß.")
    found = translated(model, "The house is big.", Term("house", "Bauten"))
    step = TranslateStep("The house is big.", "Das Bauten")
    assert found.text == "Das Bauten sind groß."
    assert found.terms == (TermUse(0, REPAIRED),)
    assert steps_of(model) == [TranslateStep("The house is big."), step]
    assert found.outputs == ((step, "Das Bauten sind groß."),)


def test_a_new_rest_that_has_the_replaced_word_again_is_not_taken() -> None:
    model = Model(goes_on=lambda text, prefix: f"{prefix} vom Haus ist groß.")
    assert translated(model, "The house is big.", Term("house", "Bauten")).text == "Das Bauten ist groß."


def test_signs_after_the_last_term_stay() -> None:
    model = Model(free=lambda text: "Groß ist das Haus!", goes_on=lambda text, prefix: f"{prefix} Und mehr.")
    found = translated(model, "Is big the house!", Term("house", "Gebäude"))
    assert found.text == "Groß ist das Gebäude!"


def test_a_term_that_makes_the_words_before_the_next_one_unlikely_has_them_decoded_again() -> None:
    model = Model(
        goes_on=lambda text, prefix: f"{prefix} samt dem Hund." if prefix.endswith("Bauten") else f"{prefix}.",
        log_prob=lambda before, word: -9.0 if before.endswith("Bauten") and word == "und" else -1.0,
    )
    found = translated(model, "The house and the dog.", Term("house", "Bauten"), Term("dog", "Köter"))
    assert found.text == "Das Bauten samt dem Köter."


def test_the_likeliest_form_of_the_determiner_is_taken() -> None:
    model = Model(log_prob=lambda before, word: -9.0 if word == "Kammer" and before != "Die" else -1.0)
    assert translated(model, "The house is big.", Term("house", "Kammer")).text == "Die Kammer ist groß."


def test_a_likely_term_keeps_the_determiner_before_it_and_no_other_is_asked_for() -> None:
    model = Model()
    assert translated(model, "The house is big.", Term("house", "Kammer")).text == "Das Kammer ist groß."
    assert not any(isinstance(each, Weigh) for each in model.asked)


def test_a_determiner_that_is_a_term_has_no_other_form() -> None:
    model = Model(log_prob=lambda before, word: -9.0 if word == "Kammer" and before != "Die" else -1.0)
    found = translated(model, "The house is big.", Term("the", "Jenes"), Term("house", "Kammer"))
    assert found.text == "Jenes Kammer ist groß."


def test_a_term_that_no_word_stands_for_is_put_before_the_word_for_what_follows_in_the_source() -> None:
    model = Model(free=lambda text: "Und Haus Hund.", goes_on=lambda text, prefix: f"{prefix} Hund.", skipped=2)
    found = translated(model, "And house big dog.", Term("big", "großer"))
    assert found.text == "Und Haus großer Hund."
    assert found.terms == (TermUse(0, REPAIRED),)
    assert not any(each.forced for each in steps_of(model))


def test_a_term_that_what_is_settled_stands_for_is_not_put_elsewhere() -> None:
    model = Model(goes_on=lambda text, prefix: f"{prefix} ist groß.")
    found = translated(model, "The house is big.", Term("house", "Gebäude"), prefix="Das Haus")
    assert found.text == "Das Haus ist groß."


def test_a_place_of_two_terms_goes_to_the_one_that_it_looks_at_most() -> None:
    model = Model(free=lambda text: "Und Haus Hund.", skipped=2, also=0.3)
    found = translated(model, "And house big dog.", Term("big", "großer"), Term("dog", "Köter"))
    assert found.text == "Und Haus großer Köter."
    assert found.terms == (TermUse(0, REPAIRED), TermUse(1, REPAIRED))


def test_a_term_twice_has_two_places() -> None:
    found = translated(Model(), "The house and the house.", Term("house", "Gebäude"))
    assert found.text == "Das Gebäude und das Gebäude."
    assert found.terms == (TermUse(0, REPAIRED), TermUse(0, REPAIRED))


def test_one_word_does_not_satisfy_two_places_of_a_term() -> None:
    model = Model(free=lambda text: "Das Gebäude und das Haus.")
    found = translated(model, "The house and the house.", Term("house", "Gebäude"))
    assert found.text == "Das Gebäude und das Gebäude."
    assert sorted(use.means for use in found.terms) == [FREE, REPAIRED]


def test_the_longest_term_is_taken_and_none_within_it() -> None:
    model = Model(free=lambda text: "Das Haus Hund ist alt.")
    found = translated(model, "The house dog is old.", Term("house", "Gebäude"), Term("house dog", "Wachhund"))
    assert found.text == "Das Wachhund ist alt."
    assert found.terms == (TermUse(1, REPAIRED),)


def test_a_term_without_target_and_forbidden_words_leaves_its_source_to_the_model() -> None:
    model = Model()
    found = translated(model, "The house dog is old.", Term("house dog"), Term("dog", "Köter"))
    assert (found.text, found.terms, len(model.asked)) == ("Das Haus Hund ist alt.", (), 1)


def test_a_term_is_not_found_inside_a_longer_word() -> None:
    model = Model()
    assert translated(model, "The houseboat is old.", Term("house", "Gebäude")).terms == ()
    assert len(model.asked) == 1


def test_the_capital_of_a_sentence_is_not_that_of_a_term() -> None:
    model = Model(free=lambda text: "Das Haus ist alt.", shift=1)
    assert translated(model, "House is old.", Term("house", "gebäude")).text == "Das gebäude ist alt."


def test_a_term_at_the_begin_of_a_translation_has_the_capital_of_the_sentence() -> None:
    assert translated(Model(), "house is old.", Term("house", "gebäude")).text == "Gebäude ist alt."


def test_a_term_whose_case_counts_is_written_as_it_is() -> None:
    assert translated(Model(), "House is old.", Term("House", "gebäude", exact=True)).text == "gebäude ist alt."


def test_a_source_in_capitals_gets_its_target_in_capitals() -> None:
    assert translated(Model(), "The HOUSE is old.", Term("house", "Gebäude")).text == "Das GEBÄUDE ist alt."


def test_without_attention_the_search_is_constrained_by_all_terms() -> None:
    model = Model(aligned=False, constrained=lambda step: [f"Constrained {' '.join(step.forced)}."])
    found = translated(model, "The house and the dog.", Term("house", "Gebäude"), Term("dog", "Hund"))
    assert steps_of(model)[-1].forced == ("Gebäude", "Hund")
    assert found.text == "Constrained Gebäude Hund."
    assert found.terms == (TermUse(0, CONSTRAINED), TermUse(1, FREE))


def test_a_constrained_search_has_at_most_eight_words_and_the_missed_ones_first() -> None:
    model = Model(free=lambda text: " ".join(word[0].upper() + word[1:] for word in text.split()), aligned=False)
    terms = [Term(f"word{number}", f"Word{number}") for number in range(9)]
    translated(model, " ".join([*(f"word{number}" for number in range(9)), "house"]), *terms, Term("house", "Gebäude"))
    forced = steps_of(model)[-1].forced
    assert len(forced) == 8
    assert forced[0] == "Gebäude"


def test_a_target_that_is_too_long_for_a_constraint_is_not_asked_for() -> None:
    model = Model(aligned=False)
    found = translated(model, "The house is big.", Term("house", "lang " * 13 + "lang"))
    assert [use.means for use in found.terms] == [MISSED]
    assert len(steps_of(model)) == 1


def test_a_translation_that_no_means_gives_the_term_stays_and_the_term_is_missed() -> None:
    model = Model(aligned=False, constrained=lambda step: ["Das ist etwas anderes."])
    found = translated(model, "The house is big.", Term("house", "Gebäude"))
    assert (found.text, found.terms) == ("Das Haus ist groß.", (TermUse(0, MISSED),))


def test_a_translation_that_loses_another_term_is_not_taken() -> None:
    model = Model(aligned=False, constrained=lambda step: ["Das Gebäude."])
    found = translated(model, "The house and the dog.", Term("house", "Gebäude"), Term("dog", "Hund"))
    assert found.text == "Das Haus und das Hund."


def test_a_translation_with_a_forbidden_word_is_decoded_without_it() -> None:
    model = Model(constrained=lambda step: ["Das Heim ist groß."])
    found = translated(model, "The house is big.", Term("house", forbid=("Haus",)))
    assert steps_of(model)[-1].forbidden == ("Haus", "haus")
    assert (found.text, found.terms) == ("Das Heim ist groß.", (TermUse(0, CONSTRAINED),))


def test_to_leave_a_word_out_no_other_term_is_forced() -> None:
    model = Model(constrained=lambda step: ["Das Heim und das Hund."])
    translated(model, "The house and the dog.", Term("house", forbid=("Haus",)), Term("dog", "Hund"))
    assert [(step.forced, step.forbidden) for step in steps_of(model)[1:]] == [((), ("Haus", "haus"))]


def test_a_forbidden_word_may_be_the_target_of_another_part() -> None:
    found = translated(Model(), "The dog and the house.", Term("dog", "Hund", forbid=("Haus",)), Term("house", "Haus"))
    assert (found.text, [use.means for use in found.terms]) == ("Das Hund und das Haus.", [FREE, FREE])


def test_a_target_prefix_stays() -> None:
    model = Model(
        goes_on=lambda text, prefix: f"{prefix} ist groß.",
        constrained=lambda step: [f"{step.prefix} ist ein großes {step.forced[0]}."],
    )
    found = translated(model, "The house is big.", Term("house", "Gebäude"), prefix="Das Haus")
    assert found.text == "Das Haus ist ein großes Gebäude."


def test_where_only_the_search_may_write_every_term_is_decoded_again() -> None:
    model = Model(goes_on=lambda text, prefix: f"{prefix} weiter.")
    found = translated(model, "The house is big.", Term("house", "Gebäude"), judges=False)
    assert found.text == "Das Gebäude weiter."
    assert found.outputs == ((TranslateStep("The house is big.", "Das Gebäude"), found.text),)


def test_kept_strings_and_terms_are_in_one_sentence() -> None:
    text = "The house {x} is big."
    terms = SentenceTerms.of([Term("house", "Gebäude")], "en", "de")
    spans = [ProtectedSpan(10, 13, Kind.PLACEHOLDER)]
    found = Model().run(with_terms(translate_sentence(text, spans, ["Tom", "Boston"], {}), terms))
    assert found.text == "Das Gebäude {x} ist groß."
    assert found.terms == (TermUse(0, REPAIRED),)


def test_a_sentence_in_capitals_has_its_terms() -> None:
    terms = SentenceTerms.of([Term("house", "Gebäude")], "en", "de")
    found = Model().run(with_terms(translate_sentence("THE HOUSE IS BIG.", [], [], {}), terms))
    assert found.text == "DAS GEBÄUDE IST GROSS."
    assert found.terms == (TermUse(0, REPAIRED),)


def test_the_white_space_of_a_target_stands_in_the_translation_as_it_is_written():
    written = translated(Model(), "The house is big.", Term("house", "Haus\u00a0n\u00b0\u202f5"))
    assert (written.text, written.terms) == ("Das Haus\u00a0n\u00b0\u202f5", (TermUse(0, REPAIRED),))
    free = translated(Model(lambda text: "Das Haus Nr 7 steht."), "The house.", Term("house", "Haus\u00a0Nr\u30007"))
    assert (free.text, free.terms) == ("Das Haus\u00a0Nr\u30007 steht.", (TermUse(0, FREE),))
