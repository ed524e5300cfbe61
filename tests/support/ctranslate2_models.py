"""Folders of CTranslate2: of a MarianMTModel, and of OpenNMT as its converters have saved them over the years."""

from __future__ import annotations

import importlib.metadata
import json
import math
import random
import re
import shutil
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.text import UNK, Tokenizer
from lingon.training.batches import EncodedPairs
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.build import build_model
from lingon.training.models.interface import AnyModel
from lingon.training.models.layers import sinusoids
from lingon.training.models.loss import smoothed_loss
from tests.support.foreign_models import lines, normal_pieces
from tests.support.repository import ROOT
from tests.support.tokenizers import train_sentencepiece

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
    """Save the model of a folder of a MarianMTModel, with its sentencepiece models. kind: the type of its matrices."""
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


DATA = ROOT / "tests" / "data" / "opennmt"
WEIGHTS = DATA / "weights.npz"  # 16-bit floats, by the names of CTranslate2
SIDES = {"source": "source.spm", "target": "target.spm"}
HEADS, WORDS = 8, 111
SPACE = "\u2581"  # at the start of a word
SPECIAL = ("<blank>", "<s>", "</s>")
NAMES = {
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
    "around_attention.norm": "self_attention.layer_norm",
    "around_cross.norm": "attention.layer_norm",
    "around_feed_forward.norm": "ffn.layer_norm",
    "attention.qkv": "self_attention.linear_0",
    "attention.output": "self_attention.linear_1",
    "cross.query": "attention.linear_0",
    "cross.key_value": "attention.linear_1",
    "cross.output": "attention.linear_2",
    "feed_forward.inner": "ffn.linear_0",
    "feed_forward.outer": "ffn.linear_1",
    **{f"{side}.{number}.": f"{side}.layer_{number}." for side in ("encoder", "decoder") for number in range(2)},
}
"""Parts of our names, and the parts of the names of CTranslate2."""
LETTERS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абкдефгхийклмнопкрстуввхиз")


def cyrillic(word: str) -> str:
    """Return a word in Cyrillic letters, of which several Latin ones become the same, without most of its vowels."""
    for pair, letter in (("sh", "ш"), ("ch", "ч"), ("th", "ц"), ("ck", "к"), ("ee", "и"), ("oo", "у"), ("ou", "у")):
        word = word.replace(pair, letter)
    return re.sub(r"(?<=.)[aeо](?=.)", "", word).translate(LETTERS)


def words() -> tuple[list[str], list[str]]:
    """Return the words to train on, and WORDS others."""
    found = sorted({word for line in lines("en") for word in re.findall(r"[a-z]{3,}", line.lower())})
    random.Random(1).shuffle(found)
    return found[WORDS:], found[:WORDS]


def texts() -> list[str]:
    """Return the sources of the words that the model was not trained on. Some are two words."""
    _, held_out = words()
    return [
        " ".join(map(cyrillic, held_out[position : position + 1 + (position % 5 == 0)]))
        for position in range(len(held_out))
    ]


@dataclass(frozen=True, slots=True)
class SavedForm:
    """The form of a saved folder.

    version, revision: of model.bin
    kind: the type of the matrices; int16-fixed has the one scale that no file of version 1 says
    """

    name: str
    version: int = 6
    revision: int = 7
    kind: str = "float32"


FORMS = (
    SavedForm("format 1", 1, 1),
    SavedForm("format 1, int16", 1, 1, "int16-fixed"),
    SavedForm("format 2", 2, 2),
    SavedForm("format 2, int16", 2, 3, "int16"),
    SavedForm("format 2, int8", 2, 3, "int8"),
    SavedForm("format 3", 3, 3),
    SavedForm("format 3, int8", 3, 4, "int8"),
    SavedForm("format 4", 4, 4),
    SavedForm("format 4, float16", 4, 4, "float16"),
    SavedForm("format 5", 5, 5),
    SavedForm("format 5, int8", 5, 6, "int8"),
    SavedForm("format 6"),
    SavedForm("format 6, float16", kind="float16"),
    SavedForm("format 6, int8", kind="int8"),
    SavedForm("format 6, int16", kind="int16"),
)


def variables() -> dict[str, Array]:
    """Return the variables of the model, in 32 bits, by the names of the latest revision."""
    with np.load(WEIGHTS) as found:
        arrays = {name: value.astype(np.float32) for name, value in found.items()}
    numbers: dict[str, Array] = {
        "decoder/alignment_heads": np.array(1, np.int16),
        "decoder/alignment_layer": np.array(-1, np.int16),
        "decoder/start_from_zero_embedding": np.array(0, np.int8),
    }
    for side in ("encoder", "decoder"):
        numbers |= {
            f"{side}/activation": np.array(0, np.int8),
            f"{side}/num_heads": np.array(HEADS, np.int16),
            f"{side}/pre_norm": np.array(1, np.int8),
            f"{side}/scale_embeddings": np.array(1, np.int8),
        }
    return {**arrays, **numbers, "encoder/embeddings_merge": np.array(0, np.int8)}


