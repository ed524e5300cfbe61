"""`lingon VERB ...` as forks of one process that has imported what it needs: half a second less for each.

A fork has an environment, a folder and standard streams of its own, which are files. Tests of pipes, signals and
terminals, and of what a command imports, start Python.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lingon.cli.main import main
from tests.support.repository import ROOT


@dataclass(frozen=True, slots=True)
class ForkedCommands:
    """The process whose forks are the commands, and a folder for the files that are their streams."""

    process: subprocess.Popen[str]
    folder: Path

    def run(self, *arguments: object, text: bytes, environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Run a command to the end, and return the exit code, standard output and standard error."""
        streams = [self.folder / name for name in ("input", "output", "errors")]
        streams[0].write_bytes(text)
        job = [list(map(str, arguments)), dict(environment), str(Path.cwd()), list(map(str, streams))]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        return code, streams[1].read_bytes(), streams[2].read_bytes()


@contextmanager
def forked_commands(folder: Path, *modules: str) -> Iterator[ForkedCommands]:
    """Start the process, which imports the modules."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    with subprocess.Popen(
        [sys.executable, "-m", __name__, *modules],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield ForkedCommands(process, folder)


def _run(arguments: list[str], environment: dict[str, str], folder: str, streams: list[str]) -> int:
    """Run the command of a fork."""
    for number, stream in enumerate(streams):
        with Path(stream).open("wb" if number else "rb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[1:1] = environment["PYTHONPATH"].split(os.pathsep)[:-1]
    return main(arguments)


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # A collection in a fork would write to all pages of memory and so copy them.
    with os.fdopen(os.dup(0)) as jobs, os.fdopen(os.dup(1), "w") as answers:
        for line in jobs:
            if (fork := os.fork()) == 0:
                sys.exit(_run(*json.loads(line)))
            print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), file=answers, flush=True)
