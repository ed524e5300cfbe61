"""How much text and markup a document may have: what it takes in memory is bounded by that."""

from __future__ import annotations

from lingon.documents.errors import UnreadableDocument

MOST_TEXT_BYTES = 32 << 20  # of the files that are translated
MOST_REPLY_BYTES = 32 << 20  # of the texts of a file, or of a translated file: twice the largest file over HTTP
MOST_TAGS = 250_000  # of the files that are translated, and of the marks in texts of other files
MOST_FORMAT = 4096  # bytes of the format of a text that is translated: each part of the text is written with it


def check_marks(marks: int) -> None:
    """Raise UnreadableDocument if the texts of a file have too many tags and line breaks."""
    if marks > MOST_TAGS:
        raise UnreadableDocument(f"the texts in the file have {marks:,} tags and line breaks; at most {MOST_TAGS:,}")


def check_size(size: int, subject: str = "the text files in it have") -> None:
    """Raise UnreadableDocument if files with text have too many bytes."""
    if size > MOST_TEXT_BYTES:
        raise UnreadableDocument(f"{subject} {size:,} bytes; at most {MOST_TEXT_BYTES:,}")


def check_reply(size: int, subject: str) -> None:
    """Raise UnreadableDocument if what the process of a document returns has too many bytes."""
    if size > MOST_REPLY_BYTES:
        raise UnreadableDocument(f"{subject} {size:,} bytes; at most {MOST_REPLY_BYTES:,}")


def check_tags(tags: int, subject: str = "the text files in it have") -> None:
    """Raise UnreadableDocument if files with text have too many tags."""
    if tags > MOST_TAGS:
        raise UnreadableDocument(f"{subject} {tags:,} tags; at most {MOST_TAGS:,}")
