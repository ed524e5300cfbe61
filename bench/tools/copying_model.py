"""A model of OPUS-MT's size that copies its source, in the files of Transformers: its outputs end without training.

    python -m lingon.bench.tools.copying_model FOLDER text.en text.de

See lingon.bench.copying for how it copies. An import of plain random weights would decode every sentence to the bound
of its length.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import sentencepiece
import torch
import typer
from safetensors.torch import save_file
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
from lingon.files import read_lines, write_json

PIECES = 32_000  # of each sentencepiece model, fewer if the text has not so many
TINY = CopyingShape(encoder_layers=2, decoder_layers=2, dim=128, heads=2, ffn=128, vocab=2000)


def write_copying_model(folder: Path, shape: CopyingShape, texts: tuple[Sequence[str], Sequence[str]]) -> None:
    """Write the files of a MarianMTModel to a new folder.

    texts: of the source and of the target language, to train sentencepiece models on
    """
    folder.mkdir(parents=True)
    pieces: dict[str, None] = {}
    for side, lines in zip(("source", "target"), texts, strict=True):
        content = _trained(lines, min(PIECES, shape.vocab // 2))
        (folder / f"{side}.spm").write_bytes(content)
        pieces |= dict.fromkeys(_pieces(content))
    unused = [f"<unused {number}>" for number in range(shape.vocab - len(pieces) - 3)]
    ids = {piece: number for number, piece in enumerate(["</s>", "<unk>", *pieces, *unused, "<pad>"])}
    write_json(folder / "vocab.json", ids)
    write_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})
    write_json(folder / "generation_config.json", {"num_beams": 4, "length_penalty": 1.0})
    write_json(folder / "config.json", _config(shape))
    save_file(dict(_tensors(shape)), folder / "model.safetensors", {"format": "pt"})


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
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": shape.vocab,
        "d_model": shape.dim,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        **{f"{side}_attention_heads": shape.heads for side in sides},
        **{f"{side}_ffn_dim": shape.ffn for side in sides},
        "max_position_embeddings": shape.positions,
        "activation_function": "swish",
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "pad_token_id": shape.vocab - 1,
        "decoder_start_token_id": shape.vocab - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }


def _tensors(shape: CopyingShape) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors by the names of Transformers."""
    random = torch.Generator().manual_seed(shape.seed)
    table = piece_table(shape, random)
    table[-1] = 0  # the start
    yield "model.shared.weight", table
    yield "final_logits_bias", torch.zeros(1, shape.vocab)
    for side, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for number in range(layers):
            last = side == "decoder" and number == layers - 1
            yield from _layer(f"model.{side}.layers.{number}", shape, random, side=side, last=last)


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
    yield from _norm(f"{name}.final_layer_norm", shape.dim, decision_gain(shape) if last else 1.0)


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
    quick: Annotated[bool, typer.Option("--quick", help="A tiny model, to try it out.")] = False,
) -> None:
    """Write the model."""
    write_copying_model(folder, TINY if quick else CopyingShape(), (list(read_lines(source)), list(read_lines(target))))


if __name__ == "__main__":
    typer.run(main)
