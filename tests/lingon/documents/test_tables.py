"""Tables: which column is translated and which is written, how cells are written, and that all else stays."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from tests.support.documents import OTHER, other, rewritten, texts_of, translated, values

CELLS = values("\n", "\r\n", ";", "\t") | st.sampled_from(["", " ", "12", "q"])
ROWS = st.lists(st.lists(CELLS, min_size=2, max_size=3), min_size=1, max_size=4)


def written(rows: Sequence[Sequence[str]], delimiter: str, end: str, quoting: int) -> str:
    found = io.StringIO()
    csv.writer(found, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)  # type: ignore[arg-type]
    return found.getvalue()


def read(text: str, delimiter: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


LAYOUTS = [
    (name, delimiter, end, quoting)
    for name, delimiter in (("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t"))
    for end in ("\n", "\r\n")
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
]


@given(ROWS, st.sampled_from(LAYOUTS))
def test_a_table_whose_texts_stay_is_written_byte_for_byte(rows: list[list[str]], layout: tuple[str, str, str, int]):
    name, *how = layout
    text = written([["key", "text"], *rows], *how)
    for content in (text.encode(), text.encode("utf-8-sig"), text.encode("utf-16"), text.rstrip("\r\n").encode()):
        assert translated(name, content, column="text") == content


@given(ROWS, st.sampled_from(LAYOUTS))
def test_any_text_is_written_so_that_it_is_read(rows: list[list[str]], layout: tuple[str, str, str, int]):
    name, delimiter, end, quoting = layout
    rows = [["key", "text"], *rows]
    found = read(rewritten(name, written(rows, delimiter, end, quoting), column="text").decode(), delimiter)
    assert found[0] == rows[0]
    for row, before in zip(found[1:], rows[1:], strict=True):
        assert row == [before[0], other(before[1]) if before[1] != "q" else "q", *before[2:]]


@given(ROWS, st.sampled_from(LAYOUTS))
def test_only_empty_cells_of_a_column_of_translations_are_filled(
    rows: list[list[str]], layout: tuple[str, str, str, int]
):
    name, delimiter, end, quoting = layout
    rows = [["source", "x", "target"], *rows]
    found = read(rewritten(name, written(rows, delimiter, end, quoting)).decode(), delimiter)
    for row, before in zip(found, rows, strict=True):
        if before[0].startswith("Tom") and not "".join(before[2:]).strip():
            assert row == [*before[:2], other(before[0])]
        else:
            assert row == before


@pytest.mark.parametrize(
    ("header", "column", "target", "expected"),
    [
        ("source,target", "", "", "Tom,TOM"),
        ("Source,Translation", "", "", "Tom,TOM"),
        ("source,x", "", "de", "TOM,"),
        ("source,de", "", "de", "Tom,TOM"),
        ("en,de_DE", "", "de-de", "Tom,TOM"),
        ("en,de", "EN", "de", "Tom,TOM"),
        ("en,de", "en", "", "TOM,"),
        ("en,target", "en", "", "Tom,TOM"),
        ("en,x", "1", "de", "TOM,"),
    ],
)
def test_the_columns_are_found_by_their_names(header: str, column: str, target: str, expected: str):
    found = translated("a.csv", f"{header}\nTom,\n", str.upper, target, column).decode()
    assert found.splitlines()[1] == expected
    assert column == "1" or found.splitlines()[0] == header


def test_a_column_called_id_is_no_language_beside_others():
    assert translated("a.csv", "id,en,de\n1,Tom,\n", str.upper, "de") == b"id,en,de\n1,Tom,TOM\n"


def test_a_number_means_that_all_rows_have_texts():
    assert translated("a.csv", "1,Tom\n2,Tim\n", str.upper, column="2") == b"1,TOM\n2,TIM\n"
    assert translated("a.csv", "2,Tom\n1,Tim\n", str.upper, column="2") == b"2,Tom\nTIM,Tim\n".replace(
        b"TIM,Tim", b"1,Tim"
    )


def test_cells_that_a_row_lacks_are_added_and_blank_lines_stay():
    text = "source,x,target\n\nTom\nTim,y\n\n"
    assert translated("a.csv", text, str.upper) == b"source,x,target\n\nTom,,TOM\nTim,y,TIM\n\n"


def test_a_translation_has_quotation_marks_where_its_source_has_them_or_it_needs_them():
    text = 'source,target\n"Tom",\nTim,\nTam,""\n'
    found = translated("a.csv", text, lambda each: f"{each}, {each}" if each == "Tim" else each).decode()
    assert found == 'source,target\n"Tom","Tom"\nTim,"Tim, Tim"\nTam,Tam\n'


def test_excel_may_say_the_delimiter_in_the_first_line():
    assert translated("a.csv", "sep=;\r\nsource;target\r\nTom, Tim;\r\n", str.upper) == (
        b"sep=;\r\nsource;target\r\nTom, Tim;TOM, TIM\r\n"
    )


def test_quotation_marks_in_a_table_with_tabs_may_be_text():
    text = 'source\tx\nTom says "hi"\t1\n"Tim\t2\n"a b" c\t3\n"d\te"\t4\n'
    assert translated("a.tsv", text) == text.encode()
    assert texts_of("a.tsv", text) == ['Tom says "hi"', '"Tim', '"a b" c', "d\te".replace("\t", '<b i="0"/>')]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (
            "a,b\nTom,Tim\n",
            "",
            "say which column of the file has the texts: no column is named source; its columns are a, b",
        ),
        (
            "en,fr,de\n",
            "",
            "say which column of the file has the texts: no column is named source; its columns are en, fr, de",
        ),
        ("a,b\n", "c", "the file has no column 'c'; its columns are a, b"),
        ("a,b\n", "3", "the file has no column '3'; its columns are a, b"),
        ("a,b\n", "0", "the file has no column '0'; its columns are a, b"),
        (",".join("abcdefghijkl"), "x", "its columns are a, b, c, d, e, f, g, h, i, j, ..."),
        ('a,b\n"Tom,\n', "b", "the table in the file is broken at line 2, column 1: a quotation mark has no end"),
        ('a,b\n"T"om,c\n', "b", "the table in the file is broken at line 2, column 4: a cell goes on after its"),
        ("a\n" * 20, "a", "the file has more than 15 cells"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_one_line(
    text: str, column: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lingon.documents.tables.MOST_CELLS", 15)
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.csv", text.encode(), "de", column=column)
    assert message in str(error.value)


def test_a_column_is_for_tables_alone():
    with pytest.raises(UnreadableDocument, match=r"a column is for files that end in .csv, .tsv, got .json"):
        read_document("a.json", b"{}", "de", column="a")


def test_an_empty_table_stays_as_it_is():
    for content in (b"", b"\n", b"\r\n\r\n"):
        assert translated("a.csv", content) == content


def test_other_texts_need_quotation_marks():
    assert {*',;"'} <= set(OTHER)
