"""The language of a text, told by the profiles of the served models and by what the extra `detect` installs."""

from __future__ import annotations

import grpc
import pytest

from lingon import AsyncClient
from lingon.bundle.names import PROFILES
from lingon.identifiers import load_identifiers
from lingon.serving.event_loop import TimeSlice
from lingon.serving.guard import profile
from lingon.serving.translation.detection import Detector
from lingon.source_language import DECIDED
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import RunningServer, running
from tests.support.gateway import gateway
from tests.support.repository import ROOT

ENGLISH, GERMAN = (
    (ROOT / "tests" / "data" / f"tatoeba.{tag}").read_text(encoding="utf-8").splitlines() for tag in ("en", "de")
)
SERVED = "ar bg ca cs da de el en es et fa fi fr he hi hu id it ja ko lt nl no pl pt ro ru sv tr uk vi zh"
SHORT = [line.split("\t") for line in (ROOT / "tests/data/short_texts.tsv").read_text(encoding="utf-8").splitlines()]
"""Of each text its kind, its language, all languages that have it, and the text."""

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


@pytest.mark.usefixtures("no_detect_extra")
async def test_without_profiles_and_without_the_extra_a_script_of_one_language_tells_it():
    pair = {"name": "en-ru", "source_language": "en", "target_language": "ru"}
    async with running(bundles=(pair,)) as server:
        assert await languages_of(server, "tea", "чай", "12") == [["en"], ["ru"], []]
    async with running(bundles=(pair, DECLARED)) as server:
        latin, cyrillic = await languages_of(server, "Das ist gut.", "чай")
    assert (latin, cyrillic) == (["de", "en"], ["ru"])


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


MENU = ["Datei", "Ansicht", "Name", "Export", "Neu", "Hilfe", "Status"]


def detector() -> Detector:
    return Detector([], {tag: tag for tag in SERVED.split()})


async def replies(*texts: str, same_language: bool = False) -> list[pb.DetectedLanguages]:
    request = pb.DetectLanguagesRequest(texts=texts, same_language=same_language)
    return list((await detector().detect_all(request, TimeSlice())).results)


async def test_short_texts_are_right_or_undecided():
    """The bars are those of the whole set; what is measured is in bench/results, with the name short-texts."""
    found = await replies(*[text for *_, text in SHORT])
    for program in (False, True):
        pairs = [pair for pair in zip(SHORT, found, strict=True) if (pair[0][0] == "program") == program]
        right = [each.languages[0].language_code in answers.split() for (_, _, answers, _), each in pairs]
        undecided = [each.undecided for _, each in pairs]
        wrong = [not good and not open_ for good, open_ in zip(right, undecided, strict=True)]
        assert sum(right) >= 0.85 * len(pairs)
        assert sum(undecided) <= 0.45 * len(pairs)
        assert sum(wrong) <= 0.02 * len(pairs)


async def test_a_text_is_undecided_if_the_confidence_of_its_likeliest_language_is_small():
    texts = ("Cancel", "Ich habe mein Passwort vergessen.", "12")
    found = dict(zip(texts, await replies(*texts), strict=True))
    assert {text: each.undecided for text, each in found.items()} == dict(zip(texts, (True, False, True), strict=True))
    for each in found.values():
        assert each.undecided == (not each.languages or each.languages[0].confidence < DECIDED)


def test_a_text_in_latin_letters_is_in_no_language_of_another_script():
    served = Detector([], {tag: tag for tag in ("ar", "el", "en", "fr", "zh")})
    for text in ("Save", "proton beam", "Zurück"):
        assert {tag for tag, _ in served.detect(text, load_identifiers())} == {"en", "fr"}


async def test_texts_of_one_language_tell_it_together():
    alone, together = await replies(*MENU), await replies(*MENU, same_language=True)
    assert {each.languages[0].language_code for each in alone} != {"de"}
    assert {each.languages[0].language_code for each in together} == {"de"}
    assert sum(each.undecided for each in together) < sum(each.undecided for each in alone) / 2


async def test_a_text_that_is_clearly_in_another_language_keeps_it_beside_others():
    polish = "Nie można zapisać pliku na dysku"
    *menu, other, number = await replies(*MENU, polish, "12", same_language=True)
    assert (other.languages[0].language_code, other.undecided) == ("pl", False)
    assert {each.languages[0].language_code for each in [*menu, number]} == {"de"}
    (before,) = await replies(polish)
    assert other.languages[0].confidence < before.languages[0].confidence


async def test_one_text_tells_the_same_with_and_without_others_of_its_language():
    (alone,), (together,) = await replies("Cancel"), await replies("Cancel", same_language=True)
    for one, other in zip(alone.languages, together.languages, strict=True):
        assert one.language_code == other.language_code
        assert one.confidence == pytest.approx(other.confidence, abs=1e-6)
    (nothing,) = await replies("12", same_language=True)
    assert (list(nothing.languages), nothing.undecided) == ([], True)


async def test_an_identifier_that_does_not_know_a_language_leaves_it_to_the_other_one():
    """Only py3langid knows Zulu, and only fastText Cebuano."""
    identifiers = load_identifiers()
    assert identifiers is not None
    served = Detector([], {"zul_Latn": "zu", "ceb": "ceb", "en": "en", "qqq": "qqq"})
    for text, tag in (("Ngiyabonga kakhulu mngane wami", "zul_Latn"), ("Maayong buntag sa tanan nga tawo", "ceb")):
        found = served.detect(text, identifiers)
        assert found[0][0] == tag
        assert "qqq" not in dict(found)
