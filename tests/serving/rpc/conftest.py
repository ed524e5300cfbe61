"""What the tests of the services share: a server without the extra `detect`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lingon.identifiers import load_identifiers


@pytest.fixture
def no_detect_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The extra `detect` is not installed."""
    monkeypatch.setattr("lingon.identifiers.identifier_is_installed", lambda: False)
    load_identifiers.cache_clear()
    yield
    load_identifiers.cache_clear()
