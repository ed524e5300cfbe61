"""Inline tags in translations: each exactly once, nested as in the source, over the words aligned to theirs."""

from __future__ import annotations

import random
import re

import pytest

from lingon.segments.placing import place
from lingon.segments.placing_alignment import Aligned, Inline, KeptCopy, needs_weights
from tests.support.timing import LINEAR, MeasuredWork, growth_of


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
    kept = [KeptCopy((0, 1), (6, 7)), KeptCopy((5, 6), (2, 3))]
    tags = place(source, target, [Aligned((0, 6), (0, 7), weights, kept)], inlines)
    assert shown(target, inlines, tags) == "x <1>\ufffc</1> y <0>\ufffc</0>"


def test_a_segment_that_was_not_changed_has_its_tags_where_they_were():
    source = "a bc, d"
    inlines = [Inline(2, 4), Inline(3, 4, 0), Inline(4, 4), Inline(6, 7)]
    tags = place(source, source, [Aligned((0, 7), (0, 7))], inlines)
    assert shown(source, inlines, tags) == "a <0>b<1>c</1></0><2/>, <3>d</3>"


KEPT = (
    "{a}",
    "{{ b }}",
    "${c_d}",
    "%1$s",
    "{ e, date }",
    "<x id='1'/>",
    "https://f.org/g?h=(1)",
    "{}",
    "\u2764",
    "1.234,5",
)


