"""Settings of the process that make training on a CPU faster and change no result."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextlib.contextmanager
def fast_kernels(device: torch.device) -> Iterator[None]:
    """Use what measured faster on a CPU for sequences as short as a sentence; do nothing on other devices.

    Attention runs without the fused kernel: at 10 to 30 tokens its backward pass took a fifth of a step. The process
    keeps freed memory: returning every large tensor to the system and allocating it again cost another fifth.
    """
    if device.type != "cpu":
        yield
        return
    _keep_freed_memory()
    with sdpa_kernel(SDPBackend.MATH):
        yield


def _keep_freed_memory() -> None:
    """Call mallopt of glibc so that it never maps blocks separately and never trims; skip other C libraries."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_max = -1, -4
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)
