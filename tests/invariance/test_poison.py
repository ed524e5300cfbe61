"""No state of an earlier sentence is read: every slot is filled with NaN before a sentence takes it."""

from __future__ import annotations

import pytest

from lingon.serving.runtime.failpoints import Failpoints
from tests.support import shipped_model
from tests.support.repository import scaled


@pytest.mark.parametrize("precision", shipped_model.PRECISIONS)
@pytest.mark.parametrize("seed", range(scaled(2, 20)))
def test_poisoned_slots_change_no_output(precision: str, seed: int) -> None:
    found = shipped_model.translated_in_batches(seed, precision, Failpoints.parse("slot=poison"))
    assert shipped_model.differences(seed, precision, found) == []
