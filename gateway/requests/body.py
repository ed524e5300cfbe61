"""Reads the body of a request within its bounds of bytes and time, and JSON within its bound of values."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request

from lingon.gateway.requests.body_budget import HeldBody
from lingon.gateway.requests.problem import Problem

SMALL_BYTES = 65_536  # bytes; up to here a body whose caller is not known yet counts as one of its address
BODY_SECONDS = 30.0  # for a body to arrive whole
MAX_VALUES = 250_000  # texts, numbers, objects and lists of JSON
VALUE_BYTES = 64  # of memory for each, which may be two bytes of the body
JSON_TYPES = ("application/json", "text/json")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8, with which some programs begin a file
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # without a closing quote, up to the end


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The bounds of bodies in bytes: of any, of one with a file, and of those of all open requests together."""

    plain: int = 4 << 20
    with_file: int = 16 << 20
    together: int = 64 << 20


async def read_body(request: Request, most: int, held: HeldBody, large: Callable[[], None] | None) -> bytes:
    """Return the body; raises Problem 413 if it has more bytes, 408 if it does not arrive, 415 if it is compressed.

    held: what counts its bytes; large: called when it has more than SMALL_BYTES
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "a compressed body is not accepted; send it without Content-Encoding")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                held.add(len(part))
                parts.append(part)
                if size > SMALL_BYTES and large is not None:
                    large()
                    large = None
    except TimeoutError:
        raise Problem(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise Problem(499, "the client disconnected") from None
    return b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body may have {most:,} bytes at most")


def media_type(request: Request) -> str:
    """Return the type of the body without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object of a JSON body; an empty one of an empty body."""
    if not body.strip():
        return {}
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Problem(400, "the body must be a JSON object")
    return found


def has_json(request: Request, body: bytes) -> bool:
    """Whether the fields of a body are read as JSON."""
    kind = media_type(request)
    return kind in JSON_TYPES or kind.endswith("+json") or (not kind and without_mark(body).lstrip()[:1] == b"{")


def without_mark(body: bytes) -> bytes:
    """Return the body of JSON without a byte order mark, which RFC 8259 lets a reader pass over."""
    return body.removeprefix(BYTE_ORDER_MARK)


def count_values(body: bytes, held: HeldBody) -> None:
    """Count the memory that the values of a JSON body will take, before they are read.

    Text in strings counts as values, unless there would then be too many. Raises Problem 413 above MAX_VALUES, 503.
    """
    values = _marks(body)
    if values > MAX_VALUES and (values := _marks(_STRING.sub(b"", body))) > MAX_VALUES:
        raise Problem(413, f"the body may have {MAX_VALUES:,} values at most, got {values:,}")
    held.add(values * VALUE_BYTES)


def _marks(content: bytes) -> int:
    return 1 + sum(content.count(mark) for mark in (b",", b"[", b"{"))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")
