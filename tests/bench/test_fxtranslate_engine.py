"""fxtranslate in the benchmarks computes the student of a bundle: the files that are written are the student's own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from lingon.bench.engines import fxtranslate as engine
from lingon.bench.engines.base import Cell, Setting, limit
from lingon.bench.engines.worker import EngineSetting, engine_settings, unavailable_reason
from lingon.bench.tools import in_process
from lingon.bundle.store import Bundle
from lingon.errors import SettingsError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits.fxtranslate import FxTranslateToolkit
from lingon.text import UNK, normalise
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings
from tests.support.foreign_models import lines
from tests.support.marian_models import save_student
from tests.support.random_models import random_model, written_bundle

pytest.importorskip("fxtranslate")
TEXTS = [normalise(text) for text in lines("en")[:40]]
CELL = Cell(workload="shipped", batch=8)
Student = tuple[Path, Imported, Bundle]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Student:
    folder = tmp_path_factory.mktemp("student")
    save_student(folder / "files", seed=4, ends=0.0, listed=300)
    imported = pipeline.read_source(folder / "files", ImportSettings(), lambda line: None)
    settings = ExportSettings(
        precisions=("fp32", "int8"), shortlist_by_default=True, parity_sentences=3, gate_sentences=30
    )
    texts = ExportTexts([Pair(line, "") for line in TEXTS[:30]])
    bundle = pipeline.export_imported(imported, folder / "models" / "en-de", texts, settings, lambda line: None)
    return folder / "files" / "model.ende.intgemm.alphas.bin", imported, bundle


def sources_of(imported: Imported) -> list[list[int]]:
    encoded = [imported.checkpoint.tokenizer.encode_source(line) for line in TEXTS]
    return [ids for ids in encoded if UNK not in ids]


@pytest.mark.parametrize("workers", [1, 2])
def test_it_finds_what_the_files_of_the_student_give(student: Student, tmp_path: Path, workers: int) -> None:
    path, imported, bundle = student
    assert unavailable_reason(EngineSetting("fxtranslate", Setting(precision="int8")), bundle) is None
    engine.prepare(bundle, tmp_path)
    sources = sources_of(imported)
    found = engine.load(tmp_path, Setting(precision="int8", workers=workers, threads=1)).translate(sources, CELL)
    toolkit = FxTranslateToolkit(path, imported.source)
    source_rows, target_rows = imported.source.source.rows, imported.source.target.rows
    expected = [
        toolkit.generate([source_rows[each] for each in ids], [], SearchSettings(), 1000)[
            : limit(len(ids), CELL, bundle.manifest.limits)
        ]
        for ids in sources
    ]
    same = sum([target_rows[each] for each in ids] == wanted for ids, wanted in zip(found, expected, strict=True))
    assert same >= len(sources) - 2  # a scale that was written twice is rounded twice
    assert len({tuple(ids) for ids in found}) >= 10


def test_a_shortlist_is_that_of_the_bundle(student: Student, tmp_path: Path) -> None:
    _, imported, bundle = student
    engine.prepare(bundle, tmp_path)
    loaded, sources = engine.load(tmp_path, Setting(precision="int8", threads=1)), sources_of(imported)
    listed = loaded.translate(sources, Cell(workload="shipped", batch=8, shortlist=True))
    plain = loaded.translate(sources, CELL)
    shortlist = imported.source.shortlist
    assert shortlist is not None
    allowed = [set(shortlist.select(ids)) | set(range(8)) for ids in sources]  # filled up to a multiple of 8
    assert all(set(ids) <= own for ids, own in zip(listed, allowed, strict=True))
    assert any(not set(ids) <= own for ids, own in zip(plain, allowed, strict=True)) or listed == plain


def test_lines_in_one_call_have_the_texts_of_lines_one_at_a_time_and_in_their_order(student: Student) -> None:
    path, _, bundle = student
    with ExitStack() as stack:
        files = in_process.student_files(path.parent)._replace(shortlist=None)  # This one has rows beyond the table.
        cases = in_process.cases_of(bundle.folder, files, stack)
        for engine in (in_process.LINGON, in_process.FXTRANSLATE):
            alone, together = (
                cases[how, engine](TEXTS[:21]) for how in (in_process.ONE_AT_A_TIME, in_process.IN_ONE_CALL)
            )
            assert alone == together
            assert len(set(alone)) > 3


def test_a_panic_of_the_library_is_raised_in_the_thread_that_waits(student: Student) -> None:
    path, *_ = student
    thread = engine.TranslatorThread(in_process.student_files(path.parent))
    with pytest.raises(BaseException, match="out of range"):
        thread.translate(TEXTS, shortlist=True).result(timeout=60)


def test_the_cost_of_a_line_is_related_to_fxtranslate_in_the_same_rounds() -> None:
    calls: list[str] = []

    def engine(name: str, text: str) -> in_process.Translate:
        def translate(lines: Sequence[str]) -> list[str]:
            calls.append(name)
            return ["same", text]

        return translate

    how = in_process.ONE_AT_A_TIME
    cases = {(how, in_process.LINGON): engine("a", "one"), (how, in_process.FXTRANSLATE): engine("b", "other")}
    ours, theirs = in_process.measure(cases, ["x", "y"], rounds=2)
    assert calls == ["a", "b"] * 3
    assert (ours["same_text"], theirs["same_text"], theirs["ratio_to_fxtranslate"]) == (0.5, 1, 1)


def test_the_files_of_a_student_are_found_or_the_folder_is_named(student: Student, tmp_path: Path) -> None:
    path, *_ = student
    found = in_process.student_files(path.parent)
    assert [each and each.name for each in found] == [
        path.name, "vocab.ende.spm", "vocab.ende.spm", "lex.50.50.ende.s2t.bin",
    ]  # fmt: skip
    (tmp_path / "vocab.ende.spm").touch()
    with pytest.raises(SettingsError, match=rf"{tmp_path}: must have one model"):
        in_process.student_files(tmp_path)


def test_another_model_and_other_cells_are_left_out(tmp_path: Path) -> None:
    bundle = written_bundle(random_model(), tmp_path)
    setting = engine_settings(["fxtranslate"], 2)
    assert [each.label for each in setting] == ["fxtranslate int8 1x1", "fxtranslate int8 2x1"]
    assert "has no SSRU cells" in str(unavailable_reason(setting[0], bundle))
    cells = [CELL, Cell(workload="base", batch=1, beam_size=4), Cell(workload="base", batch=1, exact_length=9)]
    assert [setting[0].supports(each) for each in cells] == [True, False, False]
