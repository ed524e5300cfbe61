"""The tables of the reference that are generated from comments are complete."""

from __future__ import annotations

import json
import re

from docs.generators import bundle, kept_strings, options, witness_table
from lingon import TranslateOptions
from lingon.bundle import names
from lingon.segments.protection.table import TABLE


def rows(table: str) -> list[list[str]]:
    """The cells of the rows of a table, without its head."""
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_every_option_of_translate_has_its_type_and_its_meaning() -> None:
    found = {name.strip("`"): rest for name, *rest in rows(options.translate_options())}
    assert found.keys() == TranslateOptions.__annotations__.keys()
    for name, cells in found.items():
        kind, meaning = cells
        assert re.fullmatch(r"`[A-Za-z].*`", kind), name
        assert meaning.strip(), name


def test_every_tensor_of_a_graph_has_its_shape() -> None:
    found = {name.strip("` ") for cells in rows(bundle.tensors()) for name in cells[0].split(",")}
    assert {names.TOKEN_IDS, names.TOTAL_LENGTH, names.BEAM_TABLE, names.LABELS} <= found


def test_every_form_that_an_engine_confirmed_is_in_the_table_with_its_result() -> None:
    table = rows(witness_table.witnesses())
    found = [row for path in witness_table.RESULTS.glob("*.json") for row in json.loads(path.read_text("utf-8"))]
    assert len(found) > 100
    for row in found:
        (line,) = [line for line in table if line[0] == row["family"] and row["form"] in line[1].split("; ")]
        assert line[2] == (row["witness"] or "not confirmed")
        if row["witness"]:
            assert f"{row['search']}: {row['equal']} of {row['of']}" in line[3].split("; ")
            assert row["equal"] > 0


def test_every_form_of_kept_strings_is_in_one_table_with_all_its_examples() -> None:
    page = kept_strings.forms()
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| form", "| ---"))]
    assert len(lines) == len(TABLE) == len({form.name for form in TABLE})
    for form in TABLE:
        for example in form.examples:
            assert " ".join(example.split("\n")).replace("|", "\\|") in page
