"""Writing ONNX graphs: nodes as method calls, weights once in files that several graphs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET, IR_VERSION = 21, 10  # onnxruntime 1.31 reads opsets to 26 and IR versions to 13
CONTRIB = "com.microsoft"
ALIGNMENT = 64  # bytes; what vector loads like
FILE_STEMS = {"float32": "fp32", "float16": "fp16"}


class WeightFiles:
    """The weight files of a bundle: in each, every tensor once, whichever graphs use it."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._places: dict[tuple[str, str], tuple[int, int]] = {}

    def to_bytes(self) -> dict[str, bytes]:
        """The content of every file, by its name."""
        return {file: bytes(content) for file, content in self._files.items()}

    def size(self, file: str) -> int:
        """Bytes of a file so far."""
        return len(self._files[file])

    def add(self, file: str, name: str, values: np.ndarray) -> TensorProto:
        """An initializer that points to these values in a file."""
        if (file, name) not in self._places:
            target = self._files.setdefault(file, bytearray())
            target += b"\0" * (-len(target) % ALIGNMENT)
            content = values.tobytes()
            self._places[file, name] = (len(target), len(content))
            target += content
        offset, length = self._places[file, name]
        assert self._files[file][offset : offset + length] == values.tobytes(), f"{file}: two tensors named {name}"
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(values.dtype), dims=values.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


class GraphBuilder:
    """One graph in the making; values are known by their names.

    dtype: of the arithmetic, float32 or float16
    file: where all weights go; without it those of 16 and of 32 bits go to a file each
    reads: the weight files that the graph points to
    """

    def __init__(self, name: str, weights: WeightFiles, dtype: type[np.floating[Any]], file: str | None = None) -> None:
        self.name, self.dtype = name, np.dtype(dtype)
        self.reads: set[str] = set()
        self._weights, self._file = weights, file
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}
        self._wide: set[str] = set()
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

    def declare_output(self, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> str:
        """Declare an output that a node writes itself, under its own name (in place, without a copy)."""
        self._outputs.append(_value_info(name, dtype, shape))
        return name

    def weight(self, name: str, values: np.ndarray) -> str:
        """A trained tensor in the arithmetic's type.

        float32 values that float16 holds exactly are stored as float16, half the bytes; onnxruntime widens them
        once, when it loads the graph.
        """
        stored = self.initializer(name, self._narrowed(values))
        if self._initializers[stored].data_type == helper.np_dtype_to_tensor_dtype(self.dtype):
            return stored
        wide = f"{name}.wide"
        if wide not in self._wide:
            self._wide.add(wide)
            self.op("Cast", stored, named=wide, to=helper.np_dtype_to_tensor_dtype(self.dtype))
        return wide

    def gather(self, name: str, values: np.ndarray, ids: str) -> str:
        """Rows of a trained table, one for each of ids; only they are widened, not the table."""
        stored = self._narrowed(values)
        rows = self.op("Gather", self.initializer(name, stored), ids)
        if stored.dtype == self.dtype:
            return rows
        return self.op("Cast", rows, to=helper.np_dtype_to_tensor_dtype(self.dtype))

    def initializer(self, name: str, values: np.ndarray) -> str:
        """A tensor as it is, of any type."""
        if name not in self._initializers:
            file = self._file or f"{FILE_STEMS[values.dtype.name]}.bin"
            self.reads.add(file)
            self._initializers[name] = self._weights.add(file, name, np.ascontiguousarray(values))
        return name

    def _narrowed(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # what 16 bits do not hold is not exact
            half = values.astype(np.float16)
        exact = np.array_equal(half.astype(np.float32), values.astype(np.float32))
        return half if exact or self.dtype == np.float16 else values.astype(np.float32)

    def constant(self, value: np.ndarray) -> str:
        """A small constant inside the graph file."""
        key = str(value.dtype).encode() + str(value.shape).encode() + value.tobytes()
        if key not in self._constants:
            name = f"constant.{len(self._constants)}"
            self._constants[key] = name
            self._initializers[name] = onnx.numpy_helper.from_array(value, name)
        return self._constants[key]

    def scalar(self, value: float) -> str:
        """A scalar of the arithmetic's type."""
        return self.constant(np.array(value, self.dtype))

    def int64s(self, *values: int) -> str:
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
        """The model file."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, list(self._initializers.values())
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="lingon")
        content: bytes = model.SerializeToString(deterministic=True)
        return content


def _value_info(name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
