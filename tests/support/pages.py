"""The pages of the documentation: their blocks of code, and a shell session that runs the blocks of a page in order."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.ports import free_ports
from tests.support.repository import ROOT
from tests.support.timing import eventually_blocking

DOCS = ROOT / "docs"
TOP_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = [*sorted(DOCS.rglob("*.md")), *TOP_PAGES]
# Of the pages: gRPC, metrics, admin, HTTP, Envoy and its own, a second translator.
PORTS = "50051", "9464", "50052", "8080", "10000", "9901", "8000"
SERVERS = {"make serve": "lingon serve models"}  # the recipe of the Makefile, without the installation
BENCHMARKS = {"lingon bench attention-cost --quick", "lingon bench multi30k --quick"}  # each takes a minute
MARK = re.compile(r"<!-- (not run|file|prints): ?(.*?) ?-->")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block of code.

    mark: the comment on the line before: "not run" with the reason, "file" with a name, "prints", or nothing
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    argument: str = ""

    @property
    def starts_server(self) -> bool:
        return self.text.startswith(("lingon serve", *SERVERS))

    @property
    def starts_proxy(self) -> bool:
        return self.text.startswith("envoy --config-path")


def tokens(page: Path) -> list[Token]:
    """Return the parts of a page."""
    return MarkdownIt().parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> list[CodeBlock]:
    """Return the fenced blocks of a page."""
    found, mark = [], ("", "")
    for token in tokens(page):
        if token.type == "html_block" and (comment := MARK.search(token.content)):
            mark = comment[1], comment[2]
        elif token.type == "fence":
            line = token.map[0] + 1 if token.map else 0
            found.append(CodeBlock(page, line, token.info.strip(), token.content, *mark))
            mark = ("", "")
    return found


def runs(block: CodeBlock) -> bool:
    """Return whether a test runs the block as a reader does. tests/bench runs the benchmarks."""
    return block.language in ("bash", "python") and not block.mark and block.text.strip() not in BENCHMARKS


class Session:
    """A shell session for the blocks of a page, in a folder like the repository. It writes nothing outside of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._server: subprocess.Popen[str] | None = None
        self._proxy: subprocess.Popen[bytes] | None = None
        self._printed = ""
        for path in ROOT.iterdir():
            if path.name not in ("runs", "models", "build", ".git", ".venv"):
                (folder / path.name).symlink_to(path)
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "models").mkdir()
        for path in (ROOT / "models").iterdir():
            (folder / "models" / path.name).symlink_to(path)

    def run(self, block: CodeBlock) -> None:
        """Use a block as a reader does: save it as a file, run it, or compare the printed text."""
        if block.mark == "file":
            (self.folder / block.argument).write_text(self._here(block.text), encoding="utf-8")
        elif block.mark == "prints":
            assert matches(self._here(block.text), self._printed), f"{where(block)} prints:\n{self._printed}"
        elif runs(block) and block.starts_server:
            self._serve(block)
        elif runs(block) and block.starts_proxy:
            self._start_proxy(block)
        elif runs(block):
            self._run(block)

    def close(self) -> None:
        """Stop the server and the proxy of the page."""
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(timeout=20)
            self._server.kill()
        if self._server is not None and self._server.stdout is not None:
            self._server.stdout.close()

    def _run(self, block: CodeBlock) -> None:
        text = self._here(block.text)
        command = ["bash", "-euo", "pipefail", "-c", text] if block.language == "bash" else [sys.executable, "-c", text]
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, f"{where(block)}: exit code {ran.returncode}\n{text}\n{ran.stdout}"
        self._printed = ran.stdout

    def _serve(self, block: CodeBlock) -> None:
        """Start the server of a block and wait until it is ready. A page has one server at a time."""
        self.close()
        text = self._here(block.text)
        for command, recipe in SERVERS.items():
            text = text.replace(command, recipe)
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._server.stdout is not None
        said = []
        for line in self._server.stdout:
            said.append(line)
            if line.startswith("ready: "):
                self._printed = line
                return
        raise AssertionError(f"{where(block)}: the server ended early\n{''.join(said)}")

    def _start_proxy(self, block: CodeBlock) -> None:
        """Start the proxy of a block and wait until it listens."""
        command, quiet = ["bash", "-c", f"exec {self._here(block.text)}"], subprocess.DEVNULL
        self._proxy = subprocess.Popen(command, cwd=self.folder, env=self._environment(), stdout=quiet, stderr=quiet)
        ready = ("127.0.0.1", self.ports["10000"])
        eventually_blocking(lambda: socket.create_connection(ready).close() is None, 30, ignoring=(OSError,))

    def _here(self, text: str) -> str:
        """Return a page's text with the ports of this session."""
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return text

    def _environment(self) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LINGON_")}
        grpc, metrics, *_ = self.ports.values()
        own = {"LINGON_PORT": str(grpc), "LINGON_METRICS_PORT": str(metrics), "LINGON_SERVER": f"127.0.0.1:{grpc}"}
        return {**kept, **own, "PATH": programs, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    """Open a session whose server is stopped at the end."""
    opened = Session(folder)
    try:
        yield opened
    finally:
        opened.close()


def matches(expected: str, printed: str) -> bool:
    """Return whether a text was printed, apart from white space. `...` matches anything."""
    words = [re.escape(" ".join(part.split())) for part in expected.split("...")]
    return re.search(r"\s*.*?\s*".join(words), " ".join(printed.split()), re.DOTALL) is not None


def where(block: CodeBlock) -> str:
    """Return the position of a block, for messages."""
    return f"{block.page.relative_to(ROOT)}:{block.line}"
