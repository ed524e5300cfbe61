"""Tiny IndicTrans2 models with random weights, saved as published ones are, beside an mBART that computes the same.

Transformers has no IndicTrans2, and the code of its repositories is not run. An mBART whose positions are sinusoids,
with a table for each side, is the same network. It needs Transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from lingon.importers.files.tensors import SAFETENSORS
from tests.support.foreign_models import HEAD, draw_weights, lines, normal_pieces, point_to_end, train_pieces

CODES = ("eng_Latn", "hin_Deva", "ben_Beng", "asm_Beng", "tam_Taml", "urd_Arab", "mar_Deva")
DIRECTIONS = {"en-indic": (False, True), "indic-en": (True, False), "indic-indic": (True, True)}
"""Whether the source and the target are languages of India."""

FIRST_LETTER = 0x915  # ka of Devanagari
POSITIONS, SKIPPED = 64, 2  # of the table of mBART, whose first rows no token has


def in_devanagari(text: str) -> str:
    """Return a text with a consonant of Devanagari for each small Latin letter."""
    return text.lower().translate({ord("a") + number: FIRST_LETTER + number for number in range(26)})


def texts(indic: bool) -> list[str]:
    """Return sentences of one side."""
    return [in_devanagari(text) for text in lines("de")] if indic else lines("en")


def save_indictrans2(
    folder: Path, direction: str, *, seed: int = 5, ends: float = 2.0, norm_before: bool = True
) -> nn.Module:
    """Save the files of a model, and return the mBART. ends: raises the logit of the end token.

    norm_before: whether norms come before each sublayer, as in the published models. mBART knows no others
    """
    folder.mkdir(parents=True)
    vocabularies = [
        _save_pieces(folder, side, texts(indic))
        for side, indic in zip(("SRC", "TGT"), DIRECTIONS[direction], strict=True)
    ]
    model = _witness(*(len(each) + 3 for each in vocabularies), seed=seed, ends=ends)
    weights = {name: value.clone() for name, value in model.state_dict().items() if _is_saved(name)}
    save_file(weights, folder / SAFETENSORS)
    config = _config(*(len(each) + 3 for each in vocabularies)) | {
        "encoder_normalize_before": norm_before,
        "decoder_normalize_before": norm_before,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": 5, "max_length": 256}), encoding="utf-8")
    return model


def _save_pieces(folder: Path, side: str, sentences: Sequence[str]) -> list[str]:
    """Save dictionary and model of a side. The dictionary lacks a piece and has another order than the model."""
    content = train_pieces(sentences, 250, "bpe")
    (folder / f"model.{side}").write_bytes(content)
    found = sorted(normal_pieces(content))
    pieces = [*HEAD, *found[1:], *CODES]
    ids = {piece: number for number, piece in enumerate(pieces)}
    (folder / f"dict.{side}.json").write_text(json.dumps(ids), encoding="utf-8")
    return pieces


def _is_saved(name: str) -> bool:
    """Return whether IndicTrans2 has a tensor of mBART: it has no positions, and no table that both sides share."""
    return (
        "embed_positions" not in name and "shared" not in name and name not in ("final_logits_bias", "lm_head.weight")
    )


def _witness(source_rows: int, target_rows: int, *, seed: int, ends: float) -> Any:
    from transformers import MBartConfig, MBartForConditionalGeneration
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
    from transformers.models.mbart.modeling_mbart import MBartScaledWordEmbedding

    torch.manual_seed(seed)
    config = MBartConfig(
        vocab_size=target_rows,
        d_model=32,
        **{f"{side}_layers": layers for side, layers in (("encoder", 3), ("decoder", 2))},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        max_position_embeddings=POSITIONS,
        activation_function="gelu",
        scale_embedding=True,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    model = MBartForConditionalGeneration(config).eval()
    model.model.encoder.embed_tokens = MBartScaledWordEmbedding(source_rows, 32, 1, embed_scale=32**0.5)
    draw_weights(model, seed)
    table = M2M100SinusoidalPositionalEmbedding.get_embedding(POSITIONS + SKIPPED, 32, padding_idx=1)
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.data.copy_(table)
    point_to_end(model.model.decoder.layer_norm, model.lm_head.weight[2], ends)
    return model


def _config(source_rows: int, target_rows: int) -> dict[str, Any]:
    return {
        "model_type": "IndicTrans",
        "architectures": ["IndicTransForConditionalGeneration"],
        "activation_function": "gelu",
        "encoder_vocab_size": source_rows,
        "decoder_vocab_size": target_rows,
        **{f"{side}_layers": layers for side, layers in (("encoder", 3), ("decoder", 2))},
        **{f"{side}_embed_dim": 32 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        "layernorm_embedding": True,
        "scale_embedding": True,
        "share_decoder_input_output_embed": True,
        "max_source_positions": POSITIONS,
        "max_target_positions": POSITIONS,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
