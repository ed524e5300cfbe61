"""Tiny models of other toolkits that read Moses tokens, with random weights, saved as published ones are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from tests.support.foreign_models import HEAD, lines
from tests.support.merges import END, learn_merges, pieces_of


def moses_tokens(language: str, count: int = 300) -> Counter[str]:
    """Return the Moses tokens of the test corpus and how often each of them is there."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    texts = lines(language)[:count]
    return Counter(token for text in texts for token in tokenizer.tokenize(text, aggressive_dash_splits=True))


def save_fsmt(folder: Path, *, seed: int = 1, ends: float = 4.0, **config: Any) -> Path:
    """Save an FSMTForConditionalGeneration with the files of facebook/wmt19-en-de."""
    from transformers import FSMTConfig, FSMTForConditionalGeneration, GenerationConfig

    tokens = {"src": moses_tokens("en"), "tgt": moses_tokens("de")}
    merges = learn_merges(tokens["src"] + tokens["tgt"], 200)
    folder.mkdir(parents=True)
    sizes = {}
    for side, counted in tokens.items():
        pieces = [piece for piece in pieces_of(counted, merges) if piece != f"Tom{END}"]
        ids = {piece: number for number, piece in enumerate([*HEAD, *pieces])}
        sizes[f"{side}_vocab_size"] = len(ids)
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids), encoding="utf-8")
    listed = "".join(f"{first} {second} {rank}\n" for rank, (first, second) in enumerate(merges))
    (folder / "merges.txt").write_text(listed, encoding="utf-8")
    values = {"langs": ["en", "de"], "tokenizer_class": "FSMTTokenizer", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    torch.manual_seed(seed)
    model = FSMTForConditionalGeneration(FSMTConfig(**_config(), **sizes, **config)).eval()
    _spread_fsmt(model, seed, ends)
    model.generation_config = GenerationConfig(num_beams=5, max_length=200)
    model.save_pretrained(folder)
    return folder


def _config() -> dict[str, Any]:
    return {
        "langs": ["en", "de"],
        "d_model": 32,
        **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        "max_position_embeddings": 128,
        "forced_eos_token_id": None,
    }


def _spread_fsmt(model: Any, seed: int, ends: float) -> None:
    """Set weights for varied outputs that end: the bias of the last norm points to the row of the end token."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "positions" in name:
                continue
            spread = 0.15 if "embed" in name else 0.3 if parameter.dim() == 2 else 0.1
            noise = spread * torch.randn(parameter.shape, generator=random)
            parameter.copy_(noise if parameter.dim() == 2 else parameter + noise)
        row = model.model.decoder.embed_tokens.weight[2]
        model.model.decoder.layers[-1].final_layer_norm.bias += ends * row / row.dot(row)
