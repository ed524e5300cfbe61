"""greedy_step, beam_step and advance_step in Triton's interpreter, beside a search in Python and the operator of the
CPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tests.support.card_kernels import Interpreter
from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.triton
END, STEPS, UNSET = 2, 3, -9


class Beams(NamedTuple):
    """The inputs of beam_step, in their order; see there."""

    ids: np.ndarray
    log_probs: np.ndarray
    token_ids: np.ndarray
    positions: np.ndarray
    rows: np.ndarray
    totals: np.ndarray
    table: np.ndarray
    log_ids: np.ndarray
    log_values: np.ndarray
    step: np.ndarray

    def sentence(self, number: int) -> Beams:
        """A sentence alone."""
        beams = self.rows.shape[1]
        own = slice(number * beams, (number + 1) * beams)
        by_row = (each[own] for each in self[:4])
        logs = (each[:, own].copy() for each in (self.log_ids, self.log_values))
        return Beams(*by_row, self.rows[[number]], self.totals[[number]], self.table[own], *logs, self.step)


def drawn(sentences: int, beams: int, seed: int, *, capacity: int = 9, candidates: int = 0, nan: bool = False) -> Beams:
    """Beams in the middle of a search; log-probabilities of few values, so that many continuations are equal."""
    random = np.random.default_rng((seed, beams))
    rows, candidates = sentences * beams, candidates or 2 * beams
    ids = np.array([random.permutation(80)[:candidates] for _ in range(rows)])
    ids[random.random(rows) < 0.5, 0] = END
    log_probs = -random.integers(0, 3, (rows, candidates)).astype(np.float32)
    log_probs[random.random(log_probs.shape) < 0.1] = -np.inf
    log_probs = -np.sort(-log_probs, axis=1)
    if nan:
        log_probs[random.random(rows) < 1 / beams, random.integers(candidates)] = np.nan
    totals = -np.sort(random.integers(0, 4, (sentences, beams)).astype(np.float32), axis=1)
    totals[random.random(totals.shape) < 0.2] = -np.inf
    logs = STEPS, rows, candidates
    return Beams(
        *(ids, log_probs),
        random.integers(4, 40, rows),
        np.repeat(random.integers(0, capacity, sentences), beams),
        np.array([random.permutation(beams) for _ in range(sentences)]),
        totals,
        random.integers(-1, 2, (rows, capacity)).astype(np.int32),
        np.full(logs, UNSET),
        np.full(logs, UNSET, np.float32),
        random.integers(0, STEPS, 1),
    )


def advance(interpreter: Interpreter, given: Beams, *, in_place: bool = False, width: int = 0) -> Beams:
    """Return everything after a step of the card; width: the B of the kernel, by default the least one."""
    (sentences, beams), candidates = given.rows.shape, given.ids.shape[1]
    width = width or next(each for each in (2, 4, 8, 16) if each >= beams)
    new = [given.token_ids, given.positions]
    if not in_place:
        new = [np.full_like(each, UNSET) for each in new]
    scalars = sentences, beams, candidates, given.table.shape[1], STEPS, END
    *found, token_ids, positions = interpreter.run(f"beam_step_b{width}", (sentences,), *given, *new, *scalars)
    new_step = given.step if in_place else np.full(1, UNSET)
    *_, step = interpreter.run("advance_step", (1,), given.step, new_step, STEPS)
    after = Beams(*found)
    if not in_place:
        assert all(same_bits(*pair) for pair in zip(after[2:4], given[2:4], strict=True)), "inputs do not change"
    return after._replace(token_ids=token_ids, positions=positions, step=step)


class Continuation(NamedTuple):
    total: np.float32
    parent: int
    token: int


def searched(given: Beams) -> Beams:
    """Return everything after a step, as kernels/beams.cpp says it."""
    after = Beams(*(each.copy() for each in given))
    now, beams = int(given.step[0]), given.rows.shape[1]
    after.log_ids[now], after.log_values[now] = given.ids, given.log_probs
    after.step[0] = (now + 1) % STEPS
    for sentence in range(len(given.rows)):
        first = sentence * beams
        if not np.isnan(given.log_probs[first : first + beams]).any():
            search_sentence(after, sentence, ranking(given, sentence))
    return after


def ranking(given: Beams, sentence: int) -> list[Continuation]:
    """Return the best continuations, first come first among equals, inserted one by one."""
    beams, ranked = given.rows.shape[1], list[Continuation]()
    for rank in range(beams):
        row = sentence * beams + given.rows[sentence, rank]
        for token, log_prob in zip(given.ids[row], given.log_probs[row], strict=True):
            total = np.float32(given.totals[sentence, rank] + log_prob)
            place = len(ranked)
            while place > 0 and total > ranked[place - 1].total:
                place -= 1
            ranked.insert(place, Continuation(total, rank, int(token)))
            del ranked[2 * beams :]
    return ranked


def search_sentence(after: Beams, sentence: int, ranked: list[Continuation]) -> None:
    """Continue the survivors of a sentence in place."""
    beams, rows = after.rows.shape[1], after.rows[sentence].copy()
    first, past = sentence * beams, int(after.positions[sentence * beams])
    live, ended = ([each for each in ranked if (each.token == END) is ends] for ends in (False, True))
    survivors = [*live, *ended][:beams]
    free = [row for rank, row in enumerate(rows) if rank not in {each.parent for each in survivors}]
    continued = set()
    for rank, each in enumerate(survivors):
        row = parent_row = rows[each.parent]
        if each.parent in continued:
            row = free.pop(0)
            further = after.table[first + parent_row, : past + 1] + (parent_row - row)
            after.table[first + row, : past + 1] = further
        continued.add(each.parent)
        after.rows[sentence, rank], after.totals[sentence, rank] = row, each.total
        after.token_ids[first + row] = each.token
    after.positions[first : first + beams] = past + 1


def assert_equal(found: Beams, expected: Beams) -> None:
    for name, left, right in zip(Beams._fields, found, expected, strict=True):
        assert same_bits(left, right), name


@pytest.mark.parametrize("beams", [1, 2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_that_of_the_search_in_python(interpreter: Interpreter, beams: int, seed: int) -> None:
    given = drawn(4, beams, seed, nan=seed % 2 == 1)
    assert_equal(advance(interpreter, given), searched(given))


@pytest.mark.parametrize("beams", [2, 4, 7])
@pytest.mark.parametrize("candidates", [2, 3, 5])
def test_other_numbers_of_candidates_than_twice_the_beams(
    interpreter: Interpreter, beams: int, candidates: int
) -> None:
    given = drawn(5, beams, 0, candidates=min(candidates, 2 * beams))
    assert_equal(advance(interpreter, given), searched(given))


@pytest.mark.parametrize("width", [4, 8, 16])
def test_a_wider_kernel_takes_the_same_step(interpreter: Interpreter, width: int) -> None:
    given = drawn(5, 3, 1)
    assert_equal(advance(interpreter, given, width=width), searched(given))


def test_a_step_in_place_is_the_same(interpreter: Interpreter) -> None:
    given = drawn(6, 4, 2, nan=True)
    assert_equal(advance(interpreter, given, in_place=True), searched(given))


def test_a_table_of_more_than_one_block_is_copied(interpreter: Interpreter) -> None:
    given = drawn(6, 4, 3, capacity=200)
    given.positions[:] = np.repeat([199, 63, 64, 65, 0, 128], 4)
    assert_equal(advance(interpreter, given), searched(given))


def test_a_sentence_has_the_step_that_it_has_alone(interpreter: Interpreter) -> None:
    given = drawn(4, 4, 4, nan=True)
    after = advance(interpreter, given)
    for number in range(4):
        assert_equal(advance(interpreter, given.sentence(number)), after.sentence(number))


def test_totals_are_rounded_once_and_zeros_of_both_signs_are_equal(interpreter: Interpreter) -> None:
    given = drawn(40, 4, 5)
    random = np.random.default_rng(0)
    given.log_probs[...] = -np.sort(random.exponential(size=given.log_probs.shape), axis=1)
    given.totals[...] = -np.sort(random.exponential(size=given.totals.shape) * 9, axis=1)
    given.totals[:2] = [-0.0, 0.0, 0.0, -0.0]
    given.log_probs[:8] = np.where(random.random((8, 8)) < 0.5, -0.0, 0.0)
    assert_equal(advance(interpreter, given), searched(given))


@pytest.mark.parametrize("beams", [3, 4])
def test_beams_that_all_end_or_are_not_live_survive_last(interpreter: Interpreter, beams: int) -> None:
    given = drawn(4, beams, 6)
    ids, log_probs = (each.reshape(4, beams, -1) for each in (given.ids, given.log_probs))
    ids[0] = END
    log_probs[1] = given.totals[1] = -np.inf
    given.totals[2, 1:] = -np.inf
    ids[3, :, :2], log_probs[3, :, :2], log_probs[3, :, 2:], given.totals[3] = END, 0, -5, 0  # none else is ranked
    assert_equal(advance(interpreter, given), searched(given))


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("beams", [2, 3, 4, 8])
def test_steps_are_those_of_the_operator_on_the_cpu(interpreter: Interpreter, beams: int) -> None:
    given, random = drawn(5, beams, 7, nan=True), np.random.default_rng(beams)
    given.positions[:] = 0
    history = np.zeros((5, beams, 9), np.int64), np.zeros((5, beams, 9), np.float32)
    for step in range(4):
        after = advance(interpreter, given)
        states = [*given[2:6], *history, given.table]
        token_ids, positions, rows, totals, *history, table = run("BeamStep", *given[:2], *states, end=END)[:7]
        for name, expected in (
            *(("token_ids", token_ids), ("positions", positions), ("rows", rows)),
            *(("totals", totals), ("table", table)),
        ):
            assert same_bits(getattr(after, name), expected), f"{name} of step {step}"
        given = after._replace(
            ids=np.array([random.permutation(30)[: 2 * beams] for _ in range(5 * beams)]),
            log_probs=-np.sort(random.integers(0, 5, given.log_probs.shape).astype(np.float32) / 4, axis=1),
        )


@pytest.mark.parametrize("rows", [1, 256, 300])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_greedy_step_takes_the_first_candidates_and_advances(
    interpreter: Interpreter, rows: int, in_place: bool
) -> None:
    random, candidates = np.random.default_rng(rows), 2
    ids, log_probs = random.integers(0, 2**24, (rows, candidates)), random.normal(size=(rows, candidates))
    log_probs[0, 0] = np.nan
    log_probs = log_probs.astype(np.float32)
    history = np.full((STEPS, rows, 2), UNSET, np.float32)
    states = [random.integers(0, 9, rows), random.integers(0, 9, rows)]
    for step in range(STEPS):
        now = np.array([step])
        new = [*states, now] if in_place else [np.full_like(each, UNSET) for each in (*states, now)]
        before = states[1].copy()
        given = ids, log_probs, *states, history, now, *new
        found = interpreter.run("greedy_step", (1,), *given, rows, candidates, STEPS)
        expected = history.copy()
        expected[step] = np.stack([ids[:, 0].astype(np.float32), log_probs[:, 0]], axis=1)
        assert same_bits(found[4], expected)
        assert (found[6] == ids[:, 0]).all()
        assert (found[7] == before + 1).all()
        assert found[8] == (step + 1) % STEPS
        history, states = found[4], [found[6], found[7]]
