"""Bounds of documents: what they take in time and memory grows with their size, and what passes a bound is refused."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import suppress
from itertools import islice

import pytest

from lingon import documents
from lingon.documents import UnreadableDocument, read_document
from lingon.documents.document import MOST_TAGS
from lingon.documents.xml_tree import MOST_TAG_BYTES
from tests.support.documents import docx, run, xlsx
from tests.support.hostile_documents import SUFFIXES, growth, patterns
from tests.support.repository import scaled
from tests.support.timing import LINEAR

FILES = {
    "a.json": lambda count: "[" + ", ".join(['"Tom"'] * count) + "]",
    "a.properties": lambda count: "a = Tom\n" * count,
    "a.strings": lambda count: '"a" = "Tom";\n' * count,
    "a.yml": lambda count: "- Tom\n" * count,
    "a.ftl": lambda count: "a = Tom\n" * count,
    "a.csv": lambda count: "source\n" + "Tom\n" * count,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_too_many_texts_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.documents.edits.MOST_TEXTS", 10)
    assert len(read_document(name, FILES[name](10).encode()).texts) == 10
    with pytest.raises(UnreadableDocument, match="the file has more than 10 texts"):
        read_document(name, FILES[name](11).encode())


def test_texts_above_the_bound_take_no_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.documents.edits.MOST_TEXTS", 100)
    read_document("a.properties", b"a = Tom")  # what is loaded once
    content = FILES["a.properties"](20_000).encode()
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableDocument):
            read_document("a.properties", content)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(content)
    finally:
        tracemalloc.stop()


def test_braces_and_line_breaks_count_as_marks():
    with pytest.raises(UnreadableDocument, match="tags and line breaks; at most 250,000"):
        read_document("a.json", f'["{"{a}" * 130_000}", "{"<b>" * 130_000}"]'.encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '["{}"]'),
        ("a.properties", "a = {}"),
        ("a.strings", '"a" = "{}";'),
        ("a.yml", 'a: "{}"'),
        ("a.csv", 'source\n"{}"\n'),
    ],
)
def test_a_text_of_too_many_marks_is_refused_before_they_take_memory(name: str, text: str):
    content = text.format("a<b>" * (MOST_TAGS + 1)).encode()
    with pytest.raises(UnreadableDocument, match="have 250,001 tags and line breaks; at most 250,000"):
        read_document(name, content)
    assert peak_of(name, content) < 30 * len(content)


WORTH = 0.02  # seconds of CPU time, well above noise
COUNT = int(os.environ.get("LINGON_PATTERNS", scaled(3, 12)))
SEED = int(os.environ.get("LINGON_SEED", "1"))


def test_all_kinds_of_documents_have_patterns():
    assert {*SUFFIXES, ".htm", ".pot", ".ssa", ".yaml", ".xliff"} == set(documents.SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_twice_the_size_takes_twice_the_time(suffix: str):
    found = {pattern: growth(pattern, WORTH) for pattern in islice(patterns(SEED, suffix), COUNT)}
    assert [f"{pattern}: {growth}" for pattern, growth in found.items() if growth.ratio > LINEAR] == []


MANY = 200_000
MARK_BYTES = 650  # in memory of a mark
TIMES = "1\n00:00:01,000 --> 00:00:03,000\n"
UNIT = (
    '<xliff version="1.2"><file source-language="en"><body><trans-unit id="1"><source>{}</source></trans-unit></body>'
    "</file></xliff>"
)


def peak_of(name: str, content: bytes) -> int:
    """Return the bytes that reading a file takes at most."""
    tracemalloc.start()
    try:
        with suppress(UnreadableDocument):
            read_document(name, content)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.docx", docx(f"<w:p {' ' * MANY}>{run('Tom')}</w:p>")),
        ("a.xlf", f"{UNIT.format('Tom')}<!--{'a' * MANY}-->".replace("<file", f"<file{' ' * MANY}").encode()),
        ("a.xml", f"<resources><string>{'a' * MANY}</string></resources>".encode()),
        ("a.xml", f"<resources><string{' ' * MANY}>Tom</string><!--{'a' * MANY}--></resources>".encode()),
        ("a.ts", f"<TS><message><source>{'a' * MANY}</source></message></TS>".encode()),
        ("a.resx", f"<root><data><value>{'a' * MANY}</value></data></root>".encode("utf-16")),
        ("a.po", f'msgid "{"a" * MANY}"\nmsgstr ""\n'.encode()),
        ("a.md", f'[a](b "{"a" * MANY}")\n'.encode()),
        ("a.xlsx", xlsx("<si><t>Tom</t></si>", f'<f>"{"a" * MANY}"</f>')),
        ("a.json", f'{{"a": "{"a " * (MANY // 2)}"}}'.encode()),
        ("a.properties", f"a = {'a ' * (MANY // 2)}".encode()),
        ("a.strings", f'"a" = "{"a " * (MANY // 2)}";'.encode()),
        ("a.yml", f"a: {'a ' * (MANY // 2)}".encode()),
        ("a.ftl", f"a = {'a ' * (MANY // 2)}".encode()),
        ("a.csv", f"source\n{'a ' * (MANY // 2)}".encode()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_long_tag_or_string_takes_a_few_bytes_for_each_of_its_characters(name: str, content: bytes):
    peak_of(name, b"")  # what is loaded once
    assert peak_of(name, content) < 30 * MANY


def test_names_of_attributes_that_are_not_read_are_not_kept():
    names = (" ".join(f"a{number}_{place}='b'" for place in range(1000)) for number in range(300))
    content = docx("".join(f"<w:p {each}/>" for each in names) + run("Tom"))
    assert peak_of("a.docx", content) < 300_000 * (110 + 90)  # of ours, and what the parser itself keeps


def test_a_tag_of_too_many_attributes_is_refused_and_a_long_text_is_not():
    long = "a" * MOST_TAG_BYTES
    assert read_document("a.docx", docx(f"<w:p><w:r><w:t>{long}</w:t></w:r></w:p>")).texts == [long]
    with pytest.raises(UnreadableDocument, match="has a tag of more than 1,048,576 bytes"):
        read_document("a.docx", docx(f"<w:p a='>{long}'/>"))


@pytest.mark.parametrize("count", [4_000, 260_000], ids=["read", "refused"])
@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("a.xlf", UNIT.format("{}")),
        ("a.xml", "<resources><string>{}</string></resources>"),
        ("a.ts", "<TS><message><source>{}</source></message></TS>"),
        ("a.resx", "<root><data><value>{}</value></data></root>"),
        ("a.po", 'msgid "{}"\nmsgstr ""\n'),
        ("a.srt", TIMES + "{}\n"),
        ("a.vtt", "WEBVTT\n\n" + TIMES + "{}\n"),
        ("a.csv", 'source\n"{}"\n'),
        ("a.xlsx", "{}"),
    ],
)
def test_line_breaks_and_tags_in_texts_are_counted(name: str, pattern: str, count: int):
    text = {"a.po": "a<b>", "a.srt": "a<b>", "a.vtt": "<b>a</b>"}.get(name, "a\n") * count
    content = xlsx(f"<si><t>{text}</t></si>") if name == "a.xlsx" else pattern.format(text).encode()
    marks = min(text.count("<") + text.count("\n"), MOST_TAGS)
    assert peak_of(name, content) < MARK_BYTES * marks + 6 * len(text) + (2 << 20)
