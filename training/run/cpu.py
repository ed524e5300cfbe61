"""What makes training on a CPU faster without changing what is computed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextlib.contextmanager
def fast_kernels(device: torch.device) -> Iterator[None]:
    """What measured faster on a CPU for the short sequences of a sentence; nothing changes elsewhere.

    Plain attention: at 10 to 30 tokens the backward pass of the fused kernel took a fifth of a step. Freed memory
    kept by the process: giving every large tensor back to the system and taking it anew cost another fifth.
    """
    if device.type != "cpu":
        yield
        return
    _keep_freed_memory()
    with sdpa_kernel(SDPBackend.MATH):
        yield


def _keep_freed_memory() -> None:
    """Call mallopt of glibc: never a separate mapping for a block, never trim; other C libraries are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_max = -1, -4
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)
