"""What older models of CTranslate2 call otherwise: variables and numbers.

A file has two versions: that of its binary form, see `container`, and the revision of the kind of model, which names
the variables.
"""

from __future__ import annotations

from collections.abc import Mapping

SPECS = {"": 8, "TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
"""The kinds of model that are a Transformer, and the number of heads where the file does not say it."""
TEXTS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
"""Variables that are texts, in older files, and what they are by default."""
FLAGS = ("with_source_bos", "with_source_eos", "with_target_bos", "user_decoder_start_tokens")
"""Numbers that say where special tokens stand, in older files."""
SIDES = ("encoder", "decoder")
_OF_BOTH = ("num_heads", "pre_norm", "activation", "embeddings_merge")
_OF_DECODER = ("alignment_layer", "alignment_heads")
_FIRST_NAMES = (
    ("transformer/", ""),
    (":0", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
)
"""What the first revision, which has the names of OpenNMT-tf, writes in another way."""
_SOURCE_TABLE = ("encoder/embeddings/weight", "encoder/embeddings_0/weight")
_SCALE = ("/embeddings/multiply_by_sqrt_depth", "/scale_embeddings")
_DEFAULTS = {
    "pre_norm": 1,
    "activation": 0,
    "embeddings_merge": 0,
    "scale_embeddings": 1,
    "alignment_layer": -1,
    "alignment_heads": 1,
    "start_from_zero_embedding": 0,
}
"""What CTranslate2 takes for a number that a file does not have."""


def current_name(name: str, revision: int) -> str:
    """Return the name that the current revision has for a variable."""
    if revision == 1:
        for old, new in _FIRST_NAMES:
            name = name.replace(old, new, 1)
        name = name.replace("masked_multi_head", "self_attention", 1)
        name = name.replace("multi_head", "self_attention" if "encoder" in name else "attention", 1)
    if name.startswith(_SOURCE_TABLE[0]):  # also its scale
        name = name.replace(*_SOURCE_TABLE, 1)
    return name.replace(*_SCALE, 1)


def current_numbers(scalars: Mapping[str, float], spec: str) -> dict[str, float]:
    """Return the numbers of a model, one for each side, without the flags of special tokens."""
    found = {name: value for name, value in scalars.items() if name not in (*_OF_BOTH, *_OF_DECODER, *FLAGS)}
    defaults = {"num_heads": SPECS[spec], **_DEFAULTS}
    for side in SIDES:
        for name in _OF_BOTH if side == "encoder" else (*_OF_BOTH, *_OF_DECODER):
            if name in scalars:
                found.setdefault(f"{side}/{name}", scalars[name])
    for name, value in defaults.items():
        for side in ("decoder",) if name in (*_OF_DECODER, "start_from_zero_embedding") else SIDES:
            found.setdefault(f"{side}/{name}", value)
    return found
