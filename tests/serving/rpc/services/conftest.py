"""What the tests of the services share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lingon.serving.translation.detection import load_identifier


@pytest.fixture
def no_detect_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The extra `detect` is not installed."""
    monkeypatch.setattr("lingon.serving.translation.detection.identifier_is_installed", lambda: False)
    load_identifier.cache_clear()
    yield
    load_identifier.cache_clear()
