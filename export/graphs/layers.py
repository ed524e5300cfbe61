"""What the graphs of all systems use of a model, and products with trained weights as ONNX nodes.

These products take two-dimensional rows (rows, dim) (lingon.export.graphs.matmul), so that the result of a row does not
depend on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor, nn

from lingon.export.graphs.matmul import MatMul
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.training.models.interface import AnyModel

MASKED = {"float32": -3e38, "float16": -6e4}  # added to a score: finite, and its exp is exactly 0
BLOCK = 64  # pieces of the vocabulary per block of the top-k search in lingon.export.graphs.output_layer


def pad_to_blocks(values: np.ndarray, fill: float = 0) -> np.ndarray:
    """Pad values (vocab, ...) with rows of `fill` to a multiple of BLOCK rows."""
    missing = -len(values) % BLOCK
    return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return the values of a parameter as float32."""
    return tensor.detach().float().cpu().numpy()


def bias_of(module: nn.Linear) -> np.ndarray:
    """Return the bias of a product (out); zeros if it has none."""
    trained = cast("Tensor | None", module.bias)
    return np.zeros(module.out_features, np.float32) if trained is None else to_numpy(trained)


def embedding_of(model: AnyModel, side: str) -> nn.Embedding:
    """Return the matrix of the pieces of a side, source or target."""
    found = model.get_submodule(f"{side}_embedding.pieces")
    assert isinstance(found, nn.Embedding)
    return found


def table_name(model: AnyModel, side: str) -> str:
    """Return the name of the matrix of the pieces of a side, which both sides may share."""
    tied = embedding_of(model, "source").weight is embedding_of(model, "target").weight
    return "pieces" if tied else f"{side}_pieces"


@dataclass(frozen=True, slots=True)
class Layers:
    """Writes products with trained weights into a graph."""

    graph: GraphBuilder
    matmul: MatMul

    def linear(self, module: nn.Linear, name: str, rows: str, scale: float = 1.0) -> str:
        """Return scale * (rows W^T + b), (n, out), for rows (n, in); the scale is folded into weight and bias."""
        weight = to_numpy(module.weight) * np.float32(scale)
        return self.matmul.linear(name, rows, weight, bias_of(module) * np.float32(scale))
