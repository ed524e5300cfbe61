"""The second translator in requests: what it is sent, which answers are taken, and that nothing is lost by the others.

The shipped model translates, and a stand-in answers on a real socket.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingon.bench.second_server import Fault, Faults, References, SecondServer, running
from lingon.errors import InvalidRequest
from lingon.serving.in_process import LocalTranslator
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.choice import SecondChoice
from lingon.serving.second.second_translator import SecondBounds, SecondTranslator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import running as running_server
from tests.support.gateway import BUNDLES, TwoModels
from tests.support.shipped_model import MODEL
from tests.support.timing import eventually

pytestmark = pytest.mark.timeout(120)

TOM, STATION = "Tom lives in Boston.", "Where is the station?"
SAME = "It is raining."
KEPT = "Tom has opened {name} at https://example.com/a today."
PAIRS = [
    (TOM, "In Boston lebt Tom."),
    (STATION, "Wo befindet sich der Bahnhof?"),
    (KEPT, "Tom hat {name} heute unter https://example.com/a aufgemacht."),
    ("Tom saw [[1]] in Boston.", "In Boston hat Tom [[1]] gesehen."),
    (SAME, "Es regnet."),
    ("I would like a cup of tea.", "Ich hätte gern eine Tasse Tee."),
]
REFERENCES = References(PAIRS)
ALL = SecondChoice(below=1.0, sentences=16)


class Asking:
    """A translator with the shipped model, whose second translator is a stand-in."""

    def __init__(self, translator: LocalTranslator, server: SecondServer, ended: list[tuple[int, int]]) -> None:
        self._translator, self.server, self.ended = translator, server, ended

    async def translate(self, *texts: str, seconds: float | None = None, **fields: Any) -> list[pb.TextResult]:
        fields.setdefault("text", pb.TextOptions()).return_sentences = True
        request = pb.TranslateRequest(texts=texts, **fields)
        return list((await asyncio.wrap_future(self._translator.begin("Translate", request, seconds))).results)

    async def outcome(self, source: str, **fields: Any) -> tuple[str, pb.SecondOutcome]:
        """Return the translation of a sentence, and what the second translator did."""
        (result,) = await self.translate(source, **fields)
        (sentence,) = result.sentences
        return result.hypotheses[0].text, sentence.second

    async def stream(self, text: str, **fields: Any) -> tuple[str, pb.TextResult]:
        """Return the deltas of a text, joined, and its result."""
        fields.setdefault("text", pb.TextOptions()).return_sentences = True
        request = pb.TranslateStreamRequest(texts=[text], **fields)
        messages = await asyncio.to_thread(lambda: list(self._translator.translate_stream(request)))
        (result,) = (each.done.result for each in messages if each.HasField("done"))
        return "".join(each.delta.text for each in messages if each.HasField("delta")), result

    def begin(self, text: str) -> Any:
        return self._translator.begin("Translate", pb.TranslateRequest(texts=[text]), None)


@asynccontextmanager
async def asking(
    fault: Fault | None = None,
    *,
    choice: SecondChoice = ALL,
    seconds: float = 20,
    cache: int | None = None,
    **bounds: Any,
) -> AsyncIterator[Asking]:
    async with running(REFERENCES, Faults({fault: 1.0} if fault else {})) as server:
        ended: list[tuple[int, int]] = []
        second = SecondTranslator(
            ChatServer(server.url, "stand-in"),
            choice,
            SecondBounds(seconds=seconds, **{"at_once": 8, **bounds}),
            on_end=lambda reason, result: ended.append((reason, result)),
        )
        translator = await asyncio.to_thread(LocalTranslator, MODEL, second=second, cache=cache)
        try:
            yield Asking(translator, server, ended)
        finally:
            await asyncio.to_thread(translator.close)


@pytest.fixture(scope="module")
def ours() -> dict[str, str]:
    """The translations of the model alone."""
    with LocalTranslator(MODEL) as translator:
        reply = translator.translate(pb.TranslateRequest(texts=[source for source, _ in PAIRS]))
        return {source: each.hypotheses[0].text for (source, _), each in zip(PAIRS, reply.results, strict=True)}


async def test_a_better_answer_is_the_translation_and_the_reply_says_so(ours):
    async with asking() as asked:
        (result,) = await asked.translate(f"{TOM} {STATION}")
        assert result.hypotheses[0].text == "In Boston lebt Tom. Wo befindet sich der Bahnhof?"
        assert [each.second.result for each in result.sentences] == [pb.SECOND_RESULT_TAKEN] * 2
        assert [each.second.model for each in result.sentences] == ["stand-in"] * 2
        assert [each.HasField("confidence") for each in result.sentences] == [False, False]
        assert [each.code for each in result.warnings] == [pb.WARNING_CODE_SECOND]
        assert result.warnings[0].message == "2 of 2 sentences are from the second translator, stand-in"
    assert ours[TOM] != "In Boston lebt Tom."


async def test_the_question_has_the_text_around_a_sentence_its_terms_and_what_is_kept():
    async with asking(choice=SecondChoice(below=1.0, sentences=1)) as asked:
        text = f"{STATION} {KEPT}"  # the longer sentence has more to gain, and one may be sent
        await asked.translate(text, terms=[pb.Term(source="Tom", target="Thomas", forbid=["Tomas"])])
        question = json.loads(asked.server.prompts[-1]["content"])
        assert question == {
            "text": KEPT,
            "before": STATION,
            "keep": ["{name}", "https://example.com/a"],
            "terms": {"Tom": "Thomas"},
            "avoid": ["Tomas"],
        }


@pytest.mark.parametrize("fault", [each for each in Fault if each not in (Fault.SLOW, Fault.HANG, Fault.HUGE)])
async def test_an_answer_with_a_fault_leaves_our_translation(fault, ours):
    async with asking(fault) as asked:
        text, outcome = await asked.outcome(KEPT)
        assert asked.server.asked.total() == 1
        assert (text, outcome.reason) == (ours[KEPT], pb.SECOND_REASON_CONFIDENCE)
        assert outcome.result not in (pb.SECOND_RESULT_TAKEN, pb.SECOND_RESULT_UNSPECIFIED)
        assert outcome.detail
        assert "\n" not in outcome.detail
        assert asked.ended == [(outcome.reason, outcome.result)]


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        (Fault.NUMBER, "the answer has other numbers than its source"),
        (Fault.LANGUAGE, "the answer fits the source language better; the answer is a copy of its source"),
        (Fault.OTHER, "our model gives the tokens of the answer a mean log-probability of "),
    ],
)
async def test_an_answer_that_is_no_translation_is_rejected_by_the_check_that_sees_it(fault, detail):
    async with asking(fault) as asked:
        _, outcome = await asked.outcome(STATION)
        assert outcome.result == pb.SECOND_RESULT_REJECTED
        assert outcome.detail.startswith(detail)


async def test_an_answer_that_is_our_translation_is_ours(ours):
    async with asking() as asked:
        (result,) = await asked.translate(SAME)
        (sentence,) = result.sentences
        assert (result.hypotheses[0].text, sentence.second.result) == (ours[SAME], pb.SECOND_RESULT_REJECTED)
        assert sentence.second.detail == "the answer is the translation that there is"
        assert sentence.HasField("confidence")


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.HANG])
async def test_an_answer_that_does_not_come_in_time_leaves_our_translation(fault, ours):
    async with asking(fault, seconds=0.5) as asked:
        text, outcome = await asked.outcome(TOM)
        assert (text, outcome.result) == (ours[TOM], pb.SECOND_RESULT_TIMED_OUT)
        assert outcome.detail == "no answer within 0.5 s"


async def test_the_deadline_of_a_call_bounds_the_time_of_the_question(ours):
    async with asking(Fault.SLOW, seconds=60) as asked:
        text, outcome = await asked.outcome(TOM, seconds=3)
        assert (text, outcome.result) == (ours[TOM], pb.SECOND_RESULT_TIMED_OUT)


async def test_a_caller_that_leaves_ends_the_question_at_the_other_server():
    async with asking(Fault.SLOW) as asked:
        call = asked.begin(TOM)
        await eventually(lambda: asked.server.open == 1)
        call.cancel()
        await eventually(lambda: asked.server.left == 1)


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(ours):
    async with asking(Fault.HUGE) as asked:
        text, outcome = await asked.outcome(TOM)
        assert (text, outcome.detail) == (ours[TOM], "the reply has more than 262144 bytes")


async def test_a_server_that_is_dead_is_asked_a_few_times_only(ours):
    async with asking(Fault.DEAD) as asked:
        for _ in range(8):
            text, outcome = await asked.outcome(TOM)
            assert (text, outcome.result) == (ours[TOM], pb.SECOND_RESULT_FAILED)
        assert asked.server.asked.total() == 5


async def test_tags_and_elements_that_stay_as_they_are_are_placed_in_an_answer():
    async with asking() as asked:
        html = pb.TextOptions(format=pb.TEXT_FORMAT_HTML)
        text, outcome = await asked.outcome("<p>Tom lives in <b>Boston</b>.</p>", text=html)
        assert (text, outcome.detail) == ("<p>In <b>Boston</b> lebt Tom.</p>", "")
        (result,) = await asked.translate('<p>Tom saw <i translate="no">X</i> in Boston.</p>', text=html)
        assert json.loads(asked.server.prompts[-1]["content"])["text"] == "Tom saw [[1]] in Boston."
        assert result.hypotheses[0].text == '<p>In Boston hat Tom <i translate="no">X</i> gesehen.</p>'


async def test_an_answer_that_lacks_a_term_is_not_taken():
    async with asking() as asked:
        source = "I would like a cup of tea."
        text, outcome = await asked.outcome(source, terms=[pb.Term(source="tea", target="Kräutertee")])
        assert "Kräutertee" in text
        assert (outcome.result, outcome.detail) == (
            pb.SECOND_RESULT_REJECTED,
            "the answer lacks 1 terms, and the translation that there is 0",
        )


async def test_an_answer_has_an_alignment_and_no_tokens():
    async with asking() as asked:
        options = pb.DecodingOptions(return_alignment=True, return_tokens=True)
        (result,) = await asked.translate(TOM, options=options)
        (best,) = result.hypotheses
        assert best.text == "In Boston lebt Tom."
        assert not best.tokens
        assert best.alignment


async def test_a_stream_sends_a_sentence_when_it_is_decided_and_deltas_are_the_result():
    async with asking() as asked:
        greedy = pb.DecodingOptions(beam_size=1, num_hypotheses=1)
        deltas, result = await asked.stream(f"{TOM} {STATION}", options=greedy)
        assert deltas == result.hypotheses[0].text == "In Boston lebt Tom. Wo befindet sich der Bahnhof?"
        assert [each.second.result for each in result.sentences] == [pb.SECOND_RESULT_TAKEN] * 2


async def test_no_sentence_is_sent_that_the_request_excludes():
    async with asking() as asked:
        excluded: list[dict[str, Any]] = [
            {"second": pb.SecondOptions(never=True)},
            {"second": pb.SecondOptions(below=0.0)},
            {"second": pb.SecondOptions(sentences=0)},
            {"text": pb.TextOptions(guard=pb.GUARD_POLICY_OFF)},
            {"target_prefixes": ["Tom"]},
            {"options": pb.DecodingOptions(forbidden_words=["Haus"])},
            {"options": pb.DecodingOptions(beam_size=2, num_hypotheses=2)},
        ]
        for fields in excluded:
            (result,) = await asked.translate(TOM, **fields)
            assert not any(each.HasField("second") for each in result.sentences)
        assert asked.server.asked.total() == 0
        with pytest.raises(InvalidRequest, match=r"second\.below must be 0 to 1, got 2"):
            await asked.translate(TOM, second=pb.SecondOptions(below=2))


async def test_the_sentences_of_a_request_and_of_an_hour_are_bounded():
    async with asking(hourly=2) as asked:
        results = await asked.translate(TOM, STATION, second=pb.SecondOptions(sentences=1))
        details = sorted(each.second.detail for result in results for each in result.sentences)
        assert details == ["", "the request has sent as many sentences as it may"]
        await asked.translate(TOM)
        _, outcome = await asked.outcome(TOM)
        assert outcome.result == pb.SECOND_RESULT_OVER_BUDGET
        assert outcome.detail.startswith("the caller has sent as many sentences as it may in an hour; the next in ")
        assert asked.server.asked.total() == 2


async def test_at_most_so_many_questions_are_open_and_the_others_wait_no_longer_than_they_may():
    async with asking(Fault.SLOW, seconds=1, at_once=1) as asked:
        (result,) = await asked.translate(f"{TOM} {STATION} {KEPT}")
        outcomes = {each.second.result for each in result.sentences}
        assert outcomes <= {pb.SECOND_RESULT_TIMED_OUT, pb.SECOND_RESULT_OVER_BUDGET}
        assert asked.server.most_open == 1


async def test_the_cache_keeps_judged_answers_and_no_failures():
    async with asking(cache=1) as asked:
        assert await asked.outcome(TOM) == await asked.outcome(TOM)
        assert asked.server.asked.total() == 1
        await asked.outcome(TOM, second=pb.SecondOptions(never=True))
    async with asking(Fault.ERROR, cache=1) as asked:
        await asked.outcome(TOM)
        await asked.outcome(TOM)
        assert asked.server.asked.total() == 2


async def test_a_server_counts_what_became_of_sentences():
    async with (
        running(REFERENCES) as stand_in,
        running_server(second_url=stand_in.url, second_model="stand-in", second_below=1.0) as server,
    ):
        await server.translate(TOM)  # the model repeats it, which the guard suspects
        counted = [
            server.metric("lingon_second_total", reason="suspect", result=result)
            for result in ("taken", "rejected", "timed_out", "failed", "no_answer", "over_budget")
        ]
        assert sum(counted) == stand_in.asked.total() == server.metric("lingon_second_duration_seconds_count") == 1


async def test_a_pair_that_is_translated_through_a_pivot_is_not_sent():
    async with (
        running(REFERENCES) as stand_in,
        running_server(
            bundles=BUNDLES, loader=TwoModels, second_url=stand_in.url, second_model="stand-in", second_below=1.0
        ) as server,
    ):
        text = "Das Meer Das Meer Das Meer Das Meer Das Meer Das Meer Das Meer Das Meer Das Meer Das Meer."
        await server.translate(text, "Nichts.", source_language_code="de", target_language_code="fr")
        assert stand_in.asked.total() == 0
        await server.translate("Nichts.", source_language_code="de", target_language_code="en")
        assert stand_in.asked.total() == 1


OFFLINE = """
import sys
connected = []
sys.addaudithook(lambda name, details: connected.append(details) if name == "socket.connect" else None)
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb
with LocalTranslator(sys.argv[1]) as translator:
    asked = pb.TranslateRequest(texts=["Tom lives in Boston."], second=pb.SecondOptions(below=1.0, sentences=10))
    print(translator.translate(asked).results[0].hypotheses[0].text)
print(connected, [name for name in sys.modules if name.startswith(("httpx", "httpcore"))])
"""


def test_without_a_second_translator_no_socket_is_opened_and_no_client_is_loaded():
    answer = subprocess.run([sys.executable, "-c", OFFLINE, str(MODEL)], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[1] == "[] []"
