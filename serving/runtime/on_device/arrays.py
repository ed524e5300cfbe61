"""Arrays on a device of ONNX Runtime, and the number of bytes that are copied between it and main memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon.serving.runtime.device import CPU, CUDA

NAMES = {CPU: "cpu", CUDA: "cuda"}
"""The name of the memory that a provider computes in, by provider."""

ALIGNMENT = 64  # bytes; kernels read several values at a time


class Device:
    """The memory that the graphs of a model compute in.

    copied_bytes: between this memory and NumPy arrays, in both directions
    """

    def __init__(self, provider: str) -> None:
        self.name, self.copied_bytes = NAMES[provider], 0

    def allocate(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Return an array whose values are not set."""
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, self.name, 0)
        return DeviceArray(self, tuple(shape), np.dtype(dtype), value)

    def array(self, values: np.ndarray) -> DeviceArray:
        """Return an array with these values."""
        made = self.allocate(values.shape, values.dtype)
        made.write(values)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array on a device, or a part of one.

    value: what ONNX Runtime holds of the whole array
    offset: of a part, in bytes
    """

    device: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: ort.OrtValue
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def address(self) -> int:
        """The address of the first value on the device."""
        return int(self.value.data_ptr()) + self.offset

    def in_blocks(self, dtype: Any, block: int) -> DeviceArray:
        """Return the same memory as an array (entries, blocks, block) of another type.

        Raises ValueError if an entry is not a multiple of the block.
        """
        entry, size = self.nbytes // self.shape[0], block * np.dtype(dtype).itemsize
        if size <= 0 or entry % size:
            raise ValueError(f"blocks must divide the {entry} bytes of an entry, got {size}")
        count = entry // size
        return replace(self, shape=(self.shape[0], count, block), dtype=np.dtype(dtype))

    def write(self, values: np.ndarray) -> None:
        """Replace all values of a whole array; values: of the same shape and type."""
        self.value.update_inplace(np.ascontiguousarray(values))
        self.device.copied_bytes += self.nbytes

    def read(self) -> np.ndarray:
        """Return all values of a whole array."""
        self.device.copied_bytes += self.nbytes
        values: np.ndarray = self.value.numpy()
        return values

    def bind(self, bind: Callable[..., None], name: str, count: int | None = None) -> None:
        """Bind the first `count` entries, or all, to an input or output of a graph.

        bind: the method bind_input or bind_output of a binding
        """
        shape = self.shape if count is None else (count, *self.shape[1:])
        bind(name, self.device.name, 0, self.dtype.type, shape, self.address)


class PackedArrays:
    """Arrays that lie one after the other on a device, so that one copy moves all of them.

    parts: the arrays on the device, by name
    host: arrays in main memory that `write` copies to the device, by name
    """

    def __init__(self, device: Device, arrays: Mapping[str, tuple[Sequence[int], Any]]) -> None:
        """arrays: shape and type of each array, by name."""
        self._places, end = dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]](), 0
        for name, (shape, dtype) in arrays.items():
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            self._places[name] = begin, tuple(shape), np.dtype(dtype)
            end = begin + math.prod(shape) * np.dtype(dtype).itemsize
        self._whole, self._host = device.allocate((end,), np.uint8), np.zeros(end, np.uint8)
        self.parts = {
            name: DeviceArray(device, shape, dtype, self._whole.value, begin)
            for name, (begin, shape, dtype) in self._places.items()
        }
        self.host = self._views(self._host)

    def write(self) -> None:
        """Copy the arrays of `host` to the device."""
        self._whole.write(self._host)

    def read(self) -> dict[str, np.ndarray]:
        """Return the arrays on the device, by name."""
        return self._views(self._whole.read())

    def _views(self, content: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for name, (begin, shape, dtype) in self._places.items():
            end = begin + math.prod(shape) * dtype.itemsize
            found[name] = content[begin:end].view(dtype).reshape(shape)
        return found
