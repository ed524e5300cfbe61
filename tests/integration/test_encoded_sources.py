"""Sources that the encoder does not read twice, in an engine and apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.encoded import EncodedSources
from lingon.serving.runtime.runner import Encoded
from tests.support.engine_harness import answers, options_for, running_engine
from tests.support.random_models import random_runner, random_sources


def job(*source: int, kept: bool = True) -> DecodeJob:
    return DecodeJob(source_ids=source, options=Options(keep_encoded=kept), on_done=lambda outcome: None)


def batch(count: int, size: int = 10) -> Encoded:
    return {"memory": np.zeros((count, size), np.int8)}


def test_a_source_is_found_in_its_row_of_the_batch() -> None:
    kept, first = EncodedSources(), batch(3)
    kept.keep([job(4), job(5, kept=False), job(6)], first)
    assert [kept.find((each,)) for each in (4, 5, 6, 7)] == [(first, 0), None, (first, 2), None]


def test_the_oldest_batches_are_dropped_beyond_the_bound() -> None:
    kept = EncodedSources(most_bytes=45)
    for number in range(10):
        kept.keep([job(number), job(0)], batch(2))
    assert [number for number in range(10) if kept.find((number,)) is not None] == [0, 8, 9]
    kept.keep([job(77)], batch(1, size=46))
    assert kept.find((77,)) is None
    kept.free()
    assert kept.find((9,)) is None


def test_arrays_of_a_device_are_not_kept() -> None:
    kept = EncodedSources()
    kept.keep([job(4)], {"memory": object()})
    assert kept.find((4,)) is None


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_follow_up_of_a_source_that_was_kept_is_not_encoded_and_has_the_same_bits(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, sources = random_runner(), random_sources(6, longest=16)
    encoded: list[int] = []
    encode = type(runner).encode

    def counting(self: Any, ids: np.ndarray, lengths: np.ndarray) -> Encoded:
        encoded.append(len(ids))
        return encode(self, ids, lengths)

    monkeypatch.setattr(type(runner), "encode", counting)
    keeping = [replace(options_for(runner, each, beam_size=beam_size), keep_encoded=True) for each in sources]
    first = [{"source": each, "options": options} for each, options in zip(sources, keeping, strict=True)]
    with running_engine(runner, max_rows=32) as harness:
        encoded.clear()  # the engine has warmed up
        expected = answers(harness, first)
        assert sum(encoded) == len(sources)
        assert answers(harness, [{**each, "follow_up": True} for each in first]) == expected
        assert sum(encoded) == len(sources)
        assert answers(harness, first) == expected  # of another request
        assert sum(encoded) == 2 * len(sources)
