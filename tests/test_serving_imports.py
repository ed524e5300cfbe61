"""The tests of serving run with the extras `serve` and `dev`: they import no torch, no ONNX exporter, no training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

REFUSING_PLUGIN = """
import sys

FORBIDDEN = ("torch", "onnx", "onnxscript", "safetensors", "sacrebleu", "tensorboard", "ctranslate2", "transformers",
    "lingon.training", "lingon.export", "lingon.bench")


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{forbidden}.") for forbidden in FORBIDDEN):
            raise ImportError(f"{name} is refused here")


sys.meta_path.insert(0, Refuse())
"""
COLLECT = ["-m", "pytest", "-p", "refusing_plugin", "-p", "no:cacheprovider", "--collect-only", "--quiet"]


def collect(folder: Path, *tests: Path) -> subprocess.CompletedProcess[str]:
    """Collect tests in a process that refuses every import that the extras `serve` and `dev` do not install."""
    (folder / "refusing_plugin.py").write_text(REFUSING_PLUGIN, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *COLLECT, *map(str, tests)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_tests_of_serving_import_nothing_that_only_training_and_export_need(tmp_path: Path):
    collected = collect(tmp_path, ROOT / "tests" / "serving")
    assert collected.returncode == 0, collected.stdout[-2000:]


def test_the_check_notices_a_forbidden_import(tmp_path: Path):
    test = tmp_path / "test_importing.py"
    test.write_text("import lingon.training.models.transformer\ndef test_something(): pass\n", encoding="utf-8")
    collected = collect(tmp_path, test)
    assert collected.returncode == 2
    assert "lingon.training is refused here" in collected.stdout
