"""What a verb writes: the file of --output, the progress bar, and messages in the words of a command line.

The file of --output is written as FILE.part and renamed at the end. A run that fails leaves FILE.part. Unlike the
temporary files of lingon.files it has a name that you can find, grows line by line and is kept.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Protocol

from lingon.errors import LingonError, SettingsError
from lingon.files import is_link_loop


class Lines(Protocol):
    """A binary file that lines are written to."""

    def write(self, data: bytes, /) -> object:
        """Add bytes."""

    def flush(self) -> object:
        """Make what was written visible to readers."""


class _Device:
    """A pipe or a device, which is read while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _naming(path):
            self._raw = path.open("wb")

    def write(self, data: bytes, /) -> None:
        with _naming(self._path):
            self._raw.write(data)

    def flush(self) -> None:
        with _naming(self._path):
            self._raw.flush()

    def close(self) -> None:
        with _naming(self._path):
            self._raw.close()


class _Part:
    """FILE.part: created by its first bytes, so that a run without output does not replace the part of another run.

    lines: lines written so far
    """

    def __init__(self, path: Path) -> None:
        """path: the file that the part becomes."""
        self._path, self._part = path, part_of(path)
        self._raw: IO[bytes] | None = None
        self._packed: gzip.GzipFile | None = None
        self.lines = 0

    def write(self, data: bytes, /) -> None:
        with _naming(self._path):
            raw = self._open()
            (self._packed or raw).write(data)
        self.lines += data.count(b"\n")

    def flush(self) -> None:
        with _naming(self._path):
            if self._raw is not None and self._packed is None:  # a flush of gzip makes the file larger
                self._raw.flush()

    def publish(self) -> None:
        """Rename the part to its final name, with the mode of the file that it replaces."""
        with _naming(self._path):
            self._open()
            self.close()
            if self._path.exists():
                shutil.copymode(self._path, self._part)
            self._part.replace(self._path.resolve())

    def close(self) -> None:
        """Close the part, if it was created, and sync it to disk."""
        raw, packed, self._raw, self._packed = self._raw, self._packed, None, None
        if raw is not None:
            with raw:
                if packed is not None:
                    packed.close()
                raw.flush()
                os.fsync(raw.fileno())

    def _open(self) -> IO[bytes]:
        if self._raw is None:
            self._raw = self._part.open("wb")
            if self._path.suffix == ".gz":  # without the time, so that equal lines are equal bytes
                self._packed = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0)
        return self._raw


def part_of(path: Path) -> Path:
    """Return the path of the part of a file."""
    real = path.resolve()
    return real.with_name(f"{real.name}.part")


