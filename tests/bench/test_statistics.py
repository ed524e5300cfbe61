"""Statistics that several benchmarks share."""

from __future__ import annotations

import math

from lingon.bench.statistics import percentile


def test_percentiles_are_observed_values():
    assert [percentile(range(1, 101), percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))
