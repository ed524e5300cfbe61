"""Why a library of native code cannot be loaded, in a clone and in a package."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from lingon.serving.runtime import libraries
from lingon.serving.runtime.libraries import unusable


def test_a_clone_is_told_to_build_a_library(tmp_path: Path):
    library = tmp_path / "lingon_some.so"
    assert unusable(library, "operators") == (
        "the library of operators is not built: `make kernels` builds it with a C++ compiler"
    )
    library.write_bytes(b"no library")
    assert unusable(library, "operators") == (
        "lingon_some.so cannot be loaded on this machine: `make kernels` builds one for it"
    )


def test_a_package_is_not_told_to_build_what_it_has_no_sources_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(libraries, "IN_CLONE", False)
    library = tmp_path / "lingon_some.so"
    assert unusable(library, "operators for cards") == (
        f"this package is without operators for cards for {platform.system()} on {platform.machine()}: those for Linux "
        "on x86-64 and 64-bit ARM have them"
    )
    library.write_bytes(b"no library")
    assert unusable(library, "operators for cards") == (
        "lingon_some.so cannot be loaded on this machine: install the package anew, for this machine"
    )
