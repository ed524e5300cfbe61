"""Earlier translations guide a sentence: what is forced, what is not, and which translation is taken."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from lingon.segments.memory_steps import EarlierPair, begin_of, shared_begin, with_earlier
from lingon.segments.sentence import Align, Restored, Score, ScoredTarget, TranslateStep, translations
from tests.support.sentence_steps import run_steps

TEXT = "Tom lives in a big house."
EARLIER = EarlierPair("Tom lives in a small hut.", "Tom haust in einer kleinen Hütte.")
FREE, GUIDED = "Tom wohnt in einem großen Haus.", "Tom haust in einem großen Haus."


def linked(pair: EarlierPair, words: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Links between words, as "0-0 1-1"."""
    spans = []
    for text in pair:
        begins = [sum(len(word) + 1 for word in text.split()[:place]) for place in range(len(text.split()))]
        spans.append([(begin, begin + len(word)) for begin, word in zip(begins, text.split(), strict=True)])
    pairs = (map(int, link.split("-")) for link in words.split())
    return [(spans[0][source], spans[1][target]) for source, target in pairs]


def steps(text: str, prefix: str = ""):
    request = TranslateStep(text, prefix)
    outputs = yield from translations(request)
    return Restored(outputs[0], outputs=((request, outputs[0]),)) if outputs else Restored(text)


def run(
    generator, links: str, scores: Sequence[float], outputs: dict[str, list[str]] | None = None
) -> tuple[str, list[object]]:
    """Return the translation, and what was asked for it. outputs: of the model, by the prefixes."""
    made = outputs or {"": [FREE], "Tom haust in": [GUIDED]}
    asked: list[object] = []

    def answer(request: object) -> object:
        asked.append(request)
        match request:
            case TranslateStep(prefix=prefix):
                return made.get(prefix, [])
            case Align():
                return linked(EARLIER, links)
            case Score(targets=targets):
                return [ScoredTarget(scores[each], (), (), (), None) for each in range(len(targets))]
        raise AssertionError(request)

    return run_steps(generator, answer).text, asked


def test_the_begin_that_both_have_is_translated_as_the_memory_has_it():
    text, asked = run(with_earlier(partial(steps, TEXT), EARLIER), "0-0 1-1 2-2 3-3 4-4 5-5", [-0.3, -0.2], {
        "": [FREE],
        "Tom haust in einer": ["Tom haust in einer großen Villa."],
    })  # fmt: skip
    assert text == "Tom haust in einer großen Villa."
    assert asked[0] == TranslateStep(TEXT)
    assert asked[1] == Align(*EARLIER)
    assert asked[2] == TranslateStep(TEXT, "Tom haust in einer")


@pytest.mark.parametrize(("score", "expected"), [(-0.2, GUIDED), (-0.34, GUIDED), (-0.36, FREE), (-3.0, FREE)])
def test_a_translation_that_is_clearly_less_likely_is_not_taken(score, expected):
    assert run(with_earlier(partial(steps, TEXT), EARLIER), "0-0 1-1 2-2 3-4 4-3 5-5", [-0.3, score])[0] == expected


@pytest.mark.parametrize(
    ("earlier", "asked"),
    [
        (EarlierPair("Mary lives in a big house.", "x"), 1),  # nothing in common
        (EarlierPair("Tom sees it.", "x"), 1),  # too few words
        (EarlierPair("Tom lives in a hut.", "Tom wohnt in einer Hütte."), 2),  # begins as the free one does
    ],
)
def test_what_says_nothing_about_the_sentence_is_not_decoded(earlier, asked):
    text, requests = run(with_earlier(partial(steps, TEXT), earlier), "0-0 1-1 2-2", [0, 0])
    assert (text, len(requests)) == (FREE, asked)


def test_without_an_alignment_or_a_second_output_the_first_one_stays():
    assert run(with_earlier(partial(steps, TEXT), EARLIER), "", [0, 0])[0] == FREE
    outputs = {"": [FREE], "Tom haust in": ["Tom wohnt dort."]}
    assert run(with_earlier(partial(steps, TEXT), EARLIER), "0-0 1-1 2-2 3-4 4-3", [0, 0], outputs)[0] == FREE
    assert run(with_earlier(partial(steps, TEXT), EARLIER), "0-0", [0, 0], {"": []})[0] == TEXT


def test_a_sentence_with_a_prefix_is_not_guided():
    text, asked = run(with_earlier(partial(steps, TEXT, "Tom"), EARLIER), "0-0 1-1", [0, 0], {"Tom": [FREE]})
    assert (text, asked) == (FREE, [TranslateStep(TEXT, "Tom")])


@pytest.mark.parametrize(("lost", "expected"), [("", GUIDED), ("Tom", FREE)])
def test_a_translation_that_lacks_a_kept_string_is_not_taken(lost, expected):
    def checked():
        """Steps that ask again, or give up, if a string is lost."""
        request = TranslateStep(TEXT)
        (output,) = yield from translations(request)
        if lost and output == GUIDED:
            yield from translations(TranslateStep("again"))
        return Restored(output, outputs=((request, output),))

    def given_up():
        (output,) = yield from translations(TranslateStep(TEXT))
        return Restored(output, outputs=((TranslateStep(TEXT), output),)) if output == FREE else Restored(TEXT)

    links = "0-0 1-1 2-2 3-4 4-3 5-5"
    assert run(with_earlier(checked, EARLIER), links, [-0.3, -0.2])[0] == expected
    assert run(with_earlier(given_up, EARLIER), links, [-0.3, -0.2])[0] == FREE


@pytest.mark.parametrize(
    ("text", "other", "shared"),
    [
        ("a b c", "a b d", "a b"),
        ("a b", "a b", "a b"),
        ("a bc", "a b", ""),
        ("A b c", "a b c", ""),
        ("one two three", "one two", "one two"),
        ("", "a b", ""),
    ],
)
def test_the_common_begin_has_whole_words(text, other, shared):
    assert text[: shared_begin(text, other)] == shared


@pytest.mark.parametrize(
    ("source", "target", "links", "shared", "expected"),
    [
        ("he has a car", "er hat ein Auto", "0-0 1-1 2-2 3-3", 8, "er hat ein"),
        ("he has bought it", "er hat es gekauft", "0-0 1-1 2-3 3-2", 6, "er hat"),
        ("he has bought it", "er hat es gekauft", "0-0 1-3", 6, "er hat es gekauft"),
        ("he has a car", "er hat da ein Auto", "0-0 1-1 3-4", 8, "er hat"),  # the last word is linked
        ("he has a car", "Auto hat er", "3-0 0-2 1-1", 8, ""),
        ("in 5 days he", "in 5 Tagen er", "0-0 1-1 2-2 3-3", 9, "in 5 Tagen"),
        ("in some days 5", "in 5 Tagen x", "0-0 1-1 2-2 3-3", 12, ""),  # a number of another part
        ("go to it now", "geh zu %s jetzt", "0-0 1-1 2-2 3-3", 8, ""),  # a placeholder
        ("go to %s now", "geh zu %s jetzt", "0-0 1-1 2-2 3-3", 8, "geh zu %s"),
        ("go to 1,200 now", "geh zu 1.200 jetzt", "0-0 1-1 2-2 3-3", 11, ""),
        ("see this x page", "siehe https://a.org diese", "0-0 1-1 2-2", 8, ""),
    ],
)
def test_the_prefix_has_only_words_of_the_common_begin(source, target, links, shared, expected):
    pair = EarlierPair(source, target)
    assert begin_of(pair, shared, linked(pair, links)) == expected
