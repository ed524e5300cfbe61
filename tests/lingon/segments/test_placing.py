"""Inline tags in translations: each exactly once, nested as in the source, over the words aligned to theirs."""

from __future__ import annotations

import random

import pytest

from lingon.segments.placing import Aligned, Inline, Kept, needs_weights, place


def shown(text: str, inlines: list[Inline], tags: list) -> str:
    """The text with its tags, an element as <1>...</1>, a point as <1/>."""
    parts, at = [], 0
    for where, number, closing in tags:
        is_point = inlines[number].begin == inlines[number].end
        tag = "" if closing and is_point else f"<{'/' * closing}{number}{'/' * is_point}>"
        parts += [text[at:where], tag]
        at = where
    return "".join([*parts, text[at:]])


def links(source: str, target: str, pairs: str) -> list[list[float]]:
    """Weights of words: 0.8 for each pair source-target, and little for all others."""
    linked = {tuple(map(int, pair.split("-"))) for pair in pairs.split()}
    return [
        [0.8 if (column, row) in linked else 0.01 for column in range(len(source.split()))]
        for row in range(len(target.split()))
    ]


def placed(source: str, target: str, pairs: str, *inlines: tuple[int, ...]) -> str:
    segment = Aligned((0, len(source)), (0, len(target)), links(source, target, pairs))
    given = [Inline(*each) for each in inlines]
    return shown(target, given, place(source, target, [segment], given))


def random_inlines(rng: random.Random, length: int) -> list[Inline]:
    inlines: list[Inline] = []

    def add(begin: int, end: int, parent: int, depth: int) -> None:
        at = begin
        while at <= end and rng.random() < 0.75 and len(inlines) < 40:
            first = rng.randint(at, end)
            last = first if rng.random() < 0.25 else rng.randint(first, end)
            inlines.append(Inline(first, last, parent))
            if last > first and depth < 6:
                add(first, last, len(inlines) - 1, depth + 1)
            at = last

    add(0, length, -1, 0)
    return inlines


def random_text(rng: random.Random) -> str:
    return " ".join(
        "".join(rng.choices("ab,", weights=(5, 5, 1), k=rng.randint(1, 5))) for _ in range(rng.randint(0, 9))
    )


@pytest.mark.parametrize("seed", range(10))
def test_any_nesting_is_placed_exactly_once_and_well_formed_and_nested_as_in_the_source(seed):
    """1,000 texts of one to three segments, some of them without weights or unchanged."""
    rng = random.Random(seed)
    for _ in range(100):
        source, target, segments = "", "", []
        for _ in range(rng.randint(1, 3)):
            texts = random_text(rng), random_text(rng)
            first, second = texts if rng.random() < 0.8 else (texts[0], texts[0])
            spans = (len(source), len(source) + len(first)), (len(target), len(target) + len(second))
            weights = [[rng.random() for _ in first.split()] for _ in second.split()] if rng.random() < 0.8 else None
            segments.append(Aligned(*spans, weights))
            source, target = f"{source}{first} ", f"{target}{second} "
        inlines = random_inlines(rng, len(source))
        tags = place(source, target, segments, inlines)
        assert sorted((number, closing) for _, number, closing in tags) == [
            (number, closing) for number in range(len(inlines)) for closing in (False, True)
        ]
        assert [where for where, _, _ in tags] == sorted(where for where, _, _ in tags)
        assert all(0 <= where <= len(target) for where, _, _ in tags)
        stack = [-1]
        for _, number, closing in tags:
            if closing:
                assert stack.pop() == number
            else:
                assert stack[-1] == inlines[number].parent
                stack.append(number)


@pytest.mark.parametrize(
    ("source", "target", "pairs", "inlines", "expected"),
    [
        ("a red car", "ein rotes Auto", "0-0 1-1 2-2", [(2, 5)], "ein <0>rotes</0> Auto"),
        ("I saw him", "ihn sah ich", "0-2 1-1 2-0", [(0, 1), (6, 9)], "<1>ihn</1> sah <0>ich</0>"),
        ("all of it.", "das alles hier.", "0-1 2-0", [(0, 10), (0, 9, 0)], "<0><1>das alles hier</1>.</0>"),
        ("say hello, now", "sag jetzt hallo!", "0-0 1-2 2-1", [(4, 9)], "sag jetzt <0>hallo</0>!"),
        ("a b c d", "w x y z", "0-0 1-0 2-3 3-2", [(0, 5)], "<0>w</0> x y z"),
        ("fire truck", "Feuerwehr", "0-0 1-0", [(0, 4), (5, 10)], "<0>Feuerwehr</0><1></1>"),
        ("use H2O now", "nun H2O nutzen", "0-2 1-1 2-0", [(5, 6)], "nun H<0>2</0>O nutzen"),
        ("un happy", "traurig", "0-0 1-0", [(0, 2)], "<0>traurig</0>"),
        ("unhappy man", "trauriger Mann", "0-0 1-1", [(0, 2)], "<0>trauriger</0> Mann"),
        ("one two", "zwei eins", "0-1 1-0", [(0, 0), (3, 3), (4, 4), (7, 7)], "<0/><2/>zwei eins<1/><3/>"),
        ("a b c", "c b a", "0-2 1-1 2-0", [(0, 3), (2, 2, 0), (2, 3, 0)], "c <0><1/><2>b</2> a</0>"),
        ("a b", "", "", [(0, 1), (2, 2)], "<0></0><1/>"),
    ],
)
def test_an_element_gets_the_words_that_its_words_are_aligned_to(source, target, pairs, inlines, expected):
    assert placed(source, target, pairs, *inlines) == expected


def test_an_element_over_several_segments_holds_those_that_are_whole_in_it():
    source, target = "One two. Three four. Five.", "Eins zwei so. Drei vier. Viel."
    segments = [
        Aligned((0, 8), (0, 13), links("One two.", "Eins zwei so.", "0-0 1-1")),
        Aligned((9, 20), (14, 24)),
        Aligned((21, 26), (25, 30)),
    ]
    inlines = [Inline(0, 14), Inline(4, 7, 0), Inline(15, 26)]
    assert needs_weights([segment.source for segment in segments], inlines) == [True, True, False]
    expected = "<0>Eins <1>zwei</1> so. Drei</0> <2>vier. Viel.</2>"
    assert shown(target, inlines, place(source, target, segments, inlines)) == expected


def test_what_is_kept_is_aligned_to_itself():
    source, target = "\ufffc is \ufffc", "x \ufffc y \ufffc"
    weights = [[0.5] * 3] * 4
    inlines = [Inline(0, 1), Inline(5, 6)]
    kept = [Kept((0, 1), (6, 7)), Kept((5, 6), (2, 3))]
    tags = place(source, target, [Aligned((0, 6), (0, 7), weights, kept)], inlines)
    assert shown(target, inlines, tags) == "x <1>\ufffc</1> y <0>\ufffc</0>"


def test_a_segment_that_was_not_changed_has_its_tags_where_they_were():
    source = "a bc, d"
    inlines = [Inline(2, 4), Inline(3, 4, 0), Inline(4, 4), Inline(6, 7)]
    tags = place(source, source, [Aligned((0, 7), (0, 7))], inlines)
    assert shown(source, inlines, tags) == "a <0>b<1>c</1></0><2/>, <3>d</3>"
