"""Parallel text of any form: the same pairs give the same blocks, in blocks of any size and from any of them on."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.bulk.format import packed
from lingon.errors import CorpusError, SettingsError
from lingon.files import MAX_LINE_BYTES, PACKINGS, read_lines
from lingon.training.config import Corpus, DataSettings
from lingon.training.corpus import Pair, read_pairs
from lingon.training.parallel_text import READ_BYTES, RawBlock, input_files, read_blocks

TextPairs = Sequence[tuple[str, str]]
FORMS = [
    *(f"{form}{packing}" for form in (".lines", ".tsv", ".jsonl", ".tmx") for packing in ("", *PACKINGS)),
    ".parquet",
]
HEAD = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n'


def memory(pairs: TextPairs) -> str:
    units = (
        f'<tu><tuv xml:lang="en-US"><seg>{escape(source)}</seg></tuv>\n'
        f'<tuv xml:lang="DE"><prop type="x">p</prop><seg>{escape(target)}</seg></tuv></tu>\n'
        for source, target in pairs
    )
    return f"{HEAD}{''.join(units)}</body></tmx>\n"


def corpus_of(folder: Path, form: str, pairs: TextPairs, scores: Sequence[float] | None = None) -> Corpus:
    """A corpus with files of this form and packing in a folder."""

    def write(name: str, content: str | bytes) -> Path:
        path = folder / name
        path.write_bytes(packed(name, content.encode() if isinstance(content, str) else content))
        return path

    kind, _, packing = form[1:].partition(".")
    packing = packing and f".{packing}"
    values = scores or [0.0] * len(pairs)
    if kind == "lines":
        one, other = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
        numbers = write(f"scores{packing}", "".join(f"{score}\n" for score in values)) if scores else None
        return Corpus(source=write(f"s{packing}", one), target=write(f"t{packing}", other), scores=numbers)
    rows = [(*pair, score) for pair, score in zip(pairs, values, strict=True)]
    if kind == "tsv":
        text = "".join(f"{source}\t{target}\t{score}\n" for source, target, score in rows)
        return Corpus(file=write(f"x{form}", text), score_column=3 if scores else None)
    objects = [dict(zip(("source", "target", "score"), row, strict=True)) for row in rows]
    if kind == "tmx":
        path = write(f"x{form}", memory(pairs))
        return Corpus(file=path, source_language="en", target_language="de")
    if kind == "jsonl":
        path = write(
            f"x{form}", "".join(f"{json.dumps(row, ensure_ascii=len(row['source']) % 2 == 0)}\n" for row in objects)
        )
    else:
        path = folder / "x.parquet"
        schema = pa.schema({"source": pa.string(), "score": pa.float32(), "target": pa.large_string()})
        pq.write_table(pa.Table.from_pylist(objects, schema), path, row_group_size=max(1, len(pairs) // 3))
    return Corpus(file=path, score_column="score" if scores else None)


def rows_of(blocks: Sequence[RawBlock]) -> TextPairs:
    return [pair for block in blocks for pair in zip(block.sources, block.targets, strict=True)]


def made_up(count: int) -> TextPairs:
    """Pairs of all lengths, some longer than what is read at once."""
    choice = random.Random(1)
    alphabet = "abc <&>\"'äß“”\u2028\u0085\N{GRINNING FACE}\N{CJK UNIFIED IDEOGRAPH-4E00}\\"
    texts = ["".join(choice.choices(alphabet, k=int(choice.expovariate(1 / 60)))) for _ in range(2 * count)]
    texts[count // 2] = "long \N{SNOWMAN}" * (READ_BYTES // 4)
    return [*zip(texts[::2], texts[1::2], strict=True), ("", "")]


MANY = made_up(3000)
SCORES = [number / 8 for number in range(len(MANY))]


@pytest.mark.parametrize("form", FORMS)
def test_the_same_pairs_are_the_same_blocks_in_every_form_and_packing(form: str, tmp_path: Path) -> None:
    blocks = list(read_blocks(corpus_of(tmp_path, form, MANY), 700))
    assert [len(block.sources) for block in blocks] == [700] * 4 + [201]
    assert [block.first for block in blocks] == [0, 700, 1400, 2100, 2800]
    assert rows_of(blocks) == MANY


@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith(".tmx")])
def test_every_form_but_memories_may_have_scores(form: str, tmp_path: Path) -> None:
    blocks = list(read_blocks(corpus_of(tmp_path, form, MANY, SCORES), 1000))
    assert [score for block in blocks for score in block.scores or ()] == SCORES
    assert rows_of(blocks) == MANY


TEXTS = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff\ufffe\uffff", include_characters="\x85")
)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=12)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), max_size=12), rows=st.integers(1, 13), skip=st.integers(0, 4))
def test_rows_depend_neither_on_the_size_of_blocks_nor_on_the_first_one_read(
    form: str, pairs: TextPairs, rows: int, skip: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus_of(Path(folder), form, pairs)
        blocks = list(read_blocks(corpus, rows))
        assert rows_of(blocks) == pairs
        assert [block.first for block in blocks] == list(range(0, len(pairs), rows))
        assert all(len(block.sources) == rows for block in blocks[:-1])
        assert list(read_blocks(corpus, rows, skip)) == blocks[skip:]


@pytest.mark.parametrize("form", [form for form in FORMS if not form.endswith((".xz", ".bz2"))])
@pytest.mark.parametrize("rows", [1, 999, 3001])
def test_blocks_that_are_skipped_leave_the_same_others(form: str, rows: int, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, form, MANY, None if form.startswith(".tmx") else SCORES)
    blocks = list(read_blocks(corpus, rows))
    for skip in {1, len(blocks) // 2, len(blocks) - 1, len(blocks), len(blocks) + 3}:
        assert list(read_blocks(corpus, rows, skip)) == blocks[skip:]


def test_lines_are_those_of_read_lines(tmp_path: Path) -> None:
    content = b"one\r\n\r\n two \r \r\r\n\x0b\x0c\x1c\x85".replace(b"\x85", "\x85\u2028\n".encode()) + b"\nlast\r"
    for name in ("s", "t"):
        (tmp_path / name).write_bytes(content)
    (block,) = read_blocks(Corpus(source=tmp_path / "s", target=tmp_path / "t"), 100)
    assert block.sources == block.targets == list(read_lines(tmp_path / "s"))


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"source": "a", "target": "b"}\n', encoding="utf-8-sig")
    (tmp_path / "x.tsv").write_text("source\ttarget\na\tb\n", encoding="utf-8-sig")
    named = {"source_column": "source", "target_column": "target"}
    for name in ("x.jsonl", "x.tsv"):
        assert rows_of(list(read_blocks(Corpus(file=tmp_path / name, **named), 10))) == [("a", "b")]


@pytest.mark.parametrize("tool", ["zstd", "pzstd"])
def test_frames_that_a_tool_wrote_are_read_to_the_last(tool: str, tmp_path: Path) -> None:
    """Pzstd writes a frame for each processor, and one that is skipped before each."""
    text = "".join(f"{source}\n" for source, _ in MANY)
    try:
        frames = [
            subprocess.run([tool, "-q", "-c", "-1"], input=part.encode(), capture_output=True, check=True).stdout
            for part in (text, "", text)
        ]
    except FileNotFoundError:
        frames = [packed("x.zst", part.encode()) for part in (text, "", text)]
    (tmp_path / "s.zst").write_bytes(b"".join(frames))
    corpus = Corpus(source=tmp_path / "s.zst", target=tmp_path / "s.zst")
    assert [source for source, _ in rows_of(list(read_blocks(corpus, 1000)))] == [source for source, _ in MANY] * 2


@pytest.mark.parametrize("form", [form for form in FORMS if form.endswith(PACKINGS)])
def test_a_truncated_archive_is_one_line_that_names_file_and_line(form: str, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, form, MANY)
    path = corpus.files()[-1]
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorpusError) as caught:
        list(read_blocks(corpus, 1000))
    assert re.fullmatch(rf"{re.escape(str(path))}:\d+: [^\n]+", str(caught.value))


def test_a_gzip_ends_at_the_line_where_it_is_cut(tmp_path: Path) -> None:
    text = b"".join(b"%d\n" % number for number in range(100_000))
    for name in ("s.gz", "t.gz"):
        (tmp_path / name).write_bytes(packed(name, text)[:-2000])
    with pytest.raises(CorpusError) as caught:
        list(read_blocks(Corpus(source=tmp_path / "s.gz", target=tmp_path / "t.gz"), 1000))
    number = int(str(caught.value).split(":")[1])
    with pytest.raises(CorpusError, match=f":{number}: "):
        list(read_lines(tmp_path / "s.gz"))


def lines(folder: Path, **files: bytes) -> dict[str, Any]:
    """The keys of a corpus, with the path of a file for each of these contents."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in files}


