"""When the second try is the better one, and how it is made."""

from __future__ import annotations

import pytest

from lingon.serving.constraints.words import Vocabulary
from lingon.serving.decoding.job import Options
from lingon.serving.guard.judge import Flag, Judgement
from lingon.serving.translation.retry import Guarding, better
from tests.support.echo_engine import LIMITS, bundle, tokenizer


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
