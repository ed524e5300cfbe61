"""Imported models keep what they cannot read, and write neither an unknown piece nor a broken character."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lingon import Model
from lingon.cli.main import main
from tests.support.foreign_models import DATA, save_fsmt, save_multilingual, save_opus_mt

GATES = ("--gate-source", str(DATA / "tatoeba.en"), "--gate-sentences", "20", "--parity-sentences", "10")
KINDS: dict[str, Callable[[Path], Path]] = {
    "OPUS-MT": lambda folder: save_opus_mt(folder, seed=6, ends=1.8),
    "NLLB-200, of byte pairs": lambda folder: save_multilingual(folder, "nllb", pieces_of="bpe"),
    "FSMT, of Moses tokens": save_fsmt,
}
PAIR = {"NLLB-200, of byte pairs": {"source": "en", "target": "de"}}
STRINGS = ["東京", "Москва", "Nguyễn", "20 m²", "≤ 5", "①", "مرحبا"]


@pytest.fixture(scope="module", params=KINDS)
def imported(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Model, dict[str, Any]]]:
    """Yield an imported model, and the options that it needs."""
    room = tmp_path_factory.mktemp("imported")
    folder, bundle = KINDS[request.param](room / "files"), room / "models" / "imported"
    arguments = [*GATES, "--least-log-prob", "-99", "--no-compare", "--precision", "fp32"]
    languages = ["--languages", "en:de"] if request.param == "NLLB-200, of byte pairs" else []
    assert main(["import", str(folder), str(bundle), *arguments, *languages]) == 0
    with Model(bundle, threads=1) as model:
        yield model, PAIR.get(request.param, {})


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("string", STRINGS)
def test_what_an_imported_model_cannot_read_comes_back_once(
    imported: tuple[Model, dict[str, Any]], string: str, beam_size: int
):
    model, pair = imported
    for text in (f"I saw {string} here.", string, f"{string} is old."):
        found = model.translate(text, beam_size=beam_size, **pair).text
        assert found.count(string) == 1, (text, found)
        assert "⁇" not in found
        assert "\ufffd" not in found
        assert "<unk>" not in found


@pytest.mark.parametrize("text", ["The \ufb01rst house.", "Ｗｈｅｒｅ are you?", "\U0001d413om is here."])
def test_an_imported_model_reads_twins(imported: tuple[Model, dict[str, Any]], text: str):
    model, pair = imported
    twin = {"T": "The first house.", "Ｗ": "Where are you?"}.get(text[0], "Tom is here.")
    found, expected = (model.translate(each, beam_size=1, **pair).text for each in (text, twin))
    assert found == expected


def test_a_text_that_an_imported_model_cannot_read_stays_with_a_warning(imported: tuple[Model, dict[str, Any]]):
    model, pair = imported
    result = model.translate("Привет, как дела?", **pair)
    assert result.text == "Привет, как дела?"
    assert "unreadable" in [each.code for each in result.warnings]
