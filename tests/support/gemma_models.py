"""Tiny T5Gemma models with random weights, saved as published ones are. They need Transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from torch import Tensor

from tests.support.foreign_models import draw_weights, lines

SIDE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 128,
    "query_pre_attn_scalar": 24,
    "sliding_window": 4,
    "attn_logit_softcapping": 4.0,
    "final_logit_softcapping": 6.0,
}
"""The fields of both sides. Sentences are longer than the window, and scores and logits reach their bounds."""


def save_t5gemma(
    folder: Path, *, seed: int = 1, ends: float = 3.0, tied: bool = True, begins: bool = True, **side: Any
) -> Path:
    """Save a model. ends: a factor of the row of the end token; side: fields of both sides that are others.

    begins: whether the tokenizer writes a begin token before a text
    """
    from transformers import GenerationConfig, T5GemmaConfig, T5GemmaForConditionalGeneration

    folder.mkdir(parents=True)
    content = _pieces()
    (folder / "tokenizer.model").write_bytes(content)
    rows = len(sentencepiece.SentencePieceProcessor(model_proto=content)) + 5
    values = {**SIDE, "vocab_size": rows, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    values |= {"tie_word_embeddings": tied, **side}
    types = values.get("layer_types")
    fewer = {"num_hidden_layers": 2, "layer_types": types and types[:2]}  # another number of layers than the encoder
    torch.manual_seed(seed)
    config = T5GemmaConfig(
        encoder=values,
        decoder={**values, **fewer},
        vocab_size=rows,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    model: Any = T5GemmaForConditionalGeneration(config).eval()
    _draw(model, seed, ends)
    model.generation_config = GenerationConfig(max_length=128)
    model.save_pretrained(folder)
    tokenizer = {
        "tokenizer_class": "GemmaTokenizer",
        "add_bos_token": begins,
        "add_eos_token": not begins,
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def _pieces() -> bytes:
    """Return a sentencepiece model of the form of Gemma's: byte-pair encoding, bytes, no blank before a text."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines("en"), *lines("de")]),
        model_writer=written,
        vocab_size=600,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
        hard_vocab_limit=False,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        unk_piece="<unk>",
    )
    return written.getvalue()


def _draw(model: Any, seed: int, ends: float) -> None:
    """Draw weights for varied outputs that end. The embedding is scaled by sqrt(dim), and every output has a norm."""

    def spread(name: str, parameter: Tensor) -> float:
        return 0.3 if "embed" in name or "lm_head" in name else 0.4 if parameter.dim() == 2 else 0.1

    draw_weights(model, seed, spread)
    with torch.no_grad():
        model.lm_head.out_proj.weight[model.config.eos_token_id] *= ends
