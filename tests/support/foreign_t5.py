"""Tiny models of the T5 family with random weights, saved as published ones are; they need Transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from tests.support.foreign_models import lines

PREFIX = "translate English to German: "
CODES = ("<2de>", "<2fr>", "<2zh_Latn>")
KINDS: dict[str, dict[str, Any]] = {
    "t5": {
        "feed_forward_proj": "relu",
        "task_specific_params": {
            "summarization": {"prefix": "summarize: "},
            "translation_en_to_de": {"prefix": PREFIX},
            "translation_en_to_fr": {"prefix": "translate English to French: "},
        },
    },
    "t5-v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 1},
    "madlad": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
    },
}
ENDS = {"t5": (1, 6.0), "t5-v1.1": (1, 6.0), "mt5": (2, 6.0), "madlad": (3, 6.0)}
"""The seed of each, and how much more probable the end token is made."""


def save_t5(folder: Path, kind: str, *, seed: int | None = None, ends: float | None = None) -> Path:
    """Save a model with the files of a published one; kind: a key of KINDS."""
    from transformers import (
        GenerationConfig,
        MT5Config,
        MT5ForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    folder.mkdir(parents=True)
    content = _pieces(kind)
    (folder / ("spiece.model" if kind != "madlad" else "sentencepiece.model")).write_bytes(content)
    if kind == "madlad":  # the tokenizer of Transformers reads this name
        (folder / "spiece.model").write_bytes(content)
    count = sentencepiece.SentencePieceProcessor(model_proto=content).get_piece_size()
    values = {
        "vocab_size": count + 4,
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 3,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
        **KINDS[kind],
    }
    torch.manual_seed(ENDS[kind][0] if seed is None else seed)
    built: Any
    if kind == "mt5":
        built = MT5ForConditionalGeneration(MT5Config(**values)).eval()
    else:
        built = T5ForConditionalGeneration(T5Config(**values)).eval()
    _spread(built, ENDS[kind][1] if ends is None else ends)
    built.generation_config = GenerationConfig(num_beams=4)
    built.save_pretrained(folder)
    more: dict[str, Any] = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "legacy": True}
    if kind == "madlad":
        more["pad_token"] = "<s>"
    (folder / "tokenizer_config.json").write_text(json.dumps(more), encoding="utf-8")
    return folder


def _pieces(kind: str) -> bytes:
    """Return a sentencepiece model: padding 0, end 1, unknown 2; of MADLAD unknown 0, begin 1, end 2 and the codes."""
    written = io.BytesIO()
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    if kind == "madlad":
        ids = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    prefixes = [PREFIX, "translate English to French: "] * 100 if kind == "t5" else []
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines("en"), *lines("de"), *prefixes]),
        model_writer=written,
        vocab_size=400,
        user_defined_symbols=list(CODES) if kind == "madlad" else [],
        minloglevel=2,
        hard_vocab_limit=False,
        **ids,
    )
    return written.getvalue()


def _spread(model: Any, ends: float) -> None:
    """Set weights large enough for varied outputs, and add to the output row of the end token until outputs end.

    ends: how much larger its logit becomes for the mean of what the output layer reads
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.5 if "shared" in name or "lm_head" in name else 0.25 if parameter.dim() == 2 else 0.1
            spread = 0.06 if name.endswith(".q.weight") else spread  # T5 does not divide the scores by sqrt(d_kv)
            noise = spread * torch.randn(parameter.shape)
            parameter.copy_(noise if parameter.dim() == 2 else 1 + noise)
        if model.config.tie_word_embeddings:
            model.shared.weight.mul_(4)
        ids = torch.randint(10, 300, (20, 12))
        hidden = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[-1]
        mean = hidden.mean((0, 1))
        scale = model.config.d_model**0.5 if model.config.tie_word_embeddings else 1.0
        model.lm_head.weight[model.config.eos_token_id] += scale * ends * mean / mean.dot(mean)
