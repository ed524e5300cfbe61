"""Files read and written: regular files in one piece, lines of text, and folders that are published atomically.

What is written goes to a temporary path, which is synced and then renamed. Lines are read from files, plain or packed,
and from standard input. Every error names file and line.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import mmap
import os
import re
import secrets
import select
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from lingon.errors import CorpusError, SettingsError
from lingon.extras import name_missing_extra
from lingon.object_stores import file_state, is_url, open_file

try:
    from lzma import LZMAError
except ModuleNotFoundError:  # Python may be built without it. Then everything but the reading of .xz works.
    LZMAError = EOFError  # type: ignore[assignment, misc]


@contextmanager
def publish_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to fill. If the block ends without an error it becomes `folder`, complete and on disk.

    A kill at any moment leaves at most a hidden folder `.NAME.part-...` next to it, which the next attempt removes.
    Raises FileExistsError if folder exists: a published folder never changes.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    make_folders(folder.parent)
    with _temporary_path(folder, Path.mkdir) as part:
        yield part
        for path in [*part.rglob("*"), part]:
            _sync(path)
        try:
            os.rename(part, folder)
        except OSError:  # another process has published it meanwhile
            if folder.exists():
                raise FileExistsError(f"{folder} exists already") from None
            raise
        _sync(folder.parent)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file atomically, replacing an earlier one."""
    with _temporary_path(path, Path.touch) as part:
        part.write_bytes(content)
        _sync(part)
        os.replace(part, path)


@contextmanager
def replacing_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Give a new file to write. If the block ends without an error it replaces the file of this path, atomically, and
    is on disk.

    mode: of a new file, without the bits of the umask
    """
    with _temporary_path(path, lambda part: part.touch(mode=mode)) as part:
        with part.open("wb") as file:
            yield file
        _sync(part)
        os.replace(part, path)
        _sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file, and sync its folder to disk. Raises FileNotFoundError if there is none."""
    path.unlink()
    _sync(path.parent)


def write_private(path: Path, content: bytes, before_replace: Callable[[], None] = lambda: None) -> None:
    """Write a file atomically, with the mode and the owner of an earlier one. A new file is for its owner only.

    before_replace: called when nothing but the rename is left. If it raises, the file stays unchanged
    """
    status = path.stat() if path.exists() else None
    with _temporary_path(path, lambda part: part.touch(mode=0o600)) as part:
        part.write_bytes(content)
        if status is not None:
            part.chmod(status.st_mode & 0o777)
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(part, status.st_uid, status.st_gid)
        _sync(part)
        before_replace()
        os.replace(part, path)


def write_new(path: Path, content: bytes) -> None:
    """Write a new file atomically. Raises FileExistsError if it exists."""
    _write_new(path, content, mode=0o666)


def write_new_private(path: Path, content: bytes) -> None:
    """Write a new file atomically, for its owner only. Raises FileExistsError if it exists."""
    _write_new(path, content, mode=0o600)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    with _temporary_path(path, lambda part: part.touch(mode=mode)) as part:
        part.write_bytes(content)
        _sync(part)
        os.link(part, path)
    _sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def make_folders(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, and sync them to disk; mode: theirs, without the bits of the umask.

    Raises NotADirectoryError if the path is not a folder.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode, exist_ok=True)
        _sync(path.parent)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


@contextmanager
def lock_path(folder: Path) -> Iterator[bool]:
    """Hold an exclusive lock on a folder or file, which ends with the block or with the process.

    Yields False if the file system has no locks. Raises BlockingIOError if another process holds the lock.
    """
    import fcntl  # Windows, where clients run too, does not have it

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise
            locked = False
        yield locked
    finally:
        os.close(handle)


IS_PART = re.compile(r"\..+\.part(-[0-9a-f]{16})?")
"""Matches the names of temporary files and folders."""


