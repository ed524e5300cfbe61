"""Type the commands of the terminal on docs/quickstart.md, and write into the page what they print.

    python -m scripts.terminal

The session is that of a new user: an empty folder with a clone of this repository, `lingon`, and no variables but PATH,
HOME and those of pip. Packages are downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import IO, NamedTuple

from lingon.files import write_text
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/quickstart.md"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
CLONE = "lingon"
PORTS = ("50051", "9464", "8080")  # gRPC, metrics, HTTP
TIME = re.compile(r"\b\d\d:\d\d:\d\d\b")
LONGEST = 600  # seconds for a command
END = "\x1eend of the command"


class Typed(NamedTuple):
    """A command and what it printed."""

    command: str
    printed: str


def read_blocks(page: str) -> list[list[Typed]]:
    """Return the blocks of a terminal on a page."""
    return [
        [Typed(*each.partition("\n")[::2]) for each in f"\n{text}".split(f"\n{PROMPT}")[1:]]
        for text in (found[0].removesuffix("\n") for found in BLOCK.finditer(page))
    ]


def with_blocks(page: str, blocks: list[list[Typed]]) -> str:
    """Return the page with these blocks of a terminal in the place of its own ones."""
    texts = [
        "".join(f"{PROMPT}{command}\n{lines}" + "\n" * bool(lines) for command, lines in block) for block in blocks
    ]
    following = iter(texts)
    return BLOCK.sub(lambda found: next(following), page)


class Terminal:
    """A shell in a folder, to which commands are typed one after another.

    The ports of the page are replaced by free ones, and these by those of the page in what is printed.
    """

    def __init__(self, folder: Path, shell: subprocess.Popen[str], ports: Mapping[str, str]) -> None:
        self._folder, self._shell, self._ports = folder, shell, ports

    def type(self, command: str) -> Typed:
        """Run a command, and return it with what it printed; of one with & at its end, up to the line of a server that
        is ready. Times and the path of the folder are replaced by words.

        Raises RuntimeError if the shell ends.
        """
        text = command
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{\n{text}\n}} < /dev/null\nprintf '\\n%s\\n' '{END}'\n")
        self._shell.stdin.flush()
        watchdog = Timer(LONGEST, self._shell.kill)
        watchdog.start()
        try:
            printed = self._read(self._shell.stdout, is_server=command.endswith("&"))
        finally:
            watchdog.cancel()
        for port, free in self._ports.items():
            printed = re.sub(rf"\b{free}\b", port, printed)
        return Typed(command, TIME.sub("HH:MM:SS", printed.replace(str(self._folder), "~")))

    def _read(self, output: IO[str], *, is_server: bool) -> str:
        lines, is_over, is_ready = list[str](), False, not is_server
        while not (is_over and is_ready):
            line = output.readline()
            if line.startswith(END):
                is_over = True
            elif line:
                is_ready = is_ready or line.startswith("ready: ")
                lines.append(line)
            else:
                raise RuntimeError(f"the shell ended: {''.join(lines)}")
        return "".join(lines).strip("\n")


@contextmanager
def terminal(environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Open a terminal in a new folder with a clone of this repository, in which nothing else is.

    environment: variables of the shell, beside HOME and those that name free ports
    """
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    grpc, metrics, _ = ports.values()
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / CLONE).symlink_to(ROOT)
        own = {"LINGON_PORT": grpc, "LINGON_METRICS_PORT": metrics, "LINGON_SERVER": f"127.0.0.1:{grpc}"}
        shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={**environment, **own, "HOME": name, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with shell:
            try:
                yield Terminal(folder, shell, ports)
            finally:
                assert shell.stdin is not None
                shell.stdin.write("kill $(jobs -p) 2> /dev/null; wait; exit\n")
                shell.stdin.close()


def main() -> None:
    """Type all commands of the page, and write it."""
    page = PAGE.read_text(encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PIP_")}
    # An index may say things that are about itself. `pip install --quiet` of the page still prints warnings.
    with terminal({**environment, "PIP_QUIET": "1"}) as opened:
        blocks = [[opened.type(each.command) for each in block] for block in read_blocks(page)]
    write_text(PAGE, with_blocks(page, blocks))
    print(f"written: {PAGE.relative_to(ROOT)}, {sum(map(len, blocks))} commands", file=sys.stderr)


if __name__ == "__main__":
    main()
