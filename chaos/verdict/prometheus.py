"""A parser of the text format of /metrics."""

from __future__ import annotations

import re
from collections import Counter
from typing import Self

_LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Series = tuple[str, frozenset[tuple[str, str]]]
"""The name of a time series and its labels."""


class Scrape:
    """The metrics of a server at one moment."""

    def __init__(self, values: dict[Series, float]) -> None:
        self.values = values

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text format of Prometheus; the label values of Lingon hold no braces."""
        return cls(
            {
                (found["name"], frozenset(_LABEL.findall(found["labels"] or ""))): float(found["value"])
                for found in _LINE.finditer(text)
            }
        )

    @property
    def series(self) -> set[Series]:
        """The time series."""
        return set(self.values)

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all series with this name and these labels; KeyError if there is none, to catch a wrong name."""
        wanted = frozenset(labels.items())
        found = [value for (key, own), value in self.values.items() if key == name and wanted <= own]
        if not found:
            raise KeyError(f"no metric {name}{labels or ''}")
        return sum(found)

    def by(self, name: str, label: str) -> Counter[str]:
        """The sums of a metric by the values of one label, without zeros."""
        found: Counter[str] = Counter()
        for (key, own), value in self.values.items():
            if key == name and value:
                found[dict(own)[label]] += int(value)
        return found

    def quantile(self, name: str, share: float, since: Scrape | None = None) -> float:
        """A quantile of a histogram: the upper bound of the bucket that holds it; inf for an empty histogram.

        share: of the values, 0.99 for the 99th percentile
        since: an earlier scrape, whose values are subtracted
        """
        buckets: Counter[float] = Counter()
        for (key, own), value in self.values.items():
            if key == f"{name}_bucket":
                before = since.values.get((key, own), 0.0) if since else 0.0
                buckets[float(dict(own)["le"])] += int(value - before)
        total = buckets[float("inf")]
        return min(
            (bound for bound, count in buckets.items() if total and count >= share * total), default=float("inf")
        )
