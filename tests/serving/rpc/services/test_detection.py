"""The language of a text, told by the profiles of the served models."""

from __future__ import annotations

import grpc
import pytest

from lingon import AsyncClient
from lingon.bundle import PROFILES
from lingon.serving.guard.languages import profile
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import running
from tests.support.repository import ROOT

ENGLISH, GERMAN = (
    (ROOT / "tests" / "data" / f"tatoeba.{tag}").read_text(encoding="utf-8").splitlines() for tag in ("en", "de")
)
DECLARED = {"files": {PROFILES: profile(ENGLISH[:400]) + profile(GERMAN[:400])}}


async def test_the_language_of_sentences_is_told_with_an_honest_confidence():
    lines = [(line, tag) for tag, lines in (("en", ENGLISH), ("de", GERMAN)) for line in lines[400:] if len(line) >= 20]
    async with running(bundles=(DECLARED,)) as server, AsyncClient(f"127.0.0.1:{server.server.port}") as client:
        found = await client.detect_languages([line for line, _ in lines])
        (first, second) = await client.detect_languages("Ich hätte gern eine Tasse Tee.")
    assert (first.language, second.language) == ("de", "en")
    assert first.confidence > 0.99
    assert first.confidence + second.confidence == pytest.approx(1.0)
    right = [each[0].language == tag for each, (_, tag) in zip(found, lines, strict=True)]
    assert sum(right) >= 0.98 * len(right)
    sure = [each[0].confidence for each in found]
    assert abs(sum(sure) / len(sure) - sum(right) / len(right)) < 0.03


async def test_a_text_without_letters_and_a_server_without_profiles_have_no_language():
    async with running(bundles=(DECLARED,)) as server:
        reply = await server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=["", "12 + 3", "tea"]))
        assert [len(each.languages) for each in reply.results] == [0, 0, 2]
    async with running() as server:
        reply = await server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=["tea"]))
        assert [len(each.languages) for each in reply.results] == [0]


async def test_the_number_of_texts_is_bounded():
    async with running(bundles=(DECLARED,), max_texts=2) as server:
        for texts in ([], ["a"] * 3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=texts))
            assert caught.value.details() == f"texts must be 1 to 2, got {len(texts)}"
        async with AsyncClient(f"127.0.0.1:{server.server.port}") as client:
            assert len(await client.detect_languages(["Das ist gut."] * 5)) == 5


async def test_a_long_text_is_told_by_its_start():
    async with running(bundles=(DECLARED,)) as server, AsyncClient(f"127.0.0.1:{server.server.port}") as client:
        (first, _) = await client.detect_languages("Das Haus ist schön. " * 100 + "The house is nice. " * 50_000)
    assert first.language == "de"
