"""The simulation of queues: it meets the formulas that are known, and balances as balancers do."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from lingon.bench.capacity import (
    AT_ONCE,
    POLICIES,
    Counts,
    Machine,
    Measured,
    Speed,
    after_warm_up,
    draw,
    fewest,
    highest_load,
    measure,
    percentiles,
    poisson_calls,
    shared,
    simulate,
    with_slow,
)
from lingon.bench.results_file import percentile, save
from tests.support.echo_engine import running

CALLS = 40_000  # of a simulation: the mean is then known to 3 % at a load of 0.7
ONE_AT_A_TIME = Speed(((1, 1.0),))
EXPONENTIAL = [-math.log(1 - (place + 0.5) / 20_000) for place in range(20_000)]  # of mean 1
TOGETHER = Speed(((1, 10.0), (2, 16.0), (8, 40.0)))
MEASURED = Measured(TOGETHER, [1.0], {})


def run(
    speeds: Sequence[Sequence[float]], rate: float, works: Sequence[float], policy: str = "fewest calls"
) -> list[float]:
    calls = poisson_calls(rate, works, CALLS, random.Random(3))
    return after_warm_up(simulate(speeds, calls, POLICIES[policy]))


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_queue_with_random_works_waits_as_long_as_the_formula_says(load):
    """M/M/1: a call takes 1 / (1 - load) times its work."""
    assert statistics.mean(run([shared(ONE_AT_A_TIME)], load, EXPONENTIAL)) == pytest.approx(1 / (1 - load), rel=0.1)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_queue_with_equal_works_waits_half_as_long(load):
    """M/D/1: the time of waiting is half of that with random works."""
    expected = 1 + load / (2 * (1 - load))
    assert statistics.mean(run([shared(ONE_AT_A_TIME)], load, [1.0])) == pytest.approx(expected, rel=0.05)


def test_works_that_share_a_server_take_no_longer_if_their_lengths_differ():
    """Processor sharing: the mean depends on the load alone, unlike that of a queue, which long works block."""
    constant = Speed(tuple((rows, 1.0) for rows in range(1, 65)))
    works = [0.1] * 9 + [9.1]
    assert statistics.mean(run([shared(constant)], 0.6, works)) == pytest.approx(1 / (1 - 0.6), rel=0.1)


def test_a_single_call_takes_the_time_of_its_work():
    assert simulate([shared(TOGETHER)], iter([(1.0, 2.0)]), fewest) == pytest.approx([0.2])


def test_two_calls_share_the_speed_of_two():
    assert simulate([shared(TOGETHER)], iter([(0.0, 1.0), (0.0, 1.0)]), fewest) == pytest.approx([0.125, 0.125])


def test_a_call_beyond_the_batch_waits_for_a_place():
    machine = Machine(shared(Speed(((1, 1.0), (2, 2.0)))))
    for _ in range(3):
        machine.add(0.0, 1.0)
    assert (len(machine.running), len(machine.waiting)) == (2, 1)
    machine.advance(1.0)
    machine.finish()
    assert (len(machine.running), len(machine.waiting)) == (2, 0)


def test_speed_is_linear_between_measured_numbers():
    assert [TOGETHER.total(count) for count in (1, 2, 5, 8)] == pytest.approx([10.0, 16.0, 28.0, 40.0])


def test_every_call_ends_once():
    assert len(simulate([shared(TOGETHER)] * 3, poisson_calls(60.0, [1.0], 1000, random.Random(1)), fewest)) == 1000


def test_the_machines_with_the_fewest_calls_are_those_that_a_search_finds():
    counts, chance, calls = Counts(7), random.Random(2), [0] * 7
    for _ in range(2000):
        machine = chance.randrange(7)
        by = -1 if calls[machine] and chance.random() < 0.5 else 1
        calls[machine] += by
        counts.change(machine, by)
        assert counts.of == calls
        assert sorted(counts.fewest()) == [each for each in range(7) if calls[each] == min(calls)]


def test_with_a_slow_machine_the_fewest_calls_beat_round_robin_and_chance():
    speeds = [shared(TOGETHER)] * 3 + [shared(TOGETHER, 0.25)]
    p99 = {name: percentile(run(speeds, 0.6 * 3.25 * 40, [1.0], name), 99) for name in POLICIES}
    assert p99["fewest calls"] < p99["fewer of two"] < p99["round robin"]
    assert p99["fewest calls"] < p99["at random"] / 2


def test_round_robin_is_better_than_chance_with_equal_machines():
    speeds = [shared(TOGETHER)] * 8
    p99 = {name: percentile(run(speeds, 0.7 * 8 * 40, [1.0], name), 99) for name in ("round robin", "at random")}
    assert p99["round robin"] < p99["at random"]


def test_the_highest_load_meets_the_bound_and_one_step_more_does_not():
    bound = 500.0  # milliseconds
    load = highest_load(MEASURED, 2, "fewest calls", bound)
    assert 0 < load < 1
    assert percentiles(MEASURED, [1.0] * 2, load, "fewest calls")[1] <= bound
    assert percentiles(MEASURED, [1.0] * 2, load + 1 / 64, "fewest calls")[1] > bound


def test_a_server_that_gets_more_than_it_can_do_has_no_percentile():
    rows = {(row["speed"], row["servers"], row["policy"]): row["p99_ms"] for row in with_slow(MEASURED, 0.6)}
    assert rows[0.25, 4, "round robin"] is None
    assert rows[0.7, 4, "round robin"] > rows[0.7, 4, "fewest calls"] > 0


async def test_a_server_is_measured_alone_and_with_many_calls():
    async with running() as server:
        found = await measure(f"127.0.0.1:{server.server.port}", ["Tom", "Where is it?"], [0.2], seconds=0.7, rounds=1)
    assert [count for count, _ in found.speed.measured] == list(AT_ONCE)
    assert all(rate > 0 for _, rate in found.speed.measured)
    assert statistics.mean(found.works) == pytest.approx(1.0)
    assert 0 < found.load_ms[0.2][0] <= found.load_ms[0.2][1]


def test_the_chart_is_beside_the_results(tmp_path):
    rows = [{"servers": servers, "policy": name, "load": 0.5} for servers in (1, 4) for name in POLICIES]
    slow = [{"speed": 0.7, "servers": 4, "policy": name, "p99_ms": 30.0} for name in POLICIES]
    path = save("capacity", rows, tmp_path, bound_ms=300.0, slow_server={"load": 0.6, "rows": slow})
    drawn = draw(path)
    assert (drawn.parent, drawn.suffix, drawn.stem) == (path.parent, ".svg", path.stem)
    assert "fewest calls" in drawn.read_text()
