"""Marian's engine as the reference: kept translations of it, and the comparison of `lingon import`.

`python -m tests.support.marian_engine` translates the kept lines with the engine again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lingon.errors import ParityError, SettingsError
from lingon.importers.pipeline import compare_with_toolkits
from lingon.importers.toolkits import marian as toolkit
from lingon.training.search import SearchSettings, translate
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.marian_engine import KEPT_LINES, marian_beam, read_kept
from tests.support.marian_models import FORMS, LINES, MarianFiles, in_8_bits, measured_alphas, written

NAME = r"Marian's engine \(bergamot-translator 0\.4\.9\) in float32"


def test_every_form_has_kept_translations() -> None:
    assert set(read_kept().greedy) == set(read_kept().beam) == set(FORMS)
    assert len(KEPT_LINES) >= 12


@pytest.mark.parametrize("name", FORMS)
def test_translations_are_those_that_the_engine_made(tmp_path: Path, name: str) -> None:
    kept, imported = read_kept(), written(FORMS[name], tmp_path / "files")[1].imported()
    model, tokenizer = imported.checkpoint.model, imported.checkpoint.tokenizer
    sources = [tokenizer.encode_source(text) for text in KEPT_LINES]
    found = translate(model, sources, SearchSettings(length_factor=2.0, length_extra=0))
    assert [tokenizer.decode(best.tokens) for best, *_ in found] == kept.greedy[name]
    beams = [tokenizer.decode(marian_beam(model, imported.source, ids, 4)) for ids in sources[: len(kept.beam[name])]]
    assert beams == kept.beam[name]
    assert len(set(kept.greedy[name])) > 3  # otherwise equal translations would say nothing


@pytest.fixture(scope="module", params=["SSRU, pre-norm", "untied, two vocabularies"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MarianFiles:
    return written(FORMS[request.param], tmp_path_factory.mktemp("marian") / "files")[1]


def compare(files: MarianFiles, *, wanted: bool | None = None, changed: str = "") -> list[str]:
    imported = files.imported()
    if changed:
        with torch.no_grad():
            imported.checkpoint.model.get_parameter(changed).mul_(1.5)
    return list(compare_with_toolkits(imported.checkpoint, imported.source, files.folder, LINES[:10], wanted=wanted))


@pytest.mark.foreign("node")
def test_a_model_is_confirmed_by_the_engine(files: MarianFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NODE_CLIENT)
    assert compare(files, wanted=True) == [
        "Marian's engine (bergamot-translator 0.4.9) in float32: beam size 1, length penalty 0: tokens of 10 of 10 "
        "texts are the same"
    ]


@pytest.mark.foreign("node")
def test_a_file_of_8_bits_is_confirmed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NODE_CLIENT)
    model, files = written(FORMS["SSRU, post-norm"], tmp_path / "files")
    (line,) = compare(in_8_bits(model, files, measured_alphas(files.imported(), model)))
    assert "tokens of 10 of 10 texts are the same" in line


@pytest.mark.foreign("node")
def test_a_model_that_was_read_wrongly_is_refused(files: MarianFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NODE_CLIENT)
    with pytest.raises(ParityError, match=rf"{NAME}: beam size 1, length penalty 0: .* has other tokens"):
        compare(files, changed="decoder.1.feed_forward.inner.weight")


@pytest.mark.foreign("node")
def test_a_model_that_the_engine_cannot_load_is_not_confirmed(
    files: MarianFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(NODE_CLIENT)
    imported = files.imported()
    content = files.model.read_bytes()
    files.model.write_bytes(content.replace(b'"transformer"', b'"transformed"'))
    try:
        (line,) = toolkit.compare(imported.checkpoint, imported.source, files.folder, LINES[:2])
    finally:
        files.model.write_bytes(content)
    assert line.startswith("not confirmed by Marian's engine (bergamot-translator 0.4.9): ")


def test_without_the_engine_a_line_says_how_to_install_it(
    files: MarianFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    remedy = (
        "it needs Node, and `npm install @browsermt/bergamot-translator@0.4.9` in the current folder or in one that "
        "NODE_PATH names"
    )
    line, *others = compare(files)
    assert line == f"not compared with Marian, which is not installed, so not confirmed; {remedy}"
    assert not [each for each in others if "fxtranslate" not in each]
    with pytest.raises(SettingsError, match="--compare: Marian is not installed; it needs Node, and `npm install"):
        compare(files, wanted=True)
