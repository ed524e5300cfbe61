"""A GET request as a probe or a scraper sends it."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of the HTTP endpoint."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
