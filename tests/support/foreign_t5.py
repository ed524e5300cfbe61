"""Tiny models built as T5 with random weights, saved as published ones are; they need Transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from tests.support.foreign_models import lines

CODES = ("<2de>", "<2en>", "<2fr>")
PREFIX = "translate English to {}: "
SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
TASKS = {
    f"translation_en_to_{tag}": {"prefix": PREFIX.format(name)} for tag, name in (("de", "German"), ("fr", "French"))
}
KINDS: dict[str, dict[str, Any]] = {
    "t5": {"feed_forward_proj": "relu", "task_specific_params": TASKS, "n_positions": 128},
    "t5-v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "madlad": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "d_kv": 16,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
    },
}


def save_t5(folder: Path, kind: str, *, seed: int = 1, ends: float = 3.0, **config: Any) -> Path:
    """Save a model with the files of a published one; kind: a key of KINDS. ends: raises the logit of the end."""
    from transformers import (
        GenerationConfig,
        MT5Config,
        MT5ForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    content = _pieces(kind)
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(content)
    extra = 0 if kind == "madlad" else 100
    rows = len(sentencepiece.SentencePieceProcessor(model_proto=content)) + extra + 12
    given = {"vocab_size": rows, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    values = {**SIZES, **given, **KINDS[kind], **config}
    torch.manual_seed(seed)
    model: Any
    if kind == "mt5":
        model = MT5ForConditionalGeneration(MT5Config(**values)).eval()
    else:
        model = T5ForConditionalGeneration(T5Config(**values)).eval()
    _spread_t5(model, seed, ends)
    model.generation_config = GenerationConfig(max_length=128)
    model.save_pretrained(folder)
    tokenizer = {
        "tokenizer_class": "T5Tokenizer",
        "extra_ids": extra,
        "pad_token": "<s>" if kind == "madlad" else "<pad>",
        "additional_special_tokens": [f"<extra_id_{number}>" for number in range(extra)] or list(CODES),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def _pieces(kind: str) -> bytes:
    """Return a sentencepiece model with padding 0, end 1 and unknown 2, of MADLAD-400 1, 2 and 0."""
    texts = [*lines("en"), *lines("de")] + [task["prefix"] for task in TASKS.values()] * 60
    ids = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1) if kind == "madlad" else dict(pad_id=0, eos_id=1, unk_id=2)
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        vocab_size=400,
        minloglevel=2,
        hard_vocab_limit=False,
        user_defined_symbols=list(CODES) if kind == "madlad" else [],
        **({"bos_id": -1} | ids),
    )
    return written.getvalue()


def _spread_t5(model: Any, seed: int, ends: float) -> None:
    """Set weights large enough for varied outputs that end; `ends` scales the row of the end in the output layer.

    RMSNorm has no bias by which its logit could be raised; a longer row is the largest logit more often.
    """
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.5 if "shared" in name or "lm_head" in name else 0.3 if parameter.dim() == 2 else 0.1
            if name.endswith(".q.weight"):  # scores are not scaled: large ones amplify the rounding of float32
                spread *= model.config.d_kv**-0.5
            noise = spread * torch.randn(parameter.shape, generator=random)
            parameter.copy_(noise if parameter.dim() == 2 else parameter + noise)
        eos = model.config.eos_token_id
        model.lm_head.weight[eos] *= ends
