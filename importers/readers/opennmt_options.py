"""The options of OpenNMT-py and of Eole that decide what a model computes, checked against what Lingon computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lingon.importers.files.fields import JsonFields
from lingon.importers.readers.bart import MOST
from lingon.training.model_settings import HEAD_STEP, Activation
from lingon.training.models.layers import SinusoidForm

SIDES: tuple[Literal["encoder"], Literal["decoder"]] = ("encoder", "decoder")
OPENNMT_PY, EOLE = "OpenNMT-py", "Eole"
SINUSOIDS: dict[str, SinusoidForm] = {
    "SinusoidalInterleaved": "interleaved",
    "SinusoidalConcat": "inclusive-halves",
}
ROTARY_BASE = 10_000  # of the angles of rotary positions
NORM_EPSILON = {OPENNMT_PY: 1e-6, EOLE: 1e-5}
"""By default."""
NORMS: dict[str, Literal["layer", "rms"]] = {"standard": "layer", "rms": "rms"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What decides the computation of a model.

    fields: where it is said, for messages
    toolkit: OPENNMT_PY or EOLE
    heads, key_heads: of an attention. Several heads of queries may read one of keys and values
    layers: of the encoder and of the decoder
    gated: whether a second product multiplies what the activation returns
    positions: sinusoids are added and rows of tables scaled; the others do neither
    halves: whether rotary positions turn the first half of a head with the second one, and not neighbours
    buckets, distance: of relative positions
    alignment: the decoder layer and the heads that alignments were trained for
    """

    fields: JsonFields
    toolkit: str
    heads: int
    key_heads: int
    ffn: int
    layers: tuple[int, int]
    activation: Activation
    gated: bool
    norm: Literal["layer", "rms"]
    epsilon: float
    positions: Literal["sinusoidal", "rotary", "relative", "none"]
    sinusoids: SinusoidForm = "interleaved"
    halves: bool = False
    buckets: int = 32
    distance: int = 128
    alignment: tuple[int, tuple[int, ...]] | None = None


ACTIVATIONS: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("silu", True),
    "gated-gelu": ("gelu", True),
}
"""Activations of OpenNMT-py, and whether each is gated."""
EOLE_ACTIVATIONS: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("silu", False),
    "gelu-tanh": ("gelu-tanh", False),
    "quick_gelu": ("quick-gelu", False),
    "gated-silu": ("silu", True),
    "gated-gelu": ("gelu", True),
    "gated-gelu-tanh": ("gelu-tanh", True),
}
OPENNMT_PY_ONLY: dict[str, tuple[Any, ...]] = {
    "model_task": ("seq2seq",),
    "model_type": ("text",),
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "copy_attn": (False,),
    "generator_function": ("softmax",),
    "parallel_residual": (False,),
    "multiquery": (False,),
    "num_experts": (0,),
    "sliding_window": (0,),
    "n_src_feats": (0,),
}
"""The options of OpenNMT-py of which Lingon computes these values alone."""
EOLE_ONLY: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "encoder_layer_style": ("standard",),
    "parallel_residual": (False,),
    "ffn_layernorm": (False,),
    "query_norm": (False,),
    "key_norm": (False,),
    "num_experts": (0,),
    "sliding_window": (0,),
    "attn_scaling": (None,),
    "normalize": (None, False),
    "embedding_layer_norm": (False,),
    "add_estimator": (False,),
}


