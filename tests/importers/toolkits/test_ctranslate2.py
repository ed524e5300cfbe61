"""CTranslate2 as the reference: it generates the tokens of a model that was read right, and of no other one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from lingon.errors import ParityError, SettingsError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings, compare_with_toolkits
from lingon.importers.toolkits import ctranslate2 as toolkit
from lingon.importers.toolkits import transformers
from lingon.text import normalise
from tests.support.ctranslate2_models import save_ctranslate2
from tests.support.foreign_models import lines, save_multilingual, save_opus_mt, silent, write_published_settings

TEXTS = [normalise(text) for text in lines("en")[:40]]
SETTINGS = ImportSettings(languages=(["en"], ["de"]))
CHANGED = ["decoder.1.cross.query.bias", "encoder.0.feed_forward.inner.weight", "output.bias"]


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("opus") / "files", seed=6, ends=0.5)


@pytest.fixture(scope="module")
def folder(opus: Path) -> Path:
    return save_ctranslate2(opus.parent / "ctranslate2", opus)


@pytest.fixture
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, SETTINGS, silent)


def compare(imported: Imported, folder: Path, *, wanted: bool | None = None, count: int = 40) -> list[str]:
    found = compare_with_toolkits(imported.checkpoint, imported.source, folder, TEXTS[:count], wanted=wanted)
    return list(found)


def check_same(found: list[str], searches: int) -> None:
    """Check that the texts have the same tokens but for one near tie, and that most of them are compared."""
    assert len(found) == searches, found
    for line in found:
        match = re.fullmatch(
            r"CTranslate2: beam size [14], length penalty [01]: tokens of (\d+) of (\d+) texts are the same"
            r"(?:, \d score no better)?(?:; \d+ are left out, which it cannot translate so)?",
            line,
        )
        assert match is not None, line
        same, compared = int(match[1]), int(match[2])
        assert compared >= 20, line
        # With a penalty Lingon goes on until no better translation can end: of a random model they often differ.
        assert same >= (compared - 1 if "penalty 0:" in line else 0.6 * compared), line


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int16"])
def test_a_folder_is_compared_with_itself(tmp_path: Path, opus: Path, kind: str) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    folder = save_ctranslate2(tmp_path / kind, opus, kind)
    check_same(compare(pipeline.read_source(folder, SETTINGS, silent), folder), 3)


@pytest.mark.peer
def test_empty_translations_are_compared_in_greedy_search_alone(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    source = save_opus_mt(tmp_path / "opus", seed=6, ends=2.4)
    folder = save_ctranslate2(tmp_path / "ctranslate2", source)
    greedy, beam, _ = compare(pipeline.read_source(folder, SETTINGS, silent), folder)
    assert greedy.endswith(": tokens of 40 of 40 texts are the same")
    assert beam.endswith(": tokens of 5 of 5 texts are the same; 35 are left out, which it cannot translate so")


@pytest.mark.peer
def test_greedy_tokens_may_differ_where_two_are_alike(tmp_path: Path) -> None:
    """One of these texts has two tokens whose log-probabilities differ by 4e-6."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    source = save_opus_mt(tmp_path / "opus", seed=9, ends=1.5)
    folder = save_ctranslate2(tmp_path / "ctranslate2", source)
    greedy, *_ = compare(pipeline.read_source(folder, SETTINGS, silent), folder)
    assert re.search(r": tokens of (39 of 40 texts are the same, 1 score no better|40 of 40 .*)$", greedy)


@pytest.mark.peer
@pytest.mark.parametrize("name", CHANGED)
def test_a_weight_that_is_read_wrongly_is_one_line(imported: Imported, folder: Path, name: str) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    with torch.no_grad():
        imported.checkpoint.model.get_parameter(name).mul_(1.2)
    with pytest.raises(
        ParityError, match=r"^CTranslate2: beam size 1, .* has other tokens, of score .*; ours is"
    ) as caught:
        compare(imported, folder)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["opus", "m2m_100", "nllb", "mbart50", "mbart25"])
def test_a_folder_of_transformers_is_converted(tmp_path: Path, opus: Path, kind: str) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    source = opus if kind == "opus" else save_multilingual(tmp_path / kind, kind, seed=3, ends=1.5)
    if kind.startswith("mbart"):
        write_published_settings(source, kind)
    found = compare(pipeline.read_source(source, SETTINGS, silent), source)
    searches = 3 if kind in ("opus", "mbart25") else 1  # the others force a language
    check_same([line for line in found if "CTranslate2" in line], searches)
    assert len(found) == 4 + searches


@pytest.mark.peer
def test_a_model_that_is_not_converted_is_not_compared(tmp_path: Path) -> None:
    """Its converter needs a setting that new files of mBART have not."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    source = save_multilingual(tmp_path / "mbart50", "mbart50", seed=3, ends=3.0)
    *_, last = compare(pipeline.read_source(source, SETTINGS, silent), source, count=2)
    assert last.startswith("not compared with CTranslate2, which does not convert the model: ")
    assert "normalize_before" in last


@pytest.mark.peer
def test_a_folder_that_it_cannot_load_is_one_line(tmp_path: Path, imported: Imported, opus: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    folder = save_ctranslate2(tmp_path / "cut", opus)
    (folder / "model.bin").write_bytes((folder / "model.bin").read_bytes()[:5000])
    with pytest.raises(SourceModelError, match=r"cut: CTranslate2 cannot load it: \S") as caught:
        compare(imported, folder)
    assert len(str(caught.value).splitlines()) == 1


def test_without_it_a_line_says_so(imported: Imported, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "is_installed", lambda: False)
    assert compare(imported, folder) == ["not compared with CTranslate2, which is not installed"]
    assert compare(imported, folder, wanted=False) == ["not compared with CTranslate2"]
    with pytest.raises(SettingsError, match=r"^--compare: CTranslate2 is not installed; the extra lingon\[bench\]"):
        compare(imported, folder, wanted=True)


def test_a_model_of_transformers_needs_no_second_toolkit(opus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pipeline.read_source(opus, SETTINGS, silent)
    monkeypatch.setattr(toolkit, "is_installed", lambda: False)
    assert all(line.startswith("Transformers: ") for line in compare(found, opus, count=2))
    monkeypatch.setattr(transformers, "is_installed", lambda: False)
    monkeypatch.setattr(toolkit, "is_installed", lambda: True)  # its converter needs Transformers
    assert compare(found, opus) == ["not compared with Transformers, which is not installed"]


def test_only_the_comparisons_import_other_toolkits() -> None:
    folder = Path(pipeline.__file__).parent
    importing = re.compile(r"^ *(?:from|import) +(transformers|ctranslate2|fxtranslate)\b", re.MULTILINE)
    found = {
        str(path.relative_to(folder)): set(names)
        for path in folder.rglob("*.py")
        if (names := importing.findall(path.read_text(encoding="utf-8")))
    }
    assert found == {
        "toolkits/transformers.py": {"transformers"},
        "toolkits/ctranslate2.py": {"ctranslate2"},
        "toolkits/opennmt.py": {"ctranslate2"},
        "toolkits/fxtranslate.py": {"fxtranslate"},
    }
