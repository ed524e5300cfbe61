"""Runs the real command in a process of its own, with a scripted server or a scripted model in that process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

ENTRY_POINTS = """
[lingon.verbs]
translate = lingon.cli.translate:translate
score = lingon.cli.translate:score
attend = lingon.cli.attend.verb:attend
healthcheck = lingon.cli.translate:healthcheck
models = lingon.cli.models:models

[lingon.translators]
local = fake_local:FakeLocal [serve]
"""

FAKE_LOCAL = """
import sys
from concurrent.futures import Future

import grpc
from lingon.errors import EngineLost, QueueFull
from tests.support.scripted_server import FakeService

class FakeLocal(FakeService):
    def __init__(self, path, *, device, precision, engines, threads):
        super().__init__()
        print(f"opened {path} {device} {precision} {engines} {threads}", file=sys.stderr)
    def close(self): print("closed", file=sys.stderr)
    def begin(self, method, request, timeout):
        answers = {"Translate": self.translate, "Score": self.score, "ListModels": self.list_models}
        reply = Future()
        try:
            reply.set_result(answers[method](request, timeout))
        except Exception as error:
            reply.set_exception(error)
        return reply
    def translate(self, request, timeout):
        self.listed += 1
        if self.listed == 1:
            raise QueueFull("too much is waiting")
        if "the engine dies" in request.texts:
            raise EngineLost("the engine failed and is being restarted; try again")
        if "the disk fails" in request.texts:
            raise OSError(5, "Input/output error", "model.bin")
        if "how long" in request.texts:
            print(f"in {timeout:.0f} s", file=sys.stderr)
        return self.Translate(request, None)
    def score(self, request, timeout): return self.Score(request, None)
    def list_models(self, request, timeout): return self.ListModels(request, None)
    def _begin(self, request, context): return None
"""


class Command:
    """Runs `python -m lingon` as if it was installed with the entry points above."""

    def __init__(self, folder: Path, address: str) -> None:
        (folder / "lingon-0.0.dist-info").mkdir()
        (folder / "lingon-0.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lingon\nVersion: 0.0\n")
        (folder / "lingon-0.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
        (folder / "fake_local.py").write_text(FAKE_LOCAL)
        path = os.pathsep.join([str(folder), str(ROOT)])
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self.environment = {**inherited, "PYTHONPATH": path, "LINGON_SERVER": address, "LC_ALL": "C"}

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "lingon", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def __call__(self, *arguments: object, text: str | bytes = "") -> tuple[int, str, list[str]]:
        """Run to the end; returns the exit code, standard output and the lines of standard error."""
        content = text if isinstance(text, bytes) else text.encode()
        with self.start(*arguments) as process:
            printed, errors = process.communicate(content, timeout=60)
        return process.returncode, printed.decode(), errors.decode().splitlines()
