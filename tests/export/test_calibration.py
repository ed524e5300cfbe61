"""The text on which the ranges of 8-bit products are measured."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lingon.export.calibration import calibration_sentences
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.corpus import Pair


@pytest.mark.parametrize("count", [1, 3, 101, 150, 199, 200, 500])
def test_sentences_are_evenly_spaced_in_the_whole_text(checkpoint: Checkpoint, pairs: list[Pair], count: int) -> None:
    encoder = checkpoint.tokenizer
    known = [(encoder.encode_source(pair.source), encoder.encode_target(pair.target)) for pair in pairs]
    places = [known.index(each) for each in calibration_sentences(checkpoint, pairs, count)]
    assert len(places) == min(count, len(pairs))
    steps = [after - before for before, after in pairwise([*places, len(pairs)])]
    assert places[0] == 0
    assert max(steps) - min(steps) <= 1
