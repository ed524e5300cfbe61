"""Graphs without shapes, or that compute something else than declared, are refused by name even with a valid digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support import tampered_bundles


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


CHANGES = [
    ("scorer", without_shape("cross_attention"), "output cross_attention is [None, 2, None, None, None], its first 3"),
    ("encoder", without_shape("memory.0.key"), "output memory.0.key is [None, None, None], manifest.json says [4, 64"),
    ("scorer", no_such_label, "cannot score a translation"),
    ("output_rows", half_of(0), "outputs output.0 as tensor(int8) [128, 'union'], decoder_shortlist.onnx reads"),
    ("output_rows", half_of(1), "decoder_shortlist.onnx cannot run with its output"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tampered_bundles.copy(tmp_path / "models")


def edit(path: Path, change: Callable[[onnx.GraphProto], None]) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(("name", "change", "message"), CHANGES)
def test_a_graph_that_does_not_match_its_declaration_is_refused(
    folder: Path, name: str, change: Callable[[onnx.GraphProto], None], message: str
):
    path = folder / "int8" / f"{name}.onnx"
    edit(path, change)
    tampered_bundles.sign(folder)
    assert tampered_bundles.refusal(folder).startswith(f"{path}: {message}")
