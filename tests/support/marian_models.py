"""Tiny models of Marian with random weights in its own files, and what they compute, written in NumPy.

The computation follows the papers, Vaswani et al. (2017), and Kim et al. (2019), section 3.1, for SSRU; the positions
of norms follow Marian's source, src/models/transformer.h. It shares no code with lingon.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2 as spm
from torch.nn import functional

from lingon.export.graphs.quantisation import calibrate
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.text import BOS, EOS, PAD, UNK, normalise
from lingon.training.batches import pad
from lingon.training.search import SearchSettings, translate
from tests.support.foreign_models import lines, train_pieces

Array = NDArray[np.floating[Any]]
OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": 32,
    "transformer-heads": 2,
    "transformer-dim-ffn": 48,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "dec-cell": "gru",
    "tied-embeddings-all": True,
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "guided-alignment": "none",
    "layer-normalization": False,
}
TARGET_TIED = {"tied-embeddings-all": False, "tied-embeddings": True}
UNTIED = {"tied-embeddings-all": False, "tied-embeddings": False}
STUDENT = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}
PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}
BOTH_NORMS = {"transformer-preprocess": "n"}


@dataclass(slots=True)
class Marian:
    """A model: its options and its tensors by the names of Marian; matrices are (in, out)."""

    options: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def random(cls, rows: tuple[int, int], seed: int, ends: float, **changed: Any) -> Marian:
        """Return a model with random weights. rows: of the two tables; ends: added to the bias of the end token."""
        model, random = cls({**OPTIONS, **changed}), np.random.default_rng(seed)
        dim, ffn = model.options["dim-emb"], model.options["transformer-dim-ffn"]

        def put(name: str, *shape: int, spread: float = 0.3, mean: float = 0.0) -> None:
            model.tensors[name] = (mean + spread * random.standard_normal(shape)).astype(np.float32)

        def norm(name: str, suffix: str) -> None:
            put(f"{name}_ln_scale{suffix}", 1, dim, spread=0.1, mean=1.0)
            put(f"{name}_ln_bias{suffix}", 1, dim, spread=0.1)

        def product(name: str, part: str, inputs: int, outputs: int) -> None:
            put(f"{name}_W{part}", inputs, outputs)
            put(f"{name}_b{part}", 1, outputs, spread=0.1)

        def norms(name: str, before: str = "") -> None:
            if model.norm_before:
                norm(before or name, "_pre")
            if model.norm_after:
                norm(name, "")

        model.options["dim-vocabs"] = list(rows)
        if model.options["tied-embeddings-all"]:
            put("Wemb", rows[0], dim, spread=0.15)
        else:
            put("encoder_Wemb", rows[0], dim, spread=0.15)
            put("decoder_Wemb", rows[1], dim, spread=0.15)
            if not model.options["tied-embeddings"]:
                put("decoder_ff_logit_out_W", dim, rows[1], spread=0.15)
        for side, depth in (("encoder", model.options["enc-depth"]), ("decoder", model.options["dec-depth"])):
            for layer in (f"{side}_l{number}" for number in range(1, depth + 1)):
                if side == "decoder" and model.recurrent:
                    put(f"{layer}_rnn_W", dim, dim)
                    product(f"{layer}_rnn", "f", dim, dim)
                    norms(f"{layer}_rnn_ffn", f"{layer}_rnn")
                attentions = [] if side == "decoder" and model.recurrent else ["self"]
                for kind in [*attentions, *(["context"] if side == "decoder" else [])]:
                    for part in "qkvo":
                        product(f"{layer}_{kind}", part, dim, dim)
                    norms(f"{layer}_{kind}_Wo")
                product(f"{layer}_ffn", "1", dim, ffn)
                product(f"{layer}_ffn", "2", ffn, dim)
                norms(f"{layer}_ffn_ffn")
            if model.options["transformer-postprocess-top"]:
                norm(f"{side}_top", "")
            if "n" in model.options["transformer-postprocess-emb"]:
                norm(f"{side}_emb", "_pre")
        put("decoder_ff_logit_out_b", 1, rows[1])
        model.tensors["decoder_ff_logit_out_b"][0, 0] += ends
        return model

    @property
    def norm_before(self) -> bool:
        return "n" in self.options["transformer-preprocess"]

    @property
    def norm_after(self) -> bool:
        return "n" in self.options["transformer-postprocess"]

    @property
    def recurrent(self) -> bool:
        return self.options["transformer-decoder-autoreg"] == "rnn"

    def logits(self, source: list[int], given: list[int]) -> Array:
        """Return the logits (1 + len(given), rows) after the start and after each given id."""
        tensors = self.tensors
        tables = [tensors.get("Wemb", tensors.get(f"{side}_Wemb")) for side in ("encoder", "decoder")]
        assert tables[0] is not None
        assert tables[1] is not None
        memory = self._embedded("encoder", tables[0][source])
        for number in range(1, self.options["enc-depth"] + 1):
            memory = self._around(f"encoder_l{number}_self_Wo", memory, self._attention(f"encoder_l{number}_self"))
            memory = self._feed_forward(f"encoder_l{number}", memory)
        memory = self._top("encoder", memory)
        begun = np.concatenate([np.zeros_like(tables[1][:1]), tables[1][given]])
        hidden = self._embedded("decoder", begun)
        for layer in (f"decoder_l{number}" for number in range(1, self.options["dec-depth"] + 1)):
            if self.recurrent:
                hidden = self._around(
                    f"{layer}_rnn_ffn", hidden, lambda rows, raw, at=layer: self._cell(at, rows), f"{layer}_rnn"
                )
            else:
                hidden = self._around(f"{layer}_self_Wo", hidden, self._attention(f"{layer}_self", causal=True))
            hidden = self._around(f"{layer}_context_Wo", hidden, self._attention(f"{layer}_context", memory))
            hidden = self._feed_forward(layer, hidden)
        output = tensors.get("decoder_ff_logit_out_W", tables[1].T)
        return self._top("decoder", hidden) @ output + tensors["decoder_ff_logit_out_b"]

    def greedy(self, source: list[int], never: list[int], eos: int, most: int) -> list[int]:
        """Return the generated ids without that of the end; `most` at most, the end counted."""
        found: list[int] = []
        while len(found) < most:
            logits = self.logits(source, found)[-1].copy()
            logits[never] = -np.inf
            found.append(int(logits.argmax()))
            if found[-1] == eos:
                return found[:-1]
        return found

    def _embedded(self, side: str, rows: Array) -> Array:
        """Return rows scaled by sqrt(dim), with sines before cosines of rates from 1 to 1 / 10,000."""
        count, dim = rows.shape
        rates = np.exp(np.arange(dim // 2) * -(np.log(10_000.0) / (dim // 2 - 1)))
        angles = np.arange(count)[:, None] * rates
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
        found = (rows * np.sqrt(dim) + table).astype(rows.dtype)
        has_norm = "n" in self.options["transformer-postprocess-emb"]
        return self._norm(f"{side}_emb", found, "_pre") if has_norm else found

    def _around(self, norm: str, hidden: Array, layer: Any, before: str = "") -> Array:
        """Return the sum of a layer and its input, with a norm before the layer, one after the sum, or both.

        layer: reads its input after the norm, and as it is
        before: what the name of the norm before the layer begins with, by default `norm`
        """
        read = self._norm(before or norm, hidden, "_pre") if self.norm_before else hidden
        total = hidden + layer(read, hidden)
        return self._norm(norm, total) if self.norm_after else total

    def _feed_forward(self, layer: str, hidden: Array) -> Array:
        def both(rows: Array, raw: Array) -> Array:
            inner = self._affine(f"{layer}_ffn", "1", rows)
            slope = {"swish": 1.0, "gelu": 1.702}.get(self.options["transformer-ffn-activation"])
            active = np.maximum(inner, 0) if slope is None else inner * _sigmoid(slope * inner)
            return self._affine(f"{layer}_ffn", "2", active)

        return self._around(f"{layer}_ffn_ffn", hidden, both)

    def _attention(self, name: str, memory: Array | None = None, *, causal: bool = False) -> Any:
        def attend(rows: Array, raw: Array) -> Array:
            read, heads = raw if memory is None else memory, self.options["transformer-heads"]
            query, key, value = (
                self._affine(name, part, each).reshape(len(each), heads, -1).transpose(1, 0, 2)
                for part, each in (("q", rows), ("k", read), ("v", read))
            )
            scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
            if causal:
                scores = np.where(np.tri(len(rows), dtype=bool), scores, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = shares / shares.sum(-1, keepdims=True) @ value
            return self._affine(name, "o", mixed.transpose(1, 0, 2).reshape(len(rows), -1))

        return attend

    def _cell(self, layer: str, rows: Array) -> Array:
        keep = _sigmoid(self._affine(f"{layer}_rnn", "f", rows))
        value = rows @ self.tensors[f"{layer}_rnn_W"]
        cell, found = np.zeros_like(rows[0]), []
        for gate, new in zip(keep, value, strict=True):
            cell = gate * cell + (1 - gate) * new
            found.append(np.maximum(cell, 0))
        return np.stack(found)

    def _affine(self, name: str, part: str, rows: Array) -> Array:
        return rows @ self.tensors[f"{name}_W{part}"] + self.tensors[f"{name}_b{part}"]

    def _norm(self, name: str, rows: Array, suffix: str = "") -> Array:
        centred = rows - rows.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        found: Array = scaled * self.tensors[f"{name}_ln_scale{suffix}"] + self.tensors[f"{name}_ln_bias{suffix}"]
        return found

    def _top(self, side: str, rows: Array) -> Array:
        return self._norm(f"{side}_top", rows) if self.options["transformer-postprocess-top"] else rows


def _sigmoid(value: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-value))
    return found


def options_text(options: dict[str, Any]) -> bytes:
    """Return the options as Marian writes them, with a zero byte at the end."""
    shown = {True: "true", False: "false"}
    lines_of = [
        f"{name}: {shown[value] if isinstance(value, bool) else json.dumps(value)}" for name, value in options.items()
    ]
    return "\n".join(lines_of).encode() + b"\n\0"


def save_npz(path: Path, model: Marian) -> Path:
    options = np.frombuffer(options_text(model.options), np.int8)
    np.savez(path, **model.tensors, **{"special:model.yml": options})
    return path


def quantised(model: Marian, alphas: dict[str, float]) -> tuple[Marian, dict[str, tuple[NDArray[np.int8], float]]]:
    """Return the model that 8-bit matrices stand for, and their values and scales.

    alphas: the scales of the inputs of products by the names of their matrices, which the model gets as tensors
    """
    integers: dict[str, tuple[NDArray[np.int8], float]] = {}
    found = Marian(model.options, dict(model.tensors))
    for name, matrix in model.tensors.items():
        if name.startswith("decoder_ff") or "_W" not in f"_{name}" or "_ln_" in name:
            continue
        scale = float(np.float32(127 / np.abs(matrix).max()))
        values = np.clip(np.rint(matrix * np.float32(scale)), -127, 127).astype(np.int8)
        integers[name] = (values, scale)
        found.tensors[name] = values.astype(np.float32) / np.float32(scale)
    for name, alpha in alphas.items():
        found.tensors[f"{name}_QuantMultA"] = np.array([[alpha]], np.float32)
    return found, integers


def scale_in_8_bits(alpha: float) -> tuple[NDArray[np.int8], float]:
    """Return the value and the scale that stand for that of an activation, as files of two vocabularies have it."""
    return np.array([[127]], np.int8), 127 / alpha


def binary(model: Marian, integers: dict[str, tuple[NDArray[np.int8], float]], kind: int = 0x4101) -> bytes:
    """Return a binary file of version 1; matrices of 8-bit integers are saved as (out, in), tables are not."""
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, tensor in model.tensors.items():
        if name in integers:
            values, scale = integers[name]
            data = (values if "Wemb" in name else values.T).tobytes(order="C")
            data += struct.pack("<f", scale) if values.size else b""
            items.append((name, kind, tensor.shape, data))
        else:
            items.append((name, 0x0404, tensor.shape, tensor.tobytes()))
    options = options_text(model.options)
    items.append(("special:model.yml", 0x0101, (len(options),), options))
    head = struct.pack("<2Q", 1, len(items))
    for name, each, shape, data in items:
        head += struct.pack("<4Q", len(name) + 1, each, len(shape), len(data))
    head += b"".join(name.encode() + b"\0" for name, *_ in items)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    padding = -(len(head) + 8) % 256
    return head + struct.pack("<Q", padding) + b"\0" * padding + b"".join(data for *_, data in items)


def lexicon(lists: list[list[int]], frequent: int) -> bytes:
    """Return a binary shortlist."""
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    ids = np.array([each for found in lists for each in found], np.uint32)
    body = struct.pack("<4Q", frequent, 50, len(offsets), len(ids)) + offsets.tobytes() + ids.tobytes()
    seed = 0
    for number in struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]):
        seed = (seed ^ (number + 0x9E3779B9 + seed * 64 + seed // 4)) % 2**64
    return struct.pack("<2Q", 0xF11A48D5013417F5, seed) + body


def own_pieces(size: int = 300, *, spells_bytes: bool = False, markers: Sequence[str] = ()) -> bytes:
    """Return a sentencepiece model with ids as Marian has them: end 0, unknown 1, no begin, no padding.

    spells_bytes: whether it cuts unknown characters into pieces of single bytes
    markers: pieces that a user has defined
    """
    model = spm.ModelProto()
    model.ParseFromString(train_pieces([*lines("en"), *lines("de")], size))
    kept = [piece for piece in model.pieces if piece.type == piece.NORMAL]
    written = spm.ModelProto()
    written.CopyFrom(model)
    del written.pieces[:]
    written.pieces.add(piece="</s>", score=0, type=spm.ModelProto.SentencePiece.CONTROL)
    written.pieces.add(piece="<unk>", score=0, type=spm.ModelProto.SentencePiece.UNKNOWN)
    for value in range(256) if spells_bytes else ():
        written.pieces.add(piece=f"<0x{value:02X}>", score=0, type=spm.ModelProto.SentencePiece.BYTE)
    for marker in markers:
        written.pieces.add(piece=marker, score=0, type=spm.ModelProto.SentencePiece.USER_DEFINED)
    for piece in kept:
        written.pieces.add().CopyFrom(piece)
    trainer = written.trainer_spec
    trainer.eos_id, trainer.unk_id, trainer.bos_id, trainer.pad_id = 0, 1, -1, -1
    trainer.vocab_size, trainer.byte_fallback = len(written.pieces), spells_bytes
    return bytes(written.SerializeToString())


def names_of(pieces: bytes) -> list[str]:
    """Return the pieces of a sentencepiece model in the order of their ids."""
    model = spm.ModelProto()
    model.ParseFromString(pieces)
    return [piece.piece for piece in model.pieces]


SCALES = {"W2": 18.0, "Wo": 18.0}  # of the inputs of 8-bit products, where they are not 24


def save_student(
    folder: Path, *, compress: bool = False, kind: int = 0x4101, seed: int = 8, ends: float = 0.5, listed: int = 20
) -> Marian:
    """Save a student of Firefox: one sentencepiece model, 8-bit matrices with ranges of activations, a shortlist.

    listed: the number of target pieces of each source piece
    """
    folder.mkdir(parents=True)
    pieces = own_pieces()
    count = len(names_of(pieces))
    plain = Marian.random((count, count), **{**STUDENT, "seed": seed, "ends": ends})
    alphas = {
        name: SCALES.get(name[-2:], 24.0)
        for name in plain.tensors
        if name[-2:-1] == "W" or name.endswith(("_W", "_Wf"))
    }
    alphas |= {"none": 40.0}
    model, integers = quantised(plain, {name: scale for name, scale in alphas.items() if "Wemb" not in name})
    lists = [[(row * 7 + step) % count for step in range(listed)] for row in range(count)]
    files = {
        "model.ende.intgemm.alphas.bin": binary(model, integers, kind),
        "vocab.ende.spm": pieces,
        "lex.50.50.ende.s2t.bin": lexicon(lists, 50),
    }
    for name, content in files.items():
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return model


ALONE = ["Zyqx!", "42 x 7 = 294", "Ünïcödé ☃ snow", "a", "the the the the the the the the", "?!", "New York, N.Y."]
LINES = [*(normalise(line) for line in lines("en")[:104]), *ALONE]
"""111 sources: sentences, and what no vocabulary of theirs has."""

PIECES = {1: 254, 2: 302}
"""By the number of languages of a vocabulary, without two special ones: the rows of 8-bit tables must be a multiple of
8."""

FREQUENT = 50  # first target pieces, which every text may use
SETTINGS = ImportSettings(languages=(["en"], ["de"]))


@dataclass(frozen=True, slots=True)
class MarianForm:
    """The parts of a model.

    options: of Marian, where they are not those of `marian_models.OPTIONS`
    ends: what is added to the bias of the end token, so that translations end
    two: whether source and target have a vocabulary each
    steps: of training on copying; 0 leaves the weights as they are drawn
    """

    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    ends: float = 3.0
    two: bool = False
    steps: int = 0


FORMS: dict[str, MarianForm] = {
    "post-norm, relu": MarianForm({}, seed=7, ends=4.0),
    "post-norm, swish": MarianForm({"transformer-ffn-activation": "swish"}, seed=20, ends=2.0),
    "post-norm, gelu": MarianForm({"transformer-ffn-activation": "gelu"}, seed=7, ends=4.0),
    "norm after the embedding": MarianForm({"transformer-postprocess-emb": "nd"}, seed=7, ends=4.0),
    "target tied, two vocabularies": MarianForm(TARGET_TIED, seed=7, ends=2.0, two=True),
    "untied, two vocabularies": MarianForm(UNTIED, seed=13, ends=2.0, two=True),
    "pre-norm": MarianForm(PRE_NORM, seed=1, ends=4.0),
    "pre-norm, no final norm": MarianForm({**PRE_NORM, "transformer-postprocess-top": ""}, seed=3, ends=2.0),
    "norms before and after": MarianForm(BOTH_NORMS, seed=10, ends=2.0),
    "SSRU, post-norm": MarianForm(STUDENT, seed=6, ends=2.0),
    "SSRU, pre-norm": MarianForm({**STUDENT, **PRE_NORM}, seed=7, ends=2.0),
    "SSRU, norms before and after": MarianForm({**STUDENT, **BOTH_NORMS}, seed=6, ends=2.0),
}
TRAINED: dict[str, MarianForm] = {
    f"{name}, trained to copy": replace(FORMS[name], steps=800, ends=0.0)
    for name in ("post-norm, swish", "pre-norm", "SSRU, post-norm", "SSRU, pre-norm", "target tied, two vocabularies")
}


def counted_pieces(texts: Sequence[str], size: int = 250) -> bytes:
    """Return a sentencepiece model of the commonest words, and their letters; the end is 0, unknown 1."""
    words = Counter(f"\u2581{word}" for text in texts for word in text.split())
    letters = Counter(letter for word, count in words.items() for letter in list(word) * count)
    chosen = [*letters, *(word for word, _ in words.most_common() if len(word) > 1)][:size]
    total = sum(letters.values())
    kinds = spm.ModelProto.SentencePiece
    model = spm.ModelProto()
    model.pieces.add(piece="</s>", score=0, type=kinds.CONTROL)
    model.pieces.add(piece="<unk>", score=0, type=kinds.UNKNOWN)
    for piece in chosen:
        count = letters[piece] if len(piece) == 1 else words[piece]
        model.pieces.add(piece=piece, score=float(np.log(count / total)), type=kinds.NORMAL)
    trainer = model.trainer_spec
    trainer.model_type, trainer.vocab_size = spm.TrainerSpec.UNIGRAM, len(model.pieces)
    trainer.eos_id, trainer.unk_id, trainer.bos_id, trainer.pad_id = 0, 1, -1, -1
    model.normalizer_spec.name = "identity"
    return bytes(model.SerializeToString())


@dataclass(frozen=True, slots=True)
class MarianFiles:
    """The files of a model: those that the engine reads, in a folder that `lingon import` reads.

    plain: of a model in 8 bits, what its integers stand for, in float32
    """

    folder: Path
    model: Path
    vocabularies: tuple[Path, ...]
    shortlist: Path | None = None
    plain: Path | None = None

    def imported(self) -> Imported:
        """Return what `lingon import` reads."""
        return pipeline.read_source(self.folder, SETTINGS, lambda line: None)


def written(form: MarianForm, folder: Path) -> tuple[Marian, MarianFiles]:
    """Write a model in float32, and return it and its files."""
    folder.mkdir(parents=True)
    vocabularies = _write_vocabularies(folder, two=form.two)
    rows = [len(names_of(path.read_bytes())) for path in vocabularies]
    model = Marian.random((rows[0], rows[-1]), form.seed, form.ends, **form.options)
    files = MarianFiles(folder, folder / "model.ende.bin", vocabularies)
    files.model.write_bytes(binary(model, {}))
    if form.steps:
        model = trained_to_copy(model, files, form.steps)
        files.model.write_bytes(binary(model, {}))
    return model, files


def in_8_bits(model: Marian, files: MarianFiles, alphas: dict[str, float], *, listed: int = 0) -> MarianFiles:
    """Write a model in 8 bits as Firefox publishes it, beside its vocabularies, into a folder of its own.

    alphas: of the inputs of products by the names of their matrices; that of the output is an 8-bit scalar of
        decoder_Wemb with two vocabularies; with one it is that of none and of Wemb, as Marian's own tools write it
    listed: the number of target pieces of each source piece in a shortlist; 0 writes none
    """
    folder = files.folder.with_name(f"{files.folder.name} in 8 bits{' with a shortlist' if listed else ''}")
    folder.mkdir()
    named = dict(alphas)
    output = named.pop("output")
    two = len(files.vocabularies) == 2
    packed, integers = quantised(model, named if two else {**named, "none": output, "Wemb": output})
    if two:
        integers["decoder_Wemb_QuantMultA"] = scale_in_8_bits(output)
        packed.tensors["decoder_Wemb_QuantMultA"] = np.array([[output]], np.float32)
    vocabularies = tuple(folder / path.name for path in files.vocabularies)
    for path, copied in zip(files.vocabularies, vocabularies, strict=True):
        copied.write_bytes(path.read_bytes())
    shortlist = None
    if listed:
        rows = [len(names_of(path.read_bytes())) for path in vocabularies]
        lists = [sorted({(row + step) % rows[-1] for step in range(listed)}) for row in range(rows[0])]
        shortlist = folder / "lex.50.50.ende.s2t.bin"
        shortlist.write_bytes(lexicon(lists, FREQUENT))
    plain = folder / "plain" / "model.bin"
    plain.parent.mkdir()
    floats = {name: tensor for name, tensor in packed.tensors.items() if "QuantMultA" not in name}
    plain.write_bytes(binary(Marian(model.options, floats), {}))
    found = MarianFiles(folder, folder / "model.ende.intgemm.alphas.bin", vocabularies, shortlist, plain)
    found.model.write_bytes(binary(packed, integers))
    return found


def measured_alphas(imported: Imported, model: Marian) -> dict[str, float]:
    """Return the scale of the input of each product by the name of its matrix, and that of the output.

    They are 127 / the largest input that LINES make, as Marian's own tools measure them.
    """
    checkpoint = imported.checkpoint
    sources = [checkpoint.tokenizer.encode_source(line) for line in LINES]
    settings = SearchSettings(length_factor=2.0, length_extra=0)
    targets = [list(best.tokens) for best, *_ in translate(checkpoint.model, sources, settings)]
    largest = {
        name: max(-seen.low, seen.high)
        for name, seen in calibrate(checkpoint.model, zip(sources, targets, strict=True)).items()
    }
    ours = {
        "self_Wq": "attention.qkv", "self_Wk": "attention.qkv", "self_Wv": "attention.qkv",
        "self_Wo": "attention.output", "rnn_W": "attention.gates", "rnn_Wf": "attention.gates",
        "context_Wq": "cross.query", "context_Wk": "cross.key_value", "context_Wv": "cross.key_value",
        "context_Wo": "cross.output", "ffn_W1": "feed_forward.inner", "ffn_W2": "feed_forward.outer",
    }  # fmt: skip
    found = {"output": 127 / largest["output"]}
    for name in model.tensors:
        side, _, rest = name.partition("_l")
        number, _, product = rest.partition("_")
        if product in ours:
            found[name] = 127 / largest[f"{side}.{int(number) - 1}.{ours[product]}"]
    return found


def trained_to_copy(model: Marian, files: MarianFiles, steps: int) -> Marian:
    """Return a model after training on copying the start of its sources, which it then ends by itself.

    It is trained as `lingon import` reads it. Where a weight of Marian went is seen by numbers instead of weights.
    """
    numbered = _numbered(model)
    files.model.write_bytes(binary(numbered, {}))
    positions = {name: value.detach().long() for name, value in files.imported().checkpoint.model.named_parameters()}
    files.model.write_bytes(binary(model, {}))
    imported = files.imported()
    _train(imported, positions, steps)
    flat = np.zeros(1 + max(int(each.max()) for each in numbered.tensors.values()), np.float32)
    for name, value in imported.checkpoint.model.named_parameters():
        flat[positions[name].numpy()] = value.detach().numpy()
    found = {name: flat[each.astype(np.int64)] for name, each in numbered.tensors.items()}
    return Marian(model.options, found)


def _write_vocabularies(folder: Path, *, two: bool) -> tuple[Path, ...]:
    names = {"srcvocab.ende.spm": ["en"], "trgvocab.ende.spm": ["de"]} if two else {"vocab.ende.spm": ["en", "de"]}
    found = []
    for name, languages in names.items():
        path = folder / name
        path.write_bytes(counted_pieces([line for each in languages for line in lines(each)], PIECES[len(languages)]))
        found.append(path)
    return tuple(found)


def _numbered(model: Marian) -> Marian:
    """Return a model whose weights are 1, 2, 3 and so on, exact in float32."""
    found, first = Marian(model.options), 1
    for name, tensor in model.tensors.items():
        found.tensors[name] = np.arange(first, first + tensor.size, dtype=np.float32).reshape(tensor.shape)
        first += tensor.size
    assert first < 2**24
    return found


def _train(imported: Imported, positions: dict[str, torch.Tensor], steps: int) -> None:
    """Train on pairs of a source and its first pieces; weights that Marian does not have stay 0."""
    model, tokenizer = imported.checkpoint.model, imported.checkpoint.tokenizer
    encoded = [(tokenizer.encode_source(line), tokenizer.encode_target(line)) for line in LINES]
    pairs = [pair for pair in encoded if len(pair[0]) < 40 and UNK not in pair[1]]
    torch.manual_seed(1)
    parameters = dict(model.named_parameters())
    optimiser = torch.optim.Adam(parameters.values(), lr=3e-3, betas=(0.9, 0.98))
    model.train()
    for module in model.modules():
        if hasattr(module, "rate"):
            module.dropped = module.rate = 0  # dropout
    for step in range(steps):
        batch, whole = zip(*(pairs[(step * 32 + each) * 7 % len(pairs)] for each in range(32)), strict=True)
        targets = [[each for each in ids[:8] if each != EOS] for ids in whole]
        given, wanted = pad([[BOS, *ids] for ids in targets]), pad([[*ids, EOS] for ids in targets])
        logits = model(pad(batch), torch.tensor([len(ids) for ids in batch]), given)
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimiser.step()
        with torch.no_grad():
            for name, value in parameters.items():
                value.mul_(positions[name] > 0)
    model.eval()
