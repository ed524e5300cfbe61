"""A graph computes the same after its norms, ReLUs and residuals are part of the products beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from lingon.export.graphs.fusion import fuse
from lingon.export.graphs.onnx_writer import IR_VERSION, KERNELS, OPSET
from lingon.serving.runtime.device import LIBRARY
from tests.support.native_operators import same_bits

pytestmark = pytest.mark.native
DIM = 16


@dataclass(slots=True)
class Written:
    """Nodes of a graph over values (rows, DIM); `rows` is the input."""

    nodes: list[NodeProto]

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: float) -> str:
        name = f"{kind}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def linear(self, rows: str) -> str:
        return self.op("Linear", rows, "columns", "scale", "bias", domain=KERNELS, norm=0, epsilon=0.0, relu=0)

    def layer_norm(self, rows: str) -> str:
        return self.op("LayerNormalization", rows, "gain", "bias", axis=-1, epsilon=1e-5)

    def rms_norm(self, rows: str) -> str:
        return self.op("SimplifiedLayerNormalization", rows, "gain", axis=-1, epsilon=1e-5)

    def relu(self, rows: str) -> str:
        return self.op("Relu", rows)

    def add(self, rows: str, more: str) -> str:
        return self.op("Add", rows, more)

    def fused(self, *outputs: str) -> list[str]:
        """The kinds of the nodes that are left."""
        copies = [NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        return [node.op_type for node in fuse(copies, outputs)]

    def differs(self, *outputs: str) -> float:
        """The largest difference of an output of the fused graph from the same output of the graph."""
        copies = [NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        before, after = results(self.nodes, outputs), results(fuse(copies, outputs), outputs)
        return max(float(np.abs(first - second).max()) for first, second in zip(before, after, strict=True))


def results(nodes: list[NodeProto], outputs: tuple[str, ...]) -> list[np.ndarray]:
    """What the outputs of a graph are for drawn rows."""
    draw = np.random.default_rng(0)
    stored = {
        "columns": draw.integers(-63, 64, (DIM, DIM)).astype(np.int8),
        "scale": np.full(DIM, 0.004, np.float32),
        "bias": draw.normal(size=DIM).astype(np.float32),
        "gain": draw.normal(size=DIM).astype(np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", DIM])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(KERNELS, 1)]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(LIBRARY))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(list(outputs), {"rows": draw.normal(size=(5, DIM)).astype(np.float32)})
    return found


@pytest.mark.parametrize("norm", [Written.layer_norm, Written.rms_norm])
@pytest.mark.parametrize("readers", [1, 2])
def test_a_norm_that_only_products_read_becomes_part_of_them(norm: Callable[[Written, str], str], readers: int) -> None:
    graph = Written([])
    read = norm(graph, "rows")
    outputs = [graph.linear(read) for _ in range(readers)]
    assert graph.fused(*outputs) == ["Linear"] * readers
    assert graph.differs(*outputs) < 0.05, "one level of 127"


def test_a_norm_that_another_node_reads_stays() -> None:
    graph = Written([])
    read = graph.layer_norm("rows")
    product = graph.linear(read)
    total = graph.add(read, graph.relu(product))
    assert "LayerNormalization" in graph.fused(total)
    assert graph.differs(total) == 0


def test_a_norm_that_is_an_output_stays() -> None:
    graph = Written([])
    read = graph.layer_norm("rows")
    product = graph.linear(read)
    assert graph.fused(read, product) == ["LayerNormalization", "Linear"]


def test_a_relu_and_then_a_residual_become_part_of_a_product() -> None:
    graph = Written([])
    first = graph.relu("rows")
    total = graph.add(first, graph.relu(graph.linear(first)))
    assert graph.fused(total) == ["Relu", "Linear"]
    assert graph.differs(total) == 0


def test_a_relu_after_a_residual_stays() -> None:
    graph = Written([])
    first = graph.relu("rows")
    found = graph.relu(graph.add(graph.linear(first), first))
    assert graph.fused(found) == ["Relu", "Linear", "Relu"]
    assert graph.differs(found) == 0


def test_a_residual_that_is_written_after_the_product_is_added_by_its_own_node() -> None:
    graph = Written([])
    product = graph.linear("rows")
    total = graph.add(product, graph.relu("rows"))
    assert graph.fused(total) == ["Linear", "Relu", "Add"]
    assert graph.differs(total) == 0


def test_a_product_that_is_added_to_itself_stays() -> None:
    graph = Written([])
    product = graph.linear("rows")
    total = graph.add(product, product)
    assert graph.fused(total) == ["Linear", "Add"]


@pytest.mark.parametrize("after", [Written.relu, lambda graph, rows: graph.add(rows, "Relu.0")])
def test_a_product_that_is_an_output_or_has_two_readers_stays(after: Callable[[Written, str], str]) -> None:
    graph = Written([])
    product = graph.linear(graph.relu("rows"))
    found = after(graph, product)
    assert len(graph.fused(product, found)) == 3
    assert graph.differs(product, found) == 0
    more = graph.linear(product)
    assert len(graph.fused(found, more)) == 4
    assert graph.differs(found, more) == 0


def test_two_products_that_are_added_become_one_sum() -> None:
    graph = Written([])
    total = graph.add(graph.linear("rows"), graph.linear("rows"))
    assert graph.fused(total) == ["Linear", "Linear"]
    assert graph.differs(total) == 0


def test_a_value_that_a_loop_body_reads_stays() -> None:
    graph = Written([])
    product = graph.linear("rows")
    body = helper.make_graph(
        [helper.make_node("Add", ["row", product], ["moved"]), helper.make_node("Identity", ["row"], ["last"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("state", "row")],
        [
            helper.make_tensor_value_info("last", TensorProto.FLOAT, [DIM]),
            helper.make_tensor_value_info("moved", TensorProto.FLOAT, ["n", DIM]),
        ],
    )
    scan = helper.make_node("Scan", ["gain", "rows"], ["end", "stacked"], name="scan", body=body, num_scan_inputs=1)
    graph.nodes.append(scan)
    found = graph.relu(product)
    assert graph.fused("stacked", found) == ["Linear", "Scan", "Relu"]
    assert graph.differs("stacked", found) == 0


# Graphs for CUDA, whose products write the norms that they compute.


def kept(graph: Written, *outputs: str) -> list[NodeProto]:
    """The nodes that are left for CUDA."""
    return fuse([NodeProto.FromString(node.SerializeToString()) for node in graph.nodes], outputs, keep_norms=True)


def float_linear(graph: Written, rows: str) -> str:
    return graph.op("FloatLinear", rows, "columns", "bias", domain=KERNELS, norm=0, epsilon=0.0, relu=0)


def norms(nodes: list[NodeProto]) -> list[int]:
    """The norms that products compute, 0 none."""
    return [each.i for node in nodes for each in node.attribute if each.name == "norm"]


def test_on_cuda_the_first_product_writes_the_norm_that_a_residual_reads() -> None:
    graph = Written([])
    norm = graph.layer_norm("rows")
    total = graph.add(float_linear(graph, graph.relu(float_linear(graph, norm))), norm)
    first, second = kept(graph, total)
    assert [*first.input] == ["rows", "columns", "bias", "gain", "bias"]
    assert first.output[1:] == [norm]
    assert (second.input[5], [*second.output]) == (norm, [total])
    assert norms([first, second]) == [1, 0]


def test_on_cuda_the_second_product_reads_the_norm_that_the_first_one_writes() -> None:
    graph = Written([])
    norm = graph.rms_norm("rows")
    products = [float_linear(graph, norm) for _ in range(2)]
    first, second = kept(graph, *products)
    assert norms([first, second]) == [2, 0]
    assert (first.output[1], [*second.input]) == (norm, [norm, "columns", "bias"])
    assert not any("" in node.output for node in (first, second))


@pytest.mark.parametrize("is_output", [False, True])
def test_on_cuda_a_norm_is_written_only_if_something_else_reads_it(is_output: bool) -> None:
    graph = Written([])
    norm = graph.layer_norm("rows")
    product = float_linear(graph, norm)
    (left,) = kept(graph, product, *([norm] if is_output else []))
    assert [*left.output] == [product, norm][: 1 + is_output]


def test_on_cuda_a_norm_stays_that_another_node_reads_before_the_first_product() -> None:
    graph = Written([])
    norm = graph.layer_norm("rows")
    other = graph.relu(norm)
    product = float_linear(graph, norm)
    assert [node.op_type for node in kept(graph, other, product)] == ["LayerNormalization", "Relu", "FloatLinear"]


def test_on_cuda_a_product_that_is_added_to_the_norm_of_its_rows_does_not_read_what_it_writes() -> None:
    graph = Written([])
    norm = graph.layer_norm("rows")
    total = graph.add(norm, float_linear(graph, norm))
    product, added = kept(graph, total)
    assert not {*product.input} & {*product.output}
    assert ([*added.input], [*added.output]) == ([*reversed(product.output)], [total])


@given(data=st.data())
def test_any_graph_computes_the_same_after_fusion(data: st.DataObject) -> None:
    graph, values = Written([]), ["rows"]
    for _ in range(data.draw(st.integers(1, 9))):
        kind = data.draw(st.sampled_from(["linear", "linear", "relu", "add"]))
        read = [data.draw(st.sampled_from(values)) for _ in range(2 if kind == "add" else 1)]
        values.append(getattr(graph, kind)(*read))
    outputs = tuple(data.draw(st.lists(st.sampled_from(values[1:]), unique=True, max_size=3)))
    outputs = tuple(dict.fromkeys((*outputs, values[-1])))
    copies = [NodeProto.FromString(node.SerializeToString()) for node in graph.nodes]
    fused = fuse(copies, outputs)
    for first, second in zip(results(graph.nodes, outputs), results(fused, outputs), strict=True):
        assert same_bits(first, second)
