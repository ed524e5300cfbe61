"""Charges the requests of a call to the quota of its API key, and counts what the key uses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from lingon.errors import NotBegun, RequestError
from lingon.serving.auth.quota import Quota
from lingon.serving.observability.key_usage import KeyUsage
from lingon.serving.settings import MAX_TEXTS
from lingon.translation.v1 import translation_pb2 as pb

_CHARGED = (pb.TranslateRequest, pb.TranslateStreamRequest, pb.ScoreRequest)
_NOT_SERVED = (code_pb2.UNAVAILABLE, code_pb2.RESOURCE_EXHAUSTED)


@dataclass(frozen=True, slots=True)
class Account:
    """What the requests of a call are charged to; key: its name."""

    key: str
    quota: Quota
    usage: KeyUsage | None


account: ContextVar[Account | None] = ContextVar("account", default=None)
"""The account of the call that this task serves; None without API keys. It is set when the key was accepted."""


@contextmanager
def charged(request: Any) -> Iterator[None]:
    """Charge a request to the quota of the caller's key before it is served; refund it if it is not served.

    ListModels is free, because clients call it on their own.
    """
    charged_to = account.get()
    if charged_to is None or not isinstance(request, _CHARGED):
        yield
        return
    quota, served, characters = charged_to.quota, True, _characters(request)
    charges = quota.take(characters, time.monotonic_ns())
    try:
        yield
    except RequestError as error:
        served = error.code not in _NOT_SERVED and not isinstance(error, NotBegun)
        raise
    finally:
        quota.settle(charges, served=served)
        if served and charged_to.usage is not None:
            charged_to.usage.charged(charged_to.key, characters)


def _characters(request: Any) -> int:
    """Characters (code points) of all texts of a request.

    For a request with more than MAX_TEXTS texts, which no server accepts, it is the size in bytes: a message of 4 MB
    can hold two million texts, and counting them one by one would block the event loop.
    """
    scores = isinstance(request, pb.ScoreRequest)
    if len(request.pairs if scores else request.texts) > MAX_TEXTS:
        return int(request.ByteSize())
    if scores:
        return sum(len(pair.source) + len(pair.target) for pair in request.pairs)
    return sum(map(len, request.texts))
