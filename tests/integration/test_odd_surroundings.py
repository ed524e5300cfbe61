"""A server whose standard files are closed or full, or whose HTTP port is taken, starts and ends as it should."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import ENVIRONMENT, lingon
from tests.support.repository import ROOT
from tests.support.timing import eventually_blocking

MODEL = ROOT / "models" / "en-de"


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize("files", ["<&-", "<&- >&-", "<&- >&- 2>&-", ">/dev/full"])
def test_a_server_without_usable_standard_files_serves_and_ends_with_0(files: str):
    metrics = free_port()
    command = f"exec {sys.executable} -m lingon serve {MODEL} --port 0 --metrics-port {metrics} {files}"
    with subprocess.Popen(["sh", "-c", command], env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        try:
            eventually_blocking(lambda: is_ready(metrics), seconds=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("with_folder", [False, True], ids=["port", "folder"])
def test_http_apis_that_cannot_start_are_one_line(tmp_path: Path, with_folder: bool):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = 0 if with_folder else taken.getsockname()[1]
        folder = ["--http-data-dir", "/proc/none"] if with_folder else []
        ports = ["--port", 0, "--metrics-port", 0, "--http-port", port]
        said = lingon("serve", MODEL, *ports, *folder, code=2 if with_folder else 1, folder=tmp_path)
    errors = [line for line in said.splitlines() if "error" in line.lower()]
    expected = "/proc/none/documents cannot be used" if with_folder else "set --http-port"
    assert len(errors) == 1, said
    assert expected in errors[0]
    assert "Exception ignored" not in said
