"""source="auto": the language of each text is detected, and each goes to its model; with both clients, and a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from lingon import AsyncClient, Client, ServerError, StreamStart, TextDelta, TextDone, TextResult
from lingon.cli.main import main
from lingon.client.options import TranslateOptions
from lingon.client.protocol import ClientProtocol
from lingon.client.steps import DETECT_LANGUAGES, LIST_MODELS, TRANSLATE, drive
from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import running
from tests.support.gateway import BUNDLES, KNOWS_LANGUAGES, TwoModels

TWO: dict[str, Any] = {"bundles": BUNDLES, "loader": TwoModels}
GERMAN, ENGLISH, FRENCH = "Der alte Mann. Das Meer.", "The sea.", "Je voudrais savoir quelle heure il est, et où."
CZECH = "Dnes je krásné počasí a všichni lidé jsou venku v parku na procházce."

REPLIES: dict[Any, Any] = {
    LIST_MODELS: pb.ListModelsResponse(models=[pb.Model(source_language_code="en", target_language_code="de")]),
    DETECT_LANGUAGES: pb.DetectLanguagesResponse(
        results=[pb.DetectedLanguages(languages=[pb.DetectedLanguage(language_code="en", confidence=1.0)])]
    ),
    TRANSLATE: pb.TranslateResponse(results=[pb.TextResult(hypotheses=[pb.Hypothesis(text="Das Meer.")])]),
}

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def ask(ask: Ask) -> Ask:
    """`ask` with source="auto"."""
    return lambda server, name, texts, **options: ask(server, name, texts, **{"source": "auto", **options})


def shown(results: Iterable[TextResult]) -> list[tuple[str, str, str]]:
    return [(each.source, each.model, each.text) for each in results]


@pytest.mark.parametrize("call", ["translate", "translate_iterable"])
async def test_each_text_goes_to_the_model_of_its_language_and_keeps_its_place(ask: Ask, call: str) -> None:
    async with running(**TWO) as server:
        results = await ask(server, call, [ENGLISH, GERMAN, ENGLISH, FRENCH, GERMAN], target="fr")
    english = ("en", "en-fr", "La mer.")
    german = ("de", "de-en+en-fr", "Le vieil homme. La mer.")
    assert shown(results) == [english, german, english, ("fr", "", FRENCH), german]
    assert results[3].score == 0


@pytest.mark.parametrize("call", ["translate", "translate_stream", "translate_iterable"])
async def test_texts_of_one_language_tell_it_together_if_asked(ask: Ask, call: str) -> None:
    async with running(**TWO) as server:
        for shared, word in ((None, "en"), (True, "de")):
            found = await ask(server, call, [GERMAN, "Name"], target="fr", same_language=shared, beam_size=2)
            results = [each.result if isinstance(each, TextDone) else each for each in found]
            assert sorted(each.source for each in results if isinstance(each, TextResult)) == sorted(["de", word])


@pytest.mark.parametrize("source", ["en", None])
async def test_texts_share_a_detected_language_only(ask: Ask, source: str | None) -> None:
    async with running(**TWO) as server:
        with pytest.raises(SettingsError, match=f'^same_language needs the source "auto", got {source!r}$'):
            await ask(server, "translate", ENGLISH, source=source, target="fr", same_language=True)


async def test_the_languages_of_texts_are_told_together_by_both_clients() -> None:
    async with running(**TWO) as server:
        address = f"127.0.0.1:{server.server.port}"

        def detected(**options: bool) -> list[str]:
            with Client(address) as client:
                return [each[0].language for each in client.detect_languages([GERMAN, "Name"], **options)]

        async with AsyncClient(address) as client:
            found = await client.detect_languages([GERMAN, "Name"], same_language=True)
        assert [each[0].language for each in found] == ["de", "de"]
        assert await asyncio.to_thread(detected, same_language=True) == ["de", "de"]
        assert await asyncio.to_thread(detected) == ["de", "en"]


async def test_one_text_has_one_result(ask: Ask) -> None:
    async with running(**TWO) as server:
        assert shown([await ask(server, "translate", ENGLISH, target="fr")]) == [("en", "en-fr", "La mer.")]
        assert await ask(server, "translate", [], target="fr") == []


async def test_each_text_has_its_own_prefix(ask: Ask) -> None:
    async with running(**TWO) as server:
        results = await ask(server, "translate", [ENGLISH, GERMAN], target="fr", target_prefix=["Tom", "She"])
    assert [each.text[:3] for each in results] == ["Tom", "She"]


async def test_a_stream_has_the_events_of_every_text_with_its_index(ask: Ask) -> None:
    texts = [FRENCH, ENGLISH, GERMAN, ENGLISH]
    async with running(**TWO) as server:
        events = await ask(server, "translate_stream", texts, target="fr", beam_size=1)
    done = {each.index: each.result for each in events if isinstance(each, TextDone)}
    assert [each.text for _, each in sorted(done.items())] == [FRENCH, "La mer.", "Le vieil homme. La mer.", "La mer."]
    assert [done[place].source for place in range(4)] == ["fr", "en", "de", "en"]
    for place, result in done.items():
        pieces = [each.text for each in events if isinstance(each, TextDelta) and each.index == place]
        assert "".join(pieces) == result.text
    assert [each.source_language for each in events if isinstance(each, StreamStart)] == ["en", "de"]


async def test_many_texts_of_several_languages_are_sent_in_requests_that_the_server_takes(ask: Ask) -> None:
    texts = [ENGLISH, GERMAN, FRENCH] * 5
    async with running(**TWO, max_texts=4) as server:
        for call in ("translate", "translate_stream"):
            found = await ask(server, call, texts, target="fr", beam_size=2)
            results = sorted((each.index, each.result.source) for each in found if isinstance(each, TextDone))
            sources = [each.source for each in found] if call == "translate" else [source for _, source in results]
            assert sources == ["en", "de", "fr"] * 5


@pytest.mark.parametrize("call", ["translate", "translate_stream", "translate_iterable"])
async def test_what_no_model_translates_is_the_error_of_the_http_apis(ask: Ask, call: str) -> None:
    async with running(**TWO) as server:
        with pytest.raises(ServerError, match=r"^no model translates into 'fi'$") as caught:
            await ask(server, call, [GERMAN, GERMAN], target="fi")
    assert (caught.value.status, caught.value.reason) == ("NOT_FOUND", "UNKNOWN_MODEL")
    assert caught.value.violations[0][0] == "target"


@pytest.mark.parametrize("call", ["translate", "translate_stream", "translate_iterable"])
@pytest.mark.parametrize("texts", [[CZECH, ENGLISH], [CZECH, CZECH]])
async def test_a_text_in_a_language_without_a_model_has_the_error_of_the_http_apis(
    ask: Ask, call: str, texts: list[str]
) -> None:
    async with running(**TWO) as server:
        found = await ask(server, call, texts, target="fr")
    results = [each for each in found if isinstance(each, TextResult)]
    done = {each.index: each.result for each in found if isinstance(each, TextDone)}
    results += [done[place] for place in sorted(done)]
    translated = [each.text for each in results if each.error is None]
    assert (len(results), translated) == (len(texts), ["La mer."] * texts.count(ENGLISH))
    for each in results:
        if each.error is not None:
            assert "detected to be 'cs', and no model translates from it to 'fr'" in str(each.error)
            assert each.error.reason == "UNKNOWN_MODEL"


async def test_the_error_of_one_text_is_raised(ask: Ask) -> None:
    async with running(**TWO) as server:
        with pytest.raises(ServerError, match="detected to be 'cs'"):
            await ask(server, "translate", CZECH, target="fr")


@pytest.mark.parametrize("call", ["translate", "translate_stream", "translate_iterable"])
async def test_a_target_is_needed(ask: Ask, call: str) -> None:
    async with running(**TWO) as server:
        with pytest.raises(SettingsError, match=r'^the source language "auto" needs a target language$'):
            await ask(server, call, [GERMAN])


async def test_a_target_may_be_written_in_three_letters_as_with_a_named_source(ask: Ask) -> None:
    async with running(**TWO) as server:
        named = await ask(server, "translate", [ENGLISH], source="en", target="fra")
        assert shown(await ask(server, "translate", [ENGLISH], target="fra")) == shown(named)


async def test_a_named_model_translates_from_its_own_languages_only(ask: Ask) -> None:
    async with running(**TWO) as server:
        results = await ask(server, "translate", [ENGLISH, "12:30"], target="fr", model="en-fr")
        with pytest.raises(ServerError, match="no model translates into 'fr'"):
            await ask(server, "translate", GERMAN, target="fr", model="de-en/1")
        with pytest.raises(ServerError, match="model 'nope' is not served"):
            await ask(server, "translate", GERMAN, target="fr", model="nope")
    assert [each.source for each in results] == ["en", "en"]


async def test_the_text_of_markup_is_detected_and_not_its_tags(ask: Ask) -> None:
    script = "the man and the sea is here;" * 1000
    page = f"<script>{script}</script><p>Ich weiß nicht, wie spät es ist.</p><p>Der Bahnhof!</p>"
    async with running(bundles=(KNOWS_LANGUAGES,)) as server:
        result = await ask(server, "translate", page, target="de", format="html")
    assert (result.source, result.text) == ("de", page)


async def test_a_result_has_the_language_that_its_text_was_translated_from(ask: Ask) -> None:
    async with running() as server:
        given = await ask(server, "translate", "Tom", source="en-GB")
        assumed = await ask(server, "translate", "Tom", source=None)
        events = await ask(server, "translate_stream", "Tom", source=None)
    assert (given.source, assumed.source, events[-1].result.source) == ("en", "en", "en")


async def test_lines_of_several_languages_are_translated_by_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    async with running(**TWO) as server:
        options = ["--server", f"127.0.0.1:{server.server.port}", "--source", "auto", "--json"]
        verb = ["translate", *options, ENGLISH, "", GERMAN, FRENCH]
        assert await asyncio.to_thread(main, [*verb, "--target", "fr"]) == 0
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert await asyncio.to_thread(main, verb) != 0
        assert 'the source language "auto" needs a target language' in capfd.readouterr().err
    assert [each["source_language"] for each in lines] == ["en", "", "de", "fr"]
    assert [each["text"] for each in lines] == ["La mer.", "", "Le vieil homme. La mer.", FRENCH]


async def test_lines_of_one_language_are_translated_from_it_by_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    async with running(**TWO) as server:
        options = ["--server", f"127.0.0.1:{server.server.port}", "--target", "fr", "--json", "--same-language"]
        verb = ["translate", *options, GERMAN, "Name"]
        assert await asyncio.to_thread(main, [*verb, "--source", "auto"]) == 0
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert await asyncio.to_thread(main, verb) != 0
        assert 'same_language needs the source "auto"' in capfd.readouterr().err
    assert [each["source_language"] for each in lines] == ["de", "de"]


def test_a_score_needs_the_name_of_a_language() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(SettingsError, match=r"^score has one model for all texts;"):
        client.score([("The sea.", "Das Meer.")], source="auto", target="de")


def test_a_document_in_another_variety_of_the_target_is_translated_as_its_texts_are() -> None:
    """A model between two varieties: only the target itself stays."""
    model = pb.Model(source_language_code="pt", target_language_code="pt-BR")
    languages = [pb.DetectedLanguage(language_code="pt", confidence=0.9)]
    replies = {
        **REPLIES,
        LIST_MODELS: pb.ListModelsResponse(models=[model]),
        DETECT_LANGUAGES: pb.DetectLanguagesResponse(results=[pb.DetectedLanguages(languages=languages)]),
    }
    options: TranslateOptions = {"source": "auto", "target": "pt-BR"}
    protocol = ClientProtocol()
    text = drive(protocol.translate("O autocarro.", options), lambda step: replies[step.method])
    document = drive(
        protocol.translate_document("a.txt", b"O autocarro.", "", options), lambda step: replies[step.method]
    )
    assert document.content.decode() == text.text == "Das Meer."


def test_the_list_of_models_is_kept_for_a_moment() -> None:
    """Otherwise every text of a chat would ask for it."""
    seconds, asked = [100.0], []
    protocol = ClientProtocol(clock=lambda: seconds[0])

    def answer(step: Any) -> Any:
        asked.append(step.method)
        return REPLIES[step.method]

    for seconds[0] in (100.0, 101.0, 102.5):
        result = drive(protocol.translate("The sea.", {"source": "auto", "target": "de"}), answer)
        assert (result.text, result.source) == ("Das Meer.", "en")
    assert asked == [LIST_MODELS, DETECT_LANGUAGES, TRANSLATE, *[DETECT_LANGUAGES, TRANSLATE], *asked[:3]]
