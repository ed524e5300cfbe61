"""Terms of requests and glossaries, from the request to the reply: on a model that echoes, and on the shipped one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.errors import InvalidRequest, RequestTooLarge, UnknownModel, Unsupported
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.cache import TranslationCache
from lingon.serving.translation.terms import NOTHING_STORED, CallerStores
from lingon.serving.translation.translator import Translator
from lingon.terms.matcher import Matcher
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, bundle, running, warning_codes
from tests.support.shipped_model import MODEL

MISSED, FREE, REPAIRED, CONSTRAINED, KEPT = (
    pb.TERM_MEANS_MISSED,
    pb.TERM_MEANS_FREE,
    pb.TERM_MEANS_REPAIRED,
    pb.TERM_MEANS_CONSTRAINED,
    pb.TERM_MEANS_KEPT,
)
BAHNHOF = pb.Term(source="station", target="Bahnhof")
EN_DE = [
    pb.Term(source=source, target=target)
    for source, target in [("house", "Gebäude"), ("dog", "Köter"), ("car", "Fahrzeug"), ("boy", "Knabe")]
]


class Glossaries:
    """Keeps dictionaries of one owner."""

    def __init__(self, **dictionaries: Sequence[Term]) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self._matchers = {name: Matcher(terms, "en") for name, terms in dictionaries.items()}

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Matcher]]:
        self.asked.append((caller, source, target))
        for name in names:
            if name not in self._matchers:
                raise UnknownModel(name, f"there is no glossary {name}")
        return [(name, self._matchers[name]) for name in names]


@asynccontextmanager
async def translating(
    folder: Path,
    *,
    cache: TranslationCache | None = None,
    limits: EngineLimits | None = None,
    runner: EchoRunner | None = None,
    **rest: Any,
) -> AsyncIterator[Translator]:
    engine = Engine(runner or EchoRunner(), limits or EngineLimits())
    engine.start()
    try:
        yield Translator(bundle(folder, **rest), engine, limits or EngineLimits(), precision="fp32", cache=cache)
    finally:
        engine.stop(0)


async def results(
    translator: Translator, *texts: str, stores: CallerStores = NOTHING_STORED, **fields: Any
) -> Sequence[pb.TextResult]:
    reply = await translator.translate(pb.TranslateRequest(texts=texts, **fields), stores=stores)
    return reply.results


def means(result: pb.TextResult) -> list[int]:
    return [each.means for each in result.terms]


def pieces(result: pb.TextResult, source: str) -> list[tuple[str, str]]:
    """Return the places of the terms in the text and in its translation."""
    text = result.hypotheses[0].text
    return [
        (
            source[each.source_span.begin : each.source_span.end],
            text[each.target_span.begin : each.target_span.end] if each.HasField("target_span") else "",
        )
        for each in result.terms
    ]


async def test_the_reply_says_where_each_term_is_and_how_it_came_there():
    async with running() as server:
        reply = await server.translate("  Where is the station? Where is Tom?", terms=[BAHNHOF], text=pb.TextOptions())
        (result,) = reply.results
        assert result.hypotheses[0].text == "  Where is the Bahnhof? Where is Tom?"
        assert pieces(result, "  Where is the station? Where is Tom?") == [("station", "Bahnhof")]
        assert means(result) == [REPAIRED]
        assert warning_codes(result) == []
        assert server.metric("lingon_terms_total", model="en-de", version="1", means="repaired") == 1
        assert server.metric("lingon_terms_total", model="en-de", version="1", means="missed") == 0


async def test_a_missed_term_is_a_warning_and_a_count():
    async with running(bundles=({"alignment": {"layer": 0, "heads": ()}},)) as server:
        term = pb.Term(source="station", target="☃☃")  # without attention the search would have to write it
        reply = await server.translate("Where is the station?", terms=[term], options={"forbidden_words": ["☃"]})
        (result,) = reply.results
        assert result.hypotheses[0].text == "Where is the station?"
        assert means(result) == [MISSED]
        assert warning_codes(result) == [pb.WARNING_CODE_TERM_MISSED]
        assert not result.terms[0].HasField("target_span")
        assert [w.message for w in result.warnings if w.code == pb.WARNING_CODE_TERM_MISSED] == [
            "1 of 1 terms are missed: '☃☃' for 'station'"
        ]
        assert server.metric("lingon_terms_total", model="en-de", version="1", means="missed") == 1


async def test_terms_of_which_none_is_found_change_no_byte(tmp_path: Path):
    texts = ["Where is the station?", "The old man\tand 1,000 seas.", "TOM LIVES IN BOSTON.", "", "Tom {name} lives."]
    async with translating(tmp_path) as translator:
        options = pb.DecodingOptions(return_tokens=True, return_alignment=True, beam_size=2, num_hypotheses=2)
        plain = await results(translator, *texts, options=options)
        other = await results(translator, *texts, options=options, terms=[pb.Term(source="elephant", target="Elefant")])
        assert [each.SerializeToString() for each in plain] == [each.SerializeToString() for each in other]


async def test_a_translation_that_has_its_terms_changes_in_nothing_else(tmp_path: Path):
    async with translating(tmp_path) as translator:
        options = pb.DecodingOptions(return_tokens=True, beam_size=2, num_hypotheses=2)
        (plain,) = await results(translator, "Where is the station?", options=options)
        (other,) = await results(
            translator, "Where is the station?", options=options, terms=[pb.Term(source="station", target="Station")]
        )
        assert means(other) == [FREE]
        other.ClearField("terms")
        assert other == plain


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": pb.DecodingOptions(forced_words=["Tom"])}, "terms cannot be used with options.forced_words"),
        ({"text": pb.TextOptions(format=pb.TEXT_FORMAT_PIECES)}, "terms cannot be used with a text.format of pieces"),
        ({"terms": [BAHNHOF] * 201}, "terms must be at most 200, got 201"),
        ({"glossaries": ["a"] * 6}, "glossaries must be at most 5 names, got 6"),
    ],
)
async def test_what_terms_cannot_be_used_with_is_named(tmp_path: Path, fields: dict[str, Any], message: str):
    async with translating(tmp_path) as translator:
        with pytest.raises(InvalidRequest, match=message):
            await results(translator, "Tom", **{"terms": [BAHNHOF], **fields})


async def test_contradictory_terms_are_refused_with_both(tmp_path: Path):
    async with translating(tmp_path) as translator:
        with pytest.raises(InvalidRequest, match=r"1 and 2: .*Bahnhof.*Halt") as caught:
            await results(translator, "Tom", terms=[BAHNHOF, pb.Term(source="Station", target="Halt")])
        assert caught.value.field == "terms[1]"


async def test_a_stream_refuses_terms_before_its_first_message():
    async with running() as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stream("Tom", terms=[BAHNHOF], options=pb.DecodingOptions(forced_words=["Tom"]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_without_glossaries_a_name_is_refused(tmp_path: Path):
    async with translating(tmp_path) as translator:
        with pytest.raises(Unsupported, match="none are kept here, and the request names 'shop'"):
            await results(translator, "Tom", glossaries=["shop"])


async def test_the_terms_of_a_request_come_before_glossaries_and_those_in_their_order(tmp_path: Path):
    stores = CallerStores(
        "key/a",
        Glossaries(
            one=[Term("station", "Halt"), Term("Tom", "Thomas"), Term("old man", "Greis")],
            two=[Term("Tom", "Tomas"), Term("man", "Mann"), Term("sea", "See"), Term("station", "Stand")],
        ),
    )
    async with translating(tmp_path) as translator:
        (found,) = await results(
            translator,
            "Tom and the old man, the sea and the station.",
            stores=stores,
            terms=[BAHNHOF],
            glossaries=["one", "two"],
        )
    assert [(each.target, each.glossary) for each in found.terms] == [
        ("Thomas", "one"),
        ("Greis", "one"),
        ("See", "two"),
        ("Bahnhof", ""),
    ]
    assert isinstance(stores.glossaries, Glossaries)
    assert stores.glossaries.asked == [("key/a", "en", "de")]


async def test_the_cache_tells_terms_and_versions_of_glossaries_apart(tmp_path: Path):
    cache = TranslationCache(1)
    first, second = (CallerStores("", Glossaries(shop=[Term("station", target)])) for target in ("Halt", "Gleis"))
    async with translating(tmp_path, cache=cache) as translator:
        found = [
            (await results(translator, "Where is the station?", **fields))[0].hypotheses[0].text
            for fields in (
                {},
                {"terms": [BAHNHOF]},
                {"glossaries": ["shop"], "stores": first},
                {"glossaries": ["shop"], "stores": second},
                {},
                {"terms": [BAHNHOF]},
                {"glossaries": ["shop"], "stores": first},
            )
        ]
    words = ["station", "Bahnhof", "Halt", "Gleis", "station", "Bahnhof", "Halt"]
    assert found == [f"Where is the {word}?" for word in words]


async def test_a_result_with_terms_is_the_same_from_the_cache(tmp_path: Path):
    async with translating(tmp_path, cache=TranslationCache(1)) as translator:
        found = [await results(translator, "Where is the station?", terms=[BAHNHOF]) for _ in range(2)]
        assert found[0][0] == found[1][0]
        assert means(found[1][0]) == [REPAIRED]


async def test_a_stream_sends_a_sentence_with_a_term_when_it_is_complete(tmp_path: Path):
    text = "Tom lives in Boston. Where is the station? The old man and the sea."
    request = pb.TranslateStreamRequest(texts=[text], terms=[BAHNHOF], options=pb.DecodingOptions(beam_size=1))
    async with translating(tmp_path, runner=EchoRunner(delay=0.001)) as translator:
        options = translator.resolve(request.options, request.text)
        terms = await translator.terms(request, options)
        async with aclosing(translator.stream(request, options, terms=terms)) as events:
            found = [event async for _, event in events]
    deltas = [each for each in found if isinstance(each, str)]
    assert "".join(deltas) == found[-1].hypotheses[0].text == text.replace("station", "Bahnhof")
    (held,) = (each for each in deltas if "Bahnhof" in each)
    assert "Where is the Bahnhof?" in held  # in one piece
    assert deltas[0] in "Tom lives in Boston."  # before that


async def test_a_sentence_with_terms_counts_twice_in_the_bounds_of_a_request(tmp_path: Path):
    limits = EngineLimits(max_queue_texts=5, max_rows=5)
    async with translating(tmp_path, limits=limits) as translator:
        texts = ["Where is the station?"] * 3
        assert len(await results(translator, *texts)) == 3
        with pytest.raises(RequestTooLarge, match="6 sentences"):
            await results(translator, *texts, terms=[BAHNHOF])


async def test_places_of_terms_in_markup_count_in_the_text_as_it_was_sent(tmp_path: Path):
    html = "<p>Where is&nbsp;the <b>station</b>? <code>station</code></p>"
    async with translating(tmp_path) as translator:
        (found,) = await results(translator, html, terms=[BAHNHOF], text=pb.TextOptions(format=pb.TEXT_FORMAT_HTML))
    assert pieces(found, html) == [("station", "Bahnhof")]
    assert "<code>station</code>" in found.hypotheses[0].text


# On the shipped model.


@pytest.fixture(scope="module")
def en_de() -> Iterator[LocalTranslator]:
    with LocalTranslator(MODEL, engines=1, threads=1) as translator:
        yield translator


def one(translator: LocalTranslator, text: str, **fields: Any) -> pb.TextResult:
    (found,) = translator.translate(pb.TranslateRequest(texts=[text], **fields)).results
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The house is very big.", "Das Gebäude ist sehr groß."),
        ("The house is bigger than your house.", "Das Gebäude ist größer als dein Gebäude."),
        ("THE HOUSE IS OLD.", "DAS GEBÄUDE IST ALT."),
        ("The houseboat is old.", "Das Hausboot ist alt."),
        (
            "Visit https://example.org/a and see the house of {name}.",
            "Besuchen Sie https://example.org/a und sehen Sie das Gebäude von {name}.",
        ),
        ("The house is big. My dog is small.", "Das Gebäude ist groß. Mein Köter ist klein."),
    ],
)
def test_terms_are_in_real_translations(en_de: LocalTranslator, text: str, wanted: str):
    found = one(en_de, text, terms=EN_DE)
    assert found.hypotheses[0].text == wanted
    for source, target in pieces(found, text):
        assert target.casefold() == {term.source: term.target for term in EN_DE}[source.casefold()].casefold()


def test_strings_that_are_their_own_targets_are_kept_to_the_byte(en_de: LocalTranslator):
    draw = random.Random(60)
    alphabets = ["абвгдежз", "αβγδε", "abcdefgh", "ÄÖÜäöüß", "漢字仮名", "🙂🚀✓", "0123456789", "-_/.:#@"]

    def string() -> str:
        middle = "".join(draw.choice(draw.choice(alphabets)) for _ in range(draw.randint(1, 12)))
        return draw.choice("xyzЖΩ") + middle + draw.choice("qwЯΔ7")

    strings = list(dict.fromkeys(string() for _ in range(1_000)))
    for first in range(0, len(strings), 100):
        part = strings[first : first + 100]
        request = pb.TranslateRequest(
            texts=[f"Tom said that {each} is not here." for each in part],
            terms=[pb.Term(source=each, target=each, case=pb.TERM_CASE_EXACT) for each in part],
            options=pb.DecodingOptions(beam_size=1),
        )
        for each, found in zip(part, en_de.translate(request).results, strict=True):
            assert found.hypotheses[0].text.count(each) == 1, each
            assert KEPT in means(found), each


@pytest.mark.parametrize(
    ("text", "source", "target", "wanted"),
    [
        ("Please fill in Form 1040 today.", "Form 1040", "Steuerbogen", "Steuerbogen"),
        ("The house costs 1,040 dollars.", "040", "x", "1,040"),
        ("The молоко is very good.", "молоко", "Milch", "Milch"),
    ],
)
def test_a_term_may_have_what_would_be_kept_by_itself(
    en_de: LocalTranslator, text: str, source: str, target: str, wanted: str
):
    translation = one(en_de, text, terms=[pb.Term(source=source, target=target)]).hypotheses[0].text
    assert wanted in translation
    assert source not in translation or source in wanted


def test_no_sentence_ends_within_a_term(en_de: LocalTranslator):
    term = pb.Term(source="Hello World! Show", target="Hallo-Welt-Schau")
    found = one(en_de, "We saw the Hello World! Show yesterday.", terms=[term])
    assert "Hallo-Welt-Schau" in found.hypotheses[0].text
    assert means(found) == [REPAIRED]


def test_a_sentence_that_loses_a_kept_string_to_a_term_is_translated_without_it(en_de: LocalTranslator):
    terms = [pb.Term(source="ZetaBox", target="ZetaBox"), pb.Term(source="house", target="ZetaBox-Gebäude")]
    text = "The ZetaBox is in the house."  # the ZetaBox would be there twice
    found = one(en_de, text, terms=terms)
    assert found.hypotheses[0].text == one(en_de, text, terms=terms[:1]).hypotheses[0].text != text
    assert means(found) == [KEPT, MISSED]


def test_every_search_has_the_terms(en_de: LocalTranslator):
    for options in (
        {"beam_size": 1},
        {"num_hypotheses": 3},
        {"sampling": pb.SamplingOptions(seed=5, top_k=5), "num_hypotheses": 3},
        {"no_repeat_ngram_size": 3},
        {"min_output_tokens": 4, "repetition_penalty": 1.1},
        {"forbidden_words": ["groß"]},
        {"shortlist": True},
    ):
        found = one(en_de, "The house is very big.", terms=EN_DE, options=pb.DecodingOptions(**options))
        assert all("Gebäude" in each.text for each in found.hypotheses), options
        assert means(found)[0] in (FREE, REPAIRED, CONSTRAINED), options


def test_a_target_prefix_stays_before_a_term(en_de: LocalTranslator):
    found = one(en_de, "The house is very big.", terms=EN_DE, target_prefixes=["Dieses"])
    assert found.hypotheses[0].text == "Dieses Gebäude ist sehr groß."


def test_tokens_and_alignment_are_those_of_the_text_that_is_sent(en_de: LocalTranslator):
    options = pb.DecodingOptions(return_tokens=True, return_alignment=True)
    found = one(en_de, "The house is very big.", terms=EN_DE, options=options)
    best = found.hypotheses[0]
    assert "".join(token.piece for token in best.tokens).replace("\u2581", " ").strip() == best.text
    links = {
        found.normalised_text[link.source.begin : link.source.end]: best.text[link.target.begin : link.target.end]
        for link in best.alignment
    }
    assert links["house"] == "Gebäude"
    pair = pb.ScorePair(source="The house is very big.", target=best.text)
    (scored,) = en_de.score(pb.ScoreRequest(pairs=[pair])).results
    assert best.score == pytest.approx(scored.log_prob / len(scored.tokens), abs=1e-4)


def test_a_forbidden_word_is_not_in_the_translation(en_de: LocalTranslator):
    term = pb.Term(source="house", forbid=["Haus"])
    found = one(en_de, "The house is very big.", terms=[term])
    assert "haus" not in found.hypotheses[0].text.casefold()
    assert means(found) == [CONSTRAINED]
    assert not found.terms[0].HasField("target_span")


def test_characters_that_the_model_cannot_write_are_in_a_target(en_de: LocalTranslator):
    found = one(en_de, "The house is very big.", terms=[pb.Term(source="house", target="家屋")])
    assert found.hypotheses[0].text == "Das 家屋 ist sehr groß."


HOUSE, SENTENCES = (
    EN_DE[0],
    [
        "The house is very big.",
        "My dog likes the old house.",
        "The boy sold his car and his house.",
        "We saw a dog in front of the house yesterday.",
        "The car of the boy is red.",
        "It is raining.",
    ],
)
CHOICES: list[dict[str, Any]] = [
    {"coverage_penalty": 0.4},
    {"coverage_penalty": 0.4, "num_hypotheses": 3},
    {"coverage_penalty": 2.0, "beam_size": 2},
    {"coverage_penalty": 0.4, "beam_size": 1},
    {"prefix_bias": 0.6},
    {"prefix_bias": 0.3, "beam_size": 1},
    {"alternatives": 4},
    {"alternatives": 3, "beam_size": 1},
]


def chosen(translator: LocalTranslator, text: str, options: dict[str, Any], terms: Sequence[pb.Term]) -> pb.TextResult:
    prefixes = ["Unser"] if "prefix_bias" in options else []
    wanted = {"beam_size": 4, **options, "return_tokens": True}
    return one(translator, text, options=wanted, terms=terms, target_prefixes=prefixes)


def first_word(hypothesis: pb.Hypothesis) -> str:
    return hypothesis.text.split()[0].rstrip(",.")


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_terms_come_into_what_other_options_of_the_search_choose(en_de: LocalTranslator, options: dict[str, Any]):
    for text in SENTENCES:
        free, found = chosen(en_de, text, options, []), chosen(en_de, text, options, EN_DE)
        targets = [each.target for each in found.terms]
        assert len(targets) == sum(text.lower().count(term.source) for term in EN_DE)
        assert [each.means for each in found.terms if each.means == MISSED] == [], found
        assert all(target in found.hypotheses[0].text for target in targets)
        if not targets:
            assert found == free


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_a_choice_that_has_its_terms_is_as_without_them(en_de: LocalTranslator, options: dict[str, Any]):
    for text in SENTENCES:
        free = chosen(en_de, text, options, [])
        word = "Haus" if "Haus" in free.hypotheses[0].text else first_word(free.hypotheses[0])
        found = chosen(en_de, text, options, [pb.Term(source=text.split()[-1].strip("."), target=word)])
        assert [each.means for each in found.terms] == [FREE]
        assert found.hypotheses[0] == free.hypotheses[0]
        if not options.get("alternatives"):  # each of which has the term by itself
            assert found.hypotheses == free.hypotheses


@pytest.mark.parametrize("options", [each for each in CHOICES if "alternatives" in each], ids=str)
def test_an_alternative_keeps_its_first_word_and_has_the_terms_of_the_rest(
    en_de: LocalTranslator, options: dict[str, Any]
):
    held = 0
    for text in SENTENCES:
        free, found = (chosen(en_de, text, options, terms).hypotheses for terms in ([], EN_DE))
        assert list(map(first_word, found)) == list(map(first_word, free))
        wanted = [term.target for term in EN_DE if term.source in text.lower()]
        for each, without in zip(found, free, strict=True):
            if all(target in without.text for target in wanted):
                assert each == without
            held += all(target in each.text for target in wanted)
    assert held >= 0.9 * options["alternatives"] * len(SENTENCES)


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_texts_with_terms_and_choices_translate_together_as_alone(en_de: LocalTranslator, options: dict[str, Any]):
    prefixes = ["Unser"] * len(SENTENCES) if "prefix_bias" in options else []
    asked = {"options": {"beam_size": 4, **options}, "terms": EN_DE, "target_prefixes": prefixes}
    together = en_de.translate(pb.TranslateRequest(texts=SENTENCES, **asked)).results
    asked["target_prefixes"] = prefixes[:1]
    assert list(together) == [one(en_de, text, **asked) for text in SENTENCES]


LONGER = [
    "The boy who lives next to us wants to sell his old car before he buys a new one.",
    "I would like to have a cup of coffee and a piece of the cake that you made.",
    "She told me yesterday that her brother had lost all of his money in the city.",
    "If it does not rain tomorrow, we will go to the lake and swim until it gets dark.",
    "He asked whether anybody had seen the dog that ran out of the house last night.",
]


def test_the_hypothesis_that_coverage_ranks_first_is_the_one_that_is_looked_at(en_de: LocalTranslator):
    looked_at, covering = 0, {"coverage_penalty": 10.0, "num_hypotheses": 2}
    for text in LONGER:
        plain, free = (chosen(en_de, text, options, []) for options in ({}, covering))
        words = set(free.hypotheses[0].text.strip(".").split()) - set(plain.hypotheses[0].text.strip(".").split())
        for word in sorted(words):
            term = pb.Term(source=text.split()[1], target=word.strip(","), case=pb.TERM_CASE_EXACT)
            found = chosen(en_de, text, covering, [term])
            assert found.hypotheses == free.hypotheses
            looked_at += 1
    assert looked_at > 3
