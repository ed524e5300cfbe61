"""The real commands, each in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def lingon(*arguments: object, text: str = "", code: int = 0, folder: Path | None = None) -> str:
    """Run a verb, which must end with this exit code; returns its output, or standard error if the code is not 0."""
    command = [sys.executable, "-m", "lingon", *map(str, arguments)]
    ran = subprocess.run(
        command, input=text, capture_output=True, text=True, env=ENVIRONMENT, cwd=folder, timeout=240, check=False
    )
    assert ran.returncode == code, f"{command}: exit {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    assert "Traceback" not in ran.stderr
    return ran.stdout if code == 0 else ran.stderr


@dataclass(frozen=True, slots=True)
class Server:
    """A running `lingon serve`."""

    process: subprocess.Popen[str]
    address: str
    metrics: str
    ready: str

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextmanager
def serving(*arguments: object) -> Iterator[Server]:
    """Run a server on free ports; the block starts when it prints that it is ready."""
    command = [sys.executable, "-m", "lingon", "serve", *map(str, arguments), "--port", "0", "--metrics-port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("ready: "):
                    break
            else:
                raise AssertionError("the server ended early:\n" + "".join(said))
            address = line.split(" on ")[1].split(",")[0]
            metrics = line.split("metrics on ")[1].split(" ")[0]
            yield Server(process, address, metrics, line)
        finally:
            if process.poll() is None:
                process.kill()
