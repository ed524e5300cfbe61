"""Which kept strings belong together, and when the second try is the better one."""

from __future__ import annotations

import random

import pytest

from lingon.segments.kept_forms import Kind, ProtectedSpan
from lingon.segments.placing_alignment import KeptCopy
from lingon.segments.protection import find_protected
from lingon.segments.sentence import Restored, kept_spans, kept_strings
from lingon.serving.decoding.job import Options
from lingon.serving.decoding.rules import Vocabulary
from lingon.serving.guard import Flag, Judgement
from lingon.serving.translation.steps import Guarding, better, kept_pairs
from tests.support.echo_engine import LIMITS, bundle, tokenizer

STRINGS = ("{a}", "{{ b }}", "${c}", "%s", "https://example.org/d", "user@example.org", "1234567", "<x id='1'/>")


def spans_of(text: str, *strings: str) -> tuple[tuple[int, int], ...]:
    """Where strings are in a text, each after the one before."""
    found, at = [], 0
    for string in strings:
        begin = text.index(string, at)
        at = begin + len(string)
        found.append((begin, at))
    return tuple(found)


def shown(text: str, target: str, pairs: list[KeptCopy]) -> list[tuple[str, str]]:
    return [(text[slice(*each.source)], target[slice(*each.target)]) for each in pairs]


@pytest.mark.parametrize("seed", range(20))
def test_each_string_is_paired_with_an_equal_one_and_equal_ones_are_in_the_same_order(seed):
    rng = random.Random(seed)
    strings = rng.choices(STRINGS, k=rng.randint(1, 6))
    moved = rng.sample(strings, len(strings))
    text, target = (" ".join(f"see {each} x" for each in each_text) for each_text in (strings, moved))
    pairs = kept_pairs(text, find_protected(text), Restored(target, spans_of(target, *moved)))
    assert shown(text, target, pairs) == [(each, each) for each in strings]
    for string in set(strings):
        targets = [each.target for each in pairs if text[slice(*each.source)] == string]
        assert targets == sorted(targets)


def test_a_string_is_kept_with_what_touches_it_and_its_spans_are_whole_in_it():
    text, target = 'See "{a}"s and {b}, ${c} now', '"{a}"s und {b}, ${c} sehen'
    kept = spans_of(target, '"{a}"s', "{b}, ${c}")
    assert kept_spans(text, find_protected(text)) == list(spans_of(text, '"{a}"', "{b}, ${c}"))
    pairs = kept_pairs(text, find_protected(text), Restored(target, kept))
    assert [each.whole for each in pairs] == [[spans_of(text, "{a}")[0]], [*spans_of(text, "{b}", "${c}")]]


def test_the_spans_of_kept_strings_have_their_texts():
    text = "Open 'user@example.org' or {a}b, then (%s): 12345 – 6789!"
    spans = find_protected(text)
    assert [text[begin:end] for begin, end in kept_spans(text, spans)] == kept_strings(text, spans)


@pytest.mark.parametrize("kind", [Kind.URL, Kind.EMAIL, Kind.PATH, Kind.NUMBER, Kind.KEEP])
def test_what_a_reader_sees_may_have_tags_inside(kind):
    (pair,) = kept_pairs("see abc", [ProtectedSpan(4, 7, kind)], Restored("abc!", ((0, 3),)))
    assert pair == KeptCopy((4, 7), (0, 3), [])


def test_strings_that_changed_are_paired_in_their_order():
    text, target = "costs 1,299.99 or 2,000.00", "kostet 1.299,99 oder 2.000,00"
    spans = [ProtectedSpan(*span, Kind.NUMBER) for span in spans_of(text, "1,299.99", "2,000.00")]
    pairs = kept_pairs(text, spans, Restored(target, spans_of(target, "1.299,99", "2.000,00")))
    assert shown(text, target, pairs) == [("1,299.99", "1.299,99"), ("2,000.00", "2.000,00")]


def test_strings_of_one_text_alone_are_known_too():
    text, target = "see {a} and {b}", "{a} sehen – und {c} {d}"
    pairs = kept_pairs(text, find_protected(text), Restored(target, spans_of(target, "{a}", "{c}", "{d}")))
    assert shown(text, target, pairs) == [("", "{c}"), ("", "{d}"), ("{a}", "{a}"), ("{b}", "")]


@pytest.mark.parametrize(
    ("first", "second", "is_better"),
    [
        ([Flag.REPETITION], [], True),
        ([Flag.REPETITION], [Flag.REPETITION], False),
        ([Flag.REPETITION], [Flag.NUMBERS, Flag.COPY], True),
        ([Flag.REPETITION, Flag.NUMBERS], [Flag.EMPTY], True),
        ([Flag.EMPTY], [Flag.REPETITION, Flag.NUMBERS], False),
        ([Flag.EMPTY], [Flag.REPETITION, Flag.LENGTH_RATIO], False),
    ],
)
def test_the_second_try_replaces_the_first_if_it_has_fewer_flags(
    first: list[Flag], second: list[Flag], is_better: bool
) -> None:
    assert better(Judgement(tuple(first)), Judgement(tuple(second))) == is_better


def test_the_second_try_has_a_beam_a_rule_and_a_shorter_bound(tmp_path) -> None:
    guarding = Guarding.of(bundle(tmp_path), tokenizer(), Vocabulary(tokenizer()))
    options = guarding.options(Options(max_output_tokens=1000, length_penalty=0.5), 10, LIMITS)
    assert (options.beam_size, options.length_penalty, options.max_output_tokens) == (4, 0.5, 15 + LIMITS.output_extra)
    assert options.rules is not None
    assert guarding.options(Options(max_output_tokens=3), 10, LIMITS).max_output_tokens == 3
