"""The inputs of an encoder, and what its graph computes from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lingon import bundle
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.export.graphs.transformer.attention import Mask
from lingon.export.graphs.transformer.blocks import Blocks
from lingon.export.graphs.transformer.positions import RelativeScores, Rotation


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """The inputs of an encoder, and values computed from them.

    ids: (batch, source_length)
    batch: int64 [batch]
    positions: 0 to source_length - 1
    bias: of cross-attention (batch, 1, 1, source_length), from Blocks.attention_bias; "" if no node may read it
    mask: of the encoder's self-attention
    rotation: of the encoder's self-attention
    """

    ids: str
    batch: str
    positions: str
    bias: str
    mask: Mask
    rotation: Rotation | None

    @classmethod
    def declare(cls, blocks: Blocks, relative: RelativeScores | None, *, crossed: bool) -> EncoderInputs:
        """Write inputs and values.

        relative: of the encoder, if positions are relative
        crossed: whether the graph has cross-attention too
        """
        graph, settings = blocks.graph, blocks.settings
        ids = graph.input(bundle.SOURCE_IDS, np.int64, ["batch", "source_length"])
        lengths = graph.input(bundle.SOURCE_LENGTHS, np.int64, ["batch"])
        width = graph.op("Shape", ids, start=1, end=2)
        batch, positions = graph.op("Shape", lengths), graph.count_up(width)
        seen = visible(graph, lengths, width)
        softmax = settings.encoder_attention == "softmax"
        bias = blocks.attention_bias(seen) if crossed or (softmax and not settings.encoder_window) else ""
        own = bias if softmax else ""
        if settings.encoder_window:
            seen = _within_window(graph, seen, positions, settings.encoder_window)
            own = blocks.attention_bias(seen)
        if relative is not None:
            own = graph.op("Add", own, relative.of_sequences(positions))
        rotation = Rotation.of_sequences(blocks, batch) if settings.positions == "rotary" else None
        return cls(ids, batch, positions, bias, Mask(seen, own), rotation)


def visible(graph: GraphBuilder, lengths: str, width: str) -> str:
    """Return a mask (n, 1, 1, width), True at the positions before each of lengths (n)."""
    return graph.op("Less", graph.count_up(width), graph.op("Unsqueeze", lengths, graph.int64s(1, 2, 3)))


def _within_window(graph: GraphBuilder, seen: str, positions: str, radius: int) -> str:
    """Return a mask (n, 1, width, width), True where position i may see j: |i - j| <= radius, and j is visible.

    seen: (n, 1, 1, width)

    A padded position may see nothing. Its bias is finite, and so are its weights, which no other position reads.
    """
    distance = graph.op("Abs", graph.op("Sub", graph.op("Unsqueeze", positions, graph.int64s(1)), positions))
    near = graph.op("LessOrEqual", distance, graph.constant(np.array(radius)))
    return graph.op("And", seen, near)