def remove_partial_files(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files and folders of killed processes from a folder; name: only those of this name."""
    left_over = IS_PART if name is None else re.compile(rf"\.{re.escape(name)}\.part(-[0-9a-f]{{16}})?")
    for part in [path for path in folder.iterdir() if left_over.fullmatch(path.name)]:
        # A process locks the path that it fills. A path that cannot be removed does no harm.
        with suppress(OSError), lock_path(part) as locked:
            if locked:
                _remove(part)


@contextmanager
def _temporary_path(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Give a new hidden file or folder next to path, made by `make`. Removed at the end unless it was renamed."""
    remove_partial_files(path.parent, path.name)
    with naming(path), ExitStack() as stack:
        while True:
            part = path.with_name(f".{path.name}.part-{secrets.token_hex(8)}")
            make(part)
            with suppress(FileNotFoundError, BlockingIOError):
                stack.enter_context(lock_path(part))
                if part.exists():
                    break
            # Another process has removed it before it was locked: try again.
        stack.callback(_remove, part)
        yield part


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError of the block the name of the file that is written, for its temporary one, which no user knows.

    That of a full disk has no name.
    """
    try:
        yield
    except OSError as error:
        is_part = isinstance(error.filename, str) and IS_PART.fullmatch(Path(error.filename).name)
        if error.errno is not None and (error.filename is None or is_part):
            error.filename, error.filename2 = str(path), None
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def read_setting_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file that a setting names. Raises SettingsError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None


def read_setting_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file that a setting names. Raises SettingsError if it cannot be read."""
    try:
        return read_setting_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None


def read_plain_file(folder: Path, name: str, most: int) -> bytes:
    """Return the bytes of a regular file below folder, reached without links; name has / between its parts.

    Raises OSError with a readable strerror if it is not a regular file or has more than `most` bytes.
    """
    with _plain_file(folder, name, most) as handle, os.fdopen(handle, "rb", closefd=False) as file:
        return file.read(os.fstat(handle).st_size)


def map_plain_file(folder: Path, name: str, most: int) -> bytes | mmap.mmap:
    """Return the content of a file mapped into memory, see `read_plain_file`. An empty file cannot be mapped."""
    with _plain_file(folder, name, most) as handle:
        if not os.fstat(handle).st_size:
            return b""
        return mmap.mmap(handle, 0, prot=mmap.PROT_READ)


@contextmanager
def _plain_file(folder: Path, name: str, most: int) -> Iterator[int]:
    """Open a file, see `read_plain_file`, and give its handle for the block."""
    *parents, last = name.split("/")
    handles = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for parent in parents:
            handles.append(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handles[-1]))
        # Without O_NONBLOCK, opening a named pipe would block until a writer opens it.
        handles.append(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handles[-1]))
        status = os.fstat(handles[-1])
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if status.st_size > min(most, memory):
            raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes; {min(most, memory):,} are the most")
        yield handles[-1]
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a link") from None
        raise
    finally:
        for handle in handles:
            os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_link_loop(path: Path) -> bool:
    """Return whether symbolic links on the way to a path form a loop, which `Path.resolve` tells before Python 3.13
    only.
    """
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


PACKINGS = (".gz", ".zst", ".xz", ".bz2")
"""The endings of the names of packed files."""

READING_ERRORS = (OSError, EOFError, zlib.error, LZMAError)
"""What is raised by a file that cannot be read or unpacked."""


def is_packed(name: str) -> bool:
    """Return whether the name of a file says that it is packed."""
    return name.endswith(PACKINGS)


def without_packing(name: str) -> str:
    """Return the name of a file without the ending that says that it is packed."""
    return name.removesuffix(next((each for each in PACKINGS if name.endswith(each)), ""))


def unpacked(name: str, file: IO[bytes]) -> IO[bytes]:
    """Return the content of an open file, unpacked as its name says. Archives in one file are read one after another.

    Raises LingonError for a .zst without pyarrow, which the base install does not have.
    """
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]
    if name.endswith(".xz"):
        import lzma

        return lzma.open(file)
    if name.endswith(".bz2"):
        import bz2

        return bz2.open(file)
    if name.endswith(".zst"):
        with name_missing_extra(f"to unpack {name}, Lingon", ["bulk"]):
            import pyarrow as pa
        return io.BufferedReader(pa.CompressedInputStream(file, "zstd"))
    return file


