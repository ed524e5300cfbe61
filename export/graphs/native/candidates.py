"""The best next tokens of each row of logits, by our own operator."""

from __future__ import annotations

import numpy as np

from lingon import bundle
from lingon.export.graphs.onnx_writer import KERNELS, GraphBuilder


def write_candidates(graph: GraphBuilder, logits: str, pieces: str = "", allowed: str = "") -> None:
    """Output the candidates of each row with their log-probabilities.

    logits: (rows, columns)
    pieces, allowed: the piece of each column, and which of them each sentence may use; see OutputLayer
    """
    count = graph.input(bundle.CANDIDATE_COUNT, np.int64, [1])
    names, shape = (bundle.CANDIDATE_IDS, bundle.CANDIDATE_LOG_PROBS), ("rows", "candidates")
    for name, dtype in zip(names, (np.int64, np.float32), strict=True):
        graph.declare_output(name, dtype, shape)
    given = (pieces, allowed) if pieces else ()
    graph.ops("Candidates", logits, count, *given, outputs=list(names), domain=KERNELS)
