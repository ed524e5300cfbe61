"""Runs of one process and of several: equal results, devices, and settings of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lingon.errors import DeviceError, SettingsError
from lingon.training import checkpoint as files
from lingon.training.checkpoint import load_checkpoint
from lingon.training.processes import (
    KEPT_PLANS,
    PLANS_OF_CPU,
    device_of_process,
    fast_kernels,
    join_processes,
    slow_precision,
)
from lingon.training.setup import check_accumulation
from tests.support.repository import ROOT
from tests.support.training_runs import (
    in_two_processes,
    log_of,
    one_thread,
    train,
    train_command,
    train_here,
    weights_of,
    write_config,
)

SETTINGS: dict[str, Any] = {
    "model": {"dropout": 0.2},
    "tokenizer": {"sampling_alpha": 0.3},
    "training": {
        "max_steps": 20,
        "warmup_steps": 10,
        "cooldown_steps": 5,
        "learning_rate": 1e-3,
        "batch_tokens": 300,
        "accumulate": 4,
        "log_every": 1,
        "valid_every": 10,
        "valid_sentences": 10,
    },
}


def test_two_processes_compute_the_weights_of_one(corpus: Path) -> None:
    alone = train(write_config(corpus, **SETTINGS), corpus / "one")
    assert in_two_processes(train_here, corpus / "config.toml", corpus / "two") == [20, 20]
    for figure in ("step", "loss", "gradient_norm", "epoch", "learning_rate"):
        one, two = ([line[figure] for line in log_of(corpus / run, "train")] for run in ("one", "two"))
        assert two == pytest.approx(one, rel=1e-4)
    assert [line["step"] for line in log_of(corpus / "two", "valid")] == [10, 20]
    together = load_checkpoint(files.step_folder(corpus / "two", 20))
    for name, weight in weights_of(alone).items():
        assert_close(_felt(name, together.model.state_dict()[name]), _felt(name, weight), rtol=1e-3, atol=1e-4)


def _felt(name: str, weight: Tensor) -> Tensor:
    """Return a weight without the biases of keys: they do not change a softmax, so their gradient is noise for Adam."""
    if name.endswith("qkv.bias"):
        return torch.cat([weight[:32], weight[64:]])
    return weight[32:] if name.endswith("key_value.bias") else weight


def test_a_signal_stops_all_processes_at_the_same_step_and_one_process_can_resume(corpus: Path) -> None:
    """As torchrun starts them."""
    settings = {**SETTINGS, "training": {**SETTINGS["training"], "max_steps": 100_000, "valid_every": 100_000}}
    write_config(corpus, **settings)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    command = train_command(corpus / "config.toml", "--output", corpus / "run")
    process = subprocess.Popen([*torchrun, *command], cwd=ROOT, env=one_thread(), stderr=subprocess.PIPE, text=True)
    log = corpus / "run" / "log.jsonl"
    while process.poll() is None and (not log.exists() or log.read_text().count("\n") < 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    (stopped,) = files.saved_steps(corpus / "run")
    step = load_checkpoint(stopped).progress.step
    assert step >= 3
    assert f"stopped by a signal after step {step}" in errors
    settings["training"]["max_steps"] = step + 2
    assert train(write_config(corpus, **settings), corpus / "run").progress.step == step + 2


@pytest.mark.parametrize(
    ("name", "devices", "process", "expected"),
    [("auto", 0, 3, "cpu"), ("cpu", 2, 1, "cpu"), ("auto", 2, 1, "cuda:1"), ("cuda", 1, 0, "cuda:0")],
)
def test_every_process_has_a_device_of_its_own(name: str, devices: int, process: int, expected: str) -> None:
    assert device_of_process(name, devices, process) == torch.device(expected)


@pytest.mark.parametrize(
    ("name", "devices", "process", "message"),
    [
        ("tpu", 1, 0, "the device must be auto, cpu or cuda, got 'tpu'"),
        (
            "cuda:1",
            2,
            0,
            "the device must be auto, cpu or cuda, got 'cuda:1'; to choose one of several GPUs, set CUDA",
        ),
        ("cuda", 0, 0, "asked for cuda, but torch sees no CUDA device"),
        ("auto", 2, 2, "process 2 of this machine needs a CUDA device of its own, but torch sees 2 CUDA device(s)"),
    ],
)
def test_a_missing_device_is_an_error_of_one_line(name: str, devices: int, process: int, message: str) -> None:
    with pytest.raises(DeviceError) as caught:
        device_of_process(name, devices, process)
    assert message in str(caught.value)


def timeout_of_collectives() -> timedelta:
    with join_processes("cpu") as group:
        world: Any = torch.distributed.group.WORLD
        found: timedelta = world._get_backend(group.device).options._timeout
        group.barrier()  # the other process may still be connecting to this one
        return found


def test_a_collective_waits_for_a_process_for_hours() -> None:
    assert in_two_processes(timeout_of_collectives) == [timedelta(days=1)] * 2


def test_a_world_size_that_is_no_number_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(SettingsError, match="WORLD_SIZE in the environment must be a number, got 'two'"):
        join_processes("cpu").__enter__()


def test_accumulate_must_be_a_multiple_of_the_processes() -> None:
    with pytest.raises(SettingsError, match=r"training\.accumulate must be a multiple of the 2 processes, got 3"):
        check_accumulation(3, 2)


@pytest.mark.parametrize(
    ("precision", "device", "flags", "slow"),
    [
        ("bf16", "cpu", "avx2 avx512f fma", True),
        ("bf16", "cpu", "avx2 avx512_bf16 fma", False),
        ("bf16", "cpu", "amx_bf16", False),
        ("bf16", "cuda", "avx2", False),
        ("fp32", "cpu", "avx2", False),
        ("fp16", "cpu", "avx2", False),
    ],
)
def test_bf16_is_slow_on_a_cpu_without_instructions_for_it(precision, device, flags, slow):
    assert slow_precision(precision, torch.device(device), f"flags\t: {flags}\n") is slow


@pytest.mark.parametrize(("device", "fused"), [("cpu", False), ("cuda", True)])
def test_attention_runs_without_kernels_that_measured_slow(device: str, fused: bool) -> None:
    """PyTorch has these switches with and without a GPU."""
    switches: Any = torch.backends.cuda
    with fast_kernels(torch.device(device)):
        assert not switches.cudnn_sdp_enabled()
        assert switches.flash_sdp_enabled() is fused
        assert switches.math_sdp_enabled()
    assert switches.cudnn_sdp_enabled()


def test_few_plans_of_products_are_kept_unless_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {PLANS_OF_CPU[0]: "7"})
    with fast_kernels(torch.device("cuda")):
        assert list(os.environ) == [PLANS_OF_CPU[0]]
    with fast_kernels(torch.device("cpu")):
        assert os.environ == {PLANS_OF_CPU[0]: "7", PLANS_OF_CPU[1]: str(KEPT_PLANS)}
