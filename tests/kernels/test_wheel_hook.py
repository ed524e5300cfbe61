"""The platform of a library, which the tag of its wheel names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.wheel import platform_of

X86_64, AARCH64 = 62, 183


def library(folder: Path, machine: int, *names: str) -> Path:
    """A file with the header of a library and with strings, as the table of needed versions has them."""
    path = folder / "library.so"
    strings = "".join(f"{name}\0" for name in names).encode()
    path.write_bytes(b"\x7fELF".ljust(18, b"\0") + bytes([machine, 0, 0]) + strings)
    return path


@pytest.mark.parametrize(
    ("machine", "names", "platform"),
    [
        (X86_64, ["libc.so.6", "GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.32", "GLIBC_2.14"], "manylinux_2_32_x86_64"),
        (AARCH64, ["libm.so.6", "libgcc_s.so.1", "GCC_3.0", "libc.so.6", "GLIBC_2.17"], "manylinux_2_17_aarch64"),
        (X86_64, ["libstdc++.so.6", "GLIBCXX_3.4.29", "libc.so.6", "GLIBC_2.14"], "linux_x86_64"),
        (X86_64, ["libc.so.6", "GLIBC_2.17", "libcuda.so.1"], "manylinux_2_17_x86_64"),
        (X86_64, ["libc.musl-x86_64.so.1"], "linux_x86_64"),
    ],
)
def test_the_platform_is_the_newest_glibc_that_is_needed_unless_other_libraries_are(
    tmp_path: Path, machine: int, names: list[str], platform: str
):
    assert platform_of(library(tmp_path, machine, *names)) == platform


def test_the_newest_glibc_of_several_libraries_counts(tmp_path: Path):
    names = {"first": "GLIBC_2.17", "second": "GLIBC_2.34"}
    for folder in names:
        (tmp_path / folder).mkdir()
    libraries = [library(tmp_path / folder, X86_64, "libc.so.6", needed) for folder, needed in names.items()]
    assert platform_of(*libraries) == "manylinux_2_34_x86_64"