TOO_LONG = b"x" * MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"source": b"a\nb\n", "target": b"a\n"}, "target:2: ends here, but FOLDER/source goes on"),
        ({"source": b"a", "target": b"a\nb"}, "source:2: ends here, but FOLDER/target goes on"),
        (
            {"source": b"a\nb\n", "target": b"a\nb\n", "scores": b"1\n"},
            "scores:2: ends here, but FOLDER/source goes on",
        ),
        (
            {"source": b"a\nb\n", "target": b"a\nb\n", "alignment": b"0-0\n\n\n"},
            "source:3: ends here, but FOLDER/alignment goes on",
        ),
        (
            {"source": b"a\n", "target": b"a\n", "scores": b"high\n"},
            "scores:1: the score must be a finite number, got 'high'",
        ),
        (
            {"source": b"a\n", "target": b"a\n", "scores": b"nan\n"},
            "scores:1: the score must be a finite number, got 'nan'",
        ),
        ({"source": b"a\n", "target": b"a\n", "scores": b"\n"}, "scores:1: the score must be a finite number, got ''"),
        (
            {"source": b"a\nb\n", "target": b"a\nb\xc3\n"},
            "target:2: not UTF-8 (unexpected end of data at byte 1 of the line)",
        ),
        (
            {"source": b"a\nb" + TOO_LONG + b"\n", "target": b"a\nb\n"},
            "source:2: has more than 4,194,304 bytes without a line feed; split the line",
        ),
        (
            {"source": b"a\nb" + TOO_LONG, "target": b"a\nb\n"},
            "source:2: has more than 4,194,304 bytes without a line feed; split the line",
        ),
    ],
)
def test_wrong_lines_are_one_line_that_names_file_line_bound_and_value(
    files: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    for rows in (1, 1000):
        with pytest.raises(CorpusError) as caught:
            list(read_blocks(Corpus(**lines(tmp_path, **files)), rows))
        assert str(caught.value) == f"{tmp_path}/{message.replace('FOLDER', str(tmp_path))}"


def test_a_file_that_ends_among_skipped_blocks_is_an_error(tmp_path: Path) -> None:
    corpus = Corpus(**lines(tmp_path, source=b"a\n" * 100, target=b"a\n" * 30))
    with pytest.raises(CorpusError, match=r"target:31: ends here"):
        list(read_blocks(corpus, 10, skip=5))


def test_the_longest_line_is_read_whole(tmp_path: Path) -> None:
    corpus = Corpus(**lines(tmp_path, source=TOO_LONG + b"\r\nx\n", target=b"a\nb\n"))
    assert [len(source) for source, _ in rows_of(list(read_blocks(corpus, 10)))] == [MAX_LINE_BYTES, 1]


def test_a_corpus_without_line_feeds_is_not_read_into_memory(tmp_path: Path) -> None:
    """/dev/zero never ends."""
    corpus = Corpus(**lines(tmp_path, target=b"a\n"), source=Path("/dev/zero"))
    with pytest.raises(CorpusError, match="/dev/zero:1: has more than 4,194,304 bytes without a line feed"):
        list(read_blocks(corpus, 10))


def one_file(folder: Path, name: str, content: str | bytes, **keys: Any) -> Corpus:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return Corpus(file=folder / name, **keys)


EN_DE = {"source_language": "en", "target_language": "de"}
UNIT = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>'


@pytest.mark.parametrize(
    ("name", "content", "keys", "message"),
    [
        ("x.tsv", "a\tb\n\na\n", {}, ":3: must have 2 columns or more, separated by tabs, got 1"),
        ("x.tsv", "a\tb\n", {"score_column": 4}, ":1: must have 4 columns or more, separated by tabs, got 2"),
        ("x.tsv", "a\tb\tc\n", {"score_column": 3}, ":1: the score must be a finite number, got 'c'"),
        (
            "x.tsv",
            "en\tde\na\tb\n",
            {"source_column": "fr", "target_column": "de"},
            ": has no column 'fr'; it has en, de",
        ),
        ("x.tsv", "en\tde\na\n", {"source_column": "en", "target_column": "de"}, ":2: must have 2 columns or more"),
        ("x.tsv", "", {"source_column": "en", "target_column": "de"}, ": has no column 'en'; it has none"),
        ("x.tsv", b"a\tb\n\xffa\tb\n", {}, ":2: not UTF-8 (invalid start byte at byte 0 of the line)"),
        ("x.jsonl", '{"source": "a", "target": "b"}\n["a"]\n', {}, ':2: must be a JSON object, got ["a"]'),
        ("x.jsonl", "source\n", {}, ":1: must be a JSON object, got source"),
        ("x.jsonl", "[" * 100_000, {}, ":1: must be a JSON object, got [[["),
        ("x.jsonl", '\n{"source": "a"}\n', {}, ":2: has no key 'target'; it has source"),
        ("x.jsonl", "{}", {}, ":1: has no key 'source'; it has none"),
        ("x.jsonl", '{"source": "a", "target": 3}\n', {}, ":1: 'target' must be a string or null, got 3"),
        ("x.jsonl", '{"source": "\\ud800", "target": "b"}', {}, ":1: has half of a surrogate pair"),
        (
            "x.jsonl",
            '{"source": "a", "target": "b"}',
            {"score_column": "x"},
            ":1: has no key 'x'; it has source, target",
        ),
        (
            "x.jsonl",
            '{"source": "a", "target": "b", "x": null}',
            {"score_column": "x"},
            ":1: the score must be a finite number, got None",
        ),
        ("x.tmx", "<html/>", EN_DE, ":1: must be a translation memory, whose root is tmx, got html"),
        ("x.tmx", "<tmx>\n<body></tmx>", EN_DE, ":2: the XML is not well-formed: mismatched tag"),
        ("x.tmx", "<tmx>\n<body>", EN_DE, ":2: the XML is not well-formed: no element found"),
        ("x.tmx", b"<tmx>\n\xff</tmx>", EN_DE, ":2: the XML is not well-formed: not well-formed (invalid token)"),
        ("x.tmx", '<?xml version="1.0" encoding="shift_jis"?><tmx/>', EN_DE, ":1: multi-byte encodings are not"),
        (
            "x.tmx",
            f"<tmx>{UNIT}</tmx>",
            {**EN_DE, "target_language": "fr"},
            ": has no text in 'fr'; its languages are 'en', 'de'",
        ),
        ("x.tmx", f"<tmx>{'<a>' * 100}", EN_DE, ":1: the XML has elements in more than 64 others"),
        ("x.tmx", f"<tmx a='{'x' * 2**21}'/>", EN_DE, ":1: the XML has a tag of more than 1,048,576 bytes"),
        (
            "x.tmx",
            f'<tmx><tu><tuv xml:lang="en"><seg>{"ä" * (MAX_LINE_BYTES // 2 + 1)}</seg></tuv></tu></tmx>',
            EN_DE,
            ":1: a segment has more than 4,194,304 bytes",
        ),
        ("x.parquet", "PAR1 it is not", {}, ": "),
    ],
)
def test_a_wrong_file_is_one_line_that_names_file_line_and_value(
    name: str, content: str | bytes, keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError) as caught:
        list(read_blocks(one_file(tmp_path, name, content, **keys), 10))
    assert str(caught.value).startswith(f"{tmp_path / name}{message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE tmx [<!ENTITY e "text">]>',
        '<!DOCTYPE tmx [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE tmx SYSTEM "other.dtd">',
        "",
    ],
)
def test_a_memory_expands_no_entity(declared: str, tmp_path: Path) -> None:
    unit = UNIT.replace("<seg>a", "<seg>&e;")
    with pytest.raises(CorpusError, match=re.escape(f"{tmp_path / 'x.tmx'}:1: ")):
        list(read_blocks(one_file(tmp_path, "x.tmx", f"{declared}<tmx>{unit}</tmx>", **EN_DE), 10))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_a_memory_may_be_in_the_encoding_that_it_declares(encoding: str, tmp_path: Path) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>\n'
    content = f'{declared}<tmx xmlns="http://www.lisa.org/tmx14">{UNIT.replace("b", "ä")}</tmx>'.encode(encoding)
    assert rows_of(list(read_blocks(one_file(tmp_path, "x.tmx", content, **EN_DE), 10))) == [("a", "ä")]


