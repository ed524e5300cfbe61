"""Checkpoints of OpenNMT-py beside CTranslate2, the engine of the same project, which converts and translates them."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from lingon.importers.foreign_model import ForeignModel
from lingon.importers.readers.opennmt import open_opennmt_py
from lingon.importers.readers.opennmt_options import OPENNMT_PY
from lingon.importers.toolkits import ctranslate2
from lingon.importers.toolkits.comparison import compare_tokens
from lingon.training.checkpoint import Checkpoint

TOOLKIT = OPENNMT_PY
GENERATOR = "generator."  # begins the names of the tensors of the output
PLAIN = (str, int, float, list)
REMEDY = "CTranslate2 computes its models: the extra lingon[bench] has it"


def is_installed() -> bool:
    """Return whether CTranslate2 can be imported."""
    return ctranslate2.is_installed()


def compare(checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str]) -> list[str]:
    """Compare tokens with those of CTranslate2, and return a line for each search.

    A model that it cannot convert is not compared, and a line says so. Of an encoder and a decoder it computes
    sinusoids, plain activations and LayerNorm alone.

    Raises ParityError as `compare_tokens` does.
    """
    settings = source.settings
    if (
        settings.positions != "sinusoidal"
        or settings.gated
        or settings.norm_kind != "layer"
        or checkpoint.tokenizer.moses
    ):
        return ["not compared with CTranslate2, which does not compute such a model of OpenNMT-py"]
    from ctranslate2.converters import OpenNMTPyConverter

    with tempfile.TemporaryDirectory() as room:
        written, converted = Path(room) / "checkpoint.pt", Path(room) / "converted"
        _write_plain(folder, written)
        try:
            with torch.serialization.safe_globals([argparse.Namespace]):  # the options, which are plain values
                OpenNMTPyConverter(str(written)).convert(str(converted))
            toolkit = ctranslate2.CTranslate2Toolkit(converted, source)
        except Exception as error:  # what its converter raises depends on the model, and on both versions
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            return [f"not compared with CTranslate2, which does not convert the checkpoint: {reason}"]
        return list(compare_tokens(toolkit, checkpoint, source, texts))


def _write_plain(folder: Path, path: Path) -> None:
    """Write the checkpoint of a folder as version 3 does: version 2 has fields of torchtext, which would be loaded."""
    found = open_opennmt_py(folder)
    tensors = dict(found.tensors.stored())
    output = {name.removeprefix(GENERATOR): tensors.pop(name) for name in list(tensors) if name.startswith(GENERATOR)}
    source, target = found.vocabularies.pieces
    options = {name: value for name, value in found.fields.values.items() if isinstance(value, PLAIN)}
    vocab = {"src": source, "tgt": target, "decoder_start_token": found.vocabularies.start}
    held = {"model": tensors, "generator": output, "vocab": vocab, "opt": argparse.Namespace(**options)}
    torch.save(held, path)
