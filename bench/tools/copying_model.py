"""A model in a published shape that copies its source, in the files of Transformers: its outputs end without training.

    python -m lingon.bench.tools.copying_model FOLDER text.en text.de
    python -m lingon.bench.tools.copying_model FOLDER text.en text.de --work nllb

See lingon.bench.copying for how it copies. An import of plain random weights would decode every sentence to the bound
of its length.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import sentencepiece
import torch
import typer
from safetensors.torch import save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor

from lingon.bench.copying import (
    CopyingShape,
    added_matrix,
    copying_attention,
    decision_gain,
    piece_table,
    random_attention,
    random_matrix,
)
from lingon.bench.options import check_choice
from lingon.bench.published_shapes import PUBLISHED
from lingon.files import read_lines, write_json

PIECES = 32_000  # of each sentencepiece model, fewer if the text has not so many
CODES = ("deu_Latn", "eng_Latn", "fra_Latn")  # of NLLB-200; the published model has 202
M2M_LANGUAGES, MADE_UP = 100, 8  # rows of M2M-100 after the pieces
UNLIKELY = -100.0  # log-probability of a piece that no text has
HEAD = ("<s>", "<pad>", "</s>", "<unk>")  # the first pieces of M2M-100
Texts = tuple[Sequence[str], Sequence[str]]


def write_copying_model(folder: Path, form: str, shape: CopyingShape, texts: Texts) -> None:
    """Write the files of a model to a new folder.

    form: of the files, of FORMS
    texts: of the source and of the target language, to train sentencepiece models on
    """
    folder.mkdir(parents=True)
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

TINY = {
    form: replace(PUBLISHED[form], encoder_layers=2, decoder_layers=2, dim=128, heads=2, ffn=128, vocab=2000)
    for form in FORMS
}


def _numbered(pieces: Sequence[str], size: int) -> dict[str, int]:
    """Return pieces with their numbers, and others after them that no text has."""
    unused = (f"<unused {number}>" for number in range(size - len(pieces)))
    return {piece: number for number, piece in enumerate([*pieces, *unused])}


def _trained(lines: Sequence[str], size: int) -> bytes:
    """Return a sentencepiece model."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, vocab_size=size, minloglevel=2, hard_vocab_limit=False
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


def main(
    folder: Annotated[Path, typer.Argument(help="New folder for the files of the model.")],
    source: Annotated[Path, typer.Argument(help="Text of the source language, to train a sentencepiece model on.")],
    target: Annotated[Path, typer.Argument(help="Text of the target language, to train a sentencepiece model on.")],
    work: Annotated[str, typer.Option(help="The shape and the form of the files: opus, m2m or nllb.")] = "opus",
    quick: Annotated[bool, typer.Option("--quick", help="A tiny model, to try it out.")] = False,
) -> None:
    """Write the model."""
    check_choice("--work", [work], FORMS)
    shape = (TINY if quick else PUBLISHED)[work]
    write_copying_model(folder, work, shape, (list(read_lines(source)), list(read_lines(target))))


if __name__ == "__main__":
    typer.run(main)
