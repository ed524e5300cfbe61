"""The bounds of the options for loading a bundle."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lingon.errors import SettingsError
from lingon.serving.models.loading import LoadOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engines": 100_000}, "engines times threads must be at most 1,024, got 100,000"),
        ({"engines": 4, "threads": 257}, "engines times threads must be at most 1,024, got 1,028"),
    ],
)
def test_more_threads_than_any_machine_runs_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}$"):
        LoadOptions(**options)
    assert LoadOptions(engines=4, threads=256).engines == 4
