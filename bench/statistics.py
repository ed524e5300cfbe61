"""Statistics that several benchmarks and the chaos tests share."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that at least `percent` percent of the values do not exceed (nearest rank).

    Returns nan if there are no values.
    """
    ranked = sorted(values)
    if not ranked:
        return math.nan
    return ranked[max(math.ceil(percent / 100 * len(ranked)), 1) - 1]
