"""A server with the page, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import serving
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """The addresses of the HTTP port and of the gRPC port."""
    with serving(ROOT / "models" / "en-de", "--http-port", 0) as server:
        yield server.ready.partition("HTTP APIs on ")[2].partition(" ")[0], server.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()
