from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle import Bundle, open_bundle, write_bundle
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, Texts
from lingon.serving.runtime.device import CPU
from lingon.training.data.corpus import Pair
from tests.support.checkpoints import random_checkpoint
from tests.support.decided_models import decided


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Bundle:
    """A bundle with golden sentences; precisions for CUDA are for the CPU, which takes the place of the card."""
    folder = tmp_path_factory.mktemp("verified")
    checkpoint = random_checkpoint(folder, pairs, seed=1)
    decided(checkpoint.model, gain=5)
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
