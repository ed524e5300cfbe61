"""The limits of an engine."""

from __future__ import annotations

import re

import pytest

from lingon.errors import SettingsError
from lingon.serving.engine.limits import EngineLimits
from tests.support.repository import ROOT

PROTO = "protos/lingon/translation/v1/translation.proto"


def test_an_invalid_limit_is_reported_with_name_bound_and_value() -> None:
    with pytest.raises(SettingsError, match="max_rows must be at least 1, got 0"):
        EngineLimits(max_rows=0)


def test_the_api_names_the_default_bound_of_tokens_and_a_request_that_exceeds_it() -> None:
    most, proto = EngineLimits().max_queue_tokens, (ROOT / PROTO).read_text(encoding="utf-8")
    pairs, tokens = map(int, re.findall(r"(\d+) pairs with (\d+) tokens on each side exceed it", proto)[0])
    assert proto.count(f"to {most:,}") == 2
    assert pairs * tokens * 2 > most
