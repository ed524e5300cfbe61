"""A model in a published shape that copies its source, in its toolkit's files: its outputs end without training.

    python -m lingon.bench.tools.copying_model FOLDER text.en text.de
    python -m lingon.bench.tools.copying_model FOLDER text.en text.de --work nllb
    python -m lingon.bench.tools.copying_model FOLDER text.en text.de --work tiny

OPUS-MT, M2M-100 and NLLB-200 are files of Transformers. Students are files of Marian as Firefox has them: 8-bit
matrices with the scales of their inputs, one vocabulary, and a shortlist.

See lingon.bench.copying for how it copies. An import of plain random weights would decode every sentence to the bound
of its length.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import sentencepiece
import torch
import typer
from safetensors.torch import save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor, nn

from lingon.bench.copying import (
    CopyingShape,
    added_matrix,
    copying_attention,
    copying_transformer,
    decision_gain,
    piece_table,
    random_attention,
    random_matrix,
)
from lingon.bench.options import check_choice
from lingon.bench.published_shapes import PUBLISHED, zipf_shortlist
from lingon.export.graphs.quantisation import calibrate
from lingon.files import read_lines, write_json
from lingon.importers.readers.marian_files import FLOAT32, INT8, INTGEMM8, MAGIC, binary_file, lexicon_checksum
from lingon.text import EOS
from lingon.training.models.layers import SSRU
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer

PIECES = 32_000  # of each sentencepiece model, fewer if the text has not so many
CODES = ("deu_Latn", "eng_Latn", "fra_Latn")  # of NLLB-200; the published model has 202
M2M_LANGUAGES, MADE_UP = 100, 8  # rows of M2M-100 after the pieces
UNLIKELY = -100.0  # log-probability of a piece that no text has
HEAD = ("<s>", "<pad>", "</s>", "<unk>")  # the first pieces of M2M-100
Texts = tuple[Sequence[str], Sequence[str]]


def write_copying_model(folder: Path, form: str, shape: CopyingShape, texts: Texts) -> None:
    """Write the files of a model to a new folder.

    form: of the files, of FORMS or of STUDENTS
    texts: of the source and of the target language, to train sentencepiece models on
    """
    folder.mkdir(parents=True)
    if form in STUDENTS:
        _write_student(folder, shape, texts)
        return
    FORMS[form](folder, shape, texts)
    write_json(folder / "config.json", _config(shape))
    save_file(dict(_tensors(shape)), folder / "model.safetensors", {"format": "pt"})


def _write_opus(folder: Path, shape: CopyingShape, texts: Texts) -> None:
    """Write the tokenizer of a MarianMTModel."""
    pieces: dict[str, None] = {}
    for side, lines in zip(("source", "target"), texts, strict=True):
        content = _trained(lines, min(PIECES, shape.vocab // 2))
        (folder / f"{side}.spm").write_bytes(content)
        pieces |= dict.fromkeys(_pieces(content))
    ids = _numbered(["</s>", "<unk>", *pieces], shape.vocab - 1)
    write_json(folder / "vocab.json", {**ids, "<pad>": shape.vocab - 1})
    write_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})
    write_json(folder / "generation_config.json", {"num_beams": 4, "length_penalty": 1.0})


def _write_m2m(folder: Path, shape: CopyingShape, texts: Texts) -> None:
    """Write the tokenizer of an M2M-100, whose languages follow the pieces."""
    size = shape.vocab - M2M_LANGUAGES - MADE_UP
    content = _trained([*texts[0], *texts[1]], min(PIECES, size // 2))
    (folder / "sentencepiece.bpe.model").write_bytes(content)
    write_json(folder / "vocab.json", _numbered([*HEAD, *_pieces(content)], size))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})


def _write_nllb(folder: Path, shape: CopyingShape, texts: Texts) -> None:
    """Write the tokenizer of an NLLB-200, whose sentencepiece model has all pieces that text is cut into."""
    size = shape.vocab - len(CODES) - 2
    model = ModelProto.FromString(_trained([*texts[0], *texts[1]], min(PIECES, size // 2)))
    for number in range(size - len(model.pieces)):
        model.pieces.add(piece=f"<unused {number}>", score=UNLIKELY)
    (folder / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    added = [*enumerate(HEAD), *enumerate([*CODES, "<mask>"], start=size + 1)]
    tokens = {str(number): {"content": token, "special": True} for number, token in added}
    values = {"tokenizer_class": "NllbTokenizer", "mask_token": "<mask>", "added_tokens_decoder": tokens}
    write_json(folder / "tokenizer_config.json", values)
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": CODES})


FORMS = {"opus": _write_opus, "m2m": _write_m2m, "nllb": _write_nllb}
"""What writes the tokenizer of a form, which is named as its shape in lingon.bench.published_shapes."""

STUDENTS = ("tiny", "base-memory", "student-base", "smallest")
"""The shapes of lingon.bench.published_shapes that are students of Firefox."""

TINY = {
    form: replace(PUBLISHED[form], encoder_layers=2, decoder_layers=2, dim=128, heads=2, ffn=128, vocab=2000)
    for form in (*FORMS, *STUDENTS)
}


def _numbered(pieces: Sequence[str], size: int) -> dict[str, int]:
    """Return pieces with their numbers, and others after them that no text has."""
    unused = (f"<unused {number}>" for number in range(size - len(pieces)))
    return {piece: number for number, piece in enumerate([*pieces, *unused])}


def _trained(lines: Sequence[str], size: int, special: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Return a sentencepiece model; special: ids of special pieces, where they are not those of sentencepiece."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=size,
        minloglevel=2,
        hard_vocab_limit=False,
        **special,
    )
    return written.getvalue()


def _pieces(content: bytes) -> list[str]:
    """Return the pieces of a sentencepiece model that text is cut into."""
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    return [model.id_to_piece(number) for number in range(3, model.vocab_size())]  # after unknown, begin and end


def _config(shape: CopyingShape) -> dict[str, object]:
    sides = ("encoder", "decoder")
    multilingual = shape.norm == "pre"
    special = (
        {"bos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
        if multilingual
        else {
            "pad_token_id": shape.vocab - 1,
            "decoder_start_token_id": shape.vocab - 1,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
        }
    )
    return {
        "model_type": "m2m_100" if multilingual else "marian",
        "architectures": ["M2M100ForConditionalGeneration" if multilingual else "MarianMTModel"],
        "vocab_size": shape.vocab,
        "d_model": shape.dim,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        **{f"{side}_attention_heads": shape.heads for side in sides},
        **{f"{side}_ffn_dim": shape.ffn for side in sides},
        "max_position_embeddings": shape.positions,
        "activation_function": "relu" if multilingual else "swish",
        "scale_embedding": True,
        "tie_word_embeddings": True,
        **special,
    }


def _tensors(shape: CopyingShape) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors by the names of Transformers."""
    random = torch.Generator().manual_seed(shape.seed)
    table = piece_table(shape, random)
    if shape.norm == "post":
        table[-1] = 0  # the start
        yield "final_logits_bias", torch.zeros(1, shape.vocab)
    yield "model.shared.weight", table
    for side, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for number in range(layers):
            last = side == "decoder" and number == layers - 1
            yield from _layer(f"model.{side}.layers.{number}", shape, random, side=side, last=last)
        if shape.norm == "pre":
            yield from _norm(f"model.{side}.layer_norm", shape.dim, decision_gain(shape) if side == "decoder" else 1.0)


