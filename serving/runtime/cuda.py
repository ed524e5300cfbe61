"""Whether CUDA can be used here, and why not. Needs nothing but the standard library."""

from __future__ import annotations

import ctypes
import importlib.util

PROVIDER = "CUDAExecutionProvider"


def providers() -> list[str]:
    """The providers of the onnxruntime that is installed; none without one."""
    if importlib.util.find_spec("onnxruntime") is None:
        return []
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def why_not() -> str | None:
    """What CUDA lacks here and what to do, in one line; None where it is usable."""
    if not providers():
        return "onnxruntime is not installed; pip install 'lingon[gpu]'"
    if PROVIDER not in providers():
        return "this onnxruntime is the CPU build; install 'lingon[gpu]' in place of 'lingon[serve]'"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1 is not found)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver finds no card"
    return None
