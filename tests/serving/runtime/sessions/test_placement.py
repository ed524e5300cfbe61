"""Where the nodes of a graph run."""

from __future__ import annotations

import onnxruntime as ort

from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.runtime.sessions.placement import RECORD_PLACEMENT, misplaced, placement
from tests.support.shipped_model import bundle


def test_a_session_tells_where_its_nodes_run() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(RECORD_PLACEMENT, "1")
    path = bundle().folder / "fp16" / "copy_rows.onnx"
    nodes = placement(ort.InferenceSession(path, options, providers=[CPU]))
    sizes = {"Shape", "Concat", "Squeeze", "Unsqueeze"}
    assert {node.operator for node in nodes} == {"Gather", "ScatterND", "Range", "Expand", *sizes}
    assert {node.provider for node in nodes} == {CPU}
    assert misplaced(nodes, CPU) == []
    kinds = {each.partition(" ")[2] for each in misplaced(nodes, CUDA)}
    assert kinds == {"(ScatterND)", "(Range)", "(Expand)"}  # the others may compute sizes
