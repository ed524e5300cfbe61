"""From what a reader found to a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from lingon.errors import SourceModelError
from lingon.importers.source import ForeignModel, Rows, digests
from lingon.text import Tokenizer
from lingon.training.checkpoint import Checkpoint, Progress
from lingon.training.config import Config, TransformerSettings, parse_config
from lingon.training.models.build import build_unset

WEIGHTS_A_BYTE = 2  # at most, of compressed files of 8-bit weights with tables that several layers share


def checkpoint_of(source: ForeignModel, pair: tuple[str, str], folder: Path) -> Checkpoint:
    """Return a checkpoint with the weights of a source, which it reads one by one.

    pair: source and target language, of a model of several the pair for the gates
    folder: of the files, for messages

    Raises SourceModelError if the weights are not those of the settings.
    """
    tokenizer = source.tokenizer
    config = _config(source, pair)
    tokenizer = config.tokenizer_of_pair(tokenizer)
    _check_size(source, tokenizer, folder)
    model = build_unset(source.settings, tokenizer.source_vocab, tokenizer.target_vocab)
    left = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in source.weights:
            if name not in left:
                raise SourceModelError(f"{folder}: {name} is no weight of a model with these settings")
            parameter = left.pop(name).detach()
            if isinstance(tensor, Rows):
                tensor.write(parameter)
            else:
                parameter.copy_(tensor)
    if left:
        raise SourceModelError(f"{folder}: nothing gives the weights {', '.join(sorted(left)[:3])}")
    return Checkpoint(config, tokenizer, model.eval(), Progress(), folder)


def _check_size(source: ForeignModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Raise SourceModelError if a model with these settings is far larger than its files, before memory is taken."""
    weights = _least_weights(source.settings, tokenizer)
    held = sum(path.stat().st_size for path in source.facts.files)
    if weights > WEIGHTS_A_BYTE * held:
        raise SourceModelError(
            f"{folder}: its settings are those of {weights:,} weights or more, its files have {held:,} bytes"
        )


def _least_weights(settings: TransformerSettings, tokenizer: Tokenizer) -> int:
    """Return the weights of the tables, the feed-forward layers and the encoder's attention; others are few."""
    pieces = tokenizer.source_vocab + (0 if settings.tie == "all" else tokenizer.target_vocab)
    inner = 2 * settings.ffn * (settings.encoder_layers + settings.decoder_layers)
    attention = 4 * settings.attention_dim * settings.encoder_layers
    return settings.dim * (pieces + inner + attention)


def _config(source: ForeignModel, pair: tuple[str, str]) -> Config:
    facts, tokenizer = source.facts, source.tokenizer
    values = {
        "data": {
            "source_language": pair[0],
            "target_language": pair[1],
            "max_tokens": facts.longest,
        },
        "tokenizer": {
            "kind": _kind(tokenizer),
            "vocab_size": tokenizer.target_vocab,
            "joint": tokenizer.joint,
            "source_end": tokenizer.source_end,
            "byte_fallback": tokenizer.target.is_byte(tokenizer.target.piece_to_id("<0x0A>")),
        },
        "model": source.settings.model_dump(),
        "languages": None if source.languages is None else source.languages.model_dump(),
        "origin": {"form": facts.form, "licence": facts.licence, "files": digests(facts.files)},
    }
    return parse_config(values, facts.form)


def _kind(tokenizer: Tokenizer) -> str:
    """Return the kind of the target model, as the settings name it."""
    if tokenizer.moses is not None:
        return "bpe"
    model = ModelProto()
    model.ParseFromString(list(tokenizer.files().values())[-1])
    return "bpe" if model.trainer_spec.model_type == TrainerSpec.BPE else "unigram"
