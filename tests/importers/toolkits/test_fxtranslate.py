"""fxtranslate as the witness of students: what it generates is what the imported weights give in its integers."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lingon.errors import ParityError, SettingsError
from lingon.importers.pipeline import compare_with_toolkits
from lingon.importers.toolkits import fxtranslate as toolkit
from lingon.importers.toolkits.fxtranslate import IntegerProduct, SaturatingPairs
from lingon.training.search import SearchSettings
from tests.support.marian_models import (
    FORMS,
    LINES,
    STUDENT,
    TARGET_TIED,
    TRAINED,
    MarianFiles,
    MarianForm,
    in_8_bits,
    measured_alphas,
    written,
)

pytest.importorskip("fxtranslate")
STUDENTS = {
    "random": FORMS["SSRU, post-norm"],
    "trained to copy": TRAINED["SSRU, post-norm, trained to copy"],
    "two vocabularies": MarianForm({**STUDENT, **TARGET_TIED}, seed=4, ends=2.0, two=True),
    "four decoder layers": MarianForm({**STUDENT, "dec-depth": 4}, seed=8, ends=1.5),
}


def student(form: MarianForm, folder: Path, *, listed: int = 0) -> MarianFiles:
    model, files = written(form, folder / "files")
    return in_8_bits(model, files, measured_alphas(files.imported(), model), listed=listed)


def compared(files: MarianFiles, *, changed: str = "") -> str:
    """Return the line of the comparison; changed: the name of a weight that is read wrongly."""
    imported = files.imported()
    if changed:
        with torch.no_grad():
            imported.checkpoint.model.get_parameter(changed).mul_(1.5)
    (line,) = toolkit.compare(imported.checkpoint, imported.source, files.folder, LINES)
    return line


@pytest.mark.parametrize("name", STUDENTS)
def test_all_tokens_are_those_of_fxtranslate(tmp_path: Path, name: str) -> None:
    files = student(STUDENTS[name], tmp_path)
    line = compared(files)
    assert line.startswith("fxtranslate in int8 (")
    same, of = map(int, re.findall(r"tokens of (\d+) of (\d+) texts are the same", line)[0])
    assert of == 20
    assert same >= 18  # an input at the edge between two integers is rounded either way
    # Equal tokens would say nothing if there were few different ones.
    imported = files.imported()
    fx = toolkit.FxTranslateToolkit(files.model, imported.source)
    encoded = [imported.checkpoint.tokenizer.encode_source(text) for text in LINES[:40]]
    rows = [[imported.source.source.rows[each] for each in ids] for ids in encoded]
    found = {tuple(fx.generate(ids, [], SearchSettings(), 1000)) for ids in rows}
    assert len(found) >= 10


def test_a_compressed_file_and_one_with_a_shortlist_are_compared_too(tmp_path: Path) -> None:
    files = student(STUDENTS["random"], tmp_path, listed=20)
    packed = files.model.with_name(f"{files.model.name}.gz")
    packed.write_bytes(gzip.compress(files.model.read_bytes()))
    files.model.unlink()
    assert "tokens of 20 of 20 texts are the same" in compared(replace(files, model=packed))


@pytest.mark.parametrize(
    "weight",
    ["decoder.1.feed_forward.inner.weight", "decoder.0.attention.gates.weight", "encoder.0.attention.qkv.weight"],
)
def test_a_student_that_was_read_wrongly_is_refused(tmp_path: Path, weight: str) -> None:
    with pytest.raises(ParityError, match=r"fxtranslate in int8 \(\w+\): beam size 1, .* has other tokens"):
        compared(student(STUDENTS["random"], tmp_path), changed=weight)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("SSRU, pre-norm", "norms before its layers"),
        ("SSRU, post-norm", "no 8-bit matrices with the scales of their inputs"),
    ],
)
def test_a_form_that_it_does_not_compute_is_named(tmp_path: Path, name: str, what: str) -> None:
    files = written(FORMS[name], tmp_path / "files")[1]
    assert compared(files) == f"not confirmed by fxtranslate: the model has {what}"


def test_a_student_is_compared_though_marian_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = student(STUDENTS["random"], tmp_path)
    imported = files.imported()
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = list(compare_with_toolkits(imported.checkpoint, imported.source, files.folder, LINES[:10], wanted=True))
    assert lines[0].startswith("not compared with Marian, which is not installed")
    assert "tokens of 10 of 10 texts are the same" in lines[1]


def test_asking_for_a_comparison_that_nobody_can_make_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = written(FORMS["SSRU, pre-norm"], tmp_path / "files")[1]
    imported = files.imported()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="--compare: Marian is not installed"):
        list(compare_with_toolkits(imported.checkpoint, imported.source, files.folder, LINES[:2], wanted=True))


@pytest.mark.parametrize("saturates", [False, True])
def test_a_product_is_the_sum_of_its_integers(saturates: bool) -> None:
    torch.manual_seed(3)
    integers = torch.randint(-127, 128, (40, 64))
    inputs = torch.randn(7, 64)
    shifted = (inputs * 30).round().clamp(-127, 127).long() + 127
    pairs = (shifted[:, None] * integers[None]).unflatten(2, (-1, 2)).sum(3)
    assert int(pairs.max()) > 2**15  # otherwise the two would be the same
    kept = pairs.clamp(-(2**15), 2**15 - 1) if saturates else pairs
    expected = (kept.sum(2) - 127 * integers.sum(1)).float() / (30 * 4)
    found = IntegerProduct(integers / 4, 4.0, 30.0, saturates=saturates)(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_pairs_that_cannot_saturate_are_not_kept() -> None:
    integers = torch.tensor([[127.0, -127.0, 64.0, 65.0], [65.0, 65.0, -65.0, -64.0]])
    pairs = SaturatingPairs.of(integers)
    assert pairs.rows.tolist() == [1]
    assert pairs.columns.tolist() == [[0, 1]]
