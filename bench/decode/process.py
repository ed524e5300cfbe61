"""The other end of bench.decode.worker: a contestant's process, asked over its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any

from lingon.errors import LingonError


class Process:
    """A worker that has been started; leaving the `with` ends it."""

    def __init__(self, engine: str, label: str) -> None:
        """label: what errors call it."""
        self._label = label
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.decode.worker", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """One question and its answer; raises LingonError with the worker's last words where it has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"do": do, **values}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LingonError(f"{self._label}: its process ended ({do}): {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()  # it holds nothing but memory
        self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
