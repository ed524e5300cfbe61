"""The input of a verb: arguments, files in any encoding or standard input, as items with their size."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from lingon.cli.output import check_output, print_message
from lingon.errors import CorpusError, SettingsError
from lingon.files import LINE_END, MAX_LINE_BYTES, is_packed, read_lines, read_parallel, standard_input

MAX_PARAGRAPH = 2**16  # characters; a longer paragraph is cut after a line, since it is one text of a request

Item = TypeVar("Item", str, tuple[str, str])


@dataclass(frozen=True, slots=True)
class Input(Generic[Item]):
    """The lines that a verb reads.

    size: bytes of all lines, or None if unknown, as for a pipe or a packed file
    typed: whether the lines come from a terminal
    """

    items: Iterator[Item]
    size: int | None = None
    typed: bool = False


def size_of(item: str | tuple[str, str]) -> int:
    """Return the bytes of a line or of a pair in its file or files, line feeds included."""
    return sum(len(text.encode(errors="replace")) + 1 for text in ([item] if isinstance(item, str) else item))


def input_lines(
    arguments: Iterable[str],
    path: Path | None,
    output: Path | None,
    line_end: bytes = LINE_END,
    content: bytes | None = None,
) -> Input[str]:
    """Return the texts given as arguments, or the lines of a file, or those of standard input.

    output: the file that is to be written, which must not be the input
    line_end: the bytes that are left out at the end of a line
    content: that of the file, in UTF-8, or None if it has not been read yet
    """
    given = list(arguments)
    if given and path is not None:
        raise SettingsError("give texts as arguments or --input, not both")
    for number, text in enumerate(given, start=1):
        if not _is_utf8(text):
            raise SettingsError(f"argument {number}: not UTF-8")
    if output is not None:
        check_output(output, path)
    if given:
        return Input(iter(given), sum(map(size_of, given)))
    if content is not None:
        lines = content.decode().removesuffix("\n").split("\n")
        return Input((line.rstrip(line_end.decode()) for line in lines), len(content))
    if path is not None:
        return Input(lines_of(path, line_end), _file_size(path))
    return Input(standard_input(line_end), _standard_input_size(), _is_typed())


def join_paragraphs(given: Input[str]) -> Input[str]:
    """Return the paragraphs of wrapped text, with the line feeds inside them. A blank line is an item of its own."""
    return replace(given, items=_paragraphs(given.items))


def join_lines(given: Input[str]) -> Input[str]:
    """Return all lines as one item."""
    return replace(given, items=_joined(given.items))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    yield "\n".join(lines)


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    paragraph: list[str] = []
    size = 0
    for line in lines:
        blank = not line.strip()
        if paragraph and (blank or size + len(line) > MAX_PARAGRAPH):
            yield "\n".join(paragraph)
            paragraph, size = [], 0
        if blank:
            yield line
        else:
            paragraph.append(line)
            size += len(line) + 1
    if paragraph:
        yield "\n".join(paragraph)


def input_pairs(source: Path | None, target: Path | None, output: Path | None) -> Input[tuple[str, str]]:
    """Return the pairs of two line-parallel files, or of SOURCE<tab>TARGET lines on standard input.

    output: the file that is to be written, which must not be an input
    """
    if output is not None:
        check_output(output, source, target)
    if (source is None) != (target is None):
        raise SettingsError("give both --source and --target, or neither and SOURCE<tab>TARGET on standard input")
    if source is not None and target is not None:
        sizes = [_file_size(path) for path in (source, target)]
        return Input(read_parallel(source, target), None if None in sizes else sum(size or 0 for size in sizes))
    return Input(_tab_pairs(standard_input()), _standard_input_size(), _is_typed())


def _tab_pairs(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            raise CorpusError(f"standard input:{number}: must have 2 columns, SOURCE<tab>TARGET, has {len(columns)}")
        yield columns[0], columns[1]


def _file_size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() and not is_packed(path.name) else None


def _standard_input_size() -> int | None:
    """Return the bytes that are still to be read from standard input, if it is a file."""
    if sys.stdin is None:
        return None
    try:
        status = os.fstat(0)
        return max(status.st_size - os.lseek(0, 0, os.SEEK_CUR), 0) if stat.S_ISREG(status.st_mode) else None
    except OSError:  # reading it raises an error that names standard input
        return None


def _is_typed() -> bool:
    return sys.stdin is not None and os.isatty(0)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python represents the bytes of an argument that is not UTF-8 by lone surrogates
        return False
    return True


SAMPLE_BYTES = 2**20  # of a file, which tell its encoding; what follows them must be in it


def lines_of(path: Path, line_end: bytes = LINE_END) -> Iterator[str]:
    """Return the lines of a file, plain or packed, as `read_lines` does. A plain one may have another encoding."""
    sample = _sample(path)
    if _is_utf_8(sample):
        return read_lines(path, line_end)
    from lingon.documents.document import UnreadableDocument
    from lingon.documents.encodings import read_encoded  # 60 ms, which files in UTF-8 do not need

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
    """Return the begin of a plain file. Nothing of another one, and of one that cannot be read."""
    if is_packed(path.name) or not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(SAMPLE_BYTES)
    except OSError:
        return b""


def _is_utf_8(sample: bytes) -> bool:
    """Return whether the begin of a file is UTF-8. Its last character may be cut."""
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
