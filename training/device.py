"""The device of a process: the CPU, or one of the CUDA devices of its machine."""

from __future__ import annotations

import os

import torch

from lingon.errors import DeviceError, SettingsError


def choose_device(name: str) -> torch.device:
    """The device that auto, cpu or cuda means here; of several CUDA devices, the one of this process."""
    devices = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    device = device_of_process(name, devices, torchrun_number("LOCAL_RANK", 0))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def device_of_process(name: str, devices: int, process: int) -> torch.device:
    """The device of a process.

    devices: how many CUDA devices there are
    process: its number among those of this machine
    """
    if name not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"the device must be auto, cpu or cuda, got {name!r}; CUDA_VISIBLE_DEVICES says which cuda")
    if name == "cpu" or (name == "auto" and not devices):
        return torch.device("cpu")
    if process >= devices:
        found = f"{devices} CUDA device(s)" if devices else "no CUDA device"
        asked = f"process {process} of this machine needs one of its own" if process else "asked for cuda"
        raise DeviceError(f"{asked}, but torch sees {found}")
    return torch.device("cuda", process)


def torchrun_number(variable: str, default: int) -> int:
    """What torchrun says in an environment variable."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal():
        raise SettingsError(f"{variable} in the environment must be a number, got {text!r}")
    return int(text)
