"""The page of the Python API, of which the comments and docstrings of the code are the text."""

from __future__ import annotations

import re
import typing

import pytest

import lingon
from docs.generators.extension import definitions
from docs.generators.options import score_options, translate_options
from lingon import ScoreOptions, TranslateOptions
from tests.support.pages import DOCS


def rows(table: str) -> list[list[str]]:
    """The cells below the head of a table, without the marks of code; a bar in a cell has a backslash before it."""
    return [[cell.strip(" `") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("kind", "table"), [(TranslateOptions, translate_options()), (ScoreOptions, score_options())], ids=["text", "pair"]
)
def test_a_table_has_each_option_once_with_its_type_and_a_meaning(kind: type, table: str):
    assert [name for name, _, _ in rows(table)] == list(typing.get_type_hints(kind))
    for name, annotation, meaning in rows(table):
        assert re.fullmatch(r"[A-Za-z]+(\[.+\])?( \\\| [A-Za-z]+(\[.+\])?)*", annotation), name
        assert meaning, name


def test_what_the_docstring_says_of_an_option_is_in_its_row():
    meanings = {name: meaning for name, _, meaning in rows(translate_options())}
    assert 'blank lines separate paragraphs; "off" gives the model each text as it is.' in meanings["split_sentences"]


def test_every_public_class_has_an_entry():
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    classes = [name for name in lingon.__all__ if isinstance(getattr(lingon, name), type)]
    assert [name for name in classes if f"lingon.{name}" not in page] == []


def test_an_indented_paragraph_of_a_docstring_is_code():
    lines = ["A text.", "", "text: the text, in", "    two lines", "", "    first()", "", "    second()", "", "Then."]
    block = [".. code-block:: python", "", "    first()", "", "    second()", ""]
    assert definitions(lines) == ["A text.", "", "", "- ``text``: the text, in", "  two lines", "", *block, "Then."]
