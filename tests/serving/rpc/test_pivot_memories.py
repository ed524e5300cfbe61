"""Translation memories of requests that are translated through a pivot language."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import stores_pb2_grpc
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.bundles import copy, edit
from tests.support.echo_engine import RunningServer, running
from tests.support.gateway import BUNDLES, TwoModels
from tests.support.shipped_model import MODEL, serving

GERMAN: dict[str, Any] = {"source_language_code": "de", "target_language_code": "fr"}
MEMORY: dict[str, Any] = {"memory": {"memories": ["m"]}}
MAN, STATION, SEA = "Der alte Mann.", "Wo ist der Bahnhof?", "Das Meer."
SEGMENTS = [
    pb.Segment(source=STATION, target="Où se trouve la gare ?"),
    pb.Segment(source="Ja und nein.", target="Oui. Et non."),
    pb.Segment(source="Taxi!", target="The sea."),
    pb.Segment(source="Bitte.", target="Je vous en prie.", before=MAN, after=SEA),
    pb.Segment(source="Bitte.", target="S'il vous plaît."),
    pb.Segment(source="Er & sie.", target="Lui & elle."),
    pb.Segment(source="Halt. Stop.", target="Arrêtez."),
]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running(bundles=BUNDLES, loader=TwoModels, data_dir=tmp_path / "data") as started:
        header = stores.PutMemoryHeader(name="m", **GERMAN)
        stub: Any = stores_pb2_grpc.MemoryServiceStub(started.channel)
        await stub.PutMemory(iter([stores.PutMemoryRequest(header=header, segments=SEGMENTS)]))
        yield started


async def results(server: RunningServer, *texts: str, **fields: Any) -> list[pb.TextResult]:
    return list((await server.translate(*texts, **{**GERMAN, **MEMORY, **fields})).results)


def used(text: str, result: pb.TextResult) -> list[tuple[str, int]]:
    """The sentences that are from the memory, with their scores."""
    spans = [(each.source_span, each.score) for each in result.matches if each.used]
    return [(text[span.begin : span.end], score) for span, score in spans]


@pytest.mark.parametrize(
    ("text", "translation", "taken"),
    [
        (f"{MAN} {STATION} {SEA}", "Le vieil homme. Où se trouve la gare ? La mer.", [(STATION, 100)]),
        (f"{MAN} Bitte. {SEA}", "Le vieil homme. Je vous en prie. La mer.", [("Bitte.", 101)]),
        (f"{SEA} Bitte.\n", "La mer. S'il vous plaît.\n", [("Bitte.", 100)]),
        (f"Ja und nein. {MAN}", "Oui. Et non. Le vieil homme.", [("Ja und nein.", 100)]),
        (" Halt. Stop.", " Arrêtez.", [("Halt. Stop.", 100)]),
        (STATION, "Où se trouve la gare ?", [(STATION, 100)]),
    ],
)
async def test_a_sentence_of_the_memory_has_its_translation_and_the_others_are_as_without_it(
    server: RunningServer, text: str, translation: str, taken: list[tuple[str, int]]
):
    (result,) = await results(server, text, text={"return_sentences": True})
    assert result.hypotheses[0].text == translation
    assert used(text, result) == taken
    assert pb.WARNING_CODE_FROM_MEMORY in [each.code for each in result.warnings]
    sentences = {
        text[each.source.begin : each.source.end]: translation[each.target.begin : each.target.end]
        for each in result.sentences
        if pb.WARNING_CODE_FROM_MEMORY in each.warnings
    }
    targets = {match.source: match.target for match in result.matches}
    assert sentences == {source: targets[source] for source, _ in taken}


async def test_no_model_reads_a_sentence_of_the_memory(server: RunningServer):
    alone, whole = await results(server, MAN, f"{STATION} {MAN} Ja und nein.")
    assert whole.usage == alone.usage
    (nothing,) = await results(server, STATION)
    assert (nothing.usage.source_tokens, nothing.usage.target_tokens) == (0, 0)


@pytest.mark.parametrize("text", [f"Taxi! {SEA}", f"{MAN} Taxi! {SEA}"])
async def test_a_text_is_translated_without_the_memory_if_its_sentences_are_not_certain(
    server: RunningServer, text: str
):
    free, found = await results(server, text, memory={}), await results(server, text)
    assert [each.hypotheses[0].text for each in found] == [each.hypotheses[0].text for each in free]
    assert [(each.source, each.used) for each in found[0].matches] == [("Taxi!", False)]
    assert pb.WARNING_CODE_FROM_MEMORY not in [each.code for each in found[0].warnings]


async def test_texts_have_the_results_that_they_have_alone_and_in_a_stream(server: RunningServer):
    texts = [f"{MAN} {STATION}", SEA, "Taxi!", " ", STATION, f"Taxi! {SEA}", "Ja und nein."]
    together = await results(server, *texts)
    assert together == [(await results(server, text))[0] for text in texts]
    _, *events = await server.stream(*texts, **GERMAN, **MEMORY)
    done = {event.done.text_index: event.done.result for event in events if event.HasField("done")}
    assert [done[place] for place in range(len(texts))] == together


async def test_a_similar_sentence_is_shown_and_guides_nothing(server: RunningServer):
    text = "Wo ist denn der Bahnhof?"
    (free,), (found,) = await results(server, text, memory={}), await results(server, text)
    (asked,) = await results(server, text, memory={"memories": ["m"], "use_fuzzy": True})
    for result, codes in ((found, []), (asked, [pb.WARNING_CODE_NOT_GUIDED])):
        assert result.hypotheses == free.hypotheses
        assert [(each.target, each.used) for each in result.matches] == [(SEGMENTS[0].target, False)]
        assert [each.code for each in result.warnings][len(free.warnings) :] == codes


@pytest.mark.parametrize(
    "fields",
    [
        {"memory": {"memories": ["m"], "always_translate": True}},
        {"target_prefixes": ["Où"]},
        {"options": {"forbidden_words": ["vieil"]}},
    ],
)
async def test_options_that_show_matches_only_do_so_through_a_pivot(server: RunningServer, fields: dict[str, Any]):
    (result,) = await results(server, STATION, **fields)
    assert result.hypotheses[0].text.startswith("Où est la gare")
    assert [(each.score, each.used) for each in result.matches] == [(100, False)]


async def test_a_sentence_of_markup_is_taken_and_one_with_tags_is_not(server: RunningServer):
    text = f"<p>{STATION}</p><p>Er &amp; sie.</p><p>Wo ist <b>der</b> Bahnhof?</p>"
    (result,) = await results(server, text, text={"format": pb.TEXT_FORMAT_HTML})
    assert result.hypotheses[0].text.startswith("<p>Où se trouve la gare ?</p><p>Lui &amp; elle.</p><p>")
    assert len(used(text, result)) == 2


async def test_a_sentence_with_a_term_that_the_memory_lacks_is_translated(server: RunningServer):
    terms = [pb.Term(source="Bahnhof", target="gare")]
    (result,) = await results(server, f"{STATION} Bitte.", terms=terms)
    assert result.hypotheses[0].text == "Où est la gare ? S'il vous plaît."
    assert [(each.target, each.means != pb.TERM_MEANS_MISSED) for each in result.terms] == [("gare", True)]


async def test_the_memory_of_another_pair_and_segments_of_a_request_are_used_as_with_one_model(server: RunningServer):
    segments = [pb.Segment(source=MAN, target="Le vieux.")]
    (result,) = await results(server, MAN, memory={"segments": segments})
    assert (result.hypotheses[0].text, [each.memory for each in result.matches]) == ("Le vieux.", [""])


async def test_with_models_that_decode_the_other_sentences_are_as_without_the_memory(tmp_path: Path):
    first = copy(tmp_path)  # reads English and writes German, and is said to read Dutch and to write English
    edit(first, lambda values: values.update(name="nl-en", source_language="nl", target_language="en"))
    segments = [pb.Segment(source="The house is old.", target="Vieille maison !")]
    texts = ["The dog is in the garden. The house is old. We went home.", "The house is old. We went home."]
    async with serving(models=(first, MODEL.parent / "en-fr")) as server:

        async def translations(**fields: Any) -> list[list[str]]:
            asked = {"source_language_code": "nl", "target_language_code": "fr", "text": {"return_sentences": True}}
            reply = await server.stub.Translate(pb.TranslateRequest(texts=texts, **asked, **fields), timeout=60)
            assert reply.pivot_language_code == "en"
            return [
                [result.hypotheses[0].text[each.target.begin : each.target.end] for each in result.sentences]
                for result in reply.results
            ]

        free, found = await translations(), await translations(memory={"segments": segments})
    assert [len(each) for each in free] == [3, 2]
    assert found == [[free[0][0], "Vieille maison !", free[0][2]], ["Vieille maison !", free[1][1]]]
