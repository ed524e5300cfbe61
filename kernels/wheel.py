"""The hook of hatchling that puts the libraries of native operators into the wheel.

With a C++ compiler the wheel holds the libraries and has the tag of their platform. Without one it holds those that
are there, or is a wheel for all platforms, without these operators. For another processor, name a cross compiler, on
Debian that of g++-aarch64-linux-gnu: `CXX=aarch64-linux-gnu-g++ pip wheel --no-deps .`

An editable installation compiles nothing: it uses the libraries that `make kernels` leaves beside the sources.
"""

from __future__ import annotations

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

EVERYWHERE = {b"libc.so.6", b"libm.so.6", b"libdl.so.2", b"libgcc_s.so.1"}
"""Libraries that every system with glibc has, in versions that only glibc's own decides (PEP 600)."""


class KernelsHook(BuildHookInterface[Any]):
    """A hook that adds the libraries to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries and set the tag of the wheel; version: `standard` or `editable`."""
        if version == "editable" or sys.platform != "linux":
            return
        try:
            build_all()
        except NoCompilerError as error:
            if not LIBRARY.is_file():
                self.app.display_warning(f"the wheel is without native operators: {error}")
                return
        except BuildError as error:
            self.app.display_warning(f"the wheel is without native operators: {error}")
            return
        build_data["pure_python"] = False
        libraries = [library for library in (LIBRARY, CARD_LIBRARY) if library.is_file()]
        build_data["tag"] = f"py3-none-{platform_of(*libraries)}"
        for library in libraries:
            build_data["force_include"][str(library)] = library.relative_to(FOLDER.parent).as_posix()


def platform_of(*libraries: Path) -> str:
    """Return the platform of libraries, as in the tag of a wheel.

    It is manylinux_2_N with the newest version of glibc that one needs, or linux if one needs other libraries.
    The names are read from all strings of the file, of which the table of needed versions is a part: a version could at
    most be too new.
    """
    content = b"\0".join(library.read_bytes() for library in libraries)
    needed = set(re.findall(rb"\x00(lib[\w+-]+\.so\.\d+)(?=\x00)", content))
    versions = [int(minor) for minor in re.findall(rb"\x00GLIBC_2\.(\d+)(?:\.\d+)?(?=\x00)", content)]
    kind = f"manylinux_2_{max(versions)}" if versions and needed <= EVERYWHERE else "linux"
    return f"{kind}_{machine_of(libraries[0])}"
