"""Translation memories in requests: what is taken from them, what is only shown, and what they never change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import InvalidRequest, Unsupported
from lingon.memories.building import build
from lingon.memories.memory import Memory
from lingon.memories.segment import Segment
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.cache import TranslationCache
from lingon.serving.translation.terms import CallerStores
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, bundle
from tests.support.shipped_model import MODEL

FROM_MEMORY = pb.WARNING_CODE_FROM_MEMORY
TOM, STATION, BOTH = "Tom lives in Boston.", "Where is the station?", "Tom lives in Boston. Where is the station?"


class Memories:
    """Memories of callers, by owner and name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[tuple[str, str], Memory] = {}
        self.scores: list[int] = []

    def put(self, name: str, *segments: Segment, owner: str = "") -> None:
        folder = self._folder / f"{len(self._found)}"
        build(folder, segments)
        self._found[owner, name] = Memory.open(folder)

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Memory]]:
        return [(name, self._found[caller, name]) for name in names]

    def looked_up(self, score: int) -> None:
        self.scores.append(score)


class Served:
    """A translator whose model repeats the text, with the memories of its callers."""

    def __init__(self, translator: Translator, memories: Memories) -> None:
        self.translator, self.memories = translator, memories

    async def translate(self, *texts: str, owner: str = "", memory: dict[str, Any] | None = None, **rest: Any):
        options = {"memories": ["m"], **(memory or {})}
        request = pb.TranslateRequest(texts=texts, memory=options, **rest)
        stores = CallerStores(owner, memories=self.memories)
        return list((await self.translator.translate(request, stores=stores)).results)


@asynccontextmanager
async def serving(folder: Path, *segments: Segment, cache: TranslationCache | None = None) -> AsyncIterator[Served]:
    engine = Engine(EchoRunner(), EngineLimits())
    engine.start()
    memories = Memories(folder)
    memories.put("m", *segments)
    try:
        yield Served(Translator(bundle(folder / "bundle"), engine, EngineLimits(), cache=cache), memories)
    finally:
        engine.stop(0)


def warnings(result: pb.TextResult) -> list[tuple[int, str]]:
    return [(each.code, each.message) for each in result.warnings]


async def test_the_translation_of_an_exact_match_is_taken_and_no_token_is_decoded(tmp_path):
    async with serving(tmp_path, Segment(TOM, "Tom wohnt in Boston.", origin="Ann")) as served:
        (result,) = await served.translate(f" {TOM}\n")
    (match,) = result.matches
    assert result.hypotheses[0].text == " Tom wohnt in Boston.\n"
    assert warnings(result) == [(FROM_MEMORY, "the translation is from a translation memory")]
    assert (match.memory, match.source, match.target) == ("m", TOM, "Tom wohnt in Boston.")
    assert (match.score, match.used, match.origin) == (100, True, "Ann")
    assert (match.source_span.begin, match.source_span.end) == (1, 1 + len(TOM))
    assert (result.usage.source_tokens, result.usage.target_tokens) == (0, 0)


async def test_each_sentence_is_looked_up_with_its_neighbours(tmp_path):
    segments = [Segment(STATION, "Wo ist er?", TOM, "It rains."), Segment(STATION, "Wo ist der Bahnhof?")]
    async with serving(tmp_path, *segments) as served:
        texts = (f"{STATION} It rains.", f"{TOM} {STATION} It rains.")
        first, second = await served.translate(*texts, text={"return_sentences": True})
    assert first.hypotheses[0].text == "Wo ist der Bahnhof? It rains."
    assert second.hypotheses[0].text == "Tom lives in Boston. Wo ist er? It rains."
    assert [match.score for match in (*first.matches, *second.matches)] == [100, 101]
    assert warnings(second)[-1:] == [(FROM_MEMORY, "1 of 3 sentences are from a translation memory")]
    assert [FROM_MEMORY in each.warnings for each in second.sentences] == [False, True, False]
    begin, end = second.sentences[1].target.begin, second.sentences[1].target.end
    assert second.hypotheses[0].text[begin:end] == "Wo ist er?"


async def test_a_whole_text_is_looked_up_before_its_sentences(tmp_path):
    async with serving(tmp_path, Segment(BOTH, "Beides."), Segment(TOM, "Tom.")) as served:
        (result,) = await served.translate(f"- {BOTH}\n")
        assert result.hypotheses[0].text == "- Beides.\n"
        assert [match.source for match in result.matches] == [BOTH]
        (apart,) = await served.translate(f"{BOTH} It rains.")
        assert apart.hypotheses[0].text == "Tom. Where is the station? It rains."


