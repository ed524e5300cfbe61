"""Reading a text and writing its translation takes a time that grows linearly with the text, whatever the text.

The patterns are made by a seed. Other ones, and more of them, are run by hand with TEST_SEED=7 TEST_SCALE=full.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pytest

from lingon.errors import InvalidRequest
from lingon.segments.boundaries import Span
from lingon.segments.capitals import is_in_capitals
from lingon.segments.layout import TextLayout
from lingon.segments.placing_alignment import KeptCopy
from lingon.segments.sentence import Restored, TranslateStep, kept_spans, kept_strings
from lingon.segments.steps import translate_sentence
from lingon.serving.decoding.spelling import ROOT, Automaton
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.translation.options import Format, TextChoice, text_choice
from lingon.serving.translation.planner import ReadText, RequestSize, read_source
from lingon.serving.translation.steps import kept_pairs
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.hostile_documents import ALPHABETS, TextPattern, strings, text_patterns
from tests.support.repository import scaled
from tests.support.timing import LINEAR, MeasuredWork, growth_of, run_to_end

SEED = int(os.environ.get("TEST_SEED", "1"))
PATTERNS = scaled(12, 300)
LENGTH = 6_000  # characters of the shorter text
UNBOUNDED = EngineLimits(max_queue_texts=10**9, max_queue_tokens=10**9)


def choice(kind: str, **options: object) -> TextChoice:
    asked = pb.TextOptions(format=Format[kind.upper()].value, **options)
    return text_choice(asked, forced=False, greedy=True)


def read(text: str, options: TextChoice) -> ReadText | None:
    """Return a text as the server reads it; None for one that it refuses."""
    try:
        return asyncio.run(read_source(text, "text", options, RequestSize("texts", UNBOUNDED)))
    except InvalidRequest:
        return None


def plan(text: str, options: TextChoice) -> list[tuple[int, int]]:
    """Do all that is done with a text before its model reads it, and return its sentences."""
    source = read(text, options)
    found = []
    for (begin, end), kept in source.sentences(options, "en") if source else ():
        sentence = source.text[begin:end]
        kept_strings(sentence, kept)
        is_in_capitals(sentence, kept)
        normalise(sentence)
        found.append((begin, end))
    return found


def write(text: str, options: TextChoice) -> None:
    """Read a text with markup and write a translation of it that has other words, each in capitals."""
    source = read(text, options)
    if source is None or source.plain is None:
        return
    document = TextLayout(source.text, tuple(span for span, _ in source.sentences(options, "en")))
    joined = document.join([f"{document.segment(index).upper()} x" for index in range(len(document.segments))])
    run_to_end(source.plain.write(document, joined, [None] * len(document.segments)))


def write_kept(text: str, options: TextChoice) -> None:
    """Read a text with markup and write a translation of it that has the same words, of which the same are kept."""
    source = read(text, options)
    if source is None or source.plain is None:
        return
    segments, kept = list[Span](), list[list[KeptCopy]]()
    for (begin, end), spans in source.sentences(options, "en"):
        sentence = source.text[begin:end]
        moved = tuple((first + 2, last + 2) for first, last in kept_spans(sentence, spans))
        segments.append((begin, end))
        kept.append(kept_pairs(sentence, spans, Restored(f"x {sentence}", moved)))
    document = TextLayout(source.text, tuple(segments))
    joined = document.join([f"x {document.segment(index)}" for index in range(len(segments))])
    run_to_end(source.plain.write(document, joined, [None] * len(segments), kept))


def translate(text: str, options: TextChoice) -> None:
    """Do all that is done with the sentences of a text but for the model, which answers with what it was asked."""
    source = read(text, options)
    for (begin, end), kept in source.sentences(options, "en") if source else ():
        steps = translate_sentence(source.text[begin:end], kept, ["Tom", "Boston", "London"], {})
        request = next(steps, None)
        while request is not None:
            try:
                request = steps.send([request.text] if isinstance(request, TranslateStep) else [])
            except StopIteration:
                break


def slow(work: Callable[[str], object], kind: str, length: int = LENGTH) -> Iterator[str]:
    """Yield which patterns take more than twice the CPU time at twice the length."""

    def work_on(pattern: TextPattern) -> Callable[[int], MeasuredWork]:
        return lambda size: partial(work, pattern.text(size))

    for pattern in islice(text_patterns(kind, SEED), PATTERNS):
        growth = growth_of(work_on(pattern), length)
        if growth.ratio > LINEAR:
            yield f"{pattern}: {growth}"


@pytest.mark.parametrize("kind", ALPHABETS)
def test_planning_takes_a_time_linear_in_the_text(kind: str):
    options = choice(kind)
    assert not [*slow(lambda text: plan(text, options), kind)]


def test_planning_whole_texts_takes_a_time_linear_in_the_text():
    options = choice("plain", split_sentences=pb.SENTENCE_SPLITTING_OFF)
    assert not [*slow(lambda text: plan(text, options), "plain")]


@pytest.mark.parametrize("kind", ALPHABETS)
def test_planning_with_strings_to_keep_takes_a_time_linear_in_the_text(kind: str):
    options = choice(kind, keep=strings(kind, SEED, 250), protect=False)
    assert not [*slow(lambda text: plan(text, options), kind)]


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_writing_with_rules_for_elements_takes_a_time_linear_in_the_text(kind: str):
    names = ["b", "i", "k", "s", "p", *(f"n{number}" for number in range(250))]
    options = choice(kind, ignore_tags=["k", *names[5:]], splitting_tags=["s"], non_splitting_tags=["p", "b", "i"])
    assert not [*slow(lambda text: write(text, options), kind)]


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_writing_around_strings_that_are_kept_takes_a_time_linear_in_the_text(kind: str):
    for protect in (True, False):
        options = choice(kind, keep=strings(kind, SEED, 50), protect=protect, split_sentences=pb.SENTENCE_SPLITTING_OFF)
        assert not [*slow(lambda text, options=options: write_kept(text, options), kind)]


@pytest.mark.parametrize("splitting", [pb.SENTENCE_SPLITTING_ON, pb.SENTENCE_SPLITTING_OFF])
def test_translating_around_strings_to_keep_takes_a_time_linear_in_the_text(splitting: int):
    options = choice("plain", keep=strings("plain", SEED, 250), split_sentences=splitting)
    assert not [*slow(lambda text: translate(text, options), "plain")]


def test_looking_for_forced_and_forbidden_words_takes_a_time_linear_in_the_text():
    words = [" ".join(string.split()).encode() for string in strings("plain", SEED, 60)]
    automaton = Automaton([*dict.fromkeys(word for word in words if word)])

    def read_in_pieces(text: str) -> None:
        state = automaton.after_other_text()
        for byte in text.encode():
            state, _ = automaton.read(state, bytes([byte]))

    assert automaton.read(ROOT, b"".join(words))[1]
    assert not [*slow(read_in_pieces, "plain")]
