"""How large a Markdown file may be, and what it takes in memory."""

from __future__ import annotations

from lingon.documents.errors import UnreadableDocument

MOST_BYTES = 4 << 20  # of a file
MOST_LINES = 50_000
MOST_MARKS = 250_000  # characters that may be marks
LINE_BYTES, MARK_BYTES = 2300, 300  # in memory, measured with lists of one letter and with words between asterisks


def memory_of_markdown(content: bytes) -> int:
    """Return the bytes that a file takes in memory while it is translated, at most."""
    return len(content) + LINE_BYTES * content.count(b"\n") + MARK_BYTES * _marks(content)


def _marks(content: bytes) -> int:
    return sum(map(content.count, b"*_`[]<&~\\|"))


def check_markdown(content: bytes) -> None:
    """Raise UnreadableDocument for a file that would take too much memory."""
    for what, count, most in (
        ("bytes", len(content), MOST_BYTES),
        ("lines", content.count(b"\n") + content.count(b"\r"), MOST_LINES),
        ("characters that may be marks", _marks(content), MOST_MARKS),
    ):
        if count > most:
            raise UnreadableDocument(f"the file has {count:,} {what}; at most {most:,}")
