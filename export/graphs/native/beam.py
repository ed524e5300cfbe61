"""The graph of one step of beam search: the operator BeamStep over what a running batch keeps of its hypotheses."""

from __future__ import annotations

import numpy as np

from lingon import bundle
from lingon.export.graphs.onnx_writer import KERNELS, GraphBuilder, WeightFiles
from lingon.text import EOS

PASTS = "sentences", "beams", "capacity"
CHANGED = {
    bundle.TOKEN_IDS: (np.int64, ("rows",)),
    bundle.POSITIONS: (np.int64, ("rows",)),
    bundle.BEAM_ROWS: (np.int64, PASTS[:2]),
    bundle.BEAM_TOTALS: (np.float32, PASTS[:2]),
    bundle.BEAM_TOKENS: (np.int64, PASTS),
    bundle.BEAM_LOG_PROBS: (np.float32, PASTS),
    bundle.BEAM_TABLE: (np.int32, ("rows", "capacity")),
}
"""What the step changes, in the memory of its inputs; in the order of the operator."""

FOUND = {
    bundle.ENDED: (np.bool_, PASTS[:2]),
    bundle.ENDED_TOTALS: (np.float32, PASTS[:2]),
    bundle.ENDED_TOKENS: (np.int64, PASTS),
    bundle.ENDED_LOG_PROBS: (np.float32, PASTS),
    bundle.FAILED: (np.bool_, PASTS[:1]),
}
"""What the step returns besides."""


def beam_graph() -> bytes:
    """Return the graph candidates, states -> changed states, hypotheses that ended."""
    graph = GraphBuilder("beam", WeightFiles(), np.float32)
    candidates = [
        graph.input(name, dtype, ("rows", "candidates"))
        for name, dtype in ((bundle.CANDIDATE_IDS, np.int64), (bundle.CANDIDATE_LOG_PROBS, np.float32))
    ]
    states = [graph.input(name, dtype, shape) for name, (dtype, shape) in CHANGED.items()]
    outputs = {bundle.changed_name(name): each for name, each in CHANGED.items()} | FOUND
    for name, (dtype, shape) in outputs.items():
        graph.declare_output(name, dtype, shape)
    graph.ops("BeamStep", *candidates, *states, outputs=list(outputs), domain=KERNELS, end=EOS)
    return graph.finish()
