"""How large a Markdown file may be: each line and each mark takes a multiple of its bytes in memory."""

from __future__ import annotations

from lingon.documents.errors import UnreadableDocument

MOST_BYTES = 4 << 20  # of a file
MOST_LINES = 50_000
MOST_MARKS = 250_000  # characters that may be marks


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
