"""The loads that are offered, and the jobs of the load generator."""

from __future__ import annotations

import itertools
import math

import pytest

from lingon.bench.serve.load.jobs import ClosedLoad, OpenLoad, Target, arrivals, from_json, ladder, to_json
from lingon.errors import SettingsError


def test_arrivals_are_determined_by_the_seed_and_have_the_offered_rate():
    found = arrivals(rate=200, seconds=50, texts=7, seed=3)
    assert found == arrivals(rate=200, seconds=50, texts=7, seed=3)
    assert found != arrivals(rate=200, seconds=50, texts=7, seed=4)
    assert len(found) == pytest.approx(10_000, rel=0.03)
    assert {arrival.text for arrival in found} == set(range(7))


def test_the_gaps_between_arrivals_are_those_of_a_poisson_process():
    due = [arrival.due for arrival in arrivals(rate=100, seconds=100, texts=1, seed=0)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert spread / mean == pytest.approx(1, abs=0.05)


def test_a_load_without_a_rate_is_rejected():
    with pytest.raises(SettingsError, match="rate above 0"):
        arrivals(rate=0, seconds=1, texts=1, seed=0)


def test_the_ladder_goes_from_light_loads_in_fine_steps_to_beyond_every_capacity():
    rungs = ladder({"a": 100, "b": 250}, step=1.1)
    assert rungs[:3] == [10, 25, 50]
    assert rungs[-1] > 3 * 250
    assert all(later / earlier == pytest.approx(1.1) for earlier, later in itertools.pairwise(rungs[2:]))


def test_jobs_survive_json():
    target = Target(address="127.0.0.1:1", beam_size=4)
    jobs = [
        OpenLoad(target=target, offered=1.5, seconds=2, warm_up=1, seed=3),
        ClosedLoad(target=target, clients=4, requests=5, seconds=6),
    ]
    assert [from_json(to_json(job)) for job in jobs] == jobs
