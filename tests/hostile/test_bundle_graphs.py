"""Graphs without shapes, or that compute something else than declared, are refused by name even with a valid digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.tampered_bundles import refusal, sign


def declared(graph: onnx.GraphProto, name: str) -> onnx.TypeProto.Tensor:
    """The declared type of an output or input."""
    return next(each for each in (*graph.output, *graph.input) if each.name == name).type.tensor_type


def without_shape(name: str) -> Callable[[onnx.GraphProto], None]:
    return lambda graph: declared(graph, name).ClearField("shape")


def half_of(axis: int) -> Callable[[onnx.GraphProto], None]:
    """Keep every second channel of the output layer (axis 0), or every second requested piece (axis 1)."""

    def change(graph: onnx.GraphProto) -> None:
        (node,) = [node for node in graph.node if node.output[0] == "output.0"]
        bounds = {"begin": [0], "end": [2**30], "axis": [axis], "stride": [2]}
        graph.initializer.extend(onnx.numpy_helper.from_array(np.array(each), name) for name, each in bounds.items())
        graph.node.append(onnx.helper.make_node("Slice", [node.input[0], *bounds], ["output.0"]))
        graph.node.remove(node)
        if axis == 0:  # the declared shape of the pieces would still match
            declared(graph, "output.0").ClearField("shape")

    return change


def no_such_label(graph: onnx.GraphProto) -> None:
    """Make the scorer fail for every input."""
    (node,) = [node for node in graph.node if node.output[0] == "token_log_probs"]
    node.output[0] = "whole"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([999]), "beyond"))
    graph.node.append(onnx.helper.make_node("Gather", ["whole", "beyond"], ["token_log_probs"], axis=1))


def one_row(graph: onnx.GraphProto) -> None:
    """Let the decoder step take one row alone."""
    for each in graph.input:
        if each.name.startswith("past."):
            each.type.tensor_type.shape.dim[0].dim_value = 1


def beyond_the_vocabulary(graph: onnx.GraphProto) -> None:
    """Add 10,000 to the candidates."""
    (node,) = [node for node in graph.node if "candidate_ids" in node.output]
    node.output[list(node.output).index("candidate_ids")] = "found"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(10_000), "added"))
    graph.node.append(onnx.helper.make_node("Add", ["found", "added"], ["candidate_ids"]))


GRAPH_CHANGES = [
    ("scorer", without_shape("cross_attention"), "output cross_attention is [None, 2, None, None, None], its first 3"),
    ("encoder", without_shape("memory.0.key"), "output memory.0.key is [None, None, None], manifest.json says [4, 64"),
    ("scorer", no_such_label, "cannot score a translation"),
    ("decoder", one_row, "cannot translate two sentences together (RuntimeError: "),
    (
        "decoder",
        beyond_the_vocabulary,
        "cannot translate two sentences together (ValueError: candidates must be 0 to 5999",
    ),
    ("output_rows", half_of(0), "outputs output.0 as tensor(int8) [128, 'union'], decoder_shortlist.onnx reads"),
    ("output_rows", half_of(1), "decoder_shortlist.onnx cannot run with its output"),
]


def edit_graph(path: Path, change: Callable[[onnx.GraphProto], None]) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(("name", "change", "message"), GRAPH_CHANGES)
def test_a_graph_that_does_not_match_its_declaration_is_refused(
    folder: Path, name: str, change: Callable[[onnx.GraphProto], None], message: str
):
    path = folder / "int8" / f"{name}.onnx"
    edit_graph(path, change)
    sign(folder)
    assert refusal(folder).startswith(f"{path}: {message}")


def another_name(graph: onnx.GraphProto) -> None:
    """Rename the input token_ids."""
    name = next(each for each in graph.input if each.name == "token_ids")
    name.name = graph.node[0].input[2] = "tokens"


def without_failures(graph: onnx.GraphProto) -> None:
    graph.output.remove(next(each for each in graph.output if each.name == "failed"))


def add_to(output: str, value: int) -> Callable[[onnx.GraphProto], None]:
    """Add a number to an output of the search."""

    def change(graph: onnx.GraphProto) -> None:
        (node,) = graph.node
        node.output[list(node.output).index(output)] = "found"
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared(graph, output).elem_type)
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, dtype), "added"))
        graph.node.append(onnx.helper.make_node("Add", ["found", "added"], [output]))

    return change


def test_names_that_are_not_utf_8_are_refused(folder: Path):
    path = folder / "int8" / "decoder.onnx"
    path.write_bytes(path.read_bytes().replace(b"present.self.0.key", b"present.self.0.k\xff\xff"))
    sign(folder)
    assert refusal(folder).startswith(f"{path}: onnxruntime does not load it ('utf-8' codec")


SEARCH = "cannot search over the candidates of decoder.onnx"


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_name, "has no input token_ids"),
        (without_failures, "has no output failed"),
        (add_to("changed.positions", 10**9), SEARCH),
        (add_to("changed.token_ids", 10**9), SEARCH),
        (add_to("changed.beam_rows", 10**6), SEARCH),
        (add_to("changed.beam_table", 10**6), SEARCH),
    ],
)
def test_a_beam_search_of_another_kind_is_refused(
    folder: Path, change: Callable[[onnx.GraphProto], None], message: str
):
    path = folder / "int8-native" / "beam.onnx"
    edit_graph(path, change)
    sign(folder)
    assert refusal(folder, "int8-native").startswith(f"{path}: {message}")


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_golden_sentences_that_end_the_engine_are_an_error_of_the_bundle(folder: Path):
    """Only the text of a finished translation shows these tokens."""
    edit_graph(folder / "int8-native" / "beam.onnx", add_to("ended_tokens", 10**6))
    sign(folder)
    found = refusal(folder, "int8-native", golden=True)
    assert found.startswith(f"{folder}/golden.json: the sentences cannot be translated in int8-native (")
