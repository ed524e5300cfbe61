"""The device of a model: the execution provider of ONNX Runtime, the precision, and the library of native operators.

An explicit request never falls back to the CPU. It fails with a reason. The library of operators in `kernels/`, which
the graphs of int8-native and fp32-native name, is optional.

This module imports onnxruntime only when a function needs it, so that `lingon doctor` can report that it is missing.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

from lingon.bundle.store import Bundle
from lingon.errors import DeviceError
from lingon.extras import install_command
from lingon.serving.runtime.card import card_missing
from lingon.serving.runtime.libraries import unusable

LIBRARY = Path(__file__).with_name("lingon_kernels.so")


@functools.cache
def library() -> ctypes.PyDLL | None:
    """Return the library, or None if this machine cannot load it. Its calls are too short to release the GIL."""
    try:
        loaded = ctypes.PyDLL(str(LIBRARY))
        loaded.lingon_kernels_name.restype = ctypes.c_char_p
        loaded.lingon_kernels_use_helpers.argtypes = [ctypes.c_int]
        loaded.lingon_kernels_use_helpers.restype = None
        loaded.lingon_kernels_add_mapped.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        loaded.lingon_kernels_add_mapped.restype = None
    except (OSError, AttributeError):  # AttributeError: it was built from older sources
        return None
    return loaded


def instruction_set() -> str:
    """Return the instruction set of the operators, or "" if there is no library for this machine.

    The variable LINGON_KERNELS selects another one of the processor: amx, avx512_vnni, avx_vnni, avx2, i8mm, neon,
    portable.
    """
    if (loaded := library()) is None:
        return ""
    name: bytes = loaded.lingon_kernels_name()
    return name.decode()


def helper_switch() -> Callable[[int], None]:
    """Return a function that sets the number of helper threads for operators that the calling thread runs; 0: none.

    Helpers serve one thread of the process at a time, and compute nothing for the others meanwhile.
    """
    if (loaded := library()) is None:
        return lambda count: None
    switch: Callable[[int], None] = loaded.lingon_kernels_use_helpers
    return switch


@contextmanager
def pages_given_back(files: Iterable[mmap]) -> Iterator[None]:
    """Let operators that are made by this thread in the block give back the memory of mapped files that they have read.

    Large weights would else be in memory twice, mapped and in the order of the operators.
    """
    import numpy as np  # not at the top: `lingon doctor` of a base install asks this module what is missing

    if (loaded := library()) is None:
        yield
        return
    for each in files:
        loaded.lingon_kernels_add_mapped(np.frombuffer(each, np.uint8).ctypes.data, len(each))
    try:
        yield
    finally:
        loaded.lingon_kernels_add_mapped(None, 0)


def kernels_missing() -> str | None:
    """Return why graphs with these operators cannot run and what to do, in one line, or None if they can."""
    if instruction_set():
        return None
    if LIBRARY.is_file() and (chosen := os.environ.get("LINGON_KERNELS")):
        return f"LINGON_KERNELS is {chosen}, and this processor has no native operators of that name"
    return unusable(LIBRARY, "native operators")


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
FP32_ON_CUDA = "fp32-cuda"
"""The precision of the float32 graphs for CUDA, which "fp32" means on that device."""

NATIVE, FP32_NATIVE = "int8-native", "fp32-native"
"""The precisions of the graphs in our own operators, for the CPU; see lingon.serving.runtime.device."""

FP16_NATIVE = "fp16-native"
"""The precision of the graphs in our own operators for CUDA; see lingon.serving.runtime.card."""

NATIVES = (NATIVE, FP32_NATIVE)
OWN_OPERATORS = (*NATIVES, FP16_NATIVE)
"""The precisions whose graphs have operators of ours."""

PREFERRED_PRECISIONS = {CPU: (NATIVE, "int8", FP32_NATIVE, "fp32"), CUDA: (FP16_NATIVE, "fp16", FP32_ON_CUDA)}
"""By provider, the precisions in order of preference."""

DRIVER_CARDS = Path("/proc/driver/nvidia/gpus")
"""A folder with one entry for each card that the NVIDIA driver has found."""


class DeviceChoice(NamedTuple):
    """The provider and the precision of a model."""

    provider: str
    precision: str


def choose_device(
    bundle: Bundle, device: str = "auto", precision: str | None = None, *, native: bool = True
) -> DeviceChoice:
    """Return the provider and the precision for a bundle.

    device: auto, cpu or cuda; auto is CUDA if its provider, a card and a precision of the bundle for it are available,
        otherwise the CPU
    precision: default: the preferred one of the bundle for the provider; with device cuda, fp32 means fp32-cuda
    native: whether the default may be graphs in native operators

    Raises DeviceError, which names what is missing and what to do.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"device must be auto, cpu or cuda, got {device!r}")
    missing = _cuda_missing_for(bundle)
    if device == "cuda" and missing:
        raise DeviceError(f"device cuda: {missing}")
    for_cuda = _precisions_for(bundle, CUDA)
    chosen = precision is None or precision in for_cuda
    provider = CUDA if device == "cuda" or (device == "auto" and not missing and chosen) else CPU
    available = _precisions_for(bundle, provider)
    if provider == CUDA and precision == "fp32" and precision not in available:
        precision = FP32_ON_CUDA
    if precision in available and (missing_operators := operators_missing(precision)):
        raise DeviceError(f"precision {precision}: {missing_operators}")
    available = [name for name in available if operators_missing(name) is None]
    if not native and precision is None:
        available = [name for name in available if name not in OWN_OPERATORS]
    if precision is None:
        ranked = [name for name in PREFERRED_PRECISIONS[provider] if name in available] or available
        if not ranked:
            raise DeviceError(f"{bundle.label} has no precision for {provider}; it has {_precisions(bundle)}")
        return DeviceChoice(provider, ranked[0])
    if precision not in available:
        raise DeviceError(f"{bundle.label} has no {precision} for {provider}; it has {_precisions(bundle)}")
    return DeviceChoice(provider, precision)


