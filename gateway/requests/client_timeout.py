"""How long the client of a request waits for its reply, as its headers say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lingon.gateway.requests.problem import Problem

HEADERS = {"x-server-timeout": 1.0, "x-envoy-expected-rq-timeout-ms": 0.001}
"""The headers, and the seconds of their unit. Google's client libraries send the first one; Envoy sends the second one
with the time after which it answers 504 itself.
"""

NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
LEAST_SECONDS = 0.001


def client_timeout(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a client waits, None if it does not say so; raises Problem for what is no such time."""
    return min((_seconds(name, headers[name]) for name in HEADERS if name in headers), default=None)


def _seconds(name: str, value: str) -> float:
    seconds = float(value) * HEADERS[name] if NUMBER.fullmatch(value) else 0.0
    if seconds < LEAST_SECONDS:
        least = LEAST_SECONDS / HEADERS[name]
        raise Problem(400, f"{name} must be a number of at least {least:g} with at most 9 digits, got {value[:40]!r}")
    return seconds