@pytest.mark.parametrize("options", [{}, {"use_fuzzy": True}, {"always_translate": True, "max_matches": 3}])
async def test_segments_of_a_request_have_the_effect_of_a_stored_memory(tmp_path, options):
    stored = [
        Segment(STATION, "Wo ist er?", TOM, "It rains."),
        Segment(STATION, "Wo ist der Bahnhof?"),
        Segment(STATION, "Bahnhof?", changed=7),
        Segment("Tom lived in Boston in 1998.", "Tom lebte 1998 in Boston."),
        Segment(BOTH, "Beides."),
    ]
    texts = (f"{STATION} It rains.", f"{TOM} {STATION} It rains.", BOTH, "Tom lived in Boston in 2005.", "It rains.")
    given = {"memories": [], "segments": [each.message() for each in stored]}
    async with serving(tmp_path, *stored) as served:
        expected = await served.translate(*texts, memory=options, text={"return_sentences": True})
        found = await served.translate(*texts, memory={**options, **given}, text={"return_sentences": True})
        assert sum(bool(each.matches) for each in expected) == 4
        for result in expected:
            for match in result.matches:
                match.memory = ""
        assert found == expected


async def test_a_segment_of_a_request_comes_before_those_of_its_memories(tmp_path):
    given = {"segments": [Segment(TOM, "Tom.").message()], "max_matches": 2}
    async with serving(tmp_path, Segment(TOM, "Tom wohnt in Boston.")) as served:
        (result,) = await served.translate(TOM, memory=given)
    assert [(each.memory, each.target, each.used) for each in result.matches] == [
        ("", "Tom.", True),
        ("m", "Tom wohnt in Boston.", False),
    ]


@pytest.mark.parametrize(
    ("segments", "field", "message"),
    [
        ([Segment(TOM, " ")], "memory.segments[0]", "memory.segments: segment 1: the target is empty"),
        ([Segment(TOM, "x"), Segment("a" * 10_001, "x")], "memory.segments[1]", "10,001 characters; at most 10,000"),
        ([Segment(TOM, "x")] * 1001, "memory.segments", "memory.segments must be at most 1,000, got 1,001"),
    ],
)
async def test_segments_of_a_request_that_are_out_of_bounds_are_refused(tmp_path, segments, field, message):
    async with serving(tmp_path) as served:
        with pytest.raises(InvalidRequest, match=message) as raised:
            await served.translate(TOM, memory={"segments": [each.message() for each in segments]})
    assert raised.value.field == field


async def test_another_case_or_a_fuzzy_match_is_shown_and_not_taken(tmp_path):
    async with serving(tmp_path, Segment(TOM, "Tom wohnt in Boston.")) as served:
        for text, score in (("tom lives in boston.", 100), ("Tom lived in Boston.", 95)):
            (result,) = await served.translate(text)
            assert result.hypotheses[0].text == text
            assert [(match.score, match.used) for match in result.matches] == [(score, False)]
            assert FROM_MEMORY not in [each.code for each in result.warnings]
        (result,) = await served.translate("Tom lived in Boston.", memory={"min_score": 96})
        assert not result.matches


async def test_a_fuzzy_match_is_shown_with_the_numbers_of_the_text_or_not_at_all(tmp_path):
    segments = [Segment("Tom has 5 cars.", "Tom hat 5 Autos."), Segment("Ann has 5 cats.", "Ann hat fünf Katzen.")]
    async with serving(tmp_path, *segments) as served:
        number, word = await served.translate("Tom has 7 cars.", "Ann has 7 cats.")
    assert [(each.source, each.target, each.score) for each in number.matches] == [
        ("Tom has 5 cars.", "Tom hat 7 Autos.", 93)
    ]
    assert not word.matches


async def test_matches_are_only_shown_if_the_request_says_so_or_restricts_translations(tmp_path):
    async with serving(tmp_path, Segment(TOM, "Tom wohnt in Boston.")) as served:
        for options in ({"memory": {"always_translate": True}}, {"options": {"forbidden_words": ["wohnt"]}}):
            (result,) = await served.translate(TOM, **options)
            assert result.hypotheses[0].text == TOM
            assert [(match.score, match.used) for match in result.matches] == [(100, False)]


async def test_a_sentence_with_a_prefix_is_translated(tmp_path):
    async with serving(tmp_path, Segment(TOM, "Tom."), Segment(BOTH, "Beides.")) as served:
        (result,) = await served.translate(BOTH, target_prefixes=["Tom"])
    assert result.hypotheses[0].text == BOTH
    assert [match.used for match in result.matches] == [False]


