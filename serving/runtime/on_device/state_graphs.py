"""The graphs that change decoder states on the device: they place sentences, and copy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Manifest
from lingon.serving.runtime.on_device.arrays import DeviceArray
from lingon.serving.runtime.sessions.create import TYPES

SlotNumbers = Sequence[int] | np.ndarray
"""Indices of slots or of rows."""


@dataclass(frozen=True, slots=True)
class StateGraphs:
    """The sessions of the graphs of a bundle that only device states need: PLACE, COPY_MEMORY, COPY_ROWS and GREEDY.

    All change their states in place.
    """

    manifest: Manifest
    place_session: ort.InferenceSession
    copy_memory_session: ort.InferenceSession
    copy_rows_session: ort.InferenceSession
    greedy: ort.InferenceSession

    def place(
        self,
        states: Mapping[str, DeviceArray],
        encoded: Mapping[str, ort.OrtValue],
        slots: Sequence[int],
        indices: Sequence[int],
        beam_size: int,
    ) -> None:
        """Write the outputs `indices` of an encoder run into slots, with zeros beyond their source length.

        states: all states by name; encoded: the outputs of the encoder by name, on the device of the states
        """
        placed = [state.name for state in self.manifest.states if state.kind != "cache"]
        numbers = {names.SLOTS: np.array(slots), names.INDICES: np.array(indices)}
        if self.manifest.states_of("recurrent"):
            numbers |= {names.TARGETS: rows_of(slots, beam_size), names.SOURCES: np.repeat(indices, beam_size)}
        values = {names.encoded_name(name): encoded[name] for name in placed}
        _run_in_place(self.place_session, {name: states[name] for name in placed}, numbers, values)

    def copy_memory(self, states: Mapping[str, DeviceArray], sources: SlotNumbers, targets: SlotNumbers) -> None:
        """Copy the memory of slots to other slots; no slot may be both a source and a target."""
        memory = {state.name: states[state.name] for state in self.manifest.states_of("memory")}
        _run_in_place(self.copy_memory_session, memory, {names.SOURCES: sources, names.TARGETS: targets})


def rows_of(slots: Sequence[int], beam_size: int) -> np.ndarray:
    """Return the rows of some slots: (slots * beam_size)."""
    rows: np.ndarray = (np.array(slots)[:, None] * beam_size + np.arange(beam_size)).ravel()
    return rows


def _run_in_place(
    session: ort.InferenceSession,
    states: Mapping[str, DeviceArray],
    numbers: Mapping[str, SlotNumbers],
    values: Mapping[str, ort.OrtValue] | None = None,
) -> None:
    """Run a graph whose output for each state is the state itself.

    numbers: further inputs of int64, which are copied to the device; values: further inputs on the device
    """
    device = next(iter(states.values())).device
    kept = {name: device.array(np.array(each, np.int64)) for name, each in numbers.items()}
    binding = bind_in_place(session, states, kept)
    for name, value in (values or {}).items():
        binding.bind_ortvalue_input(name, value)
    session.run_with_iobinding(binding)


def bind_in_place(
    session: ort.InferenceSession, states: Mapping[str, DeviceArray], inputs: Mapping[str, DeviceArray]
) -> Any:
    """Return a binding of a graph whose output for each state is the state itself; inputs: further ones."""
    binding: Any = session.io_binding()
    declared = {value.name: value for value in session.get_inputs()}
    for name, state in states.items():
        bound = state.in_blocks(TYPES[declared[name].type], declared[name].shape[2])
        bound.bind(binding.bind_input, name)
        bound.bind(binding.bind_output, names.changed_name(name))
    for name, each in inputs.items():
        each.bind(binding.bind_input, name)
    return binding
