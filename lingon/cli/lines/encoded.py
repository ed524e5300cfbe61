"""The lines of a file that is not in UTF-8: its encoding is told by its begin, and said on standard error."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from lingon.cli.lines.output import print_message
from lingon.errors import CorpusError
from lingon.lines import LINE_END, MAX_LINE_BYTES, read_lines

SAMPLE_BYTES = 2**20  # of a file, which tell its encoding; what follows them must be in it


def lines_of(path: Path, line_end: bytes = LINE_END) -> Iterator[str]:
    """Return the lines of a file, plain or .gz, as `read_lines` does; a plain one may have another encoding."""
    sample = _sample(path)
    if _is_utf_8(sample):
        return read_lines(path, line_end)
    from lingon.documents.encodings import read_encoded  # 60 ms, which files in UTF-8 do not need
    from lingon.documents.errors import UnreadableDocument

    whole = len(sample) < SAMPLE_BYTES
    try:
        _, encoding = read_encoded(sample if whole else sample[: (sample.rfind(b"\n") + 1) // 4 * 4])
    except UnreadableDocument:
        return read_lines(path, line_end)  # whose error names the line
    if encoding.is_utf_8:
        return read_lines(path, line_end)
    print_message(f"{path}: the file is in {encoding.name}; its translation is in UTF-8")
    return _decoded(path, encoding.codec, len(encoding.mark), line_end.decode())


def _sample(path: Path) -> bytes:
    """Return the begin of a plain file; nothing of another one, and of one that cannot be read."""
    if path.suffix == ".gz" or not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(SAMPLE_BYTES)
    except OSError:
        return b""


def _is_utf_8(sample: bytes) -> bool:
    """Whether the begin of a file is UTF-8; its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return b"\0" not in sample


def _decoded(path: Path, codec: str, skipped: int, line_end: str) -> Iterator[str]:
    """Yield the lines of a file of this encoding; skipped: bytes of its byte order mark."""
    number = 1
    try:
        with path.open(encoding=codec, newline="\n") as file:
            file.seek(skipped)
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    most = f"{MAX_LINE_BYTES:,} characters without a line feed"
                    raise CorpusError(f"{path}:{number}: has more than {most}; split the line")
                yield line.rstrip(line_end)
                number += 1
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}:{number}: not {codec} ({error.reason}); save the file in UTF-8") from None
    except OSError as error:
        raise CorpusError(f"{path}:{number}: {error.strerror}") from None
