"""The gate that compares the tokens of a precision with those of the fp32 graphs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import lingon.export.gates.translations.quality
from lingon.errors import ParityError
from lingon.export.gates.translations.decode import engine_search
from lingon.export.gates.translations.quality import ExactSearch, check_agreement
from tests.support.random_models import random_runner, random_sources


def test_fp32_for_cuda_that_finds_other_tokens_than_fp32_is_refused() -> None:
    runner, sources = random_runner(), [(5, 6, 7, 2), (8, 9, 2)]
    found = [best for best, *_ in engine_search(runner, sources, 1, 0.0)]
    expected = ExactSearch(runner, sources, found, 1, 0.0)
    assert check_agreement("fp32-cuda", found, expected, exact=True).identical == 2
    other = replace(found[1], tokens=(found[1].tokens[0] + 1, *found[1].tokens[1:]))
    with pytest.raises(ParityError, match=r"^fp32-cuda: beam size 1: sentence 2 of 2 has other tokens than in fp32$"):
        check_agreement("fp32-cuda", [found[0], other], expected, exact=True)
    moved = replace(found[0], log_probs=tuple(each - 2e-3 for each in found[0].log_probs))
    with pytest.raises(ParityError, match=r"beam size 1: log-probabilities of translations differ by 2\.00e-03, more"):
        check_agreement("fp32-cuda", [moved, found[1]], expected, exact=True)
    broken = replace(found[0], log_probs=(math.nan, *found[0].log_probs[1:]))
    with pytest.raises(ParityError, match="not all finite"):
        check_agreement("fp32-cuda", [broken, found[1]], expected, exact=True)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_only_a_near_tie_excuses_other_tokens_than_those_of_fp32(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, sources = random_runner(), random_sources(3)
    found = [best for best, *_ in engine_search(runner, sources, beam_size, 1.0)]
    expected = ExactSearch(runner, sources, found, beam_size, 1.0)
    others = [replace(each, tokens=(each.tokens[0] + 1, *each.tokens[1:])) for each in found]
    assert not expected.is_near_tie(0, others[0])
    monkeypatch.setattr(lingon.export.gates.translations.quality, "NEAR_TIE", 1e9)
    report = check_agreement("fp32-cuda", [others[0], *found[1:]], expected, exact=True)
    assert (report.identical, report.near_ties) == (2, (1,))
    with pytest.raises(ParityError, match=f"beam size {beam_size}: 3 of 3 sentences are near ties, at most 1 may be"):
        check_agreement("fp32-cuda", others, expected, exact=True)


def test_lossy_arithmetic_may_change_a_quarter_of_the_translations() -> None:
    runner, sources = random_runner(), random_sources(8)
    found = [best for best, *_ in engine_search(runner, sources, 1, 0.0)]
    expected = ExactSearch(runner, sources, found, 1, 0.0)
    others = [replace(each, tokens=(each.tokens[0] + 1, *each.tokens[1:])) for each in found]
    report = check_agreement("int8", [*others[:2], *found[2:]], expected, exact=False)
    assert (report.identical, report.near_ties) == (6, ())
    with pytest.raises(
        ParityError, match="int8: beam size 1: 5 of 8 sentences have the tokens of fp32, at least 75% must"
    ):
        check_agreement("int8", [*others[:3], *found[3:]], expected, exact=False)
