"""Folders are published atomically, and small files are replaced atomically."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lingon.bulk.format import packed
from lingon.errors import CorpusError
from lingon.files import (
    MAX_LINE_BYTES,
    PACKINGS,
    lock_path,
    publish_folder,
    read_lines,
    read_parallel,
    remove_partial_files,
    standard_input,
    write_json,
    write_private,
    write_text,
)
from tests.support.scripted_server import Command

KILLED_IN_THE_MIDDLE = """
import os, signal, sys
from pathlib import Path
from lingon.files import publish_folder

with publish_folder(Path(sys.argv[1])) as part:
    (part / "first").write_bytes(b"x" * 100_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def publish(folder: Path, content: str = "content") -> None:
    with publish_folder(folder) as part:
        (part / "below").mkdir()
        (part / "below" / "file").write_text(content)


def test_a_published_folder_holds_the_written_files_and_nothing_else(tmp_path: Path) -> None:
    publish(tmp_path / "one" / "folder")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "one",
        "one/folder",
        "one/folder/below",
        "one/folder/below/file",
    ]


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    with publish_folder(tmp_path / "folder") as part:
        (part / "file").write_text("half")
        assert not (tmp_path / "folder").exists()


def test_an_error_while_publishing_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with publish_folder(tmp_path / "folder") as part:
            (part / "file").write_text("half")
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_after_a_kill_while_publishing_the_next_attempt_removes_the_partial_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(folder)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert not folder.exists()
    publish(folder)
    assert names(tmp_path) == ["folder"]
    assert names(folder) == ["below"]


def test_of_two_processes_that_publish_one_folder_one_wins_and_the_other_gets_an_error(tmp_path: Path) -> None:
    def overtaken(part: Path) -> None:
        (part / "first").write_text("1")
        publish(tmp_path / "folder")
        (part / "second").write_text("2")

    with pytest.raises(FileExistsError, match="exists already"), publish_folder(tmp_path / "folder") as part:
        overtaken(part)
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["below"]


def test_partial_files_of_dead_processes_are_removed_but_not_those_of_running_ones(tmp_path: Path) -> None:
    for killed in ("one", "two"):
        subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(tmp_path / killed)], check=False, timeout=60)
    (tmp_path / ".hidden").touch()
    with publish_folder(tmp_path / "three") as living:
        left = set(names(tmp_path)) - {living.name, ".hidden"}
        assert {name.rpartition("-")[0] for name in left} == {".one.part", ".two.part"}
        remove_partial_files(tmp_path, "one")
        assert {name.rpartition("-")[0] for name in names(tmp_path)} >= {".two.part", ".three.part"}
        remove_partial_files(tmp_path)
        assert set(names(tmp_path)) == {living.name, ".hidden"}


def test_a_folder_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from lingon.files import lock_path; "
        "lock_path(Path(sys.argv[1])).__enter__()"
    )
    other = [sys.executable, "-c", program, str(tmp_path)]
    with lock_path(tmp_path) as locked:
        assert locked
        refused = subprocess.run(other, capture_output=True, text=True, check=False, timeout=60)
        assert "BlockingIOError" in refused.stderr
    assert subprocess.run(other, check=False, timeout=60).returncode == 0


def test_a_published_folder_is_never_replaced(tmp_path: Path) -> None:
    publish(tmp_path / "folder", "first")
    with pytest.raises(FileExistsError, match="exists already"):
        publish(tmp_path / "folder", "second")
    assert (tmp_path / "folder" / "below" / "file").read_text() == "first"
    assert names(tmp_path) == ["folder"]


def test_small_files_are_replaced_and_leave_no_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("first", "Größe"):
        write_text(path, text)
        assert path.read_text(encoding="utf-8") == text
    write_json(path, {"naïve": [1, 2.5]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"naïve": [1, 2.5]}
    assert "naïve" in path.read_text(encoding="utf-8")
    assert names(tmp_path) == ["file"]


def test_a_private_file_keeps_the_mode_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_private(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o440)
    write_private(path, b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777, names(tmp_path)) == (b"two", 0o440, ["keys"])


def test_a_private_file_is_unchanged_if_the_last_step_before_the_rename_fails(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_private(path, b"one")

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_private(path, b"two", fail)
    assert (path.read_bytes(), names(tmp_path)) == (b"one", ["keys"])


FILE_TOO_LARGE = """
import resource, sys
from pathlib import Path
from lingon.files import write_text

resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    write_text(Path(sys.argv[1]), "x" * 100)
except OSError as error:
    print(error.filename)
"""


def test_the_error_of_a_failed_write_names_the_file(tmp_path: Path) -> None:
    """As on a full disk: the error of the system names a file only if it cannot be opened."""
    path = tmp_path / "file"
    assert subprocess.check_output([sys.executable, "-c", FILE_TOO_LARGE, path], text=True) == f"{path}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_file_that_cannot_be_made_names_it_and_not_its_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250)  # the name of the temporary file is too long
    for write in (write_text, write_private_text, fill):
        with pytest.raises(OSError) as caught:
            write(path, "x")
        assert (caught.value.filename, caught.value.errno) == (str(path), errno.ENAMETOOLONG)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as caught:
        write_text(tmp_path / "folder", "x")
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "folder"), None)


def write_private_text(path: Path, text: str) -> None:
    write_private(path, text.encode())


def fill(folder: Path, text: str) -> None:
    with publish_folder(folder) as part:
        (part / "a").write_text(text)


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


LINES = [f"line {number} \N{SNOWMAN}" for number in range(10_000)]


@pytest.mark.parametrize("name", ["text", *(f"text{packing}" for packing in PACKINGS)])
def test_the_lines_of_archives_one_after_another_are_read_as_of_one_file(name: str, tmp_path: Path) -> None:
    raw = "\n".join(LINES).encode()
    (tmp_path / name).write_bytes(
        b"".join(packed(name, part) for part in (raw[:100], b"", raw[100:90_001], raw[90_001:]))
    )
    assert list(read_lines(tmp_path / name)) == LINES


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_archive_that_ends_too_early_is_an_error_that_names_the_file(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{packing}"
    path.write_bytes(packed(path.name, "\n".join(LINES).encode())[:-20])
    with pytest.raises(CorpusError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_is_no_archive_is_an_error_that_names_the_file(packing: str, tmp_path: Path) -> None:
    (tmp_path / f"text{packing}").write_text("plain text\n" * 100)
    with pytest.raises(CorpusError, match=re.escape(f"{tmp_path / 'text'}{packing}:1: ")):
        list(read_lines(tmp_path / f"text{packing}"))


@pytest.mark.parametrize("module", ["lzma", "_lzma"])
def test_a_python_without_lzma_reads_all_other_files(module: str, tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"one\n"))
    program = (
        f"import sys; sys.modules[{module!r}] = None; from pathlib import Path; from lingon.files import read_lines; "
        f"print(*read_lines(Path({str(tmp_path / 'text.gz')!r})))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "one\n"


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
