"""A row of NaN fails its own text and changes no bit of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import shipped_model
from tests.support.shipped_model import serving

TEXTS = shipped_model.LINES[:40]


def alike(mine: pb.TextResult, right: pb.TextResult) -> bool:
    """Whether two results are the same; with a shortlist, scores may differ in their last digits."""
    if not mine.shortlist or mine.status.code:
        return mine == right
    (one,), (other,) = mine.hypotheses, right.hypotheses
    return one.text == other.text and abs(one.score - other.score) <= shipped_model.TOLERANCE


@pytest.mark.parametrize("precision", shipped_model.PRECISIONS)
async def test_a_text_with_nan_is_internal_and_the_others_of_its_batch_as_alone(precision: str, tmp_path: Path):
    switches = {way: tmp_path / str(place) for place, way in enumerate(shipped_model.MODES)}
    failpoints = ";".join(f"step=nan@4?{switch}" for switch in switches.values())
    async with serving(precision=precision, failpoints=failpoints, testing=True) as server:
        for count, (way, switch) in enumerate(switches.items(), 1):
            wanted: dict[str, Any] = shipped_model.MODES[way]
            golden = [(await server.translate([text], **wanted)).results[0] for text in TEXTS]
            switch.touch()
            found = (await server.translate(TEXTS, **wanted)).results
            switch.unlink()
            failed = [place for place, result in enumerate(found) if not alike(result, golden[place])]
            assert [found[place].status.code for place in failed] == [code_pb2.INTERNAL], way
            assert found[failed[0]].status.message == "decoding this text failed"
            assert len(found[failed[0]].hypotheses) == 0
            assert server.counted("lingon_texts_total", code="INTERNAL") == count
        again = (await server.translate(TEXTS, **wanted)).results
        assert all(map(alike, again, golden))
        assert server.counted("lingon_texts_total", code="INTERNAL") == len(switches)
