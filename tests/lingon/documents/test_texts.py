"""Text files: blocks of lines, and byte order marks."""

from __future__ import annotations

import pytest

from lingon.documents import read_document
from lingon.documents.text_files.plain import BLOCK_LINES, MOST_LINES


def blocks(text: str) -> list[str]:
    document = read_document("a.txt", text.encode())
    assert document.write(document.texts).decode() == text
    return list(document.texts)


def test_a_block_of_a_file_does_not_end_within_a_message():
    lines = ["Tom.\n"] * (BLOCK_LINES - 1)
    message = ["{n, plural,\n", " one {# file}\n", " other {# files}}\n"]
    assert blocks("".join([*lines, *message, *lines])) == ["".join([*lines, *message]), "".join(lines)]
    open_brace = ["{\n", *["Tom.\n"] * 1000]
    found = blocks("".join(open_brace))
    assert max(block.count("\n") for block in found) == MOST_LINES


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.md", "a.srt", "a.po"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_is_not_translated_and_stays(name: str, mark: str):
    texts = {"a.srt": "1\n00:00:01,000 --> 00:00:02,000\nTom\n", "a.po": 'msgid "Tom"\nmsgstr "Tom"\n'}
    content = f"{mark}{texts.get(name, 'Tom')}".encode()
    document = read_document(name, content)
    assert not any("\ufeff" in text for text in document.texts)
    assert document.write(document.texts) == content