def _layer(
    name: str, shape: CopyingShape, random: torch.Generator, *, side: str, last: bool
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a layer; last: the layer whose cross-attention copies."""
    for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
        copies = last and attention == "encoder_attn"
        weights = copying_attention(shape) if copies else random_attention(shape, random)
        for product, weight in zip("qkv", weights, strict=False):
            yield from _product(f"{name}.{attention}.{product}_proj", weight)
        yield from _product(f"{name}.{attention}.out_proj", weights[3])
        yield from _norm(f"{name}.{attention}_layer_norm", shape.dim)
    yield from _product(f"{name}.fc1", random_matrix(shape.ffn, shape.dim, random))
    yield from _product(f"{name}.fc2", added_matrix(shape, shape.ffn, random))
    yield from _norm(
        f"{name}.final_layer_norm", shape.dim, decision_gain(shape) if last and shape.norm == "post" else 1.0
    )


def _product(name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", weight
    yield f"{name}.bias", torch.zeros(len(weight))


def _norm(name: str, dim: int, gain: float = 1.0) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", torch.full((dim,), gain)
    yield f"{name}.bias", torch.zeros(dim)


# A student of Firefox in the files of Marian. The ids of its vocabulary are those of Lingon without the first two, the
# padding and the begin, for which Marian has no rows.

OFFSET = EOS  # the first id of Lingon that Marian has
LARGEST = 127  # of an 8-bit value
MEASURED = 200  # sentences on which the scales of the inputs of products are measured
LISTED_FREQUENT = LISTED_BEST = 50  # of a shortlist: first pieces that every sentence has, and others of each piece
NAMES = {
    "vocabulary": "vocab.ende.spm",
    "model": "model.ende.intgemm.alphas.bin",
    "shortlist": "lex.50.50.ende.s2t.bin",
}


def _write_student(folder: Path, shape: CopyingShape, texts: Texts) -> None:
    """Write vocabulary, model and shortlist; texts: see write_copying_model."""
    lines = [*texts[0], *texts[1]]
    special = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
    vocabulary = ModelProto.FromString(_trained(lines, min(PIECES, shape.vocab // 2), special))
    for number in range(shape.vocab - len(vocabulary.pieces)):
        vocabulary.pieces.add(piece=f"<unused {number}>", score=UNLIKELY)
    (folder / NAMES["vocabulary"]).write_bytes(vocabulary.SerializeToString())
    numbered = replace(shape, vocab=shape.vocab + OFFSET)
    model = copying_transformer(numbered)
    segmenter = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.SerializeToString())
    sources = [[OFFSET + piece for piece in segmenter.encode(line)] for line in texts[0][:MEASURED]]
    ranges = calibrate(model, [([*source, EOS], source) for source in sources])
    scales = {name: LARGEST / max(-each.low, each.high) for name, each in ranges.items()}
    items = [item for name, each, read in _marian_tensors(model) for item in _items(name, each, scales.get(read))]
    options = _marian_options(shape)
    items.append(("special:model.yml", INT8, (len(options),), options))
    (folder / NAMES["model"]).write_bytes(binary_file(items))
    shortlist = zipf_shortlist(numbered)
    lists = [shortlist.pieces[begin:end] - OFFSET for begin, end in pairwise(shortlist.offsets[OFFSET:].tolist())]
    (folder / NAMES["shortlist"]).write_bytes(_lexicon(lists))


def _marian_options(shape: CopyingShape) -> bytes:
    """Return the options of a student as Marian writes them."""
    values = {
        "type": "transformer",
        "dim-vocabs": [shape.vocab, shape.vocab],
        "dim-emb": shape.dim,
        "transformer-heads": shape.heads,
        "transformer-dim-ffn": shape.ffn,
        "enc-depth": shape.encoder_layers,
        "dec-depth": shape.decoder_layers,
        "transformer-ffn-activation": shape.activation,
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-top": "",
        "transformer-postprocess-emb": "d",
        "transformer-decoder-autoreg": "rnn",
        "dec-cell": "ssru",
        "tied-embeddings-all": True,
        "tied-embeddings": False,
        "tied-embeddings-src": False,
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()).encode() + b"\0"


def _marian_tensors(model: Transformer) -> Iterator[tuple[str, Tensor, str]]:
    """Yield tensors by the names of Marian, matrices (in, out), with our name of the product that a matrix is of."""
    yield "Wemb", model.output.weight.detach()[OFFSET:], "output"
    yield "decoder_ff_logit_out_b", torch.zeros(1, model.output.out_features - OFFSET), ""
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            theirs, ours = f"{side}_l{number + 1}", f"{side}.{number}"
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            attention, feed_forward = layer.attention, layer.feed_forward
            if isinstance(attention, SSRU):
                gate, value = attention.gates.weight.detach().chunk(2)
                yield f"{theirs}_rnn_W", value.T, f"{ours}.attention.gates"
                yield from _affine(f"{theirs}_rnn", "f", gate, f"{ours}.attention.gates")
                yield from _marian_norm(f"{theirs}_rnn_ffn", layer.around_attention)
            else:
                assert isinstance(attention.qkv, nn.Linear)
                for part, weight in zip("qkv", attention.qkv.weight.detach().chunk(3), strict=True):
                    yield from _affine(f"{theirs}_self", part, weight, f"{ours}.attention.qkv")
                yield from _affine(f"{theirs}_self", "o", attention.output.weight, f"{ours}.attention.output")
                yield from _marian_norm(f"{theirs}_self_Wo", layer.around_attention)
            if isinstance(layer, DecoderLayer):
                yield from _affine(f"{theirs}_context", "q", layer.cross.query.weight, f"{ours}.cross.query")
                for part, weight in zip("kv", layer.cross.key_value.weight.detach().chunk(2), strict=True):
                    yield from _affine(f"{theirs}_context", part, weight, f"{ours}.cross.key_value")
                yield from _affine(f"{theirs}_context", "o", layer.cross.output.weight, f"{ours}.cross.output")
                yield from _marian_norm(f"{theirs}_context_Wo", layer.around_cross)
            for part, product in (("1", "inner"), ("2", "outer")):
                weight = getattr(feed_forward, product).weight
                yield from _affine(f"{theirs}_ffn", part, weight, f"{ours}.feed_forward.{product}")
            yield from _marian_norm(f"{theirs}_ffn_ffn", layer.around_feed_forward)


def _affine(name: str, part: str, weight: Tensor, ours: str) -> Iterator[tuple[str, Tensor, str]]:
    yield f"{name}_W{part}", weight.detach().T, ours
    yield f"{name}_b{part}", torch.zeros(1, len(weight)), ""


def _marian_norm(name: str, around: nn.Module) -> Iterator[tuple[str, Tensor, str]]:
    norm = around.norm
    assert isinstance(norm, nn.LayerNorm)
    for kind, values in (("scale", norm.weight), ("bias", norm.bias)):
        yield f"{name}_ln_{kind}", values.detach()[None], ""


def _items(name: str, tensor: Tensor, scale: float | None) -> list[tuple[str, int, tuple[int, ...], bytes]]:
    """Return a tensor as arrays of a binary file: of 8-bit integers with the scale of its input, if it has one.

    Matrices of 8-bit integers are saved as (out, in), the table of pieces as it is. The output's scale is of none.
    """
    values: np.ndarray[Any, np.dtype[np.float32]] = tensor.numpy()
    if scale is None:
        return [(name, FLOAT32, values.shape, values.tobytes())]
    own = np.float32(LARGEST / np.abs(values).max())
    integers = np.rint(values * own).astype(np.int8)
    is_table = name == "Wemb"
    content = (integers if is_table else integers.T).tobytes() + struct.pack("<f", own)
    alpha = f"{'none' if is_table else name}_QuantMultA"
    return [(name, INTGEMM8[0], values.shape, content), (alpha, FLOAT32, (1, 1), struct.pack("<f", scale))]


def _lexicon(lists: Sequence[np.ndarray[Any, np.dtype[np.int32]]]) -> bytes:
    """Return a binary shortlist of Marian; lists: target pieces of each source piece."""
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    ids = np.concatenate(lists).astype(np.uint32)
    body = struct.pack("<4Q", LISTED_FREQUENT, LISTED_BEST, len(offsets), len(ids)) + offsets.tobytes() + ids.tobytes()
    return struct.pack("<2Q", MAGIC, lexicon_checksum(body[: len(body) // 8 * 8])) + body


def main(
    folder: Annotated[Path, typer.Argument(help="New folder for the files of the model.")],
    source: Annotated[Path, typer.Argument(help="Text of the source language, to train a sentencepiece model on.")],
    target: Annotated[Path, typer.Argument(help="Text of the target language, to train a sentencepiece model on.")],
    work: Annotated[str, typer.Option(help=f"The shape of the model: {', '.join(TINY)}.")] = "opus",
    quick: Annotated[bool, typer.Option("--quick", help="A tiny model, to try it out.")] = False,
) -> None:
    """Write the model."""
    check_choice("--work", [work], TINY)
    shape = (TINY if quick else PUBLISHED)[work]
    write_copying_model(folder, work, shape, (list(read_lines(source)), list(read_lines(target))))


if __name__ == "__main__":
    typer.run(main)
