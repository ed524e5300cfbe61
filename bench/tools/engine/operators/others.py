"""The operators of a decoder step besides attention: products, the choice of candidates, writing in place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from lingon import bundle
from lingon.bench.tools.engine.operators.case import LATEST_OPSET, TYPES, Case, Outputs
from lingon.export.graphs.onnx_writer import OPSET, GraphBuilder, WeightFiles
from lingon.export.graphs.output_layer import write_candidates

REPEATED = 4
SIZES = ((512, 2048), (1024, 4096), (512, 32_000))  # rows and columns of weights: feed-forward layers, output layer
LARGEST = 10_000  # columns of a product that is repeated: the next one goes back, which the output layer never does
STEPS = 8


def cases(rows: tuple[int, ...], vocab: int) -> Iterator[Case]:
    """All cases. rows: of a step; vocab: columns of the logits."""
    for count, (inner, columns), kind in product(rows, SIZES, TYPES):
        yield matrix_product(count, inner, columns, kind)
    for count, wanted in product(rows, (1, 8)):
        yield from top_k(count, vocab, wanted)
    for count in rows:
        yield from scatter(count)


def matrix_product(rows: int, inner: int, columns: int, kind: str) -> Case:
    """Rows by a matrix, and back by another one, so that the rows of the next repetition are as wide."""
    random = np.random.default_rng(0)
    back = columns < LARGEST
    given = {name: _normal(random, *shape) for name, shape in (("rows", (rows, inner)), ("there", (inner, columns)))}
    given["there"] *= np.float32(inner**-0.5)
    expected = given["rows"] @ given["there"]
    if back:
        given["back"] = _normal(random, columns, inner) * np.float32(columns**-0.5)
        expected = expected @ given["back"]

    def nodes(count: int) -> list[onnx.NodeProto]:
        found = []
        for each in range(count):
            before = f"rows.{each - 1}" if each else "rows"
            found.append(helper.make_node("MatMul", [before, "there"], [f"wide.{each}"]))
            if back:
                found.append(helper.make_node("MatMul", [f"wide.{each}", "back"], [f"rows.{each}"]))
        return found

    def outputs(count: int) -> Outputs:
        return {f"{'rows' if back else 'wide'}.{count - 1}": (expected.shape, TYPES[kind])}

    return Case(
        question="products",
        variant="MatMul there and back" if back else "MatMul",
        sizes=f"rows {rows}, weights {inner} x {columns}",
        kind=kind,
        nodes=nodes,
        inputs=given,
        outputs=outputs,
        expected=expected,
        repeated=REPEATED if back else 1,
    )


def top_k(rows: int, vocab: int, wanted: int) -> list[Case]:
    """The likeliest candidates of each row of logits."""
    logits = np.random.default_rng(0).permuted(np.tile(np.arange(vocab, dtype=np.float32), (rows, 1)), axis=1)
    logits /= np.float32(vocab / 8)  # all different, so that there is one right answer
    expected = -np.sort(-logits, axis=1)[:, :wanted]
    columns = np.argsort(-logits, axis=1)[:, :wanted].astype(np.float32)
    likeliest = {"values.0": ((rows, wanted), TensorProto.FLOAT)}
    places = {"places.0": ((rows, wanted), TensorProto.INT64)}

    def case(variant: str, nodes: list[onnx.NodeProto], outputs: Outputs, found: np.ndarray) -> Case:
        return Case(
            question="choice of candidates",
            variant=variant,
            sizes=f"rows {rows}, columns {vocab}, wanted {wanted}",
            kind="fp32",
            nodes=lambda count: nodes,
            inputs={"logits": logits, "count": np.array([wanted])},
            outputs=lambda count: outputs,
            host=("count",),
            expected=found,
        )

    search = helper.make_node("TopK", ["logits", "count"], ["values.0", "places.0"], axis=-1)
    total = helper.make_node("ReduceLogSumExp", ["logits", "axis"], ["total"], keepdims=1)
    axis = helper.make_node("Constant", [], ["axis"], value_ints=[-1])
    less = helper.make_node("Sub", ["values.0", "total"], ["log_probs.0"])
    log_probs = {"log_probs.0": ((rows, wanted), TensorProto.FLOAT)}
    sums = np.log(np.exp(logits.astype(np.float64)).sum(1, keepdims=True)).astype(np.float32)
    found = [
        case("TopK", [search], {**likeliest, **places}, columns),
        case("TopK, ReduceLogSumExp", [search, axis, total, less], {**places, **log_probs}, expected - sums),
    ]
    if wanted == 1:
        best = helper.make_node("ArgMax", ["logits"], ["places.0"], axis=-1, keepdims=1)
        found.append(case("ArgMax", [best, _unused("count")], {**_unused_output(), **places}, columns))
    return [*found, blocked_top_k(logits, wanted, columns)]


def blocked_top_k(logits: np.ndarray, wanted: int, columns: np.ndarray) -> Case:
    """The choice of an exported graph: in blocks, with log-probabilities."""
    rows, vocab = logits.shape
    graph = GraphBuilder("candidates", WeightFiles(), np.float32)
    write_candidates(graph, graph.input("logits", np.float32, [rows, vocab]))
    model = onnx.load_from_string(graph.finish())
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in model.graph.initializer]
    shape = (rows, wanted)
    return Case(
        question="choice of candidates",
        variant="in blocks, with log-probabilities (exported)",
        sizes=f"rows {rows}, columns {vocab}, wanted {wanted}",
        kind="fp32",
        nodes=lambda count: [*constants, *model.graph.node],
        inputs={"logits": logits, bundle.CANDIDATE_COUNT: np.array([wanted])},
        outputs=lambda count: {
            bundle.CANDIDATE_LOG_PROBS: (shape, TensorProto.FLOAT),
            bundle.CANDIDATE_IDS: (shape, TensorProto.INT64),
        },
        host=(bundle.CANDIDATE_COUNT,),
        expected=columns,
    )


def scatter(rows: int) -> list[Case]:
    """A step's entry into the history of a search, in place and into other memory."""
    history, entry = np.zeros((STEPS, rows, 2), np.float32), np.ones((1, rows, 2), np.float32)
    expected = history.copy()
    expected[3] = 1

    def case(variant: str, operator: str, index: np.ndarray, shared: dict[str, str]) -> Case:
        given = ["history", "index", "entry"] if operator == "ScatterND" else ["history", "entry", "index"]
        values = {"history": history, "index": index, "entry": entry}
        if operator != "ScatterND":
            values |= {"history": history[None], "entry": entry[None]}
        shape = values["history"].shape
        attributes: dict[str, Any] = {} if operator == "ScatterND" else {"axis": 1}
        node = helper.make_node(operator, given, ["written.0"], **attributes)
        return Case(
            question="writing in place",
            variant=variant,
            sizes=f"steps {STEPS}, rows {rows}",
            kind="fp32",
            nodes=lambda count: [node],
            inputs=values,
            outputs=lambda count: {"written.0": (shape, TensorProto.FLOAT)},
            shared=shared,
            expected=expected.reshape(shape),
            opset=OPSET if operator == "ScatterND" else LATEST_OPSET,
        )

    in_place = {"written": "history"}
    return [
        case("ScatterND into other memory", "ScatterND", np.array([[3]]), {}),
        case("ScatterND in place", "ScatterND", np.array([[3]]), in_place),
        case("TensorScatter-24 in place", "TensorScatter", np.array([3]), in_place),
    ]


def _unused(name: str) -> onnx.NodeProto:
    """A node that reads an input, because every case has the same ones."""
    return helper.make_node("Identity", [name], ["unused.0"])


def _unused_output() -> Outputs:
    return {"unused.0": ((1,), TensorProto.INT64)}


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)
