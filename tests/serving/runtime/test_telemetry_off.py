"""ONNX Runtime, as the server and the benchmarks import it, sends no telemetry and writes no files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RUNNER = (
    "import lingon.serving.runtime.onnx_runner, onnxruntime; onnxruntime.InferenceSession; "
    "import lingon.serving.observability.metrics"
)
DEVICE = "from lingon.serving.runtime import device; device.onnxruntime_version(); device.cuda_missing()"
BENCH = "import lingon.bench, onnxruntime"


@pytest.mark.parametrize("code", [RUNNER, DEVICE, BENCH], ids=["runner", "device", "bench"])
def test_importing_the_runtime_leaves_no_file_in_the_home_or_the_temporary_folder(tmp_path, code):
    folders = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    inherited = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], env={**inherited, **folders}, check=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == []
