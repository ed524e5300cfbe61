"""The graphs of a recurrent system with our own products and choice of tokens; all other nodes are standard ones."""

from __future__ import annotations

from dataclasses import dataclass

from lingon.export.graphs.layers import Layers
from lingon.export.graphs.native.candidates import write_candidates
from lingon.export.graphs.native.matmul import native_products
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.export.graphs.output_layer import OutputLayer
from lingon.export.graphs.recurrent.graphs import RecurrentGraphs


@dataclass(slots=True)
class NativeRecurrentGraphs(RecurrentGraphs):
    """See RecurrentGraphs; quantised: whether products are in 8-bit integers, with a scale for every row."""

    quantised: bool = True

    def decoder_shortlist(self) -> bytes:
        """See RecurrentGraphs."""
        layers, hidden, _ = self._decoder_step("decoder_shortlist")
        write_candidates(layers.graph, *OutputLayer(self._model).product_of_pieces(layers, hidden))
        return self._finish(layers)

    def _write_candidates(self, graph: GraphBuilder, logits: str) -> None:
        write_candidates(graph, logits)

    def _layers(self, name: str) -> Layers:
        return Layers(*native_products(name, self.weights, quantised=self.quantised))
