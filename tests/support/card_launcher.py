"""The kernels of the archive on a card, launched by its driver: neither Triton nor ONNX Runtime takes part.

With LINGON_TEST_KERNELS=card the tests of kernels/card run here in place of Triton's interpreter, on the card of the
machine. With LINGON_TEST_KERNELS=emulated they rehearse that, with the driver of tests.support.card_emulation.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lingon.serving.runtime.card import ARCHIVE, MANIFEST, PTX, architecture_for, compute_capability
from tests.support.card_kernels import GUARD, Argument

VARIABLE, DRIVER = "LINGON_TEST_KERNELS", "LINGON_CUDA_DRIVER"
ON_CARD, EMULATED = "card", "emulated"

SHARED_ATTRIBUTE = 8  # of a function in the driver's interface: the most bytes of dynamic shared memory
LARGE_SHARED = 48 * 1024  # bytes from which on that attribute must be set
TYPES: dict[str, Any] = {"i": ctypes.c_int32, "f": ctypes.c_float}
THREADS_OF_WARP = 32

ROWS = (1, 16, 17, 32, 33, 64, 65, 256) if os.environ.get(VARIABLE) == ON_CARD else (1, 16, 17, 33, 40)
"""Numbers of rows that take other tiles, fewer of them for the interpreter, which takes minutes for 256."""


def moved(rows: int) -> np.ndarray:
    """Return the indices of as many of the most rows, so that each is at another place of a tile."""
    return np.roll(np.arange(ROWS[-1]), 5)[:rows]


class Card:
    """Runs kernels of an archive; as tests.support.card_kernels.Interpreter."""

    def __init__(self, archive: Path = ARCHIVE) -> None:
        self._driver = ctypes.CDLL(os.environ.get(DRIVER) or "libcuda.so.1")
        device, context = ctypes.c_int(0), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._archive = zipfile.ZipFile(archive)
        self._entries: dict[str, Any] = json.loads(self._archive.read(MANIFEST))["kernels"]
        known = set.intersection(*(set(each["sha256"]) for each in self._entries.values()))
        self.architecture = architecture_for(compute_capability(), known)
        self._functions: dict[str, ctypes.c_void_p] = {}

    @property
    def names(self) -> list[str]:
        """The names of all kernels of the archive."""
        return list(self._entries)

    def load(self, name: str) -> ctypes.c_void_p:
        """Return a function of the archive, loaded on first use."""
        if name not in self._functions:
            suffix, entry = "ptx" if self.architecture == PTX else "cubin", self._entries[name]
            image = self._archive.read(f"{self.architecture}/{name}.{suffix}")
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            if (shared := entry["shared"][self.architecture]) > LARGE_SHARED:
                self._call("cuFuncSetAttribute", function, SHARED_ATTRIBUTE, shared)
            self._functions[name] = function
        return self._functions[name]

    def run(self, name: str, grid: tuple[int, ...], *arguments: Argument) -> list[np.ndarray]:
        """Return the arrays among the arguments after a launch. An array that is given twice is one."""
        entry, function = self._entries[name], self.load(name)
        assert len(arguments) == len(entry["parameters"]), f"{name} has the parameters {entry['parameters']}"
        held: dict[int, tuple[np.ndarray, ctypes.c_uint64]] = {}
        values: list[Any] = []
        for letter, argument in zip(entry["parameters"], arguments, strict=True):
            if letter != "p":
                values.append(TYPES[letter](argument))
            elif argument is None:
                values.append(ctypes.c_uint64(0))
            else:
                assert isinstance(argument, np.ndarray)
                if id(argument) not in held:
                    held[id(argument)] = argument, self._allocate(argument)
                values.append(ctypes.c_uint64(held[id(argument)][1].value + GUARD))
        values += [ctypes.c_uint64(0)] * 2  # the addresses of scratch memory
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        dimensions = (*grid, 1, 1)[:3]
        block = THREADS_OF_WARP * entry["warps"], 1, 1
        shared = entry["shared"][self.architecture]
        self._call("cuLaunchKernel", function, *dimensions, *block, shared, None, addresses, None)
        self._call("cuCtxSynchronize")
        found = {key: self._read(name, *each) for key, each in held.items()}
        return [found[id(each)] for each in arguments if isinstance(each, np.ndarray)]

    def _allocate(self, array: np.ndarray) -> ctypes.c_uint64:
        """Return memory with a copy of an array between guards."""
        memory = np.full(array.nbytes + 2 * GUARD, 0xFF, np.uint8)
        memory[GUARD : GUARD + array.nbytes] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(memory.nbytes))
        self._call("cuMemcpyHtoD_v2", address, memory.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(memory.nbytes))
        return address

    def _read(self, name: str, array: np.ndarray, address: ctypes.c_uint64) -> np.ndarray:
        """Return the values of an array, whose memory is freed."""
        memory = np.empty(array.nbytes + 2 * GUARD, np.uint8)
        self._call("cuMemcpyDtoH_v2", memory.ctypes.data_as(ctypes.c_void_p), address, ctypes.c_size_t(memory.nbytes))
        self._call("cuMemFree_v2", address)
        guards = np.concatenate([memory[:GUARD], memory[len(memory) - GUARD :]])
        assert (guards == 0xFF).all(), f"{name} writes beyond an array of the shape {array.shape}"
        found: np.ndarray = memory[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
        return found

    def _call(self, function: str, *arguments: Any) -> None:
        number = self._driver[function](*arguments)
        assert number == 0, f"{function} failed with error {number}"


@contextmanager
def chosen_card() -> Iterator[Card | None]:
    """Yield what LINGON_TEST_KERNELS names, or None for the interpreter."""
    chosen = os.environ.get(VARIABLE, "")
    assert chosen in ("", ON_CARD, EMULATED), f"{VARIABLE} is {chosen}"
    if chosen == EMULATED:
        from tests.support.card_emulation import emulated_card, write_archive

        with emulated_card(), tempfile.TemporaryDirectory() as folder:
            yield Card(write_archive(Path(folder, "kernels.zip")))
    else:
        yield Card() if chosen else None
