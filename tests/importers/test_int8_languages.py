"""int8 of a bundle of several languages: its ranges and its gate are of all target languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lingon.export.gated_bundle
import lingon.export.gates_text
from lingon.errors import ParityError
from lingon.export.calibration import own_sentences
from lingon.export.gates_text import check_likeness
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.text import normalise
from lingon.training.corpus import Pair
from tests.support.foreign_models import lines, save_multilingual, silent

TEXTS = [normalise(text) for text in lines("en")[:12]]
PAIRS = ImportSettings(languages=(["en", "de"], ["de", "fr"]))
SETTINGS = ExportSettings(precisions=("fp32", "int8"), shortlist=None, parity_sentences=3, gate_sentences=8)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = save_multilingual(tmp_path_factory.mktemp("zoo") / "m2m", "m2m_100", seed=3, ends=3.0)
    return pipeline.read_source(folder, PAIRS, silent)


def test_ranges_are_measured_with_the_codes_of_every_target_language(imported: Imported) -> None:
    languages = imported.checkpoint.config.languages
    assert languages is not None
    forced = [languages.resolve(imported.checkpoint.tokenizer).tokens("en", each).forced for each in ("de", "fr")]
    found = own_sentences(imported.checkpoint, TEXTS, {})
    assert [len(each) for each in forced] == [1, 1]
    assert [target[0] for _, target in found] == [*forced[0]] * 6 + [*forced[1]] * 6


def test_int8_is_compared_with_fp32_in_every_target_language(
    imported: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("LEAST_LIKE_BLEU", "LEAST_LIKE_CHRF"):
        monkeypatch.setattr(lingon.export.gates_text, bound, 0)  # the model is not trained
    texts = ExportTexts([Pair(text, "") for text in TEXTS])
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "many", texts, SETTINGS, silent)
    quality = bundle.manifest.precisions["int8"].report["quality"]
    assert quality["sentences"] == 8
    assert {language: each["sentences"] for language, each in quality["languages"].items()} == {"fr": 8}


def test_int8_that_fails_in_one_of_them_is_left_out(
    imported: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(what: str, *texts: Any) -> dict[str, Any]:
        if what == "int8 into fr":
            raise ParityError(f"{what}: BLEU is too low")
        return check_likeness(what, *texts)

    for bound in ("LEAST_LIKE_BLEU", "LEAST_LIKE_CHRF"):
        monkeypatch.setattr(lingon.export.gates_text, bound, 0)
    monkeypatch.setattr(lingon.export.gated_bundle, "check_likeness", judged)
    texts, said = ExportTexts([Pair(text, "") for text in TEXTS]), list[str]()
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "many", texts, SETTINGS, said.append)
    assert list(bundle.manifest.precisions) == ["fp32"]
    assert "int8 into fr: BLEU is too low; the bundle has no int8" in said
