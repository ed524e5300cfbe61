"""Weights of a mapped file take little memory while a session is made, and a large table little while it is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from lingon.serving.runtime.device import CPU, NATIVE
from lingon.serving.runtime.sessions import GraphLoadError, SharedWeights, UncopiedWeights, create_session
from tests.support.shipped_model import bundle

pytestmark = pytest.mark.native
MIB = 1 << 20
FILE = "w.bin"
PIECES, DIM = 1 << 16, 512  # 128 MiB of floats
INPUTS, OUTPUTS = 512, 1 << 17  # 64 MiB of bytes
FEW = 24 * MIB  # what else a process allocates meanwhile, and the part of a file that is in memory at a time

Sizes = Mapping[str, tuple[type[np.generic], tuple[int, ...]]]
TABLE: Sizes = {"pieces": (np.float32, (PIECES, DIM))}
PRODUCT: Sizes = {
    "columns": (np.int8, (INPUTS, OUTPUTS)),
    "scale": (np.float32, (OUTPUTS,)),
    "bias": (np.float32, (OUTPUTS,)),
}


def zeros_in_file(folder: Path, sizes: Sizes) -> mmap:
    """Map a file of weights of these types and shapes, one after the other. Its zeros take no room on the disk."""
    with (folder / FILE).open("wb") as file:
        file.truncate(sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in sizes.values()))
    with (folder / FILE).open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def graph_of(node: onnx.NodeProto, dtype: int, sizes: Sizes) -> bytes:
    """A graph of one node of ours, whose input has this type and whose weights are in the file."""
    initializers, place = [], 0
    for name, (kind, shape) in sizes.items():
        stored = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        weight = TensorProto(name=name, dims=shape, data_type=stored, data_location=TensorProto.EXTERNAL)
        length = np.dtype(kind).itemsize * int(np.prod(shape))
        for key, value in {"location": FILE, "offset": place, "length": length}.items():
            weight.external_data.add(key=key, value=str(value))
        initializers.append(weight)
        place += length
    ends = helper.make_tensor_value_info("x", dtype, None), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_graph([node], "g", ends[:1], ends[1:], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("lingon", 1)]
    content: bytes = helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


def embed_graph() -> bytes:
    """A graph that reads rows of TABLE."""
    node = helper.make_node("Embed", ["x", "pieces"], ["y"], domain="lingon", scale=2.0)
    return graph_of(node, TensorProto.INT64, TABLE)


def resident(name: str) -> int:
    """Return bytes of this process in memory: VmRSS now, VmHWM at the highest."""
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
    assert found is not None
    return 1024 * int(found[1])


def session_and_growth(graph: bytes, weights: SharedWeights) -> tuple[ort.InferenceSession, int]:
    """Make a session, and return by how much the memory of the process was larger meanwhile."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # VmHWM counts from here
    before = resident("VmRSS")
    session = create_session(graph, weights, CPU, 1, Path("g"))
    return session, resident("VmHWM") - before


def mapped_bytes(path: Path) -> int:
    """Return how much of the mappings of a file is in memory."""
    found, own = Counter[str](), False
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            own = values[-1] == str(path)
        elif own and name == "Rss:":
            found[name] += 1024 * int(values[0])
    return found["Rss:"]


def test_a_session_that_reads_rows_of_a_table_makes_no_copy_of_it(tmp_path: Path) -> None:
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, TABLE)})
    _, growth = session_and_growth(embed_graph(), weights)
    assert growth < FEW


def test_weights_that_are_packed_are_in_memory_once_meanwhile(tmp_path: Path) -> None:
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, PRODUCT)})
    node = helper.make_node("Linear", ["x", *PRODUCT], ["y"], domain="lingon", norm=0, epsilon=0.0, relu=0)
    _, growth = session_and_growth(graph_of(node, TensorProto.FLOAT, PRODUCT), weights)
    assert growth < INPUTS * OUTPUTS + FEW


def test_equal_weights_of_another_session_take_no_memory(tmp_path: Path) -> None:
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, PRODUCT)})
    node = helper.make_node("Linear", ["x", *PRODUCT], ["y"], domain="lingon", norm=0, epsilon=0.0, relu=0)
    graph = graph_of(node, TensorProto.FLOAT, PRODUCT)
    first, _ = session_and_growth(graph, weights)
    second, growth = session_and_growth(graph, weights)
    assert first is not second
    assert growth < FEW


