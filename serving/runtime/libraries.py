"""Why a library of native code of this package cannot be loaded, and what to do about it."""

from __future__ import annotations

import platform
from pathlib import Path

IN_CLONE = Path(__file__).resolve().parents[2].joinpath("kernels", "build.py").is_file()
"""Whether the sources of the libraries are there, and not a package that was built from them."""


def unusable(library: Path, content: str) -> str:
    """Return the reason in one line; content: what the library has, such as "native operators"."""
    if library.is_file():
        remedy = "`make kernels` builds one for it" if IN_CLONE else "install the package anew, for this machine"
        return f"{library.name} cannot be loaded on this machine: {remedy}"
    if IN_CLONE:
        return f"the library of {content} is not built: `make kernels` builds it with a C++ compiler"
    return (
        f"this package is without {content} for {platform.system()} on {platform.machine()}: those for Linux on x86-64 "
        "and 64-bit ARM have them"
    )
