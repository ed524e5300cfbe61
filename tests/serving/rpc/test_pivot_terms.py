"""Terms of requests that are translated through a pivot language."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lingon.serving.translation.pivot_terms import Bridges, bridged, occurring
from lingon.serving.translation.terms import RequestTerms
from lingon.terms.matcher import Matcher
from lingon.terms.term import Term
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import stores_pb2_grpc
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import RunningServer, details, failure, running
from tests.support.gateway import BUNDLES, TwoModels

GERMAN = {"source_language_code": "de", "target_language_code": "fr"}
MISSED, REPAIRED, KEPT = pb.TERM_MEANS_MISSED, pb.TERM_MEANS_REPAIRED, pb.TERM_MEANS_KEPT
BAHNHOF = pb.Term(source="Bahnhof", target="vieil")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running(bundles=BUNDLES, loader=TwoModels, data_dir=tmp_path / "data") as started:
        yield started


def spans(text: str, result: pb.TextResult) -> list[tuple[str, str]]:
    """The text of each term in the source and in the translation."""
    target = result.hypotheses[0].text
    return [
        (text[each.source_span.begin : each.source_span.end], target[each.target_span.begin : each.target_span.end])
        for each in result.terms
    ]


async def test_a_term_is_held_by_its_own_translation_into_the_pivot_language(server: RunningServer):
    text = "Der alte Mann. Wo ist der Bahnhof?"
    (result,) = (await server.translate(text, terms=[BAHNHOF], **GERMAN)).results
    assert result.hypotheses[0].text.startswith("Le vieil homme. ")
    assert spans(text, result) == [("Bahnhof", "vieil")]
    assert [(each.source, each.target, each.means) for each in result.terms] == [("Bahnhof", "vieil", REPAIRED)]
    assert pb.WARNING_CODE_TERM_MISSED not in [each.code for each in result.warnings]


async def test_texts_have_their_own_terms_as_alone_and_in_a_stream(server: RunningServer):
    texts = ["Der alte Mann.", "Das Meer.", " ", "Wo ist der Bahnhof?"]
    terms = [BAHNHOF, pb.Term(source="Meer", target="gare"), pb.Term(source="unknown", target="gare")]
    reply = await server.translate(*texts, terms=terms, **GERMAN)
    alone = [(await server.translate(text, terms=terms, **GERMAN)).results[0] for text in texts]
    assert list(reply.results) == alone
    assert [len(result.terms) for result in alone] == [0, 1, 0, 1]
    (free,) = (await server.translate(texts[0], **GERMAN)).results
    assert alone[0] == free
    _, *events = await server.stream(*texts, terms=terms, **GERMAN)
    done = {event.done.text_index: event.done.result for event in events if event.HasField("done")}
    assert [done[place] for place in range(len(texts))] == alone
    deltas = ["".join(event.delta.text for event in events if event.delta.text_index == place) for place in range(4)]
    assert deltas == [result.hypotheses[0].text for result in alone]


async def test_a_term_whose_word_is_also_there_for_something_else_is_missed_and_said_so(server: RunningServer):
    text = "Die See und das Meer."
    (result,) = (await server.translate(text, terms=[pb.Term(source="Meer", target="gare")], **GERMAN)).results
    assert result.hypotheses[0].text == (await server.translate(text, **GERMAN)).results[0].hypotheses[0].text
    assert [each.means for each in result.terms] == [MISSED]
    assert spans(text, result) == [("Meer", "")]
    assert [each.message for each in result.warnings if each.code == pb.WARNING_CODE_TERM_MISSED] == [
        "1 of 1 terms are missed: 'gare' for 'Meer'"
    ]


@pytest.mark.parametrize("written", ["Meer", "MEER"])
async def test_a_string_that_is_its_own_target_is_kept_through_both(server: RunningServer, written: str):
    term = pb.Term(source="Meer", target="Meer")
    (result,) = (await server.translate(f"Das {written}.", terms=[term], **GERMAN)).results
    assert written in result.hypotheses[0].text
    assert [each.means for each in result.terms] == [KEPT]


async def test_terms_of_a_glossary_are_those_from_the_source_to_the_target_language(server: RunningServer):
    stub = stores_pb2_grpc.GlossaryServiceStub(server.channel)
    for target, word in (("fr", "gare"), ("en", "ocean")):
        header = stores.PutGlossaryHeader(name="shop", source_language_code="de", target_language_code=target)
        request = stores.PutGlossaryRequest(header=header, terms=[pb.Term(source="Meer", target=word)])
        await stub.PutGlossary(iter([request]))
    (result,) = (await server.translate("Das Meer.", glossaries=["shop"], **GERMAN)).results
    assert [(each.target, each.glossary, each.means) for each in result.terms] == [("gare", "shop", REPAIRED)]


async def test_a_request_with_more_terms_within_each_other_than_sentences_is_refused():
    words = ["Wo", "ist", "der", "alte", "Mann"]
    parts = [" ".join(words[begin:end]) for begin in range(5) for end in range(begin + 1, 6)]
    async with running(bundles=BUNDLES, loader=TwoModels, max_queue_texts=14) as server:
        terms = [pb.Term(source=part, target="gare") for part in parts]
        status, _ = await failure(server.translate(" ".join(words), terms=terms, **GERMAN))
        assert details(status)["ErrorInfo"].reason == "REQUEST_TOO_LARGE"
        assert status.message.startswith(
            "texts have 15 different terms; a request through a pivot language may have 14"
        )
        assert server.metric("lingon_sentences_total", model="de-en", version="1", outcome="OK") == 0
        (result,) = (await server.translate(" ".join(words), terms=terms[1:], **GERMAN)).results
        assert result.terms


def bridges(*terms: Term, **translations: str) -> Bridges:
    owned = occurring(RequestTerms([("", Matcher(terms, "de"))]), [" ".join(term.source for term in terms)])
    return bridged(owned, [translations[each.term.source] for each in owned], "en")


@pytest.mark.parametrize(
    ("source", "translation", "pivot"),
    [
        ("Meer", "The sea.", "sea"),
        ("gehen", "to go", "go"),
        ("an", "an", "an"),
        ("das Meer", "The sea", "The sea"),
        ("z.B.", "e.g.", "e.g."),
        ("Meer", "", "Meer"),
        ("Meer", "a" * 300, "Meer"),
        ("Meer", "...", "Meer"),
    ],
)
def test_a_bridge_is_the_translation_without_what_a_model_adds_to_a_single_word(source, translation, pivot):
    (term,) = bridges(Term(source, "x"), **{source: translation}).first_terms()
    assert term == Term(source, pivot)


def test_two_terms_with_one_bridge_hold_only_with_one_target():
    def outcome(source: str, begin: int) -> pb.TermOutcome:
        return pb.TermOutcome(source=source, means=REPAIRED, target_span=pb.Span(begin=begin, end=begin + 3))

    found, text = [outcome("Meer", 0), outcome("See", 8)], "sea and sea"
    for other, expected in (("mer", [Term("sea", "mer")]), ("lac", [])):
        held = bridges(Term("Meer", "mer"), Term("See", other), Meer="sea", See="sea")
        assert held.second_terms(text, found, "en") == expected
        assert held.second_terms(f"{text}, sea", found, "en") == []


def test_a_term_within_markup_is_found():
    terms = RequestTerms([("", Matcher([Term("alte Mann", "x")], "de"))])
    assert len(occurring(terms, ["der <b>alte</b> Mann"])) == len(occurring(terms, ["der alte<br>Mann"])) == 1
    assert not occurring(terms, ["der alte Bahnhof"])