def test_rows_for_a_shortlist_are_in_memory_once_meanwhile(tmp_path: Path) -> None:
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, PRODUCT)})
    outputs = ["y", "sums", "scales", "biases"]
    node = helper.make_node("GatherColumns", ["x", *PRODUCT], outputs, domain="lingon")
    graph = onnx.load_from_string(graph_of(node, TensorProto.INT64, PRODUCT))
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT8, None))
    _, growth = session_and_growth(graph.SerializeToString(), weights)
    assert growth < INPUTS * OUTPUTS + FEW


def test_the_rows_of_a_large_table_are_given_back_and_are_the_same_when_they_are_read_again(tmp_path: Path) -> None:
    content = zeros_in_file(tmp_path, TABLE)
    rows = np.arange(0, PIECES, 8)
    with (tmp_path / FILE).open("r+b") as file:
        for row in rows.tolist():
            file.seek(4 * row * DIM)
            file.write(np.full(DIM, row, np.float32).tobytes())
    session = create_session(embed_graph(), SharedWeights({FILE: content}), CPU, 1, Path("g"))
    for _ in range(2):
        for part in np.split(rows, 64):
            (found,) = session.run(["y"], {"x": part})
            np.testing.assert_array_equal(found, np.broadcast_to(2.0 * part[:, None], (len(part), DIM)))
    assert mapped_bytes(tmp_path / FILE) < FEW


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder.onnx", "decoder_shortlist.onnx", "output_rows.onnx"])
def test_onnx_runtime_copies_no_table_and_no_product_of_a_native_graph(name: str) -> None:
    graphs, files = bundle().graphs(NATIVE, name)
    shared = SharedWeights(files).tensors(graphs[name])
    uncopied = UncopiedWeights.of(graphs[name], shared).names
    large = {each for each, value in shared.items() if len(value.shape()) > 1}
    assert large
    assert large <= uncopied


def test_weights_that_standard_operators_read_are_given_as_copies(tmp_path: Path) -> None:
    graph = onnx.load_from_string(embed_graph())
    graph.graph.node.append(helper.make_node("Gather", ["pieces", "x"], ["z"]))
    graph.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, TABLE)})
    content = graph.SerializeToString()
    assert UncopiedWeights.of(content, weights.tensors(content)).names == frozenset()
    found = create_session(content, weights, CPU, 1, Path("g")).run(["y", "z"], {"x": np.array([1, 5])})
    np.testing.assert_array_equal(found[0], 2 * found[1])


def test_a_graph_that_lacks_one_of_its_weights_gets_none_from_the_folder_of_devices(tmp_path: Path) -> None:
    graph = onnx.load_from_string(embed_graph())
    graph.graph.node.append(helper.make_node("Gather", ["absent", "x"], ["z"]))
    graph.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, TABLE)})
    with NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(16 * DIM))
        file.flush()
        absent = TensorProto(name="absent", dims=(4, DIM), data_type=1, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": f"shm/{Path(file.name).name}", "offset": 0, "length": 16 * DIM}.items():
            absent.external_data.add(key=key, value=str(value))
        graph.graph.initializer.append(absent)
        with pytest.raises(GraphLoadError, match="onnxruntime does not load it"):
            create_session(graph.SerializeToString(), weights, CPU, 1, Path("g"))


def test_a_product_reads_nothing_of_the_file_while_it_runs(tmp_path: Path) -> None:
    inputs, outputs = 64, 1 << 10
    sizes: Sizes = {
        "columns": (np.int8, (inputs, outputs)),
        "scale": (np.float32, (outputs,)),
        "bias": (np.float32, (outputs,)),
        "gain": (np.float32, (inputs,)),
        "norm_bias": (np.float32, (inputs,)),
    }
    weights = SharedWeights({FILE: zeros_in_file(tmp_path, sizes)})
    node = helper.make_node("Linear", ["x", *sizes], ["y"], domain="lingon", norm=1, epsilon=1e-5, relu=0)
    session = create_session(graph_of(node, TensorProto.FLOAT, sizes), weights, CPU, 1, Path("g"))
    weights.release_pages()
    (found,) = session.run(["y"], {"x": np.ones((2, inputs), np.float32)})
    assert not found.any()
    assert mapped_bytes(tmp_path / FILE) == 0