def save_opennmt(folder: Path, form: SavedForm, *, config: dict[str, object] | None = None) -> Path:
    """Save the model. config: fields of config.json that differ."""
    folder.mkdir(parents=True)
    for side, name in SIDES.items():
        shutil.copy(DATA / name, folder / name)
        vocabulary = vocabulary_of((DATA / name).read_bytes())
        if form.version < 6:
            (folder / f"{side}_vocabulary.txt").write_text("".join(f"{piece}\n" for piece in vocabulary), "utf-8")
        else:
            (folder / f"{side}_vocabulary.json").write_text(json.dumps(vocabulary), "utf-8")
    found, aliases = converted(variables(), form.kind), dict[str, str]()
    if form.version < 6:
        found = _older(found, form)
    else:
        tokens = {"bos_token": "<s>", "decoder_start_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        values = {**tokens, "add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": None}
        (folder / "config.json").write_text(json.dumps({**values, **(config or {})}), "utf-8")
    spec = "TransformerBase" if form.version == 2 else "TransformerSpec"
    (folder / "model.bin").write_bytes(content_of(found, aliases, spec, form.version, form.revision))
    return folder


def vocabulary_of(model: bytes) -> list[str]:
    """Return the vocabulary of a side, as OpenNMT-tf has it: the unknown piece is last."""
    return [*SPECIAL, *normal_pieces(model), "<unk>"]


def _older(found: dict[str, Array], form: SavedForm) -> dict[str, Array]:
    """Return variables by the names and with the numbers of an older form."""
    numbers = {name: value for name, value in found.items() if not value.ndim and not name.endswith("_scale")}
    arrays = {name: value for name, value in found.items() if name not in numbers}
    arrays = {name.replace("encoder/embeddings_0/", "encoder/embeddings/"): value for name, value in arrays.items()}
    if form.revision == 1:  # The rest of this revision is as it was in OpenNMT-tf then.
        return {_first_name(name): value for name, value in arrays.items()}
    said: dict[str, Array] = {}
    if form.revision >= 3:
        said |= {"num_heads": np.array(HEADS, np.int8), "pre_norm": np.array(1, np.int8)}
    if form.revision >= 4:
        said |= {"activation": np.array(0, np.int8), "alignment_layer": np.array(-1, np.int16)}
        said |= {"alignment_heads": np.array(1, np.int16), "with_source_eos": np.array(0, np.int8)}
    if form.revision >= 5:
        said = {**numbers, "with_source_bos": np.array(0, np.int8), "with_target_bos": np.array(1, np.int8)}
        said |= {name: np.frombuffer(text, np.int8) for name, text in (("unk_token", b"<unk>"), ("bos_token", b"<s>"))}
    return {**arrays, **said}


def _first_name(name: str) -> str:
    """Return the name of a variable in OpenNMT-tf."""
    name, scale = name.removesuffix("_scale"), "_scale" if name.endswith("_scale") else ""
    if name.startswith("decoder"):
        name = name.replace("/self_attention/", "/masked_multi_head/").replace("/attention/", "/multi_head/")
    else:
        name = name.replace("/self_attention/", "/multi_head/")
    name = name.replace("embeddings/weight", "w_embs").replace("layer_norm", "LayerNorm").replace("projection", "dense")
    name = name.replace("linear_0", "conv1d").replace("linear_", "conv1d_").replace("/weight", "/kernel")
    return f"transformer/{name}:0{scale}" if not scale else f"transformer/{name}{scale}:0"


def _variables_of(model: AnyModel) -> dict[str, Array]:
    """Return the weights of a model of ours by the names of CTranslate2, the unknown piece last."""
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    found: dict[str, Array] = {}

    def moved(row_table: Array) -> Array:
        return np.concatenate([row_table[:UNK], row_table[UNK + 1 :], row_table[UNK : UNK + 1]])

    found["encoder/embeddings_0/weight"] = moved(weights.pop("source_embedding.pieces.weight"))
    found["decoder/embeddings/weight"] = moved(weights.pop("target_embedding.pieces.weight"))
    found |= {f"decoder/projection/{kind}": moved(weights.pop(f"output.{kind}")) for kind in ("weight", "bias")}
    for name, value in weights.items():
        part, _, kind = name.rpartition(".")
        for ours, theirs in NAMES.items():
            part = part.replace(ours, theirs)
        if part.endswith("layer_norm"):
            kind = {"weight": "gamma", "bias": "beta"}[kind]
        found[f"{part.replace('.', '/')}/{kind}"] = value
    return {name: value.astype(np.float16) for name, value in found.items()}


def train(updates: int = 800) -> tuple[AnyModel, dict[str, bytes]]:
    """Return a trained model and its sentencepiece models."""
    train_words, _ = words()
    draws = random.Random(2)
    pairs = [(cyrillic(word), word) for word in train_words]
    pairs += [tuple(" ".join(both) for both in zip(*draws.sample(pairs, 2), strict=True)) for _ in range(1500)]
    models = {
        side: train_sentencepiece([pair[position] for pair in pairs], 100, model_type="char", hard_vocab_limit=False)
        for position, side in enumerate(SIDES)
    }
    tokenizer = Tokenizer(models["source"], models["target"], source_end=False)
    settings = TransformerSettings(
        preset="tiny",
        heads=HEADS,
        head_dim=4,
        ffn=64,
        norm="pre",
        sinusoids="inclusive-halves",
        first_position=1,
        output_bias=True,
        tie="none",
        max_positions=64,
        dropout=0.1,
    )
    torch.manual_seed(3)
    model = build_model(settings, tokenizer.source_vocab, tokenizer.target_vocab)
    sources, targets = ([pair[position] for pair in pairs] for position in (0, 1))
    encoded = EncodedPairs(tokenizer.source.encode(sources), tokenizer.target.encode(targets), source_end=False)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=updates)
    for _ in range(updates):
        batch = encoded.batch(draws.sample(range(len(pairs)), 128))
        loss = smoothed_loss(model(batch.source_ids, batch.source_lengths, batch.target_ids), batch.labels, 0.0)
        optimiser.zero_grad()
        (loss / batch.tokens).backward()
        optimiser.step()
        schedule.step()
    return model.eval(), models


