"""Every format: what is cut and read again is what was there, and what is written has it with columns added."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lingon.bulk.format import MAX_VALUE_BYTES, CellValue, Column, packed
from lingon.bulk.formats import Unreadable, format_of, suffix_of
from lingon.errors import CorpusError, SettingsError
from lingon.files import PACKINGS, unpacked

TEXTS = ["one", "  two ", "drei\u2028vier", "", 'five "quoted", here', "sechs\u0085", "7" * 300, "acht"]
NAMES = [f"a{kind}{packing}" for kind in (".txt", ".jsonl", ".csv", ".tsv") for packing in ("", *PACKINGS)]


def content(name: str, texts: list[str]) -> bytes:
    kind = name.split(".")[1]
    if kind == "parquet":
        output = io.BytesIO()
        pq.write_table(pa.table({"text": texts}), output, row_group_size=3)
        return output.getvalue()
    if kind == "txt":
        return packed(name, "".join(f"{each}\n" for each in texts).encode())
    if kind == "jsonl":
        return packed(name, "".join(json.dumps({"text": each}, ensure_ascii=False) + "\n" for each in texts).encode())
    if kind == "tsv":
        rows = "".join(f"0{number}\t{each}\r\n" for number, each in enumerate(texts))
        return packed(name, f"id\ttext\r\n{rows}".encode())
    table = io.StringIO(newline="")
    write = csv.writer(table)
    write.writerows([["id", "text"], *([f"0{number}", each] for number, each in enumerate(texts))])
    return packed(name, table.getvalue().encode())


def values(name: str, raw: bytes, rows: int, *, backward: bool = False) -> list[CellValue]:
    """The texts of a file by its pieces, read in their order, or each by a new reader from the last to the first."""
    kind = format_of(name)
    pieces = list(kind.cut(name, io.BytesIO(raw), rows))
    assert [piece.rows for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
    if not backward:
        reader = kind.reader(name, io.BytesIO(raw))
        return [value for piece in pieces for value in reader.rows(piece).values("text")]
    found = []
    for piece in reversed(pieces):
        found.append(kind.reader(name, io.BytesIO(raw)).rows(piece).values("text"))
    return [value for each in reversed(found) for value in each]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 8, 100])
@pytest.mark.parametrize("name", [*NAMES, "a.parquet"])
def test_pieces_have_all_rows_once_and_in_order(name: str, rows: int, backward: bool) -> None:
    assert values(name, content(name, TEXTS), rows, backward=backward) == TEXTS


@pytest.mark.parametrize("name", [*NAMES, "a.parquet"])
def test_a_file_without_rows_has_no_piece(name: str) -> None:
    assert list(format_of(name).cut(name, io.BytesIO(content(name, [])), 5)) == []


@pytest.mark.parametrize("name", [*NAMES, "a.parquet"])
def test_a_file_that_lost_rows_since_it_was_cut_is_named(name: str) -> None:
    kind = format_of(name)
    last = list(kind.cut(name, io.BytesIO(content(name, TEXTS)), 3))[-1]
    with pytest.raises(CorpusError, match=rf"{name}: has no row 8 any more"):
        kind.reader(name, io.BytesIO(content(name, TEXTS[:7]))).rows(last)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.zst", "a.csv.gz", "a.parquet"])
def test_a_file_that_is_cut_off_is_named(name: str) -> None:
    whole = content(name, [str(number) * 50 for number in range(5000)])
    with pytest.raises(CorpusError, match=f"^{name}: "):
        list(format_of(name).cut(name, io.BytesIO(whole[: len(whole) // 2]), 10))


def written(name: str, raw: bytes, added: dict[str, Column]) -> bytes:
    kind = format_of(name)
    (piece,) = kind.cut(name, io.BytesIO(raw), 100)
    return kind.reader(name, io.BytesIO(raw)).rows(piece).written(added, {"shard": "3"})


def test_what_a_json_line_has_stays_byte_for_byte() -> None:
    lines = [b'{"text":"a","n":1e5, "big": 12345678901234567890, "n": 2}', b"{ }", b'{"x": "\\u00e9"}  ']
    found = written("a.jsonl", b"\n".join(lines), {"de": Column(["A", None, "\u00c4"])}).splitlines()
    assert found == [lines[0][:-1] + b', "de": "A"}', b'{"de": null}', b'{"x": "\\u00e9", "de": "\xc3\x84"}']


def test_a_line_that_is_no_object_is_a_row_with_an_error_and_is_kept() -> None:
    raw = b'[1]\n{"text": 1}\nno\n{"t": "x"}\n\xff\n' + b"x" * (MAX_VALUE_BYTES + 3) + b"\n" + b'{"text": "ok"}\n'
    found = values("a.jsonl", raw, 100)
    assert [each.reason if isinstance(each, Unreadable) else each for each in found] == [
        "the line is not a JSON object",
        "the value of 'text' is of the type int, not a string",
        "the line is not a JSON object",
        "the line has no key 'text'",
        "the text is not UTF-8",
        f"the text has more than {MAX_VALUE_BYTES:,} bytes",
        "ok",
    ]
    rows = [json.loads(line) for line in written("a.jsonl", raw, {"de": Column([None] * 7)}).splitlines()]
    assert [row.get("line") for row in rows[:3]] == ["[1]", None, "no"]


def test_a_line_that_has_an_added_key_keeps_what_it_had_and_has_no_key_twice():
    raw = b'{"text": "a"}\n{"text": "b", "de": "old"}\n'
    first, second = written("a.jsonl", raw, {"de": Column(["A", "B"])}).splitlines()
    assert first == b'{"text": "a", "de": "A"}'
    assert json.loads(second, object_pairs_hook=list) == [
        ("text", "b"),
        ("de", "B"),
        ("line", '{"text": "b", "de": "old"}'),
    ]


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.tsv.gz", "a.jsonl.zst"])
def test_a_byte_order_mark_is_no_part_of_a_file(name: str, rows: int) -> None:
    texts = ["one", "\ufefftwo", "three"]
    raw = packed(name, codecs.BOM_UTF8 + unpacked(name, io.BytesIO(content(name, texts))).read())
    assert values(name, raw, rows) == values(name, raw, rows, backward=True) == texts
    assert not written(name, raw, {"de": Column(texts)}).startswith(codecs.BOM_UTF8)
    if not name.startswith("a.txt"):
        with pytest.raises(SettingsError, match="has no column 'other'"):
            format_of(name).check(name, io.BytesIO(raw), ["other"], ["de"])


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv", "a.tsv.zst"])
def test_blank_lines_are_no_rows(name: str, rows: int) -> None:
    texts = ["one", "two", "three"]
    lines = unpacked(name, io.BytesIO(content(name, texts))).read()
    raw = packed(name, b"\r\n\n" + lines.replace(b"\n", b"\n\n\r\n"))
    assert values(name, raw, rows) == values(name, raw, rows, backward=True) == texts
    format_of(name).check(name, io.BytesIO(raw), ["text"], ["de"])


@pytest.mark.parametrize(
    ("first", "reason"),
    [(b"no", "the line is not a JSON object"), (b"\xff", "the text is not UTF-8"), (b"[1]", "the line is not")],
)
def test_json_lines_whose_columns_are_not_known_are_named_before_the_run(first: bytes, reason: str) -> None:
    raw = b"\n" + first + b'\n{"text": "a"}\n'
    with pytest.raises(SettingsError, match=f"^a.jsonl: the first line must be a JSON object .* but {reason}"):
        format_of("a.jsonl").check("a.jsonl", io.BytesIO(raw), ["text"], ["de"])
    format_of("a.jsonl").check("a.jsonl", io.BytesIO(b"\n"), ["text"], ["de"])


LOOSE = ['"Stop!" he said.', '"This quotation is not closed.', 'He said "no".', 'Last row."', '""', "'", "a\rb", "\\"]
"""Values that the rules of CSV would change, or join with the next ones."""


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.tsv.zst"])
def test_a_quotation_mark_in_tsv_is_a_character_as_any_other(name: str, rows: int, backward: bool) -> None:
    assert values(name, content(name, LOOSE), rows, backward=backward) == LOOSE


def test_rows_of_tsv_stay_byte_for_byte_and_can_be_read_again() -> None:
    kept = [f"{number}\t{each}".encode() for number, each in enumerate(LOOSE)] + [b"\t\xff", b"9"]
    raw = b"id\ttext\n" + b"\n".join(kept)
    added = ['"', "tab\t, return\r and\nfeed", *LOOSE[2:], None, None]
    found = written("a.tsv", raw, {"de": Column(added), "sure": Column([0.5] * 9 + [None], numeric=True)})
    ends = ['"', "tab , return  and feed", *LOOSE[2:6], "a b", LOOSE[7], "", ""]
    expected = [row + f"\t{end}\t0.5".encode() for row, end in zip([*kept[:9]], ends, strict=False)]
    assert found.split(b"\n") == [b"id\ttext\tde\tsure", *expected, b"9\t\t\t", b""]
    (piece,) = format_of("a.tsv").cut("a.tsv", io.BytesIO(found), 100)
    again = format_of("a.tsv").reader("a.tsv", io.BytesIO(found)).rows(piece)
    assert again.values("de") == ends
    assert again.values("text")[:8] == LOOSE


def test_tsv_with_the_quotation_marks_of_csv_is_read_and_written_if_asked_for() -> None:
    kind, raw = format_of("a.tsv", quoted_tsv=True), b'id\ttext\n1\t"a ""b"",\tc\nd"\n'
    (piece,) = kind.cut("a.tsv", io.BytesIO(raw), 100)
    rows = kind.reader("a.tsv", io.BytesIO(raw)).rows(piece)
    assert rows.values("text") == ['a "b",\tc\nd']
    assert rows.written({"de": Column(["x\ty"])}, {}) == b'id\ttext\tde\n1\t"a ""b"",\tc\nd"\t"x\ty"\n'


BROKEN_LINES = ["one\rtwo", "\r", "a\r\nb", "a\n\rb", 'said "no"\r', "\rb, c\td", "plain"]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_rows_of_a_table_with_any_line_break_can_be_read_again(name: str, separator: str) -> None:
    table, kind = io.StringIO(newline=""), format_of(name, quoted_tsv=True)
    write = csv.writer(table, delimiter=separator, quoting=csv.QUOTE_ALL)
    write.writerows([["id", "te\rxt"], *([str(number), each] for number, each in enumerate(BROKEN_LINES))])
    raw = table.getvalue().encode()
    for added in (BROKEN_LINES, BROKEN_LINES[::-1]):
        (piece,) = kind.cut(name, io.BytesIO(raw), 100)
        found = kind.reader(name, io.BytesIO(raw)).rows(piece).written({"de": Column(added)}, {})
        (piece,) = kind.cut(name, io.BytesIO(found), 100)
        again = kind.reader(name, io.BytesIO(found)).rows(piece)
        assert again.values("te\rxt") == BROKEN_LINES
        assert again.values("de") == added


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_line_of_tsv_that_is_too_long_is_named_before_the_run(name: str) -> None:
    raw = packed(name, b"id\ttext\n1\ta\n2\t" + b"x" * (MAX_VALUE_BYTES + 3) + b"\n")
    with pytest.raises(CorpusError, match=rf"^{name}: row 2 has more than 4,194,304 bytes$"):
        list(format_of(name).cut(name, io.BytesIO(raw), 5))


def test_a_table_keeps_its_values_as_text() -> None:
    raw = b'id,text\n007,"a ""b"",\nc"\n1.0,\xff\n\n2\n'
    assert values("a.csv", raw, 100)[0] == 'a "b",\nc'
    assert written("a.csv", raw, {"de": Column(["x", None, None]), "sure": Column([0.5, None, None], True)}) == (
        b'id,text,de,sure\n007,"a ""b"",\nc",x,0.5\n1.0,\xff,,\n2,,,\n'
    )


@pytest.mark.parametrize(("name", "separator"), [("a.csv", b","), ("a.tsv", b"\t")])
def test_a_table_with_more_values_than_columns_is_named_before_the_run(name: str, separator: bytes) -> None:
    raw = b"id,text\n1,a\n1,b,c\n".replace(b",", separator)
    with pytest.raises(CorpusError, match=rf"^{name}: row 2 has 3 values, but there are 2 columns$"):
        list(format_of(name).cut(name, io.BytesIO(raw), 5))


def test_parquet_keeps_types_and_metadata_and_takes_texts_of_every_kind() -> None:
    words = pa.array(["a", None, "a"])
    table = pa.table({"text": words.dictionary_encode(), "large": words.cast(pa.large_string()), "n": [[1], None, []]})
    output = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"mine": "yes"}), output)
    again = pq.read_table(
        io.BytesIO(written("a.parquet", output.getvalue(), {"sure": Column([None, None, None], True)}))
    )
    assert again.schema.metadata[b"mine"] == b"yes"
    assert again.schema.metadata[b"lingon.shard"] == b"3"
    assert again.schema.field("sure").type == pa.float64()
    assert again.drop_columns(["sure"]).equals(table)
    (piece,) = format_of("a.parquet").cut("a.parquet", io.BytesIO(output.getvalue()), 9)
    rows = format_of("a.parquet").reader("a.parquet", io.BytesIO(output.getvalue())).rows(piece)
    assert rows.values("text") == rows.values("large") == ["a", None, "a"]


@pytest.mark.parametrize(
    ("name", "needed", "added", "message"),
    [
        ("a.parquet", ["txt"], ["de"], "has no column 'txt'; it has text"),
        ("a.parquet", ["text"], ["text"], "has a column 'text' already"),
        ("a.jsonl", ["txt"], ["de"], "has no column 'txt'; it has text"),
        ("a.csv", ["text"], ["id"], "has a column 'id' already"),
        ("a.tsv", ["txt"], ["de"], "has no column 'txt'; it has id, text"),
        ("a.tsv.gz", ["text"], ["id"], "has a column 'id' already"),
        ("a.txt", ["txt"], ["de"], "has no column 'txt'; it has text"),
    ],
)
def test_columns_that_do_not_fit_are_named(name: str, needed: list[str], added: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: {message}"):
        format_of(name).check(name, io.BytesIO(content(name, TEXTS)), needed, added)


def test_a_column_of_numbers_has_no_texts() -> None:
    output = io.BytesIO()
    pq.write_table(pa.table({"text": [1, 2]}), output)
    with pytest.raises(SettingsError, match="the column 'text' is of the type int64, not string"):
        format_of("a.parquet").check("a.parquet", output, ["text"], ["de"])


def test_the_formats_by_name() -> None:
    known: dict[str, Any] = {"x.csv.gz": ".csv.gz", "x.parquet": ".parquet", "x.parquet.gz": None, "x.gz": None}
    assert {name: suffix_of(name) for name in known} == known
    with pytest.raises(SettingsError, match=r"x\.doc: the format is not known"):
        format_of("x.doc")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_packed_has_neither_time_nor_name(name: str, tmp_path: Path) -> None:
    once = packed(name, b"text" * 1000)
    assert once == packed(f"other{name[1:]}", b"text" * 1000)
    if name.endswith(".gz"):
        assert gzip.decompress(once) == b"text" * 1000
        assert once[4:8] == bytes(4), "the time"
