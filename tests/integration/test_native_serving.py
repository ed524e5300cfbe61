"""What a server with graphs in native operators says of them: its log, its metrics and `lingon doctor`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from lingon.bundle.store import open_bundle
from lingon.errors import BundleError
from lingon.serving.runtime.device import NATIVE, instruction_set
from lingon.serving.runtime.onnx_runner import load_runner
from tests.support.bundles import sign
from tests.support.random_models import VOCAB, random_model, written_bundle
from tests.support.repository import ROOT
from tests.support.tokenizers import train_sentencepiece

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with real graphs: random/1, in fp32 and in native operators."""
    lines = [f"{TEXT} {TEXT[place:]} {TEXT[:place]}" for place in range(len(TEXT))]
    folder = tmp_path_factory.mktemp("models") / "random"
    written_bundle(
        random_model(), folder, ["fp32", NATIVE], files={"tokenizer.model": train_sentencepiece(lines, VOCAB)}
    )
    return folder


def environment(instructions: str) -> dict[str, str]:
    """The variables of a process whose operators have this instruction set, or the best one if it is empty."""
    return {**os.environ, "LINGON_KERNELS": instructions}


def served(model_folder: Path, instructions: str, *options: str) -> tuple[str, str, str]:
    """The line with which a server is ready, its log, and the metrics that describe its models."""
    command = [sys.executable, "-m", "lingon", "serve", model_folder, "--port", "0", "--metrics-port", "0", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment(instructions), **pipes) as server:
        ready = server.stdout.readline()
        try:
            address = re.search(r"metrics on ([\w.:]+)", ready)[1]
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
                metrics = page.read().decode()
        finally:
            server.send_signal(signal.SIGTERM)
            _, log = server.communicate(timeout=30)
    return ready, log, "\n".join(re.findall(r"^lingon_model_info{.*", metrics, re.MULTILINE))


def doctor(model_folder: Path, instructions: str) -> str:
    """What `lingon doctor` says about native operators."""
    command = [sys.executable, "-m", "lingon", "doctor", model_folder]
    ran = subprocess.run(command, cwd=ROOT, env=environment(instructions), capture_output=True, text=True, check=True)
    return re.search(r"^native operators: (.*)$", ran.stdout, re.MULTILINE)[1]


@pytest.mark.parametrize("instructions", ["", "portable"])
def test_a_server_names_the_instruction_set_in_its_log_and_in_a_metric(model_folder: Path, instructions: str):
    ready, log, metrics = served(model_folder, instructions)
    used = instructions or instruction_set()
    assert ready.startswith(f"ready: random/1 ({NATIVE}, CPU) on ")
    (loaded,) = re.findall(r".*\bloaded\b.*", log)
    assert f"precision={NATIVE} instruction_set={used}" in loaded
    assert f'precision="{NATIVE}"' in metrics
    assert f'instruction_set="{used}"' in metrics
    assert "instead of" not in log


def test_one_warning_says_why_other_graphs_serve(model_folder: Path):
    ready, log, metrics = served(model_folder, "mmx")
    assert ready.startswith("ready: random/1 (fp32, CPU) on ")
    (line,) = re.findall(r".*instead of.*", log)
    assert f"serves fp32 instead of {NATIVE}" in line
    assert "LINGON_KERNELS is mmx" in line
    assert "instruction_set=" not in log
    assert 'instruction_set=""' in metrics


def test_graphs_for_other_native_operators_are_left_out_with_a_warning(model_folder: Path, tmp_path: Path):
    old = tmp_path / "random"
    shutil.copytree(model_folder, old)
    decoder = old / "1" / NATIVE / "decoder.onnx"
    decoder.write_bytes(decoder.read_bytes().replace(b"StepAttention", b"PastAttention"))
    sign(old / "1")
    ready, log, metrics = served(old, "")
    assert ready.startswith("ready: random/1 (fp32, CPU) on ")
    (line,) = re.findall(r".*instead of.*", log)
    assert f"serves fp32 instead of {NATIVE}" in line
    assert "export it again" in line
    assert 'precision="fp32"' in metrics
    with pytest.raises(BundleError, match="PastAttention"):
        load_runner(open_bundle(old / "1"), NATIVE, threads=1)


def test_other_graphs_that_are_asked_for_need_no_warning(model_folder: Path):
    ready, log, _ = served(model_folder, "mmx", "--precision", "fp32")
    assert ready.startswith("ready: random/1 (fp32, CPU) on ")
    assert "instead of" not in log


def test_doctor_names_the_instruction_set_or_says_why_there_is_none(model_folder: Path):
    assert doctor(model_folder, "") == instruction_set()
    reason = "LINGON_KERNELS is mmx, and this processor has no native operators of that name"
    assert doctor(model_folder, "mmx") == f"not usable: {reason}"


def test_doctor_says_why_the_operators_for_cuda_cannot_run(model_folder: Path):
    command = [sys.executable, "-m", "lingon", "doctor", model_folder]
    without = {**os.environ, "LINGON_CUDA_DRIVER": "/nowhere"}
    ran = subprocess.run(command, cwd=ROOT, env=without, capture_output=True, text=True, check=True)
    (line,) = re.findall(r"^native operators for CUDA: (.*)$", ran.stdout, re.MULTILINE)
    assert line == "not usable: there is no NVIDIA driver (/nowhere is not found)"
