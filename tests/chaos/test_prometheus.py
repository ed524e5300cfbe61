"""Metrics are found by name and labels; a wrong name is an error, not 0."""

from __future__ import annotations

import pytest

from chaos.verdict.prometheus import Scrape

METRICS = """# HELP lingon_requests_total Calls ended
lingon_requests_total{method="Translate",code="OK"} 3.0
lingon_requests_total{method="Score",code="OK"} 2.0
lingon_requests_total{method="Score",code="CANCELLED"} 0.0
lingon_ready 1.0
lag_bucket{le="0.1"} 90.0
lag_bucket{le="0.2"} 99.0
lag_bucket{le="+Inf"} 100.0
"""


def test_series_are_summed_over_the_labels_that_are_not_named():
    scrape = Scrape.parse(METRICS)
    assert scrape.sum("lingon_requests_total") == 5
    assert scrape.sum("lingon_requests_total", method="Score") == 2
    assert scrape.sum("lingon_ready") == 1
    assert scrape.by("lingon_requests_total", "code") == {"OK": 5}


def test_a_name_or_label_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="lingon_typo"):
        Scrape.parse(METRICS).sum("lingon_typo")
    with pytest.raises(KeyError, match="lingon_ready"):
        Scrape.parse(METRICS).sum("lingon_ready", method="Score")


def test_a_quantile_is_the_bound_of_its_bucket_since_an_earlier_scrape():
    scrape = Scrape.parse(METRICS)
    assert scrape.quantile("lag", 0.9) == 0.1
    assert scrape.quantile("lag", 0.99) == 0.2
    assert scrape.quantile("lag", 1.0) == float("inf")
    assert scrape.quantile("lag", 0.5, scrape) == float("inf")
    before = Scrape.parse(METRICS.replace("99.0", "90.0").replace("100.0", "90.0"))
    assert scrape.quantile("lag", 0.9, before) == 0.2