EXACT = {"suppress_sequences": [[piece] for piece in (*SPECIAL[:2], "<unk>")], "min_decoding_length": 0}
"""Options by which CTranslate2 gives no probability to what Lingon never generates, and may end a text at once."""
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam 4": {"beam_size": 4},
    "greedy, scores": {"beam_size": 1, **EXACT},
    "beam 4, patience 2, scores": {"beam_size": 4, "num_hypotheses": 4, "patience": 2, **EXACT},
}
"""Options of CTranslate2, with its default length penalty, 1. With more patience it ends as late as Lingon does."""
ANSWERS = DATA / "answers.json"


def ctranslate2_answers(folder: Path) -> dict[str, list[list[tuple[str, float]]]]:
    """Return what CTranslate2 answers in float32 for `texts`, asked as users of OpenNMT ask it: with pieces alone.

    For each search and text its hypotheses, the best first, with their scores.
    """
    import ctranslate2

    translator: Any = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    pieces = pieces_of(texts(), folder)
    found = {}
    for name, options in SEARCHES.items():
        results = translator.translate_batch(pieces, return_scores=True, **options)
        found[name] = [
            [(text_of(tokens), score) for tokens, score in zip(each.hypotheses, each.scores, strict=True)]
            for each in results
        ]
    return found


def ctranslate2_attention(folder: Path, count: int) -> list[list[list[float]]]:
    """Return the attention of the first texts in greedy search by CTranslate2: (target tokens, source tokens) each."""
    import ctranslate2

    translator: Any = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    results = translator.translate_batch(pieces_of(texts()[:count], folder), beam_size=1, return_attention=True)
    return [each.attention[0] for each in results]


def pieces_of(sources: Sequence[str], folder: Path) -> list[list[str]]:
    """Return the pieces of texts by the sentencepiece model of a folder, as it writes them."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / SIDES["source"]))
    return [list(model.encode(text, out_type=str)) for text in sources]


def joint_pieces(folder: Path) -> bytes:
    """Return one sentencepiece model with the characters of both sides."""
    models = []
    for name in SIDES.values():
        models.append(ModelProto())
        models[-1].ParseFromString((folder / name).read_bytes())
    known = {piece.piece for piece in models[1].pieces}
    models[1].pieces.extend(piece for piece in models[0].pieces if piece.piece not in known)
    models[1].trainer_spec.vocab_size = len(models[1].pieces)
    return bytes(models[1].SerializeToString())


def text_of(tokens: Sequence[str]) -> str:
    """Return the text of target pieces."""
    return "".join(tokens).replace(SPACE, " ").strip()


def write() -> None:
    """Train the model, ask CTranslate2, and write the files of DATA."""
    model, models = train()
    DATA.mkdir(exist_ok=True)
    for side, name in SIDES.items():
        (DATA / name).write_bytes(models[side])
    np.savez_compressed(WEIGHTS, **_variables_of(model))  # type: ignore[arg-type]
    write_answers()


def write_answers() -> None:
    """Ask CTranslate2 for each type of weights, and write its answers."""
    with tempfile.TemporaryDirectory() as room:
        by_kind = {form.kind: form for form in FORMS if form.kind != "float16"}  # which holds the weights exactly
        folders = {kind: save_opennmt(Path(room) / kind, form) for kind, form in by_kind.items()}
        kept = {
            "reference_engine": f"ctranslate2 {importlib.metadata.version('ctranslate2')}",
            "answers": {kind: ctranslate2_answers(folder) for kind, folder in folders.items()},
            "attention": ctranslate2_attention(folders["float32"], 3),
        }
    for answers in kept["answers"].values():
        for name, found in answers.items():
            answers[name] = [[(text, round(score, 6)) for text, score in each] for each in found]
    ANSWERS.write_text(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    write()
