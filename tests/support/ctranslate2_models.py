"""Folders of CTranslate2 with the weights of a MarianMTModel, written without CTranslate2."""

from __future__ import annotations

import json
import math
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lingon.training.models.layers import sinusoids

Array = NDArray[Any]
TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def variables_of(source: Path) -> tuple[dict[str, Array], dict[str, str], list[str]]:
    """Return variables, aliases and the vocabulary of a saved MarianMTModel of one shared vocabulary."""
    tensors, config = load_file(source / "model.safetensors"), json.loads((source / "config.json").read_text())
    ids: dict[str, int] = json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    vocabulary = [piece for piece in sorted(ids, key=lambda piece: ids[piece]) if piece != "<pad>"]
    rows, dim = len(vocabulary), config["d_model"]  # the padding is the last one
    found: dict[str, Array] = {
        "decoder/embeddings/weight": tensors["model.shared.weight"][:rows],
        "decoder/projection/bias": tensors["final_logits_bias"][0, :rows],
        "decoder/position_encodings/encodings": sinusoids(config["max_position_embeddings"], dim, "halves").numpy(),
        "decoder/start_from_zero_embedding": np.array(1, np.int8),
        "decoder/alignment_layer": np.array(-1, np.int16),
        "decoder/alignment_heads": np.array(1, np.int16),
        "encoder/embeddings_merge": np.array(0, np.int8),
    }
    for side in ("encoder", "decoder"):
        found |= {
            f"{side}/activation": np.array(2, np.int8),
            f"{side}/num_heads": np.array(config["encoder_attention_heads"], np.int16),
            f"{side}/pre_norm": np.array(0, np.int8),
            f"{side}/scale_embeddings": np.array(math.sqrt(dim), np.float32),
        }
        for number in range(config[f"{side}_layers"]):
            found |= _layer(tensors, f"model.{side}.layers.{number}", f"{side}/layer_{number}")
    aliases = {
        "decoder/projection/weight": "decoder/embeddings/weight",
        "encoder/embeddings_0/weight": "decoder/embeddings/weight",
        "encoder/position_encodings/encodings": "decoder/position_encodings/encodings",
    }
    return found, aliases, vocabulary


def _layer(tensors: dict[str, Array], theirs: str, ours: str) -> dict[str, Array]:
    """Return the variables of a layer."""
    found: dict[str, Array] = {}

    def product(name: str, *parts: str) -> None:
        for kind in ("weight", "bias"):
            found[f"{ours}/{name}/{kind}"] = np.concatenate([tensors[f"{theirs}.{part}.{kind}"] for part in parts])

    def norm(name: str, part: str) -> None:
        found[f"{ours}/{name}/layer_norm/gamma"] = tensors[f"{theirs}.{part}.weight"]
        found[f"{ours}/{name}/layer_norm/beta"] = tensors[f"{theirs}.{part}.bias"]

    product("self_attention/linear_0", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    product("self_attention/linear_1", "self_attn.out_proj")
    norm("self_attention", "self_attn_layer_norm")
    if "decoder" in theirs:
        product("attention/linear_0", "encoder_attn.q_proj")
        product("attention/linear_1", "encoder_attn.k_proj", "encoder_attn.v_proj")
        product("attention/linear_2", "encoder_attn.out_proj")
        norm("attention", "encoder_attn_layer_norm")
    product("ffn/linear_0", "fc1")
    product("ffn/linear_1", "fc2")
    norm("ffn", "final_layer_norm")
    return found


def converted(variables: dict[str, Array], kind: str) -> dict[str, Array]:
    """Return variables whose matrices have another type, with the scales of integers."""
    found: dict[str, Array] = {}
    for name, value in variables.items():
        matrix = value.ndim == 2 and name.endswith("weight")
        if kind == "float16" and value.dtype == np.float32 and value.ndim:
            found[name] = value.astype(np.float16)
        elif kind == "int8" and matrix:
            scale = (127 / np.abs(value).max(axis=1)).astype(np.float32)
            found[name], found[f"{name}_scale"] = np.rint(value * scale[:, None]).astype(np.int8), scale
        elif kind == "int16-fixed" and matrix:
            found[name] = np.rint(value * 1000).astype(np.int16)
        elif kind == "int16" and matrix:
            scale = np.array(1023 / np.abs(value).max(), np.float32)
            found[name], found[f"{name}_scale"] = np.rint(value * scale).astype(np.int16), scale
        else:
            found[name] = value
    return found


def content_of(
    variables: dict[str, Array],
    aliases: dict[str, str],
    spec: str = "TransformerSpec",
    version: int = 6,
    revision: int = 7,
) -> bytes:
    """Return a file of a version of the form. Those before 3 have no aliases, and the first one no kind of model."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    written = struct.pack("<I", version)
    if version >= 2:
        written += text(spec) + struct.pack("<I", revision)
    written += struct.pack("<I", len(variables))
    for name, value in sorted(variables.items()):
        data = np.ascontiguousarray(value).tobytes()
        written += text(name) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        kind = (TYPES[value.dtype.name], len(data)) if version >= 4 else (value.itemsize, value.size)
        written += struct.pack("<BI", *kind) + data
    if version < 3:
        return written
    written += struct.pack("<I", len(aliases))
    return written + b"".join(text(alias) + text(name) for alias, name in aliases.items())


def save_ctranslate2(folder: Path, source: Path, kind: str = "float32") -> Path:
    """Save the model of a folder of a MarianMTModel, with its sentencepiece models; kind: the type of its matrices."""
    folder.mkdir(parents=True)
    variables, aliases, vocabulary = variables_of(source)
    (folder / "model.bin").write_bytes(content_of(converted(variables, kind), aliases))
    (folder / "shared_vocabulary.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    tokens = {"bos_token": "<s>", "decoder_start_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {**tokens, "add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        shutil.copy(source / name, folder / name)
    return folder
