"""The language of a text, told by the profiles of the served models and by what the extra `detect` installs."""

from __future__ import annotations

import grpc
import pytest

from lingon import AsyncClient
from lingon.bundle import PROFILES
from lingon.serving.guard.languages import profile
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import RunningServer, running
from tests.support.gateway import gateway
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


SPANISH = "El gato negro duerme en la casa de mi abuela, que vive cerca del mar."


async def languages_of(server: RunningServer, *texts: str) -> list[list[str]]:
    reply = await server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=texts))
    return [[each.language_code for each in result.languages] for result in reply.results]


async def test_a_text_without_letters_has_no_language():
    async with running(bundles=(DECLARED,)) as server:
        assert list(map(len, await languages_of(server, "", "12 + 3", "tea"))) == [0, 0, 2]


@pytest.mark.usefixtures("no_detect_extra")
async def test_without_profiles_and_without_the_extra_no_text_has_a_language():
    async with running() as server:
        assert await languages_of(server, "tea") == [[]]
    async with running(bundles=(DECLARED,)) as server:
        assert sorted((await languages_of(server, SPANISH))[0]) == ["de", "en"]


async def test_the_languages_of_models_without_profiles_are_told():
    pair = {"source_language": "deu_Latn", "target_language": "nb-NO"}
    async with running(bundles=(pair,)) as server:
        first, second = await languages_of(server, "Das ist ein sehr schönes Haus.", "Jeg vet ikke hva klokken er.")
    assert first == ["deu_Latn", "nb-NO"]
    assert second == ["nb-NO", "deu_Latn"]


async def test_a_text_in_a_language_without_a_model_is_told_if_it_is_long_enough():
    async with running(bundles=(DECLARED,)) as server:
        long, short, english = await languages_of(server, SPANISH, "El gato", "The black cat sleeps in the old house.")
    assert long[0] == "es"
    assert not {"de", "en"} & set(long)
    assert sorted(short) == ["de", "en"]
    assert english == ["en", "de"]


async def test_a_text_in_a_language_without_a_model_is_not_translated_as_if_it_were_another_one():
    async with gateway(bundles=(DECLARED,)) as http:
        spanish, english = [
            await http.post("/translate", {"q": text, "source": "auto", "target": "de"})
            for text in (SPANISH, ENGLISH[0])
        ]
    assert (spanish.status, english.status) == (400, 200)
    assert "the language was detected to be 'es', and no model translates from it to 'de'" in spanish.body.decode()


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
