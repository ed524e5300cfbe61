"""Downloads of single files over HTTP: resumed, verified, whole or not at all.

A file that is being downloaded is `.NAME.part` beside its place, and `.NAME.validator` says which version of the file
its bytes are of. Both stay after a failure, so that the next attempt goes on where this one stopped.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lingon.errors import DownloadError

CHUNK = 2**18  # bytes that are read at once
MOST_BYTES = 64 * 2**30  # of a file whose size nothing says
WORTH_A_RETRY = (408, 429, 500, 502, 503, 504)  # status codes that may go away
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a file, its bytes so far, and the bytes of the whole file, None if they are unknown."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download.

    path: where it is written
    size: bytes of the whole file, None if nothing says them
    sha256: in hexadecimal, None if nothing says it
    """

    url: str
    path: Path
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a download goes on in spite of failures.

    stall: seconds without a byte after which a connection is given up
    attempts: failures in a row, without a new byte between them
    first_pause: seconds before the second attempt; each later pause is twice as long
    longest_wait: seconds that a server may ask to wait
    """

    stall: float = 30.0
    attempts: int = 5
    first_pause: float = 0.5
    longest_wait: float = 300.0


class _Cut(Exception):
    """A transfer ended early, in a way that another attempt may mend; wait: seconds that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirects, but none from https to a protocol that others can read or change."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if req.type == "https" and not newurl.lower().startswith("https://"):
            raise DownloadError(f"{req.full_url}: the server redirects from https to {newurl[:200]}, which is not safe")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    file: RemoteFile,
    progress: Progress = lambda name, done, total: None,
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download a file to its path, verified. A file that is there already, with its SHA-256, is not downloaded.

    Raises DownloadError, in one line that names the URL. Its bytes so far stay for the next call, unless they are
    wrong.
    """
    if file.path.exists() and (file.sha256 is None or sha256_of(file.path) == file.sha256):
        return
    patience = patience or Patience()
    file.path.parent.mkdir(parents=True, exist_ok=True)
    part = _Part.of(file.path)
    resumed = part.size > 0
    _transfer(file, part, progress, patience, sleep)
    if not _is_right(file, part) and resumed:  # the first bytes may be of another version
        part.remove()
        _transfer(file, part, progress, patience, sleep)
    if not _is_right(file, part):
        found, size = sha256_of(part.path), part.size
        part.remove()
        raise DownloadError(
            f"{file.url}: is not the file that was expected: has {size:,} bytes with the SHA-256 {found}, must have "
            f"{_shown_size(file)}the SHA-256 {file.sha256}; nothing of it was kept"
        )
    part.publish(file.path)


def read_small(url: str, most: int) -> bytes:
    """Return the content of a small file, `most` bytes at the most. Raises DownloadError."""
    try:
        with _answer(Request(url, headers=_headers()), Patience()) as response:
            content: bytes = response.read(most + 1)
    except _Cut as cut:
        raise DownloadError(f"{url}: {cut}") from None
    if len(content) > most:
        raise DownloadError(f"{url}: must have at most {most:,} bytes")
    return content


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class _Part:
    """The bytes of a file so far, and what says which version of the file they are of."""

    path: Path
    validator: Path

    @classmethod
    def of(cls, path: Path) -> _Part:
        return cls(path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.validator"))

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.validator.unlink(missing_ok=True)

    def publish(self, path: Path) -> None:
        """Move the file to its place, whole and on disk."""
        with self.path.open("rb") as opened:
            os.fsync(opened.fileno())
        os.replace(self.path, path)
        self.validator.unlink(missing_ok=True)


def _transfer(
    file: RemoteFile, part: _Part, progress: Progress, patience: Patience, sleep: Callable[[float], None]
) -> None:
    """Fill a part until the server has no more bytes, over as many connections as that takes."""
    failures, furthest = 0, part.size
    while True:
        try:
            _continue(file, part, progress, patience)
            return
        except _Cut as cut:
            failures = 1 if part.size > furthest else failures + 1
            furthest = max(furthest, part.size)
            if failures >= patience.attempts:
                raise DownloadError(
                    f"{file.url}: {cut}, {failures} times in a row; {part.size:,} bytes are kept, from which the next "
                    f"attempt goes on"
                ) from None
            sleep(cut.wait if cut.wait is not None else patience.first_pause * 2 ** (failures - 1))


def _continue(file: RemoteFile, part: _Part, progress: Progress, patience: Patience) -> None:
    """Ask for the bytes after those of a part, and write them. Raises _Cut if they end early."""
    have = part.size
    if file.size is not None and have > file.size:
        part.remove()
        have = 0
    if file.size is not None and have == file.size and have > 0:
        return
    headers = _headers()
    if have:
        validator = part.validator.read_text(encoding="utf-8") if part.validator.exists() else ""
        if validator or file.sha256:  # else the first bytes may be of another version, and nothing would show it
            headers |= {"Range": f"bytes={have}-"} | ({"If-Range": validator} if validator else {})
    with _answer(Request(file.url, headers=headers), patience, part) as response:
        begin, total = _extent(file, response)
        if file.size is not None and total is not None and total != file.size:
            raise DownloadError(f"{file.url}: must have {file.size:,} bytes, the server has {total:,}")
        _check_room(file, part, (total or file.size or 0) - begin)
        part.validator.write_text(_validator(response), encoding="utf-8")
        done = _write(file, part, response, begin, total, progress)
    if total is not None and done < total:
        raise _Cut(f"the connection ended after {done:,} of {total:,} bytes")


def _write(file: RemoteFile, part: _Part, response: Any, begin: int, total: int | None, progress: Progress) -> int:
    """Write what a server sends after the first `begin` bytes. Return the bytes of the file so far."""
    most, done = total or file.size or MOST_BYTES, begin
    with _disk_errors(file, part), part.path.open("r+b" if begin else "wb") as opened:
        opened.seek(begin)
        while chunk := _read(response):
            done += len(chunk)
            if done > most:
                raise DownloadError(f"{file.url}: must have at most {most:,} bytes, the server sends more")
            opened.write(chunk)
            opened.flush()
            progress(file.path.name, done, total or file.size)
    return done


def _read(response: IO[bytes]) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise _Cut(f"the connection failed ({_reason(error)})") from None


@contextmanager
def _answer(request: Request, patience: Patience, part: _Part | None = None) -> Iterator[Any]:
    """Give the answer of a server. Raises _Cut for what may go away, DownloadError for what does not."""
    url = request.full_url
    try:
        response = build_opener(_SafeRedirects).open(request, timeout=patience.stall)
    except HTTPError as error:
        error.close()
        if error.code == 416 and part is not None:  # what is there is longer than the file is now
            part.remove()
            raise _Cut("the server has fewer bytes than are here") from None
        if error.code not in WORTH_A_RETRY:
            raise DownloadError(f"{url}: the server answers {error.code} {error.reason}") from None
        raise _Cut(f"the server answers {error.code} {error.reason}", _wait(url, error, patience)) from None
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, SSLCertVerificationError):
            raise DownloadError(f"{url}: its certificate is not valid ({reason.verify_message})") from None
        raise _Cut(f"cannot be reached ({_reason(reason)})") from None
    except ValueError as error:
        raise DownloadError(f"{url}: is no URL ({error})") from None
    with response:
        yield response


def _headers() -> dict[str, str]:
    return {"User-Agent": "lingon", "Accept-Encoding": "identity"}  # the bytes as they are, whose digest is known


def _wait(url: str, error: HTTPError, patience: Patience) -> float | None:
    """Return the seconds that a server asks to wait, None if it does not. Raises DownloadError if they are too many."""
    asked = error.headers.get("Retry-After", "").strip()
    if asked.isdigit():
        seconds = float(asked)
    else:
        try:
            seconds = max(0.0, (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):  # it has no such header, or a date without a time zone
            return None
    if seconds > patience.longest_wait:
        raise DownloadError(
            f"{url}: the server answers {error.code} {error.reason} and asks to wait {seconds:,.0f} seconds, more than "
            f"{patience.longest_wait:,.0f}; try again later, the bytes so far are kept"
        )
    return seconds


def _extent(file: RemoteFile, response: Any) -> tuple[int, int | None]:
    """Return the position of the first byte of an answer in the file, and the bytes of the whole file."""
    length = response.headers.get("Content-Length", "")
    if response.status != 206:
        return 0, int(length) if length.isdigit() else None
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None:
        raise DownloadError(f"{file.url}: the server sends a part of the file, and does not say which one")
    if int(found[1]) != _Part.of(file.path).size:
        raise DownloadError(f"{file.url}: the server sends the bytes from {int(found[1]):,}, which were not asked for")
    return int(found[1]), int(found[3]) if found[3].isdigit() else int(found[2]) + 1


def _validator(response: Any) -> str:
    """Return what names the version of a file: a strong entity tag, else the time of its last change, else ""."""
    tag = response.headers.get("ETag", "")
    return str(tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", ""))


def _check_room(file: RemoteFile, part: _Part, needed: int) -> None:
    """Raise DownloadError if the disk has no room for these bytes, before any is written."""
    free = shutil.disk_usage(part.path.parent).free
    if needed > free:
        raise DownloadError(f"{file.url}: needs {needed:,} bytes in {part.path.parent}, which has {free:,} free")


@contextmanager
def _disk_errors(file: RemoteFile, part: _Part) -> Iterator[None]:
    """Turn an error of the disk into one line. What was written stays, for an attempt with more room."""
    try:
        yield
    except OSError as error:
        remedy = ""
        with suppress(OSError):
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                remedy = f"; {shutil.disk_usage(part.path.parent).free:,} bytes are free"
        raise DownloadError(
            f"{file.url}: {part.path} cannot be written ({error.strerror or error}){remedy}; {part.size:,} bytes are "
            f"kept, from which the next attempt goes on"
        ) from None


def _is_right(file: RemoteFile, part: _Part) -> bool:
    if file.size is not None and part.size != file.size:
        return False
    return file.sha256 is None or sha256_of(part.path) == file.sha256


def _shown_size(file: RemoteFile) -> str:
    return "" if file.size is None else f"{file.size:,} bytes with "


def _reason(error: object) -> str:
    """Return the reason of a failed connection in a few words."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
