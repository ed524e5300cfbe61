"""The processes of a run: their devices, their kernels, and how they join."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lingon.errors import DeviceError, SettingsError

# The processes of a run: one, or as many as torchrun started.

COLLECTIVE_TIMEOUT = timedelta(days=1)
"""How long a process waits in a collective: the leader may train the tokenizer or translate a validation set meanwhile.

torchrun does not need this timeout to end the other processes after one has died.
"""


@dataclass(frozen=True, slots=True)
class Processes:
    """One process of the run. Its collectives run on the CPU, so that they never wait for a device.

    rank: the number of this process among all processes of the run
    world_size: how many processes the run has
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the files and the messages."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every process has called this."""
        self.any(False)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        flags = torch.tensor(int(flag))
        if self.world_size > 1:
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def sum(self, values: Tensor) -> Tensor:
        """Sum values, a tensor on the CPU, over all processes. The shape stays."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, value: float) -> float:
        """Return the value that the leader passed."""
        values = torch.tensor(value, dtype=torch.float64)
        if self.world_size > 1:
            dist.broadcast(values, src=0)
        return float(values)


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the run: torchrun sets rank and world size in the environment. Without it the run has one process.

    device: auto, cpu or cuda. Gradients are exchanged by NCCL on CUDA and by gloo on the CPU
    """
    world_size, rank = torchrun_number("WORLD_SIZE", 1), torchrun_number("RANK", 0)
    chosen = choose_device(device)
    if world_size > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        yield Processes(rank, world_size, chosen)
    finally:
        if world_size > 1:
            dist.destroy_process_group()


# The device of a process: the CPU, or one of the CUDA devices of its machine.


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


# Settings of the process that make training faster and change no result beyond rounding.

KEPT_PLANS = 16
PLANS_OF_CPU = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Variables of the environment that bound what torch keeps for the shapes of products. Read at the first product."""

ON_CPU = [SDPBackend.MATH]
ON_CUDA = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@contextlib.contextmanager
def fast_kernels(device: torch.device) -> Iterator[None]:
    """Use what measured faster for sequences as short as a sentence.

    On a CPU, attention runs without the fused kernel: at 10 to 30 tokens its backward pass took a fifth of a step. The
    process keeps freed memory: returning every large tensor to the system and allocating it again cost another fifth.
    It keeps few plans of products: one of bf16 has memory of its own, and batches have many shapes. With 16 plans
    50 updates took 3.8 GB and 145 s, with the 1,024 that oneDNN keeps by default 7.0 GB and 156 s, 450 updates 12 GB.

    On CUDA, attention runs without cuDNN, which makes a plan for every shape of a batch: on an H200 that took 15 ms of
    the host for each attention, 0.33 s of an update whose kernels take 11 ms.
    """
    cpu = device.type == "cpu"
    if cpu:
        _keep_freed_memory()
        for name in PLANS_OF_CPU:
            os.environ.setdefault(name, str(KEPT_PLANS))
    with sdpa_kernel(ON_CPU if cpu else ON_CUDA):
        yield


def _keep_freed_memory() -> None:
    """Call mallopt of glibc so that it never maps blocks separately and never trims. Skip other C libraries."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_max = -1, -4
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)
