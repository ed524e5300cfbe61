"""An HTTP server of the files of a folder on a real socket, with faults that are given to it one by one."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

REVISION = "3a5f" * 10  # of every repository


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request for a file.

    status, headers: of an answer without content, in the place of the file
    cut: bytes that are sent before the connection is closed
    stalled: whether the connection then stays open without a byte, until the server stops
    content: sent in the place of the file
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    stalled: bool = False
    content: bytes | None = None


@dataclass(slots=True)
class FileServer:
    """The server, and what it was asked for.

    faults: by the path of a URL, each for one request, in order
    asked: the method, the path and the header Range of every request
    keys: what the header Authorization of the requests had
    ranges: whether it sends parts of files; whole ones otherwise
    tags: whether it names the version of a file, by an ETag
    lengths: whether it says how many bytes it sends
    """

    folder: Path
    url: str = ""
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    ranges: bool = True
    tags: bool = True
    lengths: bool = True
    stopped: threading.Event = field(default_factory=threading.Event)

    def break_next(self, path: str, *faults: Fault) -> None:
        """Give the next requests for a path these faults, one each."""
        self.faults.setdefault(path, deque()).extend(faults)

    def gets(self, path: str) -> list[str]:
        """Return the header Range of each GET of a path."""
        return [asked for method, name, asked in self.asked if method == "GET" and name == path]


@contextmanager
def serve_files(folder: Path) -> Iterator[FileServer]:
    """Serve the files of a folder, and its repositories as the Hugging Face hub does, until the end of the block."""
    state = FileServer(folder)

    class Handler(_Handler):
        files = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    files: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.files.asked.append((self.command, path, self.headers.get("Range", "")))
        self.files.keys.add(self.headers.get("Authorization", ""))
        faults = self.files.faults.get(path)
        fault = faults.popleft() if faults else Fault()
        if fault.status != 200:
            self._send(fault.status, fault.headers, b"")
            return
        if path.startswith("/api/models/"):
            self._describe_repository(path)
            return
        file, more = self._file(path)
        if file is None or not file.is_file():
            self._send(404, {"X-Error-Code": "EntryNotFound"}, b"")
            return
        content = file.read_bytes() if fault.content is None else fault.content
        self._send_file(content, fault, more, with_content=with_content)

    def _file(self, path: str) -> tuple[Path | None, dict[str, str]]:
        """Return the file of a path, and the headers of the hub if it is of a repository."""
        parts = path.strip("/").split("/")
        if len(parts) >= 5 and parts[2] == "resolve":
            file = self.files.folder.joinpath(*parts[:2], *parts[4:])
            if not file.is_file():
                return None, {}
            return file, {
                "X-Repo-Commit": REVISION,
                "ETag": f'"{_digest(file)}"',
                "X-Linked-Size": str(file.stat().st_size),
            }
        return self.files.folder / path.strip("/"), {}

    def _describe_repository(self, path: str) -> None:
        name = path.removeprefix("/api/models/").partition("/revision/")[0]
        folder = self.files.folder / name
        if not folder.is_dir():
            self._send(404, {"X-Error-Code": "RepoNotFound"}, b"{}")
            return
        siblings = []
        for file in sorted(folder.iterdir()):
            found: dict[str, Any] = {"rfilename": file.name, "size": file.stat().st_size, "blobId": _git_digest(file)}
            if _is_large(file):
                found["lfs"] = {"sha256": _digest(file), "size": file.stat().st_size, "pointerSize": 1}
            siblings.append(found)
        content = json.dumps({"id": name, "sha": REVISION, "siblings": siblings, "private": False}).encode()
        self._send(200, {"Content-Type": "application/json"}, content)

    def _send_file(self, content: bytes, fault: Fault, headers: dict[str, str], *, with_content: bool) -> None:
        tag = headers.get("ETag") or f'"{hashlib.sha256(content).hexdigest()}"'
        begin = self._begin(len(content), tag)
        if begin is None:
            self._send(416, {}, b"")
            return
        status = 206 if begin else 200
        self.send_response(status)
        named = {**headers, "ETag": tag} if self.files.tags or headers else headers
        for name, value in named.items():
            self.send_header(name, value)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if self.files.lengths:
            self.send_header("Content-Length", str(len(content) - begin))
        else:
            self.close_connection = True
        self.end_headers()
        if not with_content:
            return
        rest = content[begin:]
        if fault.cut is None:
            self.wfile.write(rest)
            return
        self.wfile.write(rest[: fault.cut])
        self.wfile.flush()
        if fault.stalled:
            self.files.stopped.wait()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _begin(self, size: int, tag: str) -> int | None:
        """Return the first byte that is asked for, None if the file is shorter."""
        asked = self.headers.get("Range", "")
        if not asked or not self.files.ranges or self.headers.get("If-Range", tag) != tag:
            return 0
        begin = int(asked.removeprefix("bytes=").partition("-")[0])
        return begin if begin < size else None

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _is_large(file: Path) -> bool:
    return file.suffix in (".safetensors", ".bin", ".spm", ".model")


def _digest(file: Path) -> str:
    """Return the digest under which the hub keeps a file: SHA-256 of a large one, that of git of a small one."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if _is_large(file) else _git_digest(file)


def _git_digest(file: Path) -> str:
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