def unit(*texts: tuple[str, str]) -> str:
    variants = (f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>' for language, text in texts)
    return f"<tu>{''.join(variants)}</tu>"


@pytest.mark.parametrize(
    ("languages", "texts", "pair"),
    [
        (("en", "de"), [("DE_at", "b"), ("fr", "c"), ("eng", "a")], ("a", "b")),
        (("en", "de"), [("en-US", "a"), ("en", "x"), ("de", "b"), ("de", "y")], ("a", "b")),
        (("en", "de"), [("en", ""), ("en-GB", "a"), ("de", "b")], ("a", "b")),
        (("en", "en-GB"), [("en-GB", "b"), ("en-US", "a")], ("a", "b")),
        (("pt-BR", "de"), [("pt-PT", "x"), ("pt", "y"), ("pt-BR", "a"), ("de", "b")], ("a", "b")),
        (("en", "de"), [("en", "a"), ("fr", "x")], ("a", "")),
        (("en", "de"), [("fr", "x"), ("", "y"), ("no tag!", "z")], ("", "")),
        (
            ("en", "de"),
            [("en", 'a <hi type="b">b <ph x="1">&lt;br/&gt;<sub>s</sub></ph>c</hi> d'), ("de", "b")],
            ("a b c d", "b"),
        ),
        (
            ("en", "de"),
            [("en", "<bpt i='1'>{\\b </bpt>a<ept i='1'>}</ept> &amp; <it pos='begin'/>b"), ("de", "b")],
            ("a & b", "b"),
        ),
        (("en", "de"), [("en", "a <![CDATA[<b>]]>"), ("de", "<!-- no -->b")], ("a <b>", "b")),
    ],
)
def test_a_unit_is_its_first_text_in_each_language(
    languages: tuple[str, str], texts: list[tuple[str, str]], pair: tuple[str, str], tmp_path: Path
) -> None:
    keys = dict(zip(EN_DE, languages, strict=True))
    content = f"<tmx><body>{unit(*texts)}{unit(*zip(languages, 'xy', strict=True))}</body></tmx>"
    assert rows_of(list(read_blocks(one_file(tmp_path, "x.tmx", content, **keys), 10))) == [pair, ("x", "y")]


def test_a_memory_has_the_languages_of_its_corpus_or_else_of_the_data(tmp_path: Path) -> None:
    content = f"<tmx><body>{unit(('en', 'a'), ('de', 'b'), ('fr', 'c'))}</body></tmx>"
    corpus = one_file(tmp_path, "x.tmx", content)
    with pytest.raises(SettingsError, match="needs source_language and target_language"):
        list(read_blocks(corpus, 10))
    french = corpus.model_copy(update={"target_language": "fr"})
    data = DataSettings.model_validate({**EN_DE, "train": [corpus, french], "valid": {"file": tmp_path / "x.tmx"}})
    assert [list(read_pairs(each)) for each in data.corpora] == [[Pair("a", each)] for each in "bcb"]
    assert list(map(data.languages_of, data.corpora)) == [("en", "de"), ("en", "fr"), ("en", "de")]


def test_columns_are_chosen_by_number_or_by_name(tmp_path: Path) -> None:
    text = "id\tde\tscore\ten\n1\tb\t0.5\ta\textra\n\n \t\n2\td\t-1\tc\n"
    numbered = one_file(tmp_path, "x.tsv", text, source_column=4, target_column=2)
    assert rows_of(list(read_blocks(numbered, 2))) == [("en", "de"), ("a", "b"), ("", ""), ("", ""), ("c", "d")]
    named = {"source_column": "en", "target_column": "de", "score_column": "score"}
    (block,) = read_blocks(one_file(tmp_path, "x.tsv", text, **named), 10)
    assert (block.sources, block.targets) == (["a", "", "", "c"], ["b", "", "", "d"])
    assert block.scores is not None
    assert [block.scores[0], block.scores[3]] == [0.5, -1]
    assert all(map(math.isnan, block.scores[1:3]))
    assert [len(each.sources) for each in read_blocks(one_file(tmp_path, "x.tsv", text, **named), 3, skip=1)] == [1]


def test_a_blank_line_of_json_is_an_empty_pair_and_a_null_an_empty_text(tmp_path: Path) -> None:
    text = '{"source": null, "target": "b", "x": 1}\n \n{"source": "a", "target": "\\u00fc\\n", "x": 2}\n'
    (block,) = read_blocks(one_file(tmp_path, "x.jsonl", text, score_column="x"), 10)
    assert (block.sources, block.targets) == (["", "", "a"], ["b", "", "ü\n"])


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_column_may_be_inside_of_another(name: str, tmp_path: Path) -> None:
    rows = [
        {"translation": {"en": "a", "de": "b", "fr": "x"}, "meta.score": 1.0},
        {"translation": {"en": "c", "de": None, "fr": "y"}, "meta.score": 2.0},
    ]
    if name == "x.jsonl":
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    named = {"source_column": "translation.en", "target_column": "translation.de", "score_column": "meta.score"}
    (block,) = read_blocks(Corpus(file=tmp_path / name, **named), 10)
    assert (block.sources, block.targets, block.scores) == (["a", "c"], ["b", ""], [1.0, 2.0])
    with pytest.raises(CorpusError, match=r"has no (key|column) 'translation\.es'; it has translation, meta\.score"):
        list(read_blocks(Corpus(file=tmp_path / name, **{**named, "target_column": "translation.es"}), 10))


def table(folder: Path, **columns: Any) -> Corpus:
    pq.write_table(pa.table(columns), folder / "x.parquet", row_group_size=2)
    return Corpus(file=folder / "x.parquet", score_column="score" if "score" in columns else None)


def test_texts_of_parquet_may_be_of_any_type_of_texts_and_null(tmp_path: Path) -> None:
    codes = pa.array(["a", None, "a"]).dictionary_encode()
    assert rows_of(list(read_blocks(table(tmp_path, source=codes, target=pa.nulls(3)), 2))) == [
        ("a", ""),
        ("", ""),
        ("a", ""),
    ]
    views = pa.array(["b", None, "ä"], pa.string_view())
    assert rows_of(list(read_blocks(table(tmp_path, source=codes, target=views), 2))) == [
        ("a", "b"),
        ("", ""),
        ("a", "ä"),
    ]


NO_TEXT = pa.array([b"ok", b"ok", b"\xc3("]).cast(pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"source": ["a"]}, ": has no column 'target'; it has source"),
        ({"source": ["a"], "target": [1]}, ": the column 'target' must be of the type string, got int64"),
        ({"source": ["a"] * 3, "target": NO_TEXT}, ":3: not UTF-8 (invalid continuation byte at byte 0 of the line)"),
        (
            {"source": ["a"] * 3, "target": ["b"] * 3, "score": [1, 2, None]},
            ":3: the score must be a finite number, got None",
        ),
        (
            {"source": ["a"] * 3, "target": ["b", "b", "x" * (MAX_LINE_BYTES + 1)]},
            ":3: 'target' has more than 4,194,304 bytes",
        ),
    ],
)
def test_a_wrong_table_is_one_line_that_names_file_row_and_value(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError) as caught:
        list(read_blocks(table(tmp_path, **columns), 2))
    assert str(caught.value) == f"{tmp_path / 'x.parquet'}{message}"


def test_links_and_scores_stay_with_their_rows(tmp_path: Path) -> None:
    keys = lines(tmp_path, source=b"a b\n\nc\n", target=b"d\n\ne\n", alignment=b"0-0\n\n0-0\n", scores=b"1\n-2\n3e-1\n")
    corpus = Corpus(**keys)
    assert list(read_blocks(corpus, 2)) == [
        RawBlock(0, ["a b", ""], ["d", ""], ["0-0", ""], [1.0, -2.0]),
        RawBlock(2, ["c"], ["e"], ["0-0"], [0.3]),
    ]
    assert input_files(corpus) == [keys[name] for name in ("source", "target", "scores", "alignment")]
