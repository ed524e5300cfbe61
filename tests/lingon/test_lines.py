"""Lines of text: ends of lines, .gz, and lines that are longer than a text can be."""

from __future__ import annotations

import gzip
import os
from contextlib import suppress
from pathlib import Path

import pytest

from lingon.errors import CorpusError
from lingon.lines import MAX_LINE_BYTES, read_lines, read_parallel, standard_input
from tests.support.verbs import Command

LONGEST = "a" * MAX_LINE_BYTES
TOLD = f"has more than {MAX_LINE_BYTES:,} bytes without a line feed; split the line"


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_longest_line_is_read_whole(end: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(f"one\n{LONGEST}{end}", encoding="utf-8", newline="")
    assert list(read_lines(path)) == ["one", LONGEST]


@pytest.mark.parametrize("rest", ["b\n", "b\r\n", "b", "b" * 9, "\r" * 9 + "b\n", "b" * MAX_LINE_BYTES + "\nnext\n"])
@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_longer_line_is_an_error_that_names_its_number_and_the_limit(rest: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    content = f"one\n{LONGEST}{rest}".encode()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    lines = read_lines(path)
    assert next(lines) == "one"
    with pytest.raises(CorpusError) as caught:
        next(lines)
    assert str(caught.value) == f"{path}:2: {TOLD}"


def test_a_corpus_without_line_feeds_is_not_read_into_memory(tmp_path: Path) -> None:
    """/dev/zero never ends."""
    (tmp_path / "target").write_text("eins\n")
    with pytest.raises(CorpusError, match=f"/dev/zero:1: {TOLD}"):
        next(read_parallel(Path("/dev/zero"), tmp_path / "target"))


@pytest.mark.parametrize("verb", ["translate", "score"])
def test_a_line_without_end_on_standard_input_is_one_error(verb: str, lingon: Command) -> None:
    with lingon.start(verb) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ttwo\n")
        with suppress(BrokenPipeError):
            while True:
                process.stdin.write(bytes(2**20))
        printed, told = process.stdout.read(), process.stderr.read()
    assert printed.count(b"\n") == 1
    assert told.decode().splitlines()[-1] == f"lingon: error: standard input:2: {TOLD}"
    assert process.returncode == 1


def test_standard_input_takes_the_longest_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(f"{LONGEST}\r\n{LONGEST}".encode())
    handle, kept = os.open(path, os.O_RDONLY), os.dup(0)
    try:
        os.dup2(handle, 0)
        assert list(standard_input()) == [LONGEST, LONGEST]
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(handle)
