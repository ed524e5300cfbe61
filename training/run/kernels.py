"""Settings of the process that make training faster and change no result beyond rounding."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

KEPT_PLANS = 16
PLANS_OF_CPU = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Variables of the environment that bound what torch keeps for the shapes of products; read at the first product."""

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
    """Call mallopt of glibc so that it never maps blocks separately and never trims; skip other C libraries."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_max = -1, -4
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)
