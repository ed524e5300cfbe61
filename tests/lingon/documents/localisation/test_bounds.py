"""Bounds of localisation files: what passes one is refused before it takes the memory of the whole file."""

from __future__ import annotations

import tracemalloc

import pytest

from lingon.documents import UnreadableDocument, read_document

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
    monkeypatch.setattr("lingon.documents.localisation.edits.MOST_TEXTS", 10)
    assert len(read_document(name, FILES[name](10).encode()).texts) == 10
    with pytest.raises(UnreadableDocument, match="the file has more than 10 texts"):
        read_document(name, FILES[name](11).encode())


def test_texts_above_the_bound_take_no_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.documents.localisation.edits.MOST_TEXTS", 100)
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