MAX_LINE_BYTES = 2**22
"""Bytes of a line, 4 MiB as the largest message of a server. A longer one has lost its line feeds."""


LINE_END = b"\r\n"
"""The bytes that are left out at the end of a line."""


class TranslatedLines(NamedTuple):
    """The translations of lines, and the language that they are in."""

    lines: list[str]
    language: str


def read_lines(path: Path, line_end: bytes = LINE_END) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or packed, without line ends. Only a line feed ends a line.

    path: here or in an object store
    """
    number = 0
    try:
        with open_file(path) as file, unpacked(path.name, file) as content:
            for number, raw in enumerate(iter(partial(content.readline, MAX_LINE_BYTES + 3), b""), start=1):
                yield decoded_line(raw, f"{path}:{number}", line_end)
    except READING_ERRORS as error:
        raise unreadable(path, number, error) from None


def unreadable(path: Path, lines: int, error: Exception) -> CorpusError:
    """Return the error of a file that cannot be read after this many lines. One that cannot be opened has no line."""
    opened = lines or getattr(error, "errno", None) is None
    return CorpusError(f"{path}{f':{lines + 1}' if opened else ''}: {getattr(error, 'strerror', None) or error}")


def check_files(paths: Iterable[Path]) -> None:
    """Raise an error for the first path that cannot be read, without reading any: some work takes long to begin.

    It is a CorpusError, but for what a store refuses.
    """
    for path in paths:
        if is_url(path):
            file_state(path)
            continue
        if not path.exists():
            raise CorpusError(f"{path}: {os.strerror(errno.ENOENT)}")
        if path.is_dir():
            raise CorpusError(f"{path}: {os.strerror(errno.EISDIR)}")
        if not os.access(path, os.R_OK):
            raise CorpusError(f"{path}: {os.strerror(errno.EACCES)}")


def read_parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Yield pairs of lines of two files, which must have the same number of lines."""
    sources, targets = read_lines(source), read_lines(target)
    number = 0
    for number, line in enumerate(sources, start=1):
        other = next(targets, None)
        if other is None:
            raise CorpusError(f"{target}:{number}: ends here, but {source} goes on")
        yield line, other
    if next(targets, None) is not None:
        raise CorpusError(f"{source}:{number + 1}: ends here, but {target} goes on")


def standard_input(line_end: bytes = LINE_END) -> Iterator[str]:
    """Yield the lines of standard input. Safe to read on a daemon thread."""
    if sys.stdin is None:  # file descriptor 0 may belong to another file by now
        raise CorpusError("standard input: is closed")
    try:
        # Not sys.stdin.buffer: Python aborts if it exits while a thread waits in that buffer.
        with io.FileIO(0, closefd=False) as file:
            for number, raw in enumerate(_split_lines(file), start=1):
                yield decoded_line(raw, f"standard input:{number}", line_end)
    except OSError as error:
        raise CorpusError(f"standard input: {error.strerror}") from None


def _split_lines(file: io.FileIO) -> Iterator[bytes]:
    """Yield the lines of a file without their line feeds, each as soon as it is complete.

    A line that is too long is the last one, cut where that is known: it could fill the memory.
    """
    started: list[bytes] = []
    size = 0  # of the line that has been started
    while (chunk := file.read(2**16)) != b"":
        if chunk is None:  # non-blocking: another process that shares the file has set it so
            select.select([file], [], [])
            continue
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*started, line])
            started, size = [], 0
        started.append(rest)
        size += len(rest)
        if size > MAX_LINE_BYTES + 1:  # with a carriage return
            break
    if last := b"".join(started):
        yield last


def decoded_line(raw: bytes, where: str, line_end: bytes = LINE_END) -> str:
    """Return the text of a line; where: its file and number, for the errors."""
    cut, raw = len(raw) > MAX_LINE_BYTES + 2, raw.rstrip(line_end)
    if cut or len(raw) > MAX_LINE_BYTES:
        raise CorpusError(f"{where}: has more than {MAX_LINE_BYTES:,} bytes without a line feed; split the line")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the line)") from None
