"""Sessions share the weights of their model."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from lingon.serving.runtime.device import CPU, NATIVE
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.runtime.sessions import GraphLoadError, SharedWeights, create_session
from tests.support.shipped_model import bundle

VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)
FILES = {"w.bin": b"\0" * 64 + VALUES.tobytes()}
PLACE = {"location": "w.bin", "offset": "64", "length": "96"}


def graph(place: dict[str, str], dims: tuple[int, ...] = (4, 6), dtype: int = TensorProto.FLOAT) -> bytes:
    """A graph that adds weights in a file to its input."""
    weights = TensorProto(name="w", dims=dims, data_type=dtype, data_location=TensorProto.EXTERNAL)
    for key, value in place.items():
        weights.external_data.add(key=key, value=value)
    inline = numpy_helper.from_array(np.ones(1, np.float32), "one")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in ("x", "y")]
    nodes = [helper.make_node("Add", ["x", "w"], ["z"]), helper.make_node("Mul", ["z", "one"], ["y"])]
    opset = [helper.make_opsetid("", 17)]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights, inline])
    content: bytes = helper.make_model(made, opset_imports=opset, ir_version=8).SerializeToString()
    return content


class Memory(SharedWeights):
    """Weights in memory that a test can change; ONNX Runtime, which checks that the files are there, gets a copy."""

    def __init__(self, memory: dict[str, bytearray]) -> None:
        super().__init__({name: bytes(content) for name, content in memory.items()})
        self._memory = SharedWeights(memory)  # type: ignore[arg-type]

    def tensors(self, graph: bytes) -> dict[str, ort.OrtValue]:
        return self._memory.tensors(graph)


def test_all_sessions_of_a_model_read_the_same_weights() -> None:
    runner = load_runner(bundle(), "int8", 2, 1)
    sessions = runner.encoder.all_cores, runner.encoder.shared_cores, runner.decoder.all_cores, runner.scorer
    pieces = {session.shared_weights["pieces"].data_ptr() for session in sessions}
    assert len(pieces) == 1
    stored = onnx.load_from_string(bundle().graphs("int8", "decoder.onnx")[0]["decoder.onnx"]).graph.initializer
    external = {each.name for each in stored if each.data_location == TensorProto.EXTERNAL}
    assert external == runner.decoder.all_cores.shared_weights.keys()


def mapped_bytes(path: Path) -> tuple[int, int]:
    """Return the size of the mappings of a file by this process, and how much of them is in memory."""
    found = Counter[str]()
    own = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            own = values[-1] == str(path)
        elif own:
            found[name] += 1024 * int(values[0]) if name in ("Size:", "Rss:") else 0
    return found["Size:"], found["Rss:"]


@pytest.mark.native
def test_a_loaded_model_has_its_weights_in_memory_once() -> None:
    weights = bundle().folder / "weights" / "int8.bin"
    _, of_others = mapped_bytes(weights)  # rows that models of other tests have read
    runner = load_runner(bundle(), NATIVE, 2, 1)
    assert runner.scorer is not None  # it keeps the file mapped
    size, resident = mapped_bytes(weights)
    assert size >= bundle().size("weights/int8.bin") > 10 * (resident - of_others)


def test_a_checksum_leaves_no_mapped_file_in_memory() -> None:
    weights = bundle().folder / "weights" / "int8.bin"
    _, of_others = mapped_bytes(weights)
    content = bundle().map("weights/int8.bin")
    size, resident = mapped_bytes(weights)
    assert size >= len(content) > 10 * (resident - of_others)


def test_a_session_keeps_its_weights_alive_and_computes_with_them() -> None:
    files = {name: bytes(bytearray(content)) for name, content in FILES.items()}
    session = create_session(graph(PLACE), SharedWeights(files), CPU, 1, Path("g"))
    del files
    gc.collect()
    assert session.shared_weights.keys() == {"w"}
    np.testing.assert_array_equal(session.run(["y"], {"x": VALUES})[0], 2 * VALUES)


def test_a_session_reads_the_memory_of_the_file_and_no_copy() -> None:
    content = bytearray(FILES["w.bin"])
    session = create_session(graph(PLACE), Memory({"w.bin": content}), CPU, 1, Path("g"))
    content[64:] = (3 * VALUES).tobytes()
    np.testing.assert_array_equal(session.run(["y"], {"x": VALUES})[0], 4 * VALUES)


@pytest.mark.parametrize(
    ("place", "dims", "dtype"),
    [
        (PLACE | {"location": "other.bin"}, (4, 6), TensorProto.FLOAT),
        (PLACE | {"offset": "68"}, (4, 6), TensorProto.FLOAT),  # beyond the end
        (PLACE | {"offset": "63"}, (4, 6), TensorProto.FLOAT),  # of no multiple of the size of an element
        (PLACE | {"offset": "-4"}, (4, 6), TensorProto.FLOAT),
        (PLACE | {"offset": "9" * 5000}, (4, 6), TensorProto.FLOAT),  # more digits than Python reads
        (PLACE | {"length": "92"}, (4, 6), TensorProto.FLOAT),  # of another size than the dimensions say
        (PLACE | {"length": "x"}, (4, 6), TensorProto.FLOAT),
        (PLACE, (4, 2**62, 2**62), TensorProto.FLOAT),
        (PLACE, (-4, -6), TensorProto.FLOAT),
        (PLACE, (4, 3), TensorProto.DOUBLE),
        ({}, (4, 6), TensorProto.FLOAT),
    ],
)
def test_weights_that_are_not_where_the_graph_says_are_not_shared(
    place: dict[str, str], dims: tuple[int, ...], dtype: int
) -> None:
    weights, content = SharedWeights(FILES), graph(place, dims, dtype)
    assert weights.tensors(content) == {}
    if place.get("offset") != "63":  # ONNX Runtime copies it, so that it needs no alignment
        with pytest.raises(GraphLoadError, match="onnxruntime does not load it"):
            create_session(content, weights, CPU, 1, Path("g"))


def test_bytes_that_are_no_graph_have_no_weights() -> None:
    assert SharedWeights(FILES).tensors(b"\xff\xff") == {}
