"""The width of the buffers of a batch."""

from __future__ import annotations

import pytest

from lingon.serving.runtime.runner import width_for


@pytest.mark.parametrize(("length", "width"), [(1, 32), (32, 32), (33, 64), (64, 64), (65, 128)])
def test_the_width_is_the_next_power_of_two(length: int, width: int) -> None:
    assert width_for(length) == width
