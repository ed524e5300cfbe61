"""The hook of hatchling that puts the libraries of native operators into the wheel.

With a C++ compiler the wheel holds the libraries and has the tag of their platform. Without one it holds those that
are there, or is a wheel for all platforms, without these operators. For another processor, name a cross compiler, on
Debian that of g++-aarch64-linux-gnu: `CXX=aarch64-linux-gnu-g++ pip wheel --no-deps .`

LINGON_NATIVE_OPERATORS=none makes the wheel for all platforms even so, which is the one for macOS and Windows.
LINGON_NATIVE_OPERATORS=required makes a missing compiler and an error of the compiler fail the build, for a release.

An editable installation compiles nothing: it uses the libraries that `make kernels` leaves beside the sources.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from kernels.build import (
    CARD_LIBRARY,
    FOLDER,
    LIBRARY,
    BuildError,
    NoCompilerError,
    build_all,
    machine_of,
)  # after the path of it

CHOICE = "LINGON_NATIVE_OPERATORS"
CHOICES = ("", "none", "required")
EVERYWHERE = {b"libc.so.6", b"libm.so.6", b"libdl.so.2", b"libpthread.so.0", b"libgcc_s.so.1"}
"""Libraries that every system with glibc has, in versions that only glibc's own decides (PEP 600)."""
OPENED = {b"libcuda.so.1"}
"""Libraries that the operators open themselves where they are there. Their names are in the file, and not needed."""


class KernelsHook(BuildHookInterface[Any]):
    """A hook that adds the libraries to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries and set the tag of the wheel; version: `standard` or `editable`."""
        choice = os.environ.get(CHOICE, "")
        if choice not in CHOICES:
            self.app.abort(f"{CHOICE} must be none or required, or not be set; got {choice!r}")
        if version == "editable" or sys.platform != "linux" or choice == "none":
            return
        if (missing := _library_missing(compile_always=choice == "required")) is not None:
            if choice == "required":
                self.app.abort(f"{CHOICE} is required, and there are no native operators: {missing}")
            self.app.display_warning(f"the wheel is without native operators: {missing}")
            return
        build_data["pure_python"] = False
        libraries = [library for library in (LIBRARY, CARD_LIBRARY) if library.is_file()]
        build_data["tag"] = f"py3-none-{platform_of(*libraries)}"
        for library in libraries:
            build_data["force_include"][str(library)] = library.relative_to(FOLDER.parent).as_posix()


def _library_missing(*, compile_always: bool) -> BuildError | None:
    """Compile the libraries; return why there is none for the wheel, or None.

    compile_always: whether a library that is there does not do without a compiler: it may be of other sources
    """
    try:
        build_all()
    except NoCompilerError as error:
        return None if LIBRARY.is_file() and not compile_always else error
    except BuildError as error:
        return error
    return None


def platform_of(*libraries: Path) -> str:
    """Return the platform of libraries, as in the tag of a wheel.

    It is manylinux_2_N with the newest version of glibc that one needs, or linux if one needs other libraries.
    The names are read from all strings of the file, of which the table of needed versions is a part: a version could at
    most be too new.
    """
    content = b"\0".join(library.read_bytes() for library in libraries)
    needed = set(re.findall(rb"\x00(lib[\w+-]+\.so\.\d+)(?=\x00)", content))
    versions = [int(minor) for minor in re.findall(rb"\x00GLIBC_2\.(\d+)(?:\.\d+)?(?=\x00)", content)]
    kind = f"manylinux_2_{max(versions)}" if versions and needed <= EVERYWHERE | OPENED else "linux"
    return f"{kind}_{machine_of(libraries[0])}"
