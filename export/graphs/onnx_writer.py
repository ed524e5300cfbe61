"""A writer of ONNX graphs: one method call for a node, and weight files that several graphs share."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import mkstemp
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from lingon.errors import BundleError

OPSET, IR_VERSION = 21, 10  # ONNX Runtime 1.31 reads opsets up to 26 and IR versions up to 13
CONTRIB = "com.microsoft"
KERNELS = "lingon"  # the domain of our own operators, see kernels/
COMPARED = 2**20  # values that are looked at together
ALIGNMENT = 64  # bytes; the size of a vector load
FILE_STEMS = {"float32": "fp32", "float16": "fp16"}
INT8_FILE = "int8.bin"  # the weight file of graphs with 8-bit products
LoopBody = Callable[[list[str], list[str]], tuple[Sequence[str], Sequence[str]]]
"""Takes the names of states and inputs of one step and return those of the next states and of the outputs, all
floats.
"""

Rewrite = Callable[[Sequence[onnx.NodeProto], Sequence[str]], list[onnx.NodeProto]]


class TensorLocation(NamedTuple):
    """Where a tensor is in a weight file, in bytes, and the SHA-256 of its values."""

    offset: int
    length: int
    digest: bytes


class WeightFiles:
    """The weight files of a bundle. A file has a tensor once, even if several graphs use it.

    They are temporary files without a name until the bundle is written: memory holds one tensor at a time.

    folder: where they are, or None for the folder of temporary files
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: on the disk of the bundle, or above it. None is the folder of temporary files."""
        self.folder = next((each for each in (folder, *folder.parents) if each.is_dir()), None) if folder else None
        self._descriptors: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._positions: dict[tuple[str, str], TensorLocation] = {}

    def contents(self) -> dict[str, mmap]:
        """Return the content of every file, by its name, mapped into memory."""
        return {file: mmap(opened, 0, access=ACCESS_READ) for file, opened in self._descriptors.items()}

    def size(self, file: str) -> int:
        """Return the bytes of a file so far."""
        return self._sizes[file]

    def add(self, file: str, name: str, values: np.ndarray) -> TensorProto:
        """Add a tensor to a file, unless the file has it, and return an initializer that points to it.

        values: in the order of their memory. Raises BundleError if the disk is full.
        """
        content = values.reshape(-1).view(np.uint8).data
        digest = hashlib.sha256(content).digest()
        if (file, name) not in self._positions:
            self._positions[file, name] = TensorLocation(self._write(file, content), len(content), digest)
        offset, length, known = self._positions[file, name]
        assert known == digest, f"{file}: two tensors named {name}"
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(values.dtype), dims=values.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def _write(self, file: str, content: memoryview) -> int:
        """Write to the end of a file and return where the content begins."""
        try:
            if file not in self._descriptors:
                self._descriptors[file] = self._open()
            size = self._sizes.get(file, 0)
            begin = at = size + -size % ALIGNMENT
            while content:  # a call writes at most 2 GiB
                written = os.pwrite(self._descriptors[file], content, at)
                content, at = content[written:], at + written
        except OSError as error:
            where = self.folder or "temporary files"
            raise BundleError(f"{where}: weights cannot be written ({error.strerror or error})") from None
        self._sizes[file] = at
        return begin

    def _open(self) -> int:
        """Return the descriptor of a new file without a name, which is closed when this object goes."""
        descriptor, path = mkstemp(dir=self.folder)
        Path(path).unlink()
        weakref.finalize(self, os.close, descriptor)
        return descriptor


class GraphBuilder:
    """A builder of one graph. A value is referred to by its name, a string.

    dtype: type of the arithmetic, float32 or float16
    file: the weight file for all weights. Without it, weights of 16 bits go to fp16.bin, those of 32 bits to fp32.bin
    rewrite: changes the nodes of the finished graph, without those of loop bodies; also gets the names of its outputs
    reads: the weight files that the graph points to
    """

    def __init__(
        self,
        name: str,
        weights: WeightFiles,
        dtype: type[np.floating[Any]],
        file: str | None = None,
        rewrite: Rewrite | None = None,
    ) -> None:
        self.name, self.dtype = name, np.dtype(dtype)
        self.reads: set[str] = set()
        self._weights, self._file, self._rewrite = weights, file, rewrite
        self._top: list[onnx.NodeProto] = []  # the nodes of the graph itself
        self._nodes = self._top  # the nodes of the graph, or of the loop body that is being written
        self._count = 0  # of all nodes; names are unique in the graph and its loop bodies
        self._initializers: dict[str, TensorProto] = {}
        self._wide: set[str] = set()
        self._constants: dict[bytes, str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._shapes: dict[str, onnx.ValueInfoProto] = {}  # of values that ONNX Runtime cannot infer

    def input(self, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> str:
        """Declare an input and return its name."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> None:
        """Declare an output that is a copy of a value."""
        self._add(self._nodes, helper.make_node("Identity", [value], [name], name=f"out.{name}"))
        self._outputs.append(_value_info(name, dtype, shape))

    def declare_output(self, name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> str:
        """Declare an output that a node writes directly under this name, without a copy, and return the name."""
        self._outputs.append(_value_info(name, dtype, shape))
        return name

    def weight(self, name: str, values: np.ndarray) -> str:
        """Return a trained tensor in the type of the arithmetic.

        float32 values that are exact in float16 are stored as float16, in half the bytes. ONNX Runtime converts them
        once, when it loads the graph.
        """
        stored = self.initializer(name, self._narrowed(values))
        if self._initializers[stored].data_type == helper.np_dtype_to_tensor_dtype(self.dtype):
            return stored
        wide = f"{name}.wide"
        if wide not in self._wide:
            self._wide.add(wide)
            to = helper.np_dtype_to_tensor_dtype(self.dtype)
            cast = helper.make_node("Cast", [stored], [wide], name=f"Cast.{self._count}", domain="", to=to)
            self._add(self._top, cast)  # also for a weight of a loop body, so that no step converts it
        return wide

    def gather(self, name: str, values: np.ndarray, ids: str) -> str:
        """Return the rows of a trained table at ids. Only these rows are converted, not the whole table."""
        rows = self.op("Gather", self.table(name, values), ids)
        if self._narrowed(values).dtype == self.dtype:
            return rows
        return self.op("Cast", rows, to=helper.np_dtype_to_tensor_dtype(self.dtype))

    def table(self, name: str, values: np.ndarray) -> str:
        """Return a trained table, stored as float16 if that is exact."""
        return self.initializer(name, self._narrowed(values))

    def initializer(self, name: str, values: np.ndarray) -> str:
        """Return a tensor of any type, stored without conversion."""
        if name not in self._initializers:
            file = self._file or f"{FILE_STEMS[values.dtype.name]}.bin"
            self.reads.add(file)
            self._initializers[name] = self._weights.add(file, name, np.ascontiguousarray(values))
        return name

    def _narrowed(self, values: np.ndarray) -> np.ndarray:
        narrow = self.dtype == np.float16 or _is_exact_in_half(values)
        with np.errstate(over="ignore"):  # of float16 arithmetic, whose values the export has checked
            return values.astype(np.float16 if narrow else np.float32, copy=False)

    def constant(self, value: np.ndarray) -> str:
        """Return a small constant, stored in the graph file."""
        key = str(value.dtype).encode() + str(value.shape).encode() + value.tobytes()
        if key not in self._constants:
            name = f"constant.{len(self._constants)}"
            self._constants[key] = name
            self._initializers[name] = onnx.numpy_helper.from_array(value, name)
        return self._constants[key]

    def scalar(self, value: float) -> str:
        """Return a scalar constant in the type of the arithmetic."""
        return self.constant(np.array(value, self.dtype))

    def int64s(self, *values: int) -> str:
        """Return a constant vector of int64."""
        return self.constant(np.array(values, np.int64))

    def count_up(self, count: str) -> str:
        """Return 0 to count - 1 (count); count is an int64 vector of one element."""
        zero, one = self.constant(np.array(0, np.int64)), self.constant(np.array(1, np.int64))
        return self.op("Range", zero, self.op("Squeeze", count, self.int64s(0)), one)

    def op(self, kind: str, *inputs: str, named: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the name of the output, which is `named` or a new name."""
        return self.ops(kind, *inputs, outputs=[named or self.new_name(kind)], domain=domain, **attributes)[0]

    def new_name(self, kind: str) -> str:
        """Return a name for an output of the next node; kind: of that node."""
        return f"{kind}.{self._count}"

    def ops(self, kind: str, *inputs: str, outputs: list[str], domain: str = "", **attributes: Any) -> list[str]:
        """Add a node with several outputs and return their names."""
        name = f"{kind}.{self._count}"
        made = helper.make_node(kind, list(inputs), outputs, name=name, domain=domain, **attributes)
        self._add(self._nodes, made)
        return outputs

    def describe(self, rows: str, columns: int) -> str:
        """Declare rows (n, columns) that an operator of ours returns, and return their name.

        ONNX Runtime does not know the shapes of these operators, and a loop must have those of all its results.
        """
        self._shapes[rows] = helper.make_tensor_value_info(
            rows, helper.np_dtype_to_tensor_dtype(self.dtype), [None, columns]
        )
        return rows

    def scan(
        self,
        states: Sequence[str],
        inputs: Sequence[tuple[str, np.dtype[Any] | type[Any]]],
        body: LoopBody,
        *,
        reverse: bool = False,
    ) -> tuple[list[str], list[str]]:
        """Run `body` once for each entry of the first dimension of the inputs and return last states and stacked
        outputs.

        states: their first values, in the type of the arithmetic
        inputs: values and their types. All have the same first dimension
        body: writes nodes. It may read every value of the graph. It gets the states and one entry of each input, and
            returns the next states and the outputs.
        reverse: whether the last entry is the first. The outputs stay in the order of the inputs
        """
        number, outer = self._count, self._nodes
        names = [
            f"scan.{number}.{kind}.{index}"
            for kind, of in (("state", states), ("input", inputs))
            for index in range(len(of))
        ]
        types = [self.dtype] * len(states) + [np.dtype(dtype) for _, dtype in inputs]
        self._nodes = []
        following, outputs = body(names[: len(states)], names[len(states) :])
        results = [self.op("Identity", value) for value in (*following, *outputs)]
        nodes, self._nodes = self._nodes, outer
        graph = helper.make_graph(
            nodes,
            f"scan.{number}",
            [_of_any_shape(name, dtype) for name, dtype in zip(names, types, strict=True)],
            [_of_any_shape(name, self.dtype) for name in results],
            value_info=self._described(nodes),
        )
        direction = int(reverse)
        found = self.ops(
            "Scan",
            *(*states, *(name for name, _ in inputs)),
            outputs=[f"scan.{number}.result.{index}" for index in range(len(results))],
            body=graph,
            num_scan_inputs=len(inputs),
            scan_input_directions=[direction] * len(inputs),
            scan_output_directions=[direction] * len(outputs),
        )
        return found[: len(states)], found[len(states) :]

    def _add(self, nodes: list[onnx.NodeProto], node: onnx.NodeProto) -> None:
        self._count += 1
        nodes.append(node)

    def _described(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.ValueInfoProto]:
        return [self._shapes[name] for node in nodes for name in node.output if name in self._shapes]

    def finish(self) -> bytes:
        """Return the content of the ONNX file."""
        nodes = self._top
        if self._rewrite is not None:
            nodes = self._rewrite(nodes, [each.name for each in self._outputs])
        described = self._described(nodes) if any(node.op_type == "Scan" for node in nodes) else []
        graph = helper.make_graph(
            nodes, self.name, self._inputs, self._outputs, list(self._initializers.values()), value_info=described
        )
        domains = {"": OPSET, CONTRIB: 1} | ({KERNELS: 1} if any(node.domain == KERNELS for node in nodes) else {})
        opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="lingon")
        content: bytes = model.SerializeToString(deterministic=True)
        return content


def _is_exact_in_half(values: np.ndarray) -> bool:
    """Return whether float16 has every value. It is looked at in parts, most of which another value makes needless."""
    flat = values.reshape(-1)
    for first in range(0, flat.size, COMPARED):
        part = flat[first : first + COMPARED].astype(np.float32, copy=False)
        with np.errstate(over="ignore"):  # an overflow is not exact, which the comparison finds
            half = part.astype(np.float16)
        if not np.array_equal(half.astype(np.float32), part):
            return False
    return True


def _value_info(name: str, dtype: np.dtype[Any] | type[Any], shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))


def _of_any_shape(name: str, dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)
