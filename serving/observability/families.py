"""Declarations of metric families: a class body of `counter`, `gauge` and `histogram` is the table of its metrics.

One declaration is the only source of a metric's name, kind, help text, labels and buckets: the Prometheus registry,
the attributes of an instance and the documentation are made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Metric = Counter | Gauge | Histogram


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric and all its series.

    kind: the class of prometheus_client
    help: what is measured, with the unit; shown by /metrics and in the documentation
    labels: names of the labels, each with all its values; without values if they are known only at run time
    buckets: upper bounds, of a histogram
    """

    kind: type[Metric]
    name: str
    help: str
    labels: Mapping[str, Sequence[str]]
    buckets: Sequence[float] = ()

    @property
    def exported_name(self) -> str:
        """The name on /metrics; a histogram adds _bucket, _sum and _count to it."""
        return f"lingon_{self.name}_total" if self.kind is Counter else f"lingon_{self.name}"

    @property
    def type_name(self) -> str:
        """The type of the metric as Prometheus names it: counter, gauge or histogram."""
        return self.kind.__name__.lower()

    def register(self, registry: CollectorRegistry, *first_labels: str) -> Metric:
        """Add the metric to a registry; first_labels come before the labels of the declaration."""
        name, labels = f"lingon_{self.name}", (*first_labels, *self.labels)
        if self.kind is Histogram:
            return Histogram(name, self.help, labels, registry=registry, buckets=self.buckets)
        return self.kind(name, self.help, labels, registry=registry)

    def label_values(self) -> Iterator[tuple[str, ...]]:
        """The label values of every series that is known before run time; nothing for a metric without labels."""
        return product(*self.labels.values()) if self.labels else iter(())


def counter(name: str, help: str, **labels: Sequence[str]) -> Counter:
    """Declare a counter; the type is that of the attribute of an instance, as with `dataclasses.field`."""
    return cast(Counter, MetricFamily(Counter, name, help, labels))


def gauge(name: str, help: str, **labels: Sequence[str]) -> Gauge:
    """Declare a gauge; see `counter`."""
    return cast(Gauge, MetricFamily(Gauge, name, help, labels))


def histogram(name: str, help: str, buckets: Sequence[float], **labels: Sequence[str]) -> Histogram:
    """Declare a histogram; see `counter`."""
    return cast(Histogram, MetricFamily(Histogram, name, help, labels, buckets))


def declared(table: type) -> Iterator[tuple[str, MetricFamily]]:
    """The families that a class declares, each with the name of its attribute."""
    for attribute, family in vars(table).items():
        if isinstance(family, MetricFamily):
            yield attribute, family
