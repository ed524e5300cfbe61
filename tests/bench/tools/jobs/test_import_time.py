"""The model that copies, and the measurement of its import."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bench.tools.engine.imported_shapes import OPUS
from lingon.bench.tools.jobs.import_time import run
from lingon.bench.workloads.copying_model import write_copying_model
from lingon.importers import pipeline
from lingon.training.search import SearchSettings, translate
from tests.support.foreign_models import lines

TEXTS = lines("en")[:20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copying") / "opus"
    shape = replace(OPUS, vocab=2_000, dim=256, heads=4, ffn=64, layers=2)
    write_copying_model(folder, shape, (lines("en"), lines("de")))
    return folder


def test_a_translation_is_nearly_its_source_and_ends_with_it(folder: Path) -> None:
    loaded = pipeline.read_source(folder, pipeline.ImportSettings(), lambda line: None).checkpoint
    sources = [loaded.tokenizer.encode_source(text) for text in TEXTS]
    for search in (SearchSettings(), SearchSettings(beam_size=4, length_penalty=1.0)):
        found = [best for best, *_ in translate(loaded.model, sources, search)]
        assert all(best.finished for best in found)
        assert [len(best.tokens) for best in found] == [len(source) - 1 for source in sources]
        pairs = [
            pair
            for best, source in zip(found, sources, strict=True)
            for pair in zip(best.tokens, source[:-1], strict=True)
        ]
        assert sum(one == other for one, other in pairs) > 0.9 * len(pairs)


def test_a_run_has_its_lines_with_their_times(folder: Path, tmp_path: Path) -> None:
    found = run([sys.executable, "-m", "lingon", "import", str(folder), "--report"])
    assert any("all tensors used" in each["line"] for each in found["lines"])
    assert 0 < found["lines"][0]["seconds"] <= found["seconds"]
    assert found["peak_mb"] > 0
    assert json.dumps(found)
