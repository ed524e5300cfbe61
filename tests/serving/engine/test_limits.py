"""The limits of an engine."""

from __future__ import annotations

import pytest

from lingon.errors import SettingsError
from lingon.serving.engine.limits import EngineLimits


def test_an_invalid_limit_is_reported_with_name_bound_and_value() -> None:
    with pytest.raises(SettingsError, match="max_rows must be at least 1, got 0"):
        EngineLimits(max_rows=0)