def options_of_opennmt_py(fields: JsonFields, dim: int) -> Options:
    """Return the options of a checkpoint of the width `dim`. Raises SourceModelError if Lingon computes no such model.

    Options that an old version did not have are absent, and have the values with which it computed.
    """
    _check_values(fields, OPENNMT_PY_ONLY)
    heads = _heads(fields, dim)
    relative = fields.integer("max_relative_positions", -MOST, MOST, default=0)
    buckets = fields.integer("relative_positions_buckets", 0, MOST, default=0)
    added = fields.flag("position_encoding", False)
    if relative < -1 or (relative > 0 and not buckets):
        rule = "must be 0, or -1 for rotary positions, or stand beside relative_positions_buckets"
        raise fields.error("max_relative_positions", rule)
    if relative and added:
        raise fields.error("position_encoding", "must be false beside max_relative_positions")
    if relative == -1:
        _check_rotary(fields, dim // heads)
    if buckets and (buckets % 4 or relative <= buckets // 2):
        rule = f"must be a multiple of 4 and less than twice max_relative_positions ({relative})"
        raise fields.error("relative_positions_buckets", rule)
    activation, gated = _activation(fields, "pos_ffn_activation_fn", ACTIVATIONS)
    layers = (fields.integer("enc_layers", 1, 1000), fields.integer("dec_layers", 1, 1000))
    return Options(
        fields=fields,
        toolkit=OPENNMT_PY,
        heads=heads,
        key_heads=_key_heads(fields, "num_kv", heads),
        ffn=fields.integer("transformer_ff", 1, MOST),
        layers=layers,
        activation=activation,
        gated=gated,
        norm=_norm(fields),
        epsilon=fields.number("norm_eps", 1e-12, 0.1, default=NORM_EPSILON[OPENNMT_PY]),
        positions="sinusoidal" if added else "rotary" if relative == -1 else "relative" if relative else "none",
        sinusoids=_sinusoids(fields, "position_encoding_type"),
        halves=not fields.flag("rotary_interleave", True),
        buckets=buckets or 32,
        distance=relative if relative > 0 else 128,
        alignment=_alignment(fields, layers[1], heads),
    )


def options_of_eole(config: JsonFields, dim: int) -> Options:
    """Return the options of a folder of the width `dim`. Raises SourceModelError if Lingon computes no such model."""
    encoder, decoder = (_of_side(config, side) for side in SIDES)
    for fields in (encoder, decoder):
        _check_values(fields, EOLE_ONLY)
    for name in ("heads", "heads_kv", "transformer_ff", "mlp_activation_fn", "layer_norm", "norm_eps"):
        if encoder.values.get(name) != decoder.values.get(name):
            raise decoder.error(name, "must be that of the encoder")
    heads = _heads(encoder, dim)
    if encoder.integer("head_dim", 1, MOST, default=dim // heads) != dim // heads:
        raise encoder.error("head_dim", f"must be the width divided by the heads ({dim // heads})")
    kind = encoder.text("position_encoding_type", "none")
    known = ("Rotary", "none", *SINUSOIDS)
    if kind not in known or kind != decoder.text("position_encoding_type", "none"):
        raise encoder.error("position_encoding_type", f"must be {' or '.join(known)}, and that of the decoder")
    rope = JsonFields(config.path, encoder.values.get("rope_config") or {})
    if kind == "Rotary":
        _check_rotary(rope, dim // heads)
    activation, gated = _activation(encoder, "mlp_activation_fn", EOLE_ACTIVATIONS)
    layers = (encoder.integer("layers", 1, 1000), decoder.integer("layers", 1, 1000))
    return Options(
        fields=encoder,
        toolkit=EOLE,
        heads=heads,
        key_heads=_key_heads(encoder, "heads_kv", heads),
        ffn=encoder.integer("transformer_ff", 1, MOST),
        layers=layers,
        activation=activation,
        gated=gated,
        norm=_norm(encoder),
        epsilon=encoder.number("norm_eps", 1e-12, 0.1, default=NORM_EPSILON[EOLE]),
        positions="rotary" if kind == "Rotary" else "none" if kind == "none" else "sinusoidal",
        sinusoids=_sinusoids(encoder, "position_encoding_type") if kind in SINUSOIDS else "interleaved",
        halves=not rope.flag("rotary_interleave", True),
        alignment=_alignment(decoder, layers[1], heads),
    )


def _of_side(config: JsonFields, side: str) -> JsonFields:
    """Return the options of a side: its own, those of the embeddings, and those of the model for all that it lacks."""
    model = config.values.get("model")
    parts = [model, *(model.get(name) for name in ("embeddings", side))] if isinstance(model, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise config.error("model", f"must have the options of the embeddings and of the {side}")
    given = [{name: value for name, value in part.items() if value is not None} for part in parts if part]
    return JsonFields(config.path, {name: value for part in given for name, value in part.items()})


def _check_values(fields: JsonFields, only: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise SourceModelError if an option has a value that is not one of these. One that is absent has."""
    for name, values in only.items():
        if fields.values.get(name) not in (None, *values):
            raise fields.error(name, f"must be {' or '.join(str(each).lower() for each in values)}")


def _check_rotary(fields: JsonFields, head_dim: int) -> None:
    base = fields.number("rotary_theta", 1, math.inf, default=ROTARY_BASE)
    if base != ROTARY_BASE or fields.values.get("scaling_type") is not None:
        raise fields.error("rotary_theta", f"must be {ROTARY_BASE}, without a scaling_type")
    if fields.integer("rotary_dim", 0, MOST, default=0) not in (0, head_dim):
        raise fields.error("rotary_dim", f"must be 0 or the width of a head ({head_dim})")
    if head_dim % HEAD_STEP:  # zeros that widen a head would turn it by other angles
        raise fields.error("heads", f"must give heads of a multiple of {HEAD_STEP} dimensions with rotary positions")


def _heads(fields: JsonFields, dim: int) -> int:
    heads = fields.integer("heads", 1, MOST, default=8)
    if dim % (2 * heads):
        raise fields.error("heads", f"must divide half of the width ({dim})")
    return heads


def _activation(fields: JsonFields, name: str, known: Mapping[str, tuple[Activation, bool]]) -> tuple[Activation, bool]:
    """Return the activation that a field names, and whether its layers are gated. Without a name it is a plain ReLU."""
    return known["relu"] if fields.values.get(name) is None else fields.choice(name, known)


def _key_heads(fields: JsonFields, name: str, heads: int) -> int:
    found = fields.integer(name, 0, MOST, default=0) or heads
    if heads % found:
        raise fields.error(name, f"must be 0 or divide the heads ({heads})")
    return found


def _norm(fields: JsonFields) -> Literal["layer", "rms"]:
    return fields.choice("layer_norm", NORMS) if fields.values.get("layer_norm") is not None else "layer"


def _sinusoids(fields: JsonFields, name: str) -> SinusoidForm:
    return fields.choice(name, SINUSOIDS) if fields.values.get(name) is not None else "interleaved"


def _alignment(fields: JsonFields, layers: int, heads: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the decoder layer whose attention was trained for alignments, and its heads; None if none was."""
    if not fields.number("lambda_align", 0, math.inf, default=0):
        return None
    layer = fields.integer("alignment_layer", -layers, layers - 1, default=-1) % layers
    count = fields.integer("alignment_heads", 0, heads, default=0)
    return layer, tuple(range(count or heads))
