"""A graph of one operator, or of the few that do its work, and its measurement on a provider."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from lingon.errors import LingonError
from lingon.export.graphs.onnx_writer import CONTRIB, OPSET
from lingon.serving.runtime.device import CUDA
from lingon.serving.runtime.on_device.arrays import NAMES
from lingon.serving.runtime.sessions.create import create_session
from lingon.serving.runtime.sessions.weights import SharedWeights

ROUNDS, ROUND_S = 5, 0.02  # rounds of a measurement, and seconds of a round at least
WARM_UP = 3  # runs that are not counted; ONNX Runtime captures a CUDA graph in the last of them
SILENT = 4  # of ONNX Runtime's log
LATEST_OPSET, IR_VERSION = 24, 11  # opset 24 has Attention with lengths, and TensorScatter
TYPES = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}

Arrays = dict[str, np.ndarray]
Outputs = dict[str, tuple[tuple[int, ...], int]]
"""Shapes and types by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One graph to measure.

    question: what is asked; variant: one of the answers; sizes: of the arrays, for the table
    kind: type of the floating point numbers: a key of TYPES
    nodes: of the graph, for a number of repetitions, each of which reads the result of the one before
    inputs: arrays by name; those in float32 are converted to `kind`
    outputs: of the graph, for a number of repetitions; the result is the last one
    shared: for each output, by the beginning of its name up to a dot, the input whose memory it has
    host: inputs that kernels read on the host
    expected: the result of one repetition; None if it is not checked
    repeated: repetitions in the graph that is measured
    opset: of the graph; that of an exported graph, unless it is too old for the operator
    """

    question: str
    variant: str
    sizes: str
    kind: str
    nodes: Callable[[int], list[onnx.NodeProto]]
    inputs: Arrays
    outputs: Callable[[int], Outputs]
    shared: dict[str, str] = field(default_factory=dict)
    host: tuple[str, ...] = ()
    expected: np.ndarray | None = None
    repeated: int = 1
    opset: int = OPSET

    @property
    def key(self) -> str:
        """What tells the case from all others."""
        return f"{self.question}, {self.variant}, {self.kind}, {self.sizes}"

    def model(self, count: int) -> bytes:
        """The graph with a number of repetitions."""
        infos = [
            helper.make_tensor_value_info(name, self.type_of(array), list(array.shape))
            for name, array in self.inputs.items()
        ]
        outputs = self.outputs(count).items()
        found = [helper.make_tensor_value_info(name, kind, list(shape)) for name, (shape, kind) in outputs]
        return _serialised(self.nodes(count), infos, found, self.opset)

    def type_of(self, array: np.ndarray) -> int:
        """The ONNX type of an input."""
        return TYPES[self.kind] if array.dtype == np.float32 else helper.np_dtype_to_tensor_dtype(array.dtype)


class Bound:
    """A graph on a provider, with all of its arrays on the device."""

    def __init__(self, case: Case, provider: str, count: int, *, captured: bool = False) -> None:
        content = case.model(count)
        self._session = (
            _captured(content)
            if captured
            else create_session(content, SharedWeights({}), provider, 1, Path(case.variant))
        )
        self._binding: Any = self._session.io_binding()
        values = {name: _value(name, array, case, provider) for name, array in case.inputs.items()}
        for name, value in values.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, (shape, kind) in case.outputs(count).items():
            given = case.shared.get(name.partition(".")[0])
            empty = ort.OrtValue.ortvalue_from_shape_and_type
            self._last = values[given] if given else empty(list(shape), kind, NAMES[provider], 0)
            self._binding.bind_ortvalue_output(name, self._last)
        self._options = ort.RunOptions()
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self._options.log_severity_level = SILENT  # what fails is in the row
        self._provider = provider

    def run(self) -> None:
        """Start a run; on CUDA it may still be under way afterwards."""
        self._session.run_with_iobinding(self._binding, self._options)

    def result(self) -> np.ndarray:
        """Run once, and return the last output in float32."""
        self.run()
        self._binding.synchronize_outputs()
        return np.array(_converted(self._last, TensorProto.FLOAT, self._provider).numpy())

    def seconds(self) -> float:
        """Median seconds of a run."""
        for _ in range(WARM_UP):
            self.run()
        rounds = []
        for _ in range(ROUNDS):
            self._binding.synchronize_outputs()
            start, times = time.perf_counter(), 0
            while time.perf_counter() - start < ROUND_S:
                self.run()
                times += 1
            self._binding.synchronize_outputs()
            rounds.append((time.perf_counter() - start) / times)
        return statistics.median(rounds)


def measure(case: Case, provider: str) -> dict[str, Any]:
    """Return the row of a case: microseconds of a repetition, and the largest error; or the reason."""
    row: dict[str, Any] = {"question": case.question, "variant": case.variant, "sizes": case.sizes, "type": case.kind}
    row |= {"us": None, "captured_us": None, "error": None, "reason": "", "captured_reason": ""}
    try:
        if case.expected is not None:
            row["error"] = float(np.abs(Bound(case, provider, 1).result() - case.expected).max())
        row["us"] = 1e6 * Bound(case, provider, case.repeated).seconds() / case.repeated
    except Exception as error:  # ONNX Runtime's errors have no common base class
        row["reason"] = _reason(error)
    return row


def measure_captured(case: Case) -> dict[str, Any]:
    """Return the columns of a case in a CUDA graph: microseconds of a repetition, or the reason.

    A capture that fails may spoil the device for this process. So all of them come last.
    """
    try:
        return {"captured_us": 1e6 * Bound(case, CUDA, case.repeated, captured=True).seconds() / case.repeated}
    except Exception as error:  # ONNX Runtime's errors have no common base class
        return {"captured_reason": _reason(error)}


def _reason(error: Exception) -> str:
    line = str(error).splitlines()[0]
    return line if isinstance(error, LingonError) else f"{type(error).__name__}: {line}"


def _serialised(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int = OPSET,
) -> bytes:
    graph = helper.make_graph(nodes, "operators", inputs, outputs)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
    return content


def _captured(content: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(content, options, providers=[(CUDA, {"enable_cuda_graph": "1"})])


def _value(name: str, array: np.ndarray, case: Case, provider: str) -> ort.OrtValue:
    """An array on the device, or on the host if kernels read it there, in the type of the case."""
    device = "cpu" if name in case.host else NAMES[provider]
    value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device, 0)
    return _converted(value, case.type_of(array), provider)


def _converted(value: ort.OrtValue, kind: int, provider: str) -> ort.OrtValue:
    """The value in another type, on the device; the provider converts, because NumPy has no bf16."""
    if value.element_type() == kind:
        return value
    shape = list(value.shape())
    given, found = (
        helper.make_tensor_value_info(name, each, shape)
        for name, each in (("given", value.element_type()), ("found", kind))
    )
    content = _serialised([helper.make_node("Cast", ["given"], ["found"], to=kind)], [given], [found])
    session = create_session(content, SharedWeights({}), provider, 1, Path("cast"))
    binding: Any = session.io_binding()
    binding.bind_ortvalue_input("given", value)
    binding.bind_output("found", NAMES[provider])
    session.run_with_iobinding(binding)
    converted: ort.OrtValue = binding.get_outputs()[0]
    return converted
