"""Arrays on a device of ONNX Runtime, and the number of bytes that are copied between it and main memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon.serving.runtime.device import CPU, CUDA

NAMES = {CPU: "cpu", CUDA: "cuda"}
"""The name of the memory that a provider computes in, by provider."""


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
    """An array on a device; value: what ONNX Runtime holds of it."""

    device: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: ort.OrtValue

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def write(self, values: np.ndarray) -> None:
        """Replace all values; values: of the same shape and type."""
        self.value.update_inplace(np.ascontiguousarray(values))
        self.device.copied_bytes += self.nbytes

    def read(self) -> np.ndarray:
        """Return all values."""
        self.device.copied_bytes += self.nbytes
        values: np.ndarray = self.value.numpy()
        return values

    def bind(self, bind: Callable[..., None], name: str, count: int | None = None) -> None:
        """Bind the first `count` entries, or all, to an input or output of a graph.

        bind: the method bind_input or bind_output of a binding
        """
        shape = self.shape if count is None else (count, *self.shape[1:])
        bind(name, self.device.name, 0, self.dtype.type, shape, self.value.data_ptr())
