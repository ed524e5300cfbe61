"""The buckets of the histograms resolve what servers measure, from one client of a small model to overload."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lingon.serving.observability.metrics import MetricFamily, Metrics, families
from tests.support.shipped_model import LINES, bundle, serving

HISTOGRAMS = [family for family, _ in families() if family.type_name == "histogram"]
SLOW = {"cold_load_seconds", "second_duration_seconds"}  # a load of the shipped model takes 60 ms, a large model more
DURATIONS = [family for family in HISTOGRAMS if family.name.endswith("_seconds") and family.name not in SLOW]
QUANTILE_ERROR = 2.0  # the largest factor between a quantile and its estimate within the range of the buckets
MODEL = {"model": "en-de", "version": str(bundle().manifest.version)}
MEASURED = {
    "lingon_request_duration_seconds": {"method": "Translate", "outcome": "served"},
    "lingon_queue_duration_seconds": MODEL,
    "lingon_time_to_first_token_seconds": MODEL,
    "lingon_encoder_duration_seconds": MODEL,
    "lingon_decoder_step_duration_seconds": MODEL,
}


def counts(registry: CollectorRegistry, name: str, labels: dict[str, str]) -> dict[float, float]:
    """The cumulative counts of a histogram, by upper bound."""
    samples = [sample for family in registry.collect() for sample in family.samples]
    found = [
        sample for sample in samples if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items()
    ]
    return {float(sample.labels["le"]): sample.value for sample in found}


def bucket_of_median(cumulative: dict[float, float]) -> float:
    """The upper bound of the bucket that holds the median."""
    return next(bound for bound, count in cumulative.items() if 2 * count >= max(cumulative.values()))


@pytest.mark.parametrize("family", HISTOGRAMS, ids=lambda family: family.name)
def test_a_quantile_is_known_to_a_factor_of_two(family: MetricFamily):
    assert all(low < high <= QUANTILE_ERROR * low for low, high in itertools.pairwise(family.buckets))


@pytest.mark.parametrize("family", DURATIONS, ids=lambda family: family.name)
def test_durations_are_resolved_from_half_a_millisecond_to_ten_seconds(family: MetricFamily):
    assert family.buckets[0] <= 0.0005
    assert family.buckets[-1] >= 10


def test_the_number_of_series_stays_small():
    """A server has at most 720 of its own and 350 for each model. A label of codes on a histogram would add 2,000."""
    metrics = Metrics()
    own = sum(len(family.samples) for family in metrics.registry.collect())
    metrics.model("en-de", 1)
    assert own <= 720
    assert sum(len(family.samples) for family in metrics.registry.collect()) - own <= 350


async def test_with_one_client_no_median_is_in_the_first_or_the_last_bucket():
    async with serving() as server:
        for line in LINES[:40]:
            await server.translate([line])
        found: dict[str, Any] = {
            name: counts(server.server.metrics.registry, name, labels) for name, labels in MEASURED.items()
        }
    assert {name: max(each.values()) >= 40 for name, each in found.items()} == dict.fromkeys(MEASURED, True)
    for name, cumulative in found.items():
        bounds = list(cumulative)
        assert bounds[0] < bucket_of_median(cumulative) < bounds[-1], name
