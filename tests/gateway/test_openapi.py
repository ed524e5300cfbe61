"""The descriptions of the APIs and their servers say the same: requests drawn from them, replies compared with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.gateway import Gateway, gateway
from tests.support.openapi import strict

RIGHT, WRONG = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CONFORMANCE = [status_code_conformance, content_type_conformance, response_schema_conformance]
DESCRIPTIONS = ("/openapi.json", "/spec")
FORMS = "/spec"  # a form has text only, and fields that are not known are ignored: few of its requests are wrong
FILES = {"/translate_file", "/v1/translate:document"}  # no file that is drawn may be one
LIVE = "/v1/translate:live"  # no request that is drawn has the upgrade to a WebSocket
drawn = settings(max_examples=12, database=None, suppress_health_check=list(HealthCheck))


def plain(body: Any) -> Any:
    """Return a body of which the served model refuses nothing: its texts and switches, for its languages."""
    if not isinstance(body, dict):
        return body
    kept = {name: each for name, each in body.items() if name in ("texts", "pairs", "q", "format", "alternatives")}
    if "options" in body:
        kept["options"] = {name: each for name, each in body["options"].items() if isinstance(each, bool)}
        kept["options"].pop("shortlist", None)
        kept["targetLanguageCode"] = "de"
    return {**kept, "source": "en", "target": "de"} if "q" in body else kept


def statuses(url: str, operation: Any, mode: Any, checks: list[Any]) -> Counter[int]:
    """Send requests for an operation, compare the replies with its description, and count their statuses."""
    found: Counter[int] = Counter()

    @drawn
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        for body in [case.body] if mode is WRONG else [case.body, plain(case.body)]:
            case.body = body
            reply = case.call(base_url=url)
            assert reply.status_code < 500 or reply.status_code == 501, (case.as_curl_command(), reply.text)
            case.validate_response(reply, checks=checks)
            found[reply.status_code] += 1

    try:
        send()
    except Unsatisfiable:  # without a field, no request is wrong
        assert mode is WRONG
        assert operation.method == "get"
    return found


async def operations(http: Gateway, path: str) -> list[Any]:
    """Return the operations of a description."""
    schema = schemathesis.openapi.from_dict(strict((await http.get(path)).json))
    return [each.ok() for each in schema.get_all_operations()]


@pytest.mark.parametrize("path", DESCRIPTIONS)
async def test_requests_that_a_description_allows_are_answered_as_it_says(path: str, tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        found = {
            each.path: await asyncio.to_thread(statuses, http.url, each, RIGHT, CONFORMANCE)
            for each in await operations(http, path)
        }
    assert {name for name, counts in found.items() if not counts[200]} <= FILES | {LIVE}, found
    assert set(found.get(LIVE, ())) <= {426}


@pytest.mark.parametrize("path", DESCRIPTIONS)
async def test_requests_that_a_description_excludes_are_errors_of_the_caller(path: str, tmp_path: Path):
    checks = CONFORMANCE if path == FORMS else [*CONFORMANCE, negative_data_rejection]
    async with gateway(http_data_dir=tmp_path) as http:
        found = {
            each.path: await asyncio.to_thread(statuses, http.url, each, WRONG, checks)
            for each in await operations(http, path)
        }
    assert all(counts for name, counts in found.items() if name in ("/v1/translate", "/translate")), found
