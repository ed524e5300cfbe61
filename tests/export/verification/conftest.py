from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lingon.bundle import Bundle, open_bundle, write_bundle
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, Texts
from lingon.serving.runtime.device import CPU
from lingon.training.checkpoint import Checkpoint, Progress
from lingon.training.config import load_config
from lingon.training.data.corpus import Pair
from lingon.training.data.tokenizer import train_tokenizer
from lingon.training.models.transformer import Transformer
from tests.support.decided_models import decided
from tests.support.tiny_training import tiny_config_text, write_digit_corpus


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Bundle:
    """A bundle with golden sentences; precisions for CUDA are for the CPU, which takes the place of the card."""
    folder = tmp_path_factory.mktemp("verified")
    write_digit_corpus(folder / "text", pairs=200)
    (folder / "text" / "config.toml").write_text(tiny_config_text())
    config = load_config(folder / "text" / "config.toml")
    tokenizer = train_tokenizer(pairs, config.tokenizer)
    torch.manual_seed(1)
    model = decided(Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab).eval(), gain=5)
    checkpoint = Checkpoint(config, tokenizer, model, Progress(step=7), folder)
    settings = ExportSettings(
        precisions=("fp32-cuda", "fp16"), shortlist=None, beam_size=3, parity_sentences=2, gate_sentences=2
    )
    made = export_checkpoint(checkpoint, folder / "cuda" / "digits", Texts(pairs[:40]), settings)
    precisions = {name: replace(entry, provider=CPU) for name, entry in made.manifest.precisions.items()}
    files = {name: made.read(name) for name in made.manifest.checksums}
    return write_bundle(folder / "digits" / "1", replace(made.manifest, precisions=precisions), files)


@pytest.fixture
def bundle(exported: Bundle, tmp_path: Path) -> Bundle:
    """A copy of the bundle, as version 1 of a model."""
    files = {name: exported.read(name) for name in exported.manifest.checksums}
    return open_bundle(write_bundle(tmp_path / "digits" / "1", exported.manifest, files).folder)
