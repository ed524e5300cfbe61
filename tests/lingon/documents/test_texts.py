"""Text files: blocks of lines."""

from __future__ import annotations

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
