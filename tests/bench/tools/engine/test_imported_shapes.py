"""The benchmark of the shapes of published models: every cell is measured, and a student is compared with its twin."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from lingon.bench.tools.engine.imported_shapes import PRECISIONS, TINY, WAYS, Row, entries, measure, ratio


def test_every_shape_is_measured_in_every_cell(tmp_path: Path) -> None:
    loaded = entries({name: TINY[name] for name in ("opus", "student")}, tmp_path)
    rows = measure([each for each in loaded if each.engine == "lingon"], 1, Console(quiet=True))
    cells = [(row.shape, row.precision, row.batch, row.workers, row.shortlist) for row in rows]
    plain, listed = [(False,), (False, True)]
    assert cells == [
        (shape, precision, batch, workers, shortlist)
        for shape, shortlists in (("opus", plain), ("student", listed))
        for precision in PRECISIONS
        for batch, workers in WAYS
        for shortlist in shortlists
    ]
    assert all(0 < row.fastest_ms <= row.ms for row in rows)


def test_a_student_is_compared_with_the_same_shape_with_self_attention() -> None:
    twin = Row("student, self-attention", "ctranslate2", "int8", 8, 1, False, 30.0, 30.0)
    halves = Row("student, self-attention", "ctranslate2", "int8", 8, 2, False, 25.0, 25.0)
    student = Row("student", "lingon", "int8", 8, 1, False, 20.0, 20.0)
    others = [
        Row("opus", "ctranslate2", "int8", 8, 1, False, 9.0, 9.0),
        Row("student", "lingon", "fp32", 8, 1, False, 9.0, 9.0),
    ]
    rows = [twin, halves, student, *others]
    assert ratio(rows, student) == 25 / 20
    assert ratio(rows, others[1]) is None
    assert ratio(rows, twin) is None