async def test_a_translation_that_lacks_a_term_is_not_taken(tmp_path):
    async with serving(tmp_path, Segment(TOM, "Tom wohnt in Boston.")) as served:
        (result,) = await served.translate(TOM, terms=[pb.Term(source="Boston", target="Bean Town")])
        assert [match.used for match in result.matches] == [False]
        (result,) = await served.translate(TOM, terms=[pb.Term(source="lives", target="wohnt")])
        assert [match.used for match in result.matches] == [True]
        assert [each.means for each in result.terms] == [pb.TERM_MEANS_FREE]


async def test_a_translation_that_lacks_a_string_to_keep_or_a_placeholder_is_not_taken(tmp_path):
    segments = [Segment("Open the Box.", "Öffnen."), Segment("Open {0}.", "Öffnen."), Segment("Close {0}.", "Zu: {0}.")]
    async with serving(tmp_path, *segments) as served:
        results = await served.translate(*(each.source for each in segments), text={"keep": ["Box"]})
        (free,) = await served.translate("Open the Box.")
        (term,) = await served.translate("Open the Box.", terms=[pb.Term(source="Box", target="Box")])
    used = [[match.used for match in each.matches] for each in (*results, free, term)]
    assert used == [[False], [False], [True], [True], [False]]


async def test_the_same_memory_of_another_caller_is_another_one(tmp_path):
    async with serving(tmp_path, Segment(TOM, "mine")) as served:
        served.memories.put("m", Segment(TOM, "yours"), owner="other")
        cached = TranslationCache(2**20)
        served.translator.cache = cached
        texts = [(await served.translate(TOM, owner=owner))[0].hypotheses[0].text for owner in ("", "other", "")]
    assert texts == ["mine", "yours", "mine"]


async def test_the_memory_that_is_named_first_is_first_among_equal_scores(tmp_path):
    async with serving(tmp_path, Segment(TOM, "one")) as served:
        served.memories.put("n", Segment(TOM, "two"), Segment("Tom lives in Austin.", "no"))
        for names in (["m", "n"], ["n", "m"]):
            (result,) = await served.translate(TOM, memory={"memories": names, "max_matches": 3})
            assert [match.memory for match in result.matches] == [*names, "n"]
            assert [match.used for match in result.matches] == [True, False, False]


async def test_markup_around_a_sentence_stays_and_one_with_tags_in_it_is_not_looked_up(tmp_path):
    html = {"format": pb.TEXT_FORMAT_HTML}
    async with serving(tmp_path, Segment(TOM, "Tom & Co."), Segment("Tom lives.", "no")) as served:
        (result,) = await served.translate(f"<p>{TOM}</p><p>Tom <b>lives</b>.</p><p>Tom<br>lives.</p>", text=html)
    assert result.hypotheses[0].text.startswith("<p>Tom &amp; Co.</p><p>Tom <b>lives</b>.</p>")
    assert [match.source for match in result.matches] == [TOM]
    span = result.matches[0].source_span
    assert (span.begin, span.end) == (3, 3 + len(TOM))


async def test_the_guard_judges_no_translation_of_a_memory(tmp_path):
    guard = {"guard": pb.GUARD_POLICY_REFUSE}
    async with serving(tmp_path, Segment(TOM, "la " * 60)) as served:
        (result,) = await served.translate(TOM, text=guard)
    assert result.status.code == 0
    assert result.hypotheses[0].text == ("la " * 60).strip()


async def test_alignments_tokens_and_n_best_lists_work_beside_sentences_of_a_memory(tmp_path):
    options = {"return_tokens": True, "return_alignment": True, "beam_size": 2, "num_hypotheses": 2}
    async with serving(tmp_path, Segment(TOM, "Tom.")) as served:
        (result,) = await served.translate(f"{TOM} It rains.", options=options)
        (whole,) = await served.translate(TOM, options=options)
    assert [each.text.partition(" ")[0] for each in result.hypotheses] == ["Tom.", "Tom."]
    begin = len("Tom. ")
    assert result.hypotheses[0].alignment
    assert all(link.target.begin >= begin for link in result.hypotheses[0].alignment)
    assert [(each.text, len(each.tokens)) for each in whole.hypotheses] == [("Tom.", 0)]


