"""The library of operators in `kernels/`, which the graphs of int8-native and fp32-native name. It is optional."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

LIBRARY = Path(__file__).with_name("lingon_kernels.so")


@functools.cache
def library() -> ctypes.PyDLL | None:
    """Return the library; None if this machine cannot load it. Its calls are too short to release the GIL for them."""
    try:
        loaded = ctypes.PyDLL(str(LIBRARY))
        loaded.lingon_kernels_name.restype = ctypes.c_char_p
        loaded.lingon_kernels_use_helpers.argtypes = [ctypes.c_int]
        loaded.lingon_kernels_use_helpers.restype = None
    except (OSError, AttributeError):  # the latter if it was built from older sources
        return None
    return loaded


def instruction_set() -> str:
    """Return the name of the instruction set that the operators use; empty if there is no library for this machine.

    The variable LINGON_KERNELS chooses another one that the processor has: amx, avx512_vnni, avx_vnni, avx2, neon,
    portable.
    """
    if (loaded := library()) is None:
        return ""
    name: bytes = loaded.lingon_kernels_name()
    return name.decode()


def use_helpers(count: int) -> None:
    """Have the operators that this thread runs from now on use so many threads beside it; 0: none.

    The threads serve one thread of the process at a time, and compute nothing for the others meanwhile.
    """
    if (loaded := library()) is not None:
        loaded.lingon_kernels_use_helpers(count)


def kernels_missing() -> str | None:
    """Return why graphs with these operators cannot run and what to do, in one line; None if they can."""
    if instruction_set():
        return None
    if not LIBRARY.is_file():
        return "the library of native operators is not built: `make kernels` builds it with a C++ compiler"
    if chosen := os.environ.get("LINGON_KERNELS"):
        return f"LINGON_KERNELS is {chosen}, and this processor has no native operators of that name"
    return f"{LIBRARY.name} cannot be loaded on this machine: `make kernels` builds one for it"
