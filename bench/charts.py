"""The library that draws the charts of the benchmarks."""

from __future__ import annotations

from typing import Any


def load_pyplot() -> Any:
    """Return matplotlib.pyplot, with the backend that draws to files and needs no display; takes a second."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
