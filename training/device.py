"""The device of a process: the CPU, or one of the CUDA devices of its machine."""

from __future__ import annotations

import os

import torch

from lingon.errors import DeviceError, SettingsError


def choose_device(name: str) -> torch.device:
    """Return the device that auto, cpu or cuda means here; with several CUDA devices, the one of this process."""
    devices = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    device = device_of_process(name, devices, torchrun_number("LOCAL_RANK", 0))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def device_of_process(name: str, devices: int, process: int) -> torch.device:
    """Return the device of a process.

    devices: how many CUDA devices the machine has
    process: the number of the process on its machine, from 0
    """
    if name not in ("auto", "cpu", "cuda"):
        hint = "to choose one of several GPUs, set CUDA_VISIBLE_DEVICES"
        raise DeviceError(f"the device must be auto, cpu or cuda, got {name!r}; {hint}")
    if name == "cpu" or (name == "auto" and not devices):
        return torch.device("cpu")
    if process >= devices:
        found = f"{devices} CUDA device(s)" if devices else "no CUDA device"
        reason = f"process {process} of this machine needs a CUDA device of its own" if process else "asked for cuda"
        raise DeviceError(f"{reason}, but torch sees {found}")
    return torch.device("cuda", process)


def slow_precision(precision: str, device: torch.device, cpuinfo: str) -> bool:
    """Return whether a CPU computes matrix products of a precision without instructions for it.

    cpuinfo: the text of /proc/cpuinfo
    Such products of bf16 took 50 times as long as those of fp32 on a processor with AVX2.
    """
    return precision == "bf16" and device.type == "cpu" and not multiplies_bf16(cpuinfo)


def multiplies_bf16(cpuinfo: str) -> bool:
    """Return whether the processor has bf16 matrix products, according to the text of /proc/cpuinfo."""
    return bool({"avx512_bf16", "amx_bf16", "bf16"}.intersection(cpuinfo.split()))


def torchrun_number(variable: str, default: int) -> int:
    """Return the number that torchrun sets in an environment variable, or the default if it is not set."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal():
        raise SettingsError(f"{variable} in the environment must be a number, got {text!r}")
    return int(text)
