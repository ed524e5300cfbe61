"""The library of native operators, compiled where the server loads it, for tests marked `native`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.build import LIBRARY, build
from lingon.serving.runtime.kernels import library


@pytest.fixture(scope="session")
def native_library() -> Path:
    """The library as a server of this repository loads it."""
    build()
    library.cache_clear()  # it may have been asked for before the library was there
    return LIBRARY
