"""The reference pages, whose text is the comments and docstrings of the code, are complete."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable

import pytest

import lingon
from docs.generators.extension import definitions
from docs.generators.reference import forms, layout, live_options, score_options, tensors, translate_options
from docs.generators.results import CONFIRMED, reference_engines
from lingon import LiveOptions, ScoreOptions, TranslateOptions
from lingon.bundle.names import BEAM_TABLE, LABELS, TOKEN_IDS, TOTAL_LENGTH
from lingon.segments.protection import TABLE
from tests.support.pages import DOCS
from tests.support.repository import ROOT

BUNDLE = max((ROOT / "models" / "en-de").iterdir(), key=lambda folder: int(folder.name))


def rows(table: str) -> list[list[str]]:
    """Return the cells below the head of a table; a bar in a cell has a backslash before it."""
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("kind", "table"),
    [(TranslateOptions, translate_options()), (ScoreOptions, score_options()), (LiveOptions, live_options())],
    ids=["text", "pair", "speaker"],
)
def test_a_table_has_each_option_once_with_its_type_and_a_meaning(kind: type, table: str):
    assert [name.strip("`") for name, _, _ in rows(table)] == list(typing.get_type_hints(kind))
    for name, annotation, meaning in rows(table):
        assert re.fullmatch(r"`[A-Za-z]+(\[.+\])?( \\\| [A-Za-z]+(\[.+\])?)*`", annotation), name
        assert meaning, name


def test_what_the_docstring_says_of_an_option_is_in_its_row():
    meanings = {name.strip("`"): meaning for name, _, meaning in rows(translate_options())}
    assert "blank lines separate paragraphs" in meanings["split_sentences"]


def test_every_public_class_has_an_entry():
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    classes = [name for name in lingon.__all__ if isinstance(getattr(lingon, name), type)]
    assert [name for name in classes if f"lingon.{name}" not in page] == []


def test_an_indented_paragraph_of_a_docstring_is_code():
    lines = ["A text.", "", "text: the text, in", "    two lines", "", "    first()", "", "    second()", "", "Then."]
    block = [".. code-block:: python", "", "    first()", "", "    second()", ""]
    assert definitions(lines) == ["A text.", "", "", "- ``text``: the text, in", "  two lines", "", *block, "Then."]


def test_every_tensor_of_a_graph_has_its_shape():
    found = {name.strip("` ") for name, _ in rows(tensors()) for name in name.split(",")}
    assert {TOKEN_IDS, TOTAL_LENGTH, BEAM_TABLE, LABELS} <= found


def test_every_file_of_a_bundle_has_a_row_with_its_meaning():
    meanings = {name.strip("`"): meaning for name, meaning in rows(layout())}
    files = {path.relative_to(BUNDLE) for path in BUNDLE.rglob("*") if path.is_file()}
    graphs = {f"<precision>/{path.name}" for path in files if path.suffix == ".onnx"}
    others = {"manifest.json", "shortlist.npz", "profiles.bin", "tokenizer.model", "MODEL_CARD.md"}
    assert graphs | others <= set(meanings)
    assert all(meanings.values())


def test_every_form_that_an_engine_confirmed_is_in_the_table_with_its_result():
    table = rows(reference_engines())
    found = [row for path in CONFIRMED.glob("*.json") for row in json.loads(path.read_text("utf-8"))]
    assert len(found) > 100
    for row in found:
        (line,) = [line for line in table if line[0] == row["family"] and row["form"] in line[1].split("; ")]
        assert line[2] == (row["reference_engine"] or "not confirmed")
        if row["reference_engine"]:
            assert f"{row['search']}: {row['equal']} of {row['of']}" in line[3].split("; ")
            assert row["equal"] > 0


def test_every_form_of_kept_strings_is_in_one_table_with_all_its_examples():
    page = forms()
    assert len(list(_forms_in(page))) == len(TABLE) == len({form.name for form in TABLE})
    for form in TABLE:
        for example in form.examples:
            assert " ".join(example.split("\n")).replace("|", "\\|") in page


def _forms_in(page: str) -> Iterable[str]:
    return (line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| form", "| ---")))