def onnxruntime_version() -> str:
    """Return the version of the installed onnxruntime."""
    import onnxruntime

    return str(onnxruntime.__version__)


def available_providers() -> list[str]:
    """Return the providers of the installed onnxruntime, or none without it."""
    if importlib.util.find_spec("onnxruntime") is None:
        return []
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def cuda_missing() -> str | None:
    """Return what CUDA lacks on this machine and what to do, in one line, or None if CUDA is usable."""
    if not available_providers():
        return f"onnxruntime is not installed: {install_command('gpu')}"
    if CUDA not in available_providers():
        return (
            "this onnxruntime is the CPU build, of the extra 'serve'; the extra 'gpu' needs an environment of its own: "
            f"{install_command('gpu')}"
        )
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1 is not found)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver finds no card"
    return None


def card_bytes() -> int | None:
    """Return the memory of the first card, in bytes, or None if there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    card, size = ctypes.c_int(0), ctypes.c_size_t(0)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(card), 0):
        return None
    return size.value if driver.cuDeviceTotalMem_v2(ctypes.byref(size), card) == 0 else None


def has_card(devices: Path = Path("/dev"), driver_cards: Path = DRIVER_CARDS) -> bool:
    """Return whether an NVIDIA card is visible to this process, even if CUDA cannot use it.

    In a container a card is visible only if it was passed to it. `devices` has nvidia0, nvidia1, ..., or dxg on
    Windows.
    """
    names = [path.name for path in devices.iterdir()] if devices.is_dir() else []
    return any(re.fullmatch(r"nvidia\d+|dxg", name) for name in names) or (
        driver_cards.is_dir() and any(driver_cards.iterdir())
    )


def expects_cuda() -> bool:
    """Return whether this machine is meant for CUDA: it has a card, or the GPU build of onnxruntime."""
    return CUDA in available_providers() or has_card()


def operators_missing(precision: str) -> str | None:
    """Return why graphs of a precision cannot run on this machine for lack of our operators, or None if they can."""
    if precision in NATIVES:
        return kernels_missing()
    if precision == FP16_NATIVE:  # the search over candidates is an operator for the CPU
        return card_missing() or kernels_missing()
    return None


def instruction_set_of(precision: str) -> str:
    """Return the instruction set of a precision's own operators, or "" for graphs in ONNX Runtime's operators."""
    return instruction_set() if precision in NATIVES else ""


def native_left_out(bundle: Bundle, choice: DeviceChoice) -> str | None:
    """Return why graphs in native operators are not used although the bundle has some, or None if they are."""
    preferred = preferred_native(bundle, choice.provider)
    return operators_missing(preferred) if preferred and choice.precision not in OWN_OPERATORS else None


def preferred_native(bundle: Bundle, provider: str = CPU) -> str:
    """Return the precision in native operators that is preferred for a bundle on a provider, or "" if it has none."""
    available = _precisions_for(bundle, provider)
    return next((name for name in OWN_OPERATORS if name in available), "")


def has_fallen_back(bundle: Bundle, provider: str, device: str, precision: str | None, *, expects_cuda: bool) -> bool:
    """Return whether a model runs on the CPU although a GPU was expected.

    provider: the model's provider; device, precision: see `choose_device`; the CPU, or a precision for it, is a choice
        and no fallback
    expects_cuda: see `expects_cuda`
    """
    for_cuda = _precisions_for(bundle, CUDA)
    chosen = device == "auto" and (precision is None or precision in for_cuda)
    return provider == CPU and expects_cuda and chosen and bool(for_cuda)


def _cuda_missing_for(bundle: Bundle) -> str | None:
    """Return what CUDA lacks for this bundle, or None if the bundle can be served on CUDA."""
    if missing := cuda_missing():
        return missing
    if not _precisions_for(bundle, CUDA):
        return f"{bundle.label} has no precision for CUDA; export one with --precision fp32,fp16"
    return None


def _precisions_for(bundle: Bundle, provider: str) -> list[str]:
    return [name for name, entry in bundle.manifest.precisions.items() if entry.provider == provider]


def _precisions(bundle: Bundle) -> str:
    return ", ".join(f"{name} ({entry.provider})" for name, entry in bundle.manifest.precisions.items())
