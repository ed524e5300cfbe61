"""The nodes of a graph and the provider that runs each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import onnxruntime as ort

RECORD_PLACEMENT = "session.record_ep_graph_assignment_info"
"""The option of a session that remembers where its nodes run."""

ON_HOST = {
    "Shape",
    "Size",
    "Concat",
    "Slice",
    "Gather",
    "Squeeze",
    "Unsqueeze",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Min",
    "Cast",
}
"""Operators of shape arithmetic: ONNX Runtime runs them on the host if they compute sizes of other values."""


class Placed(NamedTuple):
    """A node of a graph, its operator, and the provider that runs it."""

    name: str
    operator: str
    provider: str


def placement(session: ort.InferenceSession) -> list[Placed]:
    """Return where the nodes of a session run, if it was made with RECORD_PLACEMENT."""
    return [
        Placed(node.name, node.op_type, part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


def misplaced(nodes: Iterable[Placed], provider: str) -> list[str]:
    """Return the nodes that run elsewhere than on their provider, but for shape arithmetic, which belongs on the host.

    Every one of them would copy values from the device and back in each run.
    """
    return [
        f"{node.name} ({node.operator})" for node in nodes if node.provider != provider and node.operator not in ON_HOST
    ]
