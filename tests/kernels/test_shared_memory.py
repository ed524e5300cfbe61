"""A graph may bind an output to the memory of any input, which must not change what an operator has checked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.support.native_operators import session_of

pytestmark = pytest.mark.usefixtures("native_library")
CAPACITY, BEYOND = 4, 64


class Memory:
    """Arrays, each with BEYOND entries behind it that no operator may write."""

    def __init__(self) -> None:
        self._whole: list[tuple[np.ndarray, int]] = []

    def array(self, values: np.ndarray) -> np.ndarray:
        """A copy of an array in memory of its own."""
        whole = np.zeros(values.size + BEYOND, values.dtype)
        whole[: values.size] = values.ravel()
        self._whole.append((whole, values.size))
        return whole[: values.size].reshape(values.shape)

    @property
    def intact(self) -> bool:
        """Whether all entries behind the arrays are as they were."""
        return not any(whole[size:].any() for whole, size in self._whole)


def run_over(op: str, inputs: list[np.ndarray], outputs: Mapping[int, np.ndarray], **attributes: int) -> None:
    """Run a node whose outputs are written to these arrays, by their places."""
    session = session_of(op, inputs, **attributes)
    binding = session.io_binding()
    for place, array in enumerate(inputs):
        binding.bind_input(str(place), "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for output in range(len(session.get_outputs())):
        if (array := outputs.get(output)) is None:
            binding.bind_output(f"out.{output}")
        else:
            binding.bind_output(f"out.{output}", "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    session.run_with_iobinding(binding)


def test_tokens_over_their_lengths_are_as_many_as_the_lengths_said() -> None:
    memory = Memory()
    lengths = memory.array(np.ones(4, np.int64))
    ids = np.full((4, 1), 9)
    run_over("Tokens", [ids, lengths], {0: lengths})
    assert lengths.tolist() == [9] * 4
    assert memory.intact


def beams(memory: Memory) -> list[np.ndarray]:
    """The inputs of a BeamStep of two beams, whose tokens would be impossible positions and rows."""
    history = np.zeros((1, 2, CAPACITY), np.int64)
    changed = [
        np.full(2, CAPACITY),
        np.zeros(2, np.int64),
        np.array([[0, 1]]),
        np.zeros((1, 2), np.float32),
        history,
        history.astype(np.float32),
        np.zeros((2, CAPACITY), np.int32),
    ]
    return [np.arange(8).reshape(2, 4) + 5, np.zeros((2, 4), np.float32), *map(memory.array, changed)]


@pytest.mark.parametrize(("place", "message"), [(3, "a position beyond the capacity"), (4, "a row that its sentence")])
def test_positions_and_rows_are_checked_after_an_output_has_replaced_them(place: int, message: str) -> None:
    memory = Memory()
    given = beams(memory)
    replaced = given[place].reshape(2)  # where the step writes its tokens first
    with pytest.raises(Exception, match=message):
        run_over("BeamStep", given, {0: replaced, **{output: given[output + 2] for output in (4, 5, 6)}}, end=2)
    assert memory.intact
