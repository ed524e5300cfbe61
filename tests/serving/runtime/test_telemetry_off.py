"""ONNX Runtime reports nothing to anybody, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys

LOAD = (
    "import lingon.serving.runtime.onnx_runner, onnxruntime; onnxruntime.InferenceSession; "
    "import lingon.serving.observability.metrics"
)


def test_loading_the_runtime_leaves_no_file_in_the_home_or_the_temporary_folder(tmp_path):
    folders = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    inherited = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", LOAD], env={**inherited, **folders}, check=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == []
