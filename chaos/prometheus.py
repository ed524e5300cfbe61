"""The text of /metrics as numbers."""

from __future__ import annotations

import re
from collections import Counter
from typing import Self

_LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Series = tuple[str, frozenset[tuple[str, str]]]
"""A name and its labels."""


class Scrape:
    """What a server said of itself at one moment."""

    def __init__(self, values: dict[Series, float]) -> None:
        self.values = values

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the text format of Prometheus; label values of ours hold no braces."""
        return cls(
            {
                (found["name"], frozenset(_LABEL.findall(found["labels"] or ""))): float(found["value"])
                for found in _LINE.finditer(text)
            }
        )

    @property
    def series(self) -> set[Series]:
        """Which series there are."""
        return set(self.values)

    def sum(self, name: str, **labels: str) -> float:
        """Over all series of a name that have these labels; KeyError where there is none, so that no typo passes."""
        wanted = frozenset(labels.items())
        found = [value for (key, own), value in self.values.items() if key == name and wanted <= own]
        if not found:
            raise KeyError(f"{name}{labels or ''} is not among the metrics")
        return sum(found)

    def by(self, name: str, label: str) -> Counter[str]:
        """The sums of a name by one of its labels, without those that are 0."""
        found: Counter[str] = Counter()
        for (key, own), value in self.values.items():
            if key == name and value:
                found[dict(own)[label]] += int(value)
        return found

    def quantile(self, name: str, share: float, since: Scrape | None = None) -> float:
        """The bound of the bucket in which this share of a histogram's values is reached; inf where it has none.

        since: an earlier scrape; what was counted by then is left out
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
