"""What the tests of the services share: a server, and one without the extra `detect`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from lingon.identifiers import load_identifiers
from tests.support.echo_engine import RunningServer, running


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with running() as started:
        yield started


@pytest.fixture
def no_detect_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The extra `detect` is not installed."""
    monkeypatch.setattr("lingon.identifiers.identifier_is_installed", lambda: False)
    load_identifiers.cache_clear()
    yield
    load_identifiers.cache_clear()