def check_output(path: Path, *inputs: Path | None, option: str = "--output") -> None:
    """Raise SettingsError if the file of an option cannot be written or is one of the inputs."""
    if is_link_loop(path):
        raise SettingsError(f"{option} {path}: {os.strerror(errno.ELOOP)}")
    for each in inputs:
        if each is not None and any(_same(each, mine) for mine in (path, part_of(path))):
            raise SettingsError(f"{option} {path}: is the input; choose another file")
    if path.exists() and not os.access(path, os.W_OK):
        raise SettingsError(f"{option} {path}: {os.strerror(errno.EACCES)}")
    if path.is_dir():
        raise SettingsError(f"{option} {path}: {os.strerror(errno.EISDIR)}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise SettingsError(f"{option} {path}: {os.strerror(errno.ENOENT)}")
    if _is_plain(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"{option} {path}: no permission to write to its folder")


@contextmanager
def writing(path: Path | None) -> Iterator[Lines]:
    """Open the file to write lines to, compressed if path ends in .gz; standard output if path is None.

    path: checked by `check_output`
    A regular file appears under its name when the block ends without an error. Until then an earlier file of that name
    is unchanged. After an error the lines so far are kept in FILE.part.
    """
    if path is None:
        if sys.stdout is None:
            raise LingonError("standard output is closed; give --output")
        sys.stdout.flush()
        yield sys.stdout.buffer
    elif not _is_plain(path):  # a pipe or a device cannot be replaced by a rename
        with closing(_Device(path)) as device:
            yield device
    else:
        yield from _write_part(path)


def _write_part(path: Path) -> Iterator[Lines]:
    part = _Part(path)
    try:
        yield part
        part.publish()
    except BaseException:
        with suppress(OSError):  # if the disk is full, keep what was written
            part.close()
        if part.lines:
            count = "the first line is" if part.lines == 1 else f"the first {part.lines:,} lines are"
            print_message(f"{path} is not complete; {count} in {part_of(path)}")
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has closed, as in `--output /dev/stdout | head`
        raise
    except OSError as error:
        raise LingonError(f"--output {path}: {error.strerror}") from None


def _is_plain(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def print_message(message: str) -> None:
    """Print a message for the user on standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"lingon: {message}\n")


Advance = Callable[[int, int], None]
"""Called with the lines and the bytes of input that were done since the last call."""


def is_terminal() -> bool:
    """Return whether a person may see progress on standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


DELAY = 1.0  # seconds before the bar appears, so that a short run prints nothing


def wants_progress(typed: bool, output: Path | None) -> bool:
    """Return whether to show a bar: standard error is a terminal, results go to a file, and the lines are not typed.

    On a terminal the printed results show the progress themselves, and a pipe often ends in a pager on the same
    terminal: in both cases a bar would disturb the lines.
    """
    return not typed and is_terminal() and _is_file(output)


def _is_file(output: Path | None) -> bool:
    if output is not None:
        return output.is_file() or not output.exists()
    return sys.stdout is not None and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)


@contextmanager
def progress_bar(size: int | None, shown: bool, unit: str = "lines") -> Iterator[Advance]:
    """Give a bar for an input of this size in bytes (None: unknown), if it is to be shown; unit: what is counted."""
    if not shown:
        yield lambda lines, read: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # Standard output holds results only. Messages on standard error are printed above the bar.
    columns = (BarColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=False)
    begin = time.monotonic()
    task = bar.add_task("", total=size)
    lines_done = bytes_done = 0

    def advance(lines: int, read: int) -> None:
        nonlocal lines_done, bytes_done
        lines_done, bytes_done = lines_done + lines, bytes_done + read
        seconds = time.monotonic() - begin
        bar.update(task, completed=bytes_done, description=summary(lines_done, seconds, bytes_done, size, unit))
        if seconds >= DELAY:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


def print_table(title: str, columns: Sequence[str] | None, rows: Iterable[Sequence[str]]) -> None:
    """Print a table, with lines on a terminal only; columns: their names, or None for rows of a name and its value."""
    from rich.box import HEAVY_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lingon.text import printable

    console = Console(soft_wrap=True, highlight=False)
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        show_header=columns is not None,
        box=HEAVY_HEAD if console.is_terminal else None,
    )
    for column in columns or ("", ""):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    console.print(table)


@contextmanager
def line_progress(lines: int) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows on a terminal how many of the lines are done. It takes a number done and that of
    all.
    """
    with progress_bar(lines, is_terminal()) as advance:
        shown = 0

        def on_progress(done: int, of: int) -> None:
            nonlocal shown
            now = lines * done // of
            advance(now - shown, now - shown)
            shown = now

        yield on_progress


def summary(lines: int, seconds: float, read: int, size: int | None, unit: str = "lines") -> str:
    """Return the text of the bar: lines done, lines a second, and the time left if the size of the input is known."""
    parts = [f"{lines:,} {unit}", f"{lines / max(seconds, 1e-9):,.1f} {unit}/s"]
    if size is not None and read:
        left = seconds * max(size - read, 0) / read
        parts.append(f"{timedelta(seconds=round(left))} left")
    return ", ".join(parts)


def reworded(message: str, *, translating: bool) -> str:
    """Return a message of the service in terms of lines and flags instead of fields of a request."""
    remedy = "shorten it or leave out --no-split-long" if translating else "shorten it"
    message = message.replace("shorten it or set options.long_text to LONG_TEXT_POLICY_SPLIT", remedy)
    message = message.replace(
        "send it as metadata, authorization: Bearer KEY", "give --api-key-file or set LINGON_API_KEY"
    )
    message = re.sub(r"\bLIVE_POLICY_(\w+)", lambda found: found[1].lower(), message)
    message = re.sub(r"\b(?:start\.|header\.)?(source|target)_language_code\b", r"--\1-language", message)
    message = re.sub(r"\b(?:start|header)\.(\w+)", lambda found: f"--{found[1].replace('_', '-')}", message)
    message = re.sub(r"\btarget_prefixes\[\d+\]", "--target-prefix", message)
    message = re.sub(r"\boptions\.(?:sampling\.)?(\w+)", lambda found: f"--{found[1].replace('_', '-')}", message)
    message = message.removesuffix("; see ListModels")  # the message has the languages itself
    message = re.sub(r"\battention\.(layer|head)s\b", r"--\1", message)
    return re.sub(r"^(texts|pairs)\[\d+\][. ]", "", message)
