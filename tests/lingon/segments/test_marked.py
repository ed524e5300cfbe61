"""Pairs of marks come back around the translations of their words, each once, whatever the model does."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.kept_forms import Kind
from lingon.segments.protection import CODE, MARKS, find_protected
from lingon.segments.sentence import (
    Align,
    Means,
    Restored,
    SentenceAnswer,
    SentenceRequest,
    TranslateStep,
)
from lingon.segments.steps import translate_marked
from tests.support.sentence_steps import run_steps
from tests.support.timing import LINEAR, growth_of

WORDS = ["Tom", "Boston", "London", "Paris", "Japan"]
PAIRS = [(form.name, example) for form in MARKS if form not in CODE for example in form.examples]


class Model:
    """A model that writes a sentence from its end, in capitals, and knows it; faults: the probability of each error."""

    def __init__(self, faults: float = 0.0, seed: int = 0, *, aligns: bool = True) -> None:
        self.faults, self.random, self.aligns = faults, random.Random(seed), aligns

    def answer(self, request: SentenceRequest) -> SentenceAnswer:
        if isinstance(request, Align):
            return self.links(request) if self.aligns else []
        output = [word for word in self.written(request.text) if self.random.random() >= self.faults]
        for _ in range(len(output)):
            if self.random.random() < self.faults:
                output.insert(self.random.randrange(len(output)), self.random.choice([*output, "**", '"', "{x}"]))
        return [f"{request.prefix} {' '.join(output)}".strip()]

    def written(self, text: str) -> list[str]:
        end = re.search(r"[.!?]?\Z", text)
        words = [word if word.strip(",.!") in WORDS else word.upper() for word in text[: end.start()].split()]
        words = words[::-1]
        return [*words[:-1], words[-1] + end[0]] if words else [end[0]]

    def links(self, request: Align) -> SentenceAnswer:
        sources = [found.span() for found in re.finditer(r"\S+", request.source)]
        targets = [found.span() for found in re.finditer(r"\S+", request.target)]
        if len(sources) != len(targets):
            return list(zip(sources, targets, strict=False))
        return list(zip(sources, reversed(targets), strict=True))


def translate(text: str, model: Model | None = None) -> Restored:
    return run_steps(translate_marked(text, find_protected(text), WORDS), (model or Model()).answer)


@pytest.mark.parametrize(("name", "example"), PAIRS)
@pytest.mark.parametrize("text", ["we saw {} here today", "{} is here", "here is {}", "{}", "the {x} and {} go"])
def test_a_pair_of_marks_is_around_the_translation_of_its_words(name: str, example: str, text: str):
    source = text.replace("{}", example)
    result = translate(source)
    opening, closing = example.split("red car")
    written = opening == closing and '"' in opening + closing.replace("&quot;", '"')
    expected = "RED CAR" if result.means is Means.SPLIT else "CAR RED"
    assert f"{opening}{expected}{closing}" in result.text or written, result.text
    assert Counter(re.findall("[A-Z]+", result.text.upper())) == Counter(re.findall("[A-Z]+", source.upper()))


TEXTS = st.lists(
    st.sampled_from(
        [
            *(example for _, example in PAIRS),
            "**{x}**",
            "*5*",
            "go",
            "home,",
            "now",
            "{x}",
            "[a",
            "**",
            "</b>",
            "5",
            ".",
        ]
    ),
    min_size=1,
    max_size=8,
).map(" ".join)


@given(TEXTS, st.integers(), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans())
def test_every_mark_is_in_the_result_as_often_as_in_the_text(text: str, seed: int, faults: float, aligns: bool):
    spans = find_protected(text)
    result = translate(text, Model(faults, seed, aligns=aligns))
    for string in {text[begin:end] for begin, end, _ in spans}:
        assert result.text.count(string) == text.count(string), (string, result)
    inside = Counter(result.text[begin:end] for begin, end in result.kept)
    marks = Counter(text[begin:end] for begin, end, kind in spans if kind in (Kind.OPENING, Kind.CLOSING))
    assert all("".join(inside.elements()).count(mark) >= number for mark, number in marks.items())
    assert all(before[1] <= after[0] for before, after in zip(result.kept, result.kept[1:], strict=False))


@given(TEXTS, st.integers())
def test_marks_stay_nested(text: str, seed: int):
    def depth(of: str) -> list[int]:
        level, levels = 0, []
        for _, _, kind in sorted(span for span in find_protected(of) if span.kind in (Kind.OPENING, Kind.CLOSING)):
            level += 1 if kind is Kind.OPENING else -1
            levels.append(level)
        return levels

    levels = depth(translate(text, Model(0.2, seed)).text)
    assert not levels or (min(levels) >= 0 and levels[-1] == 0)


def test_a_model_without_attention_translates_what_is_between_the_marks_apart():
    result = translate("we saw the **red car** here", Model(aligns=False))
    assert (result.text, result.means) == ("THE SAW WE **CAR RED** HERE", Means.SPLIT)


def test_written_quotation_marks_are_those_that_the_model_writes():
    class Quoting(Model):
        def answer(self, request: SentenceRequest) -> SentenceAnswer:
            assert request == TranslateStep('He said "good morning" to Tom.')
            return ["Er sagte „guten Morgen“ zu Tom."]

    result = translate(r"He said \"good morning\" to Tom.", Quoting())
    assert result.text == r"Er sagte \"guten Morgen\" zu Tom."
    assert [result.text[begin:end] for begin, end in result.kept] == [r"\"", r"\""]


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 * 4 is *.txt",
        "a* b* and *c",
        "5* and 3*",
        "snake_case_name",
        "[ ] or [x] (y)",
        "f(x)[i]",
        "~ 5 ~ 6",
        "a < b > c",
    ],
)
def test_signs_that_belong_to_no_pair_are_no_marks(text: str):
    assert not any(kind in (Kind.OPENING, Kind.CLOSING) for _, _, kind in find_protected(text))


def test_no_mark_is_in_code_or_in_what_is_kept():
    text = "Use `a **b** c` or https://x.org/**y** and ``[a](b)``."
    assert not any(kind in (Kind.OPENING, Kind.CLOSING) for _, _, kind in find_protected(text))


def test_no_pair_goes_over_a_blank_line():
    assert find_protected("one **two\n \nthree** four") == []


@pytest.mark.parametrize(
    "unit",
    ["*", "**a", "*a* ", "[a", "[a](", "[a](b", "[[a]", "](a)", "`", "`a", "``a ", ":a:`", ":a:`b <", "`a <b", "<a>",
     "<0>", "&lt;/b&gt;", "</a>", "[b]", "[/b]", "[b][i]", '\\"a', "&quot;", "_a ", "~~", "**a *b ", "|a", "[#a",
     "*a\n\n", "![", "[a][", "&lt;b"],
)  # fmt: skip
def test_many_marks_are_found_in_a_time_that_is_linear_in_their_number(unit: str):
    growth = growth_of(lambda size: lambda: find_protected((unit * size)[:size]), 8_000, worth=0.002, most=64_000)
    assert growth.ratio <= LINEAR


@pytest.mark.parametrize("unit", ["**a** ", "*a **b** c* ", "[a](b) {x} ", "**{x}** 5 "])
def test_many_pairs_are_translated_in_a_time_that_is_linear_in_their_number(unit: str):
    growth = growth_of(lambda size: lambda: translate(unit * size), 20, worth=0.005, most=2_000)
    assert growth.ratio <= LINEAR
