"""Models of other toolkits whose vocabularies have the markers of OpusTrainer for terms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lingon.errors import SettingsError
from lingon.export.manifest import build_manifest
from lingon.export.settings import ExportSettings
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.terms.annotation import OPUS_TRAINER_FORM, Place, annotated
from tests.support.marian_models import Marian, names_of, own_pieces, save_npz

MARKERS = OPUS_TRAINER_FORM.markers


def save(folder: Path, markers: tuple[str, ...]) -> Path:
    """Write a model of Marian with random weights, whose vocabulary has these markers besides its pieces."""
    pieces = own_pieces(200, markers=markers)
    (folder / "vocab.ende.spm").write_bytes(pieces)
    rows = len(names_of(pieces))
    save_npz(folder / "model.npz", Marian.random((rows, rows), 1, 0.0))
    return folder


def read(folder: Path, log: list[str], *, terms: bool) -> Imported:
    settings = ImportSettings(languages=(["en"], ["de"]), terms=terms)
    return pipeline.read_source(folder, settings, log.append)


def test_a_model_that_is_said_to_be_trained_with_terms_has_their_form_in_its_bundle(tmp_path: Path) -> None:
    checkpoint = read(save(tmp_path, MARKERS), [], terms=True).checkpoint
    assert build_manifest(checkpoint, tmp_path / "m", ExportSettings(precisions=("fp32",))).terms == OPUS_TRAINER_FORM
    text = annotated("a b", [Place(2, 3, "c")], OPUS_TRAINER_FORM)
    found = checkpoint.tokenizer.source_pieces(checkpoint.tokenizer.encode_source(text))
    assert [piece for piece in found if piece in MARKERS] == list(MARKERS)


def test_markers_in_a_vocabulary_alone_say_nothing_but_are_noted(tmp_path: Path) -> None:
    log: list[str] = []
    checkpoint = read(save(tmp_path, MARKERS), log, terms=False).checkpoint
    assert checkpoint.config.data.terms is None
    assert [line for line in log if "OpusTrainer" in line] == [
        "note: its vocabulary has the markers of OpusTrainer, __source__, __target__, __done__; --terms if it was "
        "trained with terms"
    ]


def test_a_vocabulary_without_a_marker_is_named_in_one_line(tmp_path: Path) -> None:
    log: list[str] = []
    save(tmp_path, MARKERS[:2])
    assert read(tmp_path, log, terms=False).checkpoint.config.data.terms is None
    assert not any("OpusTrainer" in line for line in log)
    line = "--terms: the source vocabulary must have a piece '__done__', and has none"
    with pytest.raises(SettingsError, match=f"^{re.escape(line)}$"):
        read(tmp_path, log, terms=True)


def test_a_trimmed_model_keeps_its_markers(tmp_path: Path) -> None:
    imported = read(save(tmp_path, MARKERS), [], terms=True)
    (tmp_path / "text").write_text("a b c\n" * 30, encoding="utf-8")
    trimmed = pipeline.trim_imported(imported, [tmp_path / "text"], lambda line: None).checkpoint
    assert trimmed.tokenizer.source_vocab < imported.checkpoint.tokenizer.source_vocab
    assert trimmed.config.data.terms == imported.checkpoint.config.data.terms
    assert all(marker in trimmed.tokenizer.source_pieces(trimmed.tokenizer.encode_source(marker)) for marker in MARKERS)
