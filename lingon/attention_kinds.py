"""The kinds of attention that a model may have, and their values in messages."""

from __future__ import annotations

from typing import Literal, TypeAlias

from lingon.translation.v1 import translation_pb2 as pb

AttentionKind: TypeAlias = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder or of the decoder, or the attention of the decoder to the source."""

KINDS: dict[AttentionKind, pb.AttentionKind.ValueType] = {
    "encoder": pb.ATTENTION_KIND_ENCODER,
    "decoder": pb.ATTENTION_KIND_DECODER,
    "cross": pb.ATTENTION_KIND_CROSS,
}
