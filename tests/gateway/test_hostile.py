"""Requests that no client sends: whatever arrives, the reply is an error of the caller and never a fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gateway import Gateway, gateway

NAMES = (
    *("texts", "options", "text", "pairs", "q", "source", "target", "format", "alternatives", "api_key", "target_lang"),
    *("source_lang", "tag_handling", "split_sentences", "ignore_tags", "formality", "type", "contents", "mimeType"),
    *("sourceLanguageCode", "targetLanguageCode", "content", "key", "document_key", "filename", "model", "beamSize"),
)
POSTS = (
    *("/v1/translate", "/v1/translate:stream", "/v1/translate:source", "/v1/score", "/v1/detect", "/v2/translate"),
    "/v2/languages",
    *("/translate", "/detect", "/languages", "/suggest", "/v2/document", "/translate_file", "/v2/glossaries"),
    *("/language/translate/v2", "/language/translate/v2/detect", "/v3/projects/p:translateText"),
    *("/v3/projects/p:detectLanguage", "/v2/document/00000000000000000000000000000000"),
)
TYPES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "")
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(("en", "de"))
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=8,
)
bodies = st.one_of(
    st.dictionaries(st.sampled_from(NAMES), values, max_size=6).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=200),
    st.tuples(st.sampled_from(NAMES), st.text(max_size=20)).map(
        lambda pair: f'--x\r\nContent-Disposition: form-data; name="{pair[0]}"\r\n\r\n{pair[1]}\r\n--x--'.encode(
            "utf-8", "replace"
        )
    ),
)
requests = st.lists(st.tuples(st.sampled_from(POSTS), bodies, st.sampled_from(TYPES)), min_size=1, max_size=30)


async def check(http: Gateway, sent: list[tuple[str, bytes, str]]) -> None:
    for path, body, kind in sent:
        reply = await http.send("POST", path, body, kind)
        assert reply.status < 500 or reply.status == 501, (path, body, kind, reply)
        assert b"Traceback" not in reply.body
        if reply.headers["content-type"] == "application/json":
            json.loads(reply.body)


@pytest.mark.timeout(300)
async def test_no_body_is_a_fault_of_the_server(tmp_path: Any):
    drawn: list[list[tuple[str, bytes, str]]] = []

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), database=None)
    @given(requests)
    def draw(found: list[tuple[str, bytes, str]]) -> None:
        drawn.append(found)

    draw()
    async with gateway(http_data_dir=tmp_path) as http:
        for sent in drawn:
            await check(http, sent)
        assert (await http.post("/v1/translate", {"texts": ["Tom"]})).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2/document/" + "a" * 5000,
        "/download_file/..%2f..%2fetc%2fpasswd",
        "/v3/%00:translateText",
        "/v1/%ff",
        "//",
        "/?q=%ff",
    ],
)
async def test_no_path_is_a_fault_of_the_server(tmp_path: Any, path: str):
    async with gateway(http_data_dir=tmp_path) as http:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            assert (await http.send(method, path)).status < 500
