"""Which provider and precision serve: what was asked for, or a clear refusal; never a silent move to the CPU."""

from __future__ import annotations

import ctypes
import importlib.util
from typing import NamedTuple

from lingon.bundle import Bundle
from lingon.errors import DeviceError

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
PREFERRED_PRECISIONS = {CPU: ("int8", "fp32"), CUDA: ("fp16",)}


class DeviceChoice(NamedTuple):
    """What a model is served on."""

    provider: str
    precision: str


def choose_device(bundle: Bundle, device: str = "auto", precision: str | None = None) -> DeviceChoice:
    """The provider and precision for a device: auto, cpu or cuda.

    auto takes CUDA where its provider, a card and a precision for it are there, else the CPU. Raises DeviceError with
    what is missing and what to do.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"device must be auto, cpu or cuda, got {device!r}")
    missing = _cuda_missing_for(bundle)
    if device == "cuda" and missing:
        raise DeviceError(f"device cuda: {missing}")
    provider = CUDA if device == "cuda" or (device == "auto" and not missing and precision in (None, "fp16")) else CPU
    fitting = [name for name, entry in bundle.manifest.precisions.items() if entry.provider == provider]
    if precision is None:
        ranked = [name for name in PREFERRED_PRECISIONS[provider] if name in fitting] or fitting
        if not ranked:
            raise DeviceError(f"{bundle.label} has no precision for {provider}; it has {_list(bundle)}")
        return DeviceChoice(provider, ranked[0])
    if precision not in fitting:
        raise DeviceError(f"{bundle.label} has no {precision} for {provider}; it has {_list(bundle)}")
    return DeviceChoice(provider, precision)


def onnxruntime_version() -> str:
    """The version of the onnxruntime that is installed."""
    import onnxruntime

    return str(onnxruntime.__version__)


def available_providers() -> list[str]:
    """The providers of the onnxruntime that is installed; none without one."""
    if importlib.util.find_spec("onnxruntime") is None:
        return []
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def cuda_missing() -> str | None:
    """What CUDA lacks here and what to do, in one line; None where it is usable."""
    if not available_providers():
        return "onnxruntime is not installed; pip install 'lingon[gpu]'"
    if CUDA not in available_providers():
        return "this onnxruntime is the CPU build; install 'lingon[gpu]' in place of 'lingon[serve]'"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1 is not found)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver finds no card"
    return None


def _cuda_missing_for(bundle: Bundle) -> str | None:
    if missing := cuda_missing():
        return missing
    if not any(entry.provider == CUDA for entry in bundle.manifest.precisions.values()):
        return f"{bundle.label} has no precision for it; export one with --precision fp32,fp16"
    return None


def _list(bundle: Bundle) -> str:
    return ", ".join(f"{name} ({entry.provider})" for name, entry in bundle.manifest.precisions.items())