async def test_a_stream_gives_the_text_of_the_reply(tmp_path):
    async with serving(tmp_path, Segment(TOM, "Tom wohnt.")) as served:
        texts = [TOM, f"{TOM} It rains.", f"It rains. {TOM}"]
        request = pb.TranslateStreamRequest(texts=texts, memory={"memories": ["m"]})
        translator, stores = served.translator, CallerStores(memories=served.memories)
        options = translator.resolve(request.options, request.text)
        memories = await translator.memories(request, options, stores)
        deltas, results = ["", "", ""], dict[int, pb.TextResult]()
        async with aclosing(translator.stream(request, options, memories=memories)) as events:
            async for index, event in events:
                if isinstance(event, str):
                    deltas[index] += event
                else:
                    results[index] = event
        replies = await served.translate(*texts)
    assert deltas == ["Tom wohnt.", "Tom wohnt. It rains.", "It rains. Tom wohnt."]
    assert [results[index] for index in range(3)] == replies


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"min_score": 49}, "memory.min_score must be 50 to 100, got 49"),
        ({"min_score": 101}, "memory.min_score must be 50 to 100, got 101"),
        ({"max_matches": 0}, "memory.max_matches must be 1 to 20, got 0"),
        ({"max_matches": 21}, "memory.max_matches must be 1 to 20, got 21"),
        ({"memories": ["m"] * 6}, "memory.memories must be at most 5 names, got 6"),
    ],
)
async def test_options_out_of_bounds_are_refused(tmp_path, memory, message):
    async with serving(tmp_path) as served:
        with pytest.raises(InvalidRequest) as caught:
            await served.translate(TOM, memory=memory)
    assert str(caught.value) == message


async def test_a_translator_without_memories_refuses_their_names(tmp_path):
    async with serving(tmp_path) as served:
        request = pb.TranslateRequest(texts=[TOM], memory={"memories": ["a"]})
        with pytest.raises(Unsupported, match=r"memory\.memories: none are kept here, and the request names 'a'"):
            await served.translator.translate(request)
        with pytest.raises(InvalidRequest, match=r"memory cannot be used with a text\.format of pieces"):
            await served.translate("▁Tom", text={"format": pb.TEXT_FORMAT_PIECES})


async def test_other_options_without_a_memory_change_nothing(tmp_path):
    async with serving(tmp_path, Segment(TOM, "no")) as served:
        (plain,) = await served.translate(TOM, memory={"memories": []})
        (asked,) = await served.translate(TOM, memory={"memories": [], "min_score": 60, "always_translate": True})
    assert plain == asked
    assert plain.hypotheses[0].text == TOM


@contextmanager
def shipped(folder: Path, *segments: Segment) -> Iterator[Callable[..., list[pb.TextResult]]]:
    """Give a function that translates texts by the shipped model with options for a memory of these segments."""
    memories = Memories(folder)
    memories.put("m", *segments)
    stores = CallerStores(memories=memories)
    with LocalTranslator(MODEL) as local:
        translator = local._find(pb.TranslateRequest())

        def translate(given: list[str], **memory: Any) -> list[pb.TextResult]:
            request = pb.TranslateRequest(texts=given, memory=memory)
            return list(local._wait(translator.translate(request, stores=stores)).results)

        yield translate


@pytest.mark.parametrize(
    ("segment", "text", "expected"),
    [
        (
            Segment("Tom lives in room 120 of a hotel.", "Tom lebt in Zimmer 120 eines Hotels."),
            "Tom lives in room 385 of a hotel.",
            "Tom lebt in Zimmer 385 eines Hotels.",
        ),
        (
            Segment("Tom lives with {name} in a hut.", "Tom lebt mit {name} in einer Hütte."),
            "Tom lives with {user} in a camper.",
            "Tom lebt in einem Camper mit {user}.",
        ),
    ],
)
def test_a_match_with_another_number_or_placeholder_guides_the_shipped_model(tmp_path, segment, text, expected):
    with shipped(tmp_path, segment) as translate:
        (free,) = translate([text])
        (guided,) = translate([text], memories=["m"], use_fuzzy=True)
    assert free.hypotheses[0].text.startswith("Tom wohnt in ")
    assert guided.hypotheses[0].text == expected
    assert [match.used for match in guided.matches] == [True]


def test_a_fuzzy_match_guides_the_shipped_model_if_the_request_says_so(tmp_path):
    texts = ["Tom lives in a camper.", "Where is the station? Tom lives in a camper."]
    with shipped(tmp_path, Segment("Tom lives in a slum.", "Tom lebt in einem Elendsviertel.")) as translate:
        free = translate(texts)
        shown = translate(texts, memories=["m"])
        guided = translate(texts, memories=["m"], use_fuzzy=True)
        alone = [result for text in texts for result in translate([text], memories=["m"], use_fuzzy=True)]
    assert [each.hypotheses for each in shown] == [each.hypotheses for each in free]
    assert [[match.used for match in each.matches] for each in shown] == [[False]] * 2
    assert "Tom wohnt in" in free[0].hypotheses[0].text
    assert [each.hypotheses[0].text for each in guided] == [
        each.hypotheses[0].text.replace("Tom wohnt in", "Tom lebt in") for each in free
    ]
    assert [[match.used for match in each.matches] for each in guided] == [[True]] * 2
    assert alone == guided
