"""Writing ONNX graphs: nodes as method calls, weights once in a file that several graphs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from lingon.bundle import WEIGHTS

OPSET, IR_VERSION = 21, 10  # onnxruntime 1.31 reads opsets to 26 and IR versions to 13
CONTRIB = "com.microsoft"
ALIGNMENT = 64  # bytes; what vector loads like


class WeightFile:
    """The bytes of `weights.bin`: every tensor once, whichever graphs use it."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    def to_bytes(self) -> bytes:
        """The file's content."""
        return bytes(self._bytes)

    def place(self, name: str, values: np.ndarray) -> TensorProto:
        """An initializer that points to these values in the file."""
        if name not in self._places:
            self._bytes += b"\0" * (-len(self._bytes) % ALIGNMENT)
            content = values.tobytes()
            self._places[name] = (len(self._bytes), len(content))
            self._bytes += content
        offset, length = self._places[name]
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(values.dtype), dims=values.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


class Graph:
    """One graph in the making; values are known by their names.

    dtype: of the arithmetic, float32 or float16
    """

    def __init__(self, name: str, weights: WeightFile, dtype: type[np.floating[Any]]) -> None:
        self.name, self.dtype = name, np.dtype(dtype)
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}
        self._constants: dict[bytes, str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> str:
        """Declare an input."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> None:
        """Hand a value out under a name."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"out.{name}"))
        self._outputs.append(_value_info(name, dtype, shape))

    def produced(self, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> str:
        """Declare an output that a node writes itself, under its own name (in place, without a copy)."""
        self._outputs.append(_value_info(name, dtype, shape))
        return name

    def weight(self, name: str, values: np.ndarray) -> str:
        """A trained tensor in the arithmetic's type.

        float32 values that float16 holds exactly are stored as float16, half the bytes; onnxruntime widens them
        once, when it loads the graph.
        """
        half = values.astype(np.float16)
        exact = np.array_equal(half.astype(np.float32), values.astype(np.float32))
        stored = half if exact or self.dtype == np.float16 else values.astype(np.float32)
        if name not in self._initializers:
            self._initializers[name] = self._weights.place(name, np.ascontiguousarray(stored))
            if stored.dtype != self.dtype:
                to = helper.np_dtype_to_tensor_dtype(self.dtype)
                self._nodes.append(helper.make_node("Cast", [name], [f"{name}.wide"], to=to, name=f"widen.{name}"))
        return name if stored.dtype == self.dtype else f"{name}.wide"

    def constant(self, value: np.ndarray) -> str:
        """A small constant inside the graph file."""
        key = str(value.dtype).encode() + str(value.shape).encode() + value.tobytes()
        if key not in self._constants:
            name = f"constant.{len(self._constants)}"
            self._constants[key] = name
            self._initializers[name] = onnx.numpy_helper.from_array(value, name)
        return self._constants[key]

    def number(self, value: float) -> str:
        """A scalar of the arithmetic's type."""
        return self.constant(np.array(value, self.dtype))

    def ints(self, *values: int) -> str:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, named: str | None = None, domain: str = "", **attributes: Any) -> str:
        """A node with one output; returns its name. `named` gives the output a name of its own."""
        return self.ops(kind, *inputs, outputs=[named or f"{kind}.{len(self._nodes)}"], domain=domain, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: list[str], domain: str = "", **attributes: Any) -> list[str]:
        """A node with the named outputs."""
        name = f"{kind}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, domain=domain, **attributes))
        return outputs

    def finish(self) -> bytes:
        """The checked model file."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, list(self._initializers.values())
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="lingon")
        content: bytes = model.SerializeToString(deterministic=True)
        return content


def _value_info(name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