def kept_text(rng: random.Random, strings: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """Words and marks with strings among them, in this order, and where these are; some of them touch marks."""
    text, spans = "", []
    for string in [*strings, None]:
        text += "".join(f"{word}{rng.choice(('', '', ',', '.', '”'))} " for word in random_text(rng).split())
        if string is not None:
            text += rng.choice(("", "", '"', "(", "\u201e", "- "))
            spans.append((len(text), len(text) + len(string)))
            text += string + rng.choice((" ", " ", ", ", '" ', "! ", "-x ", ") "))
    return text.rstrip(), spans


def random_kept(rng: random.Random) -> tuple[str, str, Aligned]:
    """A segment with up to four kept strings after a word, in any order in its translation; some are equal."""
    strings = rng.choices(KEPT, k=rng.randint(1, 4))
    order = rng.sample(range(len(strings)), len(strings))
    source, sources = kept_text(rng, strings)
    source, sources = f"see {source}", [(begin + 4, end + 4) for begin, end in sources]
    target, moved = kept_text(rng, [strings[place] for place in order])
    targets = {place: moved[number] for number, place in enumerate(order)}
    kept = [KeptCopy(span, targets[place], [span]) for place, span in enumerate(sources)]
    weights = [[rng.random() for _ in source.split()] for _ in target.split()] if rng.random() < 0.8 else None
    return source, target, Aligned((0, len(source)), (0, len(target)), weights, kept)


def is_cut(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(begin < place < end for begin, end in spans)


@pytest.mark.parametrize("seed", range(10))
def test_no_tag_comes_into_a_kept_string_wherever_tags_are_in_the_source(seed):
    rng = random.Random(seed)
    for _ in range(100):
        source, target, segment = random_kept(rng)
        inlines = random_inlines(rng, len(source))
        tags = place(source, target, [segment], inlines)
        assert not any(is_cut(where, [each.target for each in segment.kept]) for where, _, _ in tags)
        assert sorted((number, closing) for _, number, closing in tags) == [
            (number, closing) for number in range(len(inlines)) for closing in (False, True)
        ]


@pytest.mark.parametrize("seed", range(10))
def test_an_element_right_around_a_kept_string_stays_so_beside_any_other_elements(seed):
    rng = random.Random(seed)
    for _ in range(100):
        source, target, segment = random_kept(rng)
        chosen = [each for each in segment.kept if rng.random() < 0.7]
        inlines = [Inline(*each.source) for each in chosen]
        taken = [span for span, *_ in chosen]
        for _ in range(rng.randint(0, 3)):
            begin, end = sorted(rng.choices(range(len(source) + 1), k=2))
            if not any(first < end and begin < last for first, last in taken):
                taken.append((begin, end))
                inlines.append(Inline(begin, end))
        inlines.sort()
        number_of = {inline[:2]: number for number, inline in enumerate(inlines)}
        ends: dict[int, list[int]] = {}
        for where, number, _ in place(source, target, [segment], inlines):
            ends.setdefault(number, []).append(where)
        for each in chosen:
            assert tuple(ends[number_of[each.source]]) == each.target, (source, target, inlines)


@pytest.mark.parametrize("seed", range(10))
def test_elements_around_each_other_and_around_one_kept_string_all_stay_around_it(seed):
    rng = random.Random(seed)
    for _ in range(100):
        source, target, segment = random_kept(rng)
        (begin, end), copy, *_ = one = rng.choice(segment.kept)
        others = [each.source for each in segment.kept if each is not one]
        words = [word.span() for word in re.finditer(r"\S+", source)]
        low = max([last for _, last in others if last <= begin], default=0)
        high = min([first for first, _ in others if first >= end], default=len(source))
        first = rng.choice([begin, *(place for place, _ in words if low <= place <= begin)])
        last = rng.choice([end, *(place for _, place in words if end <= place <= high)])
        inlines = [Inline(first, last), Inline(begin, end, 0), Inline(begin, end, 1)]
        found = shown(target, inlines, place(source, target, [segment], inlines))
        assert f"<1><2>{target[slice(*copy)]}</2></1>" in found, (source, target, first, last)


@pytest.mark.parametrize(
    ("inlines", "expected"),
    [
        ([(3, 5)], "<0>{name}</0> ist da"),
        ([(1, 5), (5, 9)], "<0>{name}</0> <1>ist</1> da"),
        ([(0, 3), (3, 6)], "<0>{name}</0><1></1> ist da"),
        ([(3, 3), (4, 5)], "<0/><1>{name}</1> ist da"),
        ([(3, 5), (5, 5)], "<0>{name}</0><1/> ist da"),
        ([(3, 9)], "<0>{name} ist</0> da"),
        ([(0, 3), (1, 2, 0)], "<0><1>{name}</1></0> ist da"),
        ([(6, 6), (6, 6)], "{name}<0/><1/> ist da"),
    ],
)
def test_tags_written_inside_a_string_that_is_kept_whole_come_around_it(inlines, expected):
    source, target = "{name} is here", "{name} ist da"
    kept = [KeptCopy((0, 6), (0, 6), [(0, 6)])]
    segment = Aligned((0, 14), (0, 13), links(source, target, "0-0 1-1 2-2"), kept)
    given = [Inline(*each) for each in inlines]
    assert shown(target, given, place(source, target, [segment], given)) == expected


def test_tags_inside_a_string_that_is_read_stay_where_they_were():
    source, target = "costs 102000 now", "jetzt kostet es 102000"
    kept = [KeptCopy((6, 12), (16, 22))]
    segment = Aligned((0, 16), (0, 22), links(source, target, "0-1 1-0 2-0"), kept)
    inlines = [Inline(8, 12), Inline(10, 10, 0)]
    assert shown(target, inlines, place(source, target, [segment], inlines)) == "jetzt kostet es 10<0>20<1/>00</0>"


@pytest.mark.parametrize("weights", [None, [[0.9, 0.1, 0.1, 0.9, 0.1, 0.9, 0.1, 0.1]] * 7])
def test_an_element_over_all_between_two_strings_that_divide_covers_all_of_its_translation(weights):
    source, target = "{n, one {a file} two {two files}}", "{n, one {Datei} two {zwei Dateien}}"
    dividers = re.compile(r"\{n, one \{|\} two \{|\}\}")
    both = zip(dividers.finditer(source), dividers.finditer(target), strict=True)
    kept = [KeptCopy(one.span(), other.span(), [one.span()], divides=True) for one, other in both]
    inlines = [Inline(9, 15), Inline(22, 31), Inline(22, 25, 1)]
    tags = place(source, target, [Aligned((0, 33), (0, 35), weights, kept)], inlines)
    assert shown(target, inlines, tags).replace("<2>zwei</2>", "zwei") == (
        "{n, one {<0>Datei</0>} two {<1>zwei Dateien</1>}}"
    )


def test_strings_that_divide_and_change_their_order_are_kept_as_others_are():
    source, target = "{a} one {b} two", "{b} zwei {a} eins"
    kept = [KeptCopy((0, 3), (9, 12), divides=True), KeptCopy((8, 11), (0, 3), divides=True)]
    inlines = [Inline(0, 3), Inline(4, 7), Inline(8, 11)]
    segment = Aligned((0, 15), (0, 17), links(source, target, "0-2 1-3 2-0 3-1"), kept)
    assert shown(target, inlines, place(source, target, [segment], inlines)) == "<2>{b}</2> zwei <0>{a}</0> <1>eins</1>"


def test_equal_strings_that_are_kept_are_told_apart_by_the_caller():
    source, target = "{x} and {x}", "{x} und {x}"
    crossed = [KeptCopy((0, 3), (8, 11)), KeptCopy((8, 11), (0, 3))]
    inlines = [Inline(0, 3), Inline(8, 11)]
    tags = place(source, target, [Aligned((0, 11), (0, 11), None, crossed)], inlines)
    assert shown(target, inlines, tags) == "<1>{x}</1> und <0>{x}</0>"


@pytest.mark.parametrize(
    ("source", "target", "pairs", "inlines", "expected"),
    [
        ("the 'Basic' plan", "der „Basic“-Plan", "0-0 1-1 2-1", [(5, 10)], "der „<0>Basic</0>“-Plan"),
        ("the 'Basic' plan", "der „Basic“-Plan", "0-0 1-1 2-1", [(12, 16)], "der „Basic“-<0>Plan</0>"),
        ("the 'old' plan", "der „alte“-Plan", "0-0 1-1 2-1", [(5, 8)], "der „<0>alte</0>“-Plan"),
        ("the 'old' plan", "der „alte“-Plan", "0-0 1-1 2-1", [(4, 14)], "der <0>„alte“-Plan</0>"),
        ('say "yes" now', "sag « oui » là", "0-0 1-2 2-4", [(5, 8)], "sag « <0>oui</0> » là"),
        ('say "yes" now', "sag « oui » là", "0-0 1-2 2-4", [(4, 9)], "sag <0>« oui »</0> là"),
        ('say "yes" now', "sag »ja« nun", "0-0 1-1 2-2", [(5, 8)], "sag »<0>ja</0>« nun"),
        ("it (a dog) ran", "es (ein Hund) lief", "0-0 1-1 2-2 3-3", [(4, 9)], "es (<0>ein Hund</0>) lief"),
        ("it (a dog) ran", "es (ein Hund) lief", "0-0 1-1 2-2 3-3", [(3, 10)], "es <0>(ein Hund)</0> lief"),
        ('he said "yes."', "er sagte „ja“.", "0-0 1-1 2-2", [(9, 13)], "er sagte „<0>ja</0>“."),
        ('he said "yes."', "er sagte „ja“.", "0-0 1-1 2-2", [(8, 14)], "er sagte <0>„ja“.</0>"),
        ("Stop, you", "Halt, du", "0-0 1-1", [(0, 5)], "<0>Halt,</0> du"),
        ("Stop, you", "Halt, du", "0-0 1-1", [(0, 4)], "<0>Halt</0>, du"),
        ("Stop! you", "Arrête ! toi", "0-0 1-2", [(0, 5)], "<0>Arrête !</0> toi"),
        ("Stop! you", "Arrête ! toi", "0-0 1-2", [(0, 4)], "<0>Arrête</0> ! toi"),
        ("no. Really? yes", "no. ¿Verdad? sí", "0-0 1-1 2-2", [(4, 11)], "no. <0>¿Verdad?</0> sí"),
        ("a <now> b", "a nun! b", "0-0 1-1 2-2", [(3, 6)], "a <0>nun</0>! b"),
        ("the dog's tail", "l'ami d'un", "0-0 1-1", [(4, 9)], "l'ami <0>d'un</0>"),
        ("said hello there", "„Hallo“ sagt er", "0-1 1-0 2-2", [(5, 10)], "„<0>Hallo</0>“ sagt er"),
        ("it, he", "es!, er", "0-0 1-1", [(0, 2)], "<0>es</0>!, er"),
    ],
)
def test_quotation_marks_brackets_and_stops_stay_on_their_side_of_a_tag(source, target, pairs, inlines, expected):
    assert placed(source, target, pairs, *inlines) == expected


def test_an_element_around_whole_sentences_covers_their_translations_with_all_punctuation():
    source, target = '"Yes." I know. But no!', "„Ja, genau“, sagte er. Ich weiß. Aber nein!"
    segments = [
        Aligned((0, 6), (0, 22), links('"Yes."', "„Ja, genau“, sagte er.", "0-1")),
        Aligned((7, 14), (23, 32), links("I know.", "Ich weiß.", "0-0 1-1")),
        Aligned((15, 22), (33, 43), links("But no!", "Aber nein!", "0-0 1-1")),
    ]
    inlines = [Inline(0, 14), Inline(19, 22)]
    expected = "<0>„Ja, genau“, sagte er. Ich weiß.</0> Aber <1>nein!</1>"
    assert shown(target, inlines, place(source, target, segments, inlines)) == expected


@pytest.mark.parametrize("part", ['"a ', '"a" ', "((", ")a(", "a'b ", "{x} ", '"{x}"-a ', "!a! ", "a“-b “", "... "])
def test_placing_takes_a_time_linear_in_the_text(part):
    def work(size: int) -> MeasuredWork:
        count = size // len(part)
        text = part * count
        spans = [found.span() for found in re.finditer(r"\{x\}", text)]
        kept = [KeptCopy(span, span, [span]) for span in spans]
        inlines = [Inline(0, len(text))] + [Inline(at, at + 2, 0) for at in range(0, len(text) - 2, 4)]
        source = text.replace("a", "c")
        segment = Aligned((0, len(text)), (0, len(text)), None, kept)
        return lambda: place(source, text, [segment], inlines)

    assert growth_of(work, 4_000).ratio <= LINEAR


def test_what_separates_segments_and_is_the_same_in_both_texts_keeps_its_tags():
    source, target = "• One two • Three", "• Eins zwei • Drei"
    segments = [Aligned((2, 9), (2, 11)), Aligned((12, 17), (14, 18))]
    inlines = [Inline(0, 1), Inline(10, 11), Inline(12, 17)]
    expected = "<0>•</0> Eins zwei <1>•</1> <2>Drei</2>"
    assert shown(target, inlines, place(source, target, segments, inlines)) == expected
