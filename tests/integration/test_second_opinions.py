"""The second translator in requests: what it is sent, which answers are taken, and that nothing is lost by the others.

The shipped model translates, and a stand-in answers on a real socket.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lingon
from lingon import AsyncModel, Model, SecondOptions
from lingon.bench.second_server import Fault, Faults, References, SecondServer, running
from lingon.errors import InvalidRequest, SettingsError
from lingon.serving.auth.api_keys import new_key
from lingon.serving.in_process import LocalTranslator
from lingon.serving.second.answers import Failed
from lingon.serving.second.bounds import REJECTIONS
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.choice import SecondChoice
from lingon.serving.second.questions import Question
from lingon.serving.second.second_translator import SecondBounds, SecondTranslator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import running as running_server
from tests.support.gateway import BUNDLES, TwoModels
from tests.support.shipped_model import MODEL
from tests.support.timing import eventually

pytestmark = pytest.mark.timeout(120)

TOM, STATION = "Tom lives in Boston.", "Where is the station?"
SAME = "It is raining."
PRICE = "The price of the house was 4,000 dollars."
KEPT = "Tom has opened {name} at https://example.com/a today."
PAIRS = [
    (TOM, "In Boston lebt Tom."),
    (STATION, "Wo befindet sich der Bahnhof?"),
    (KEPT, "Tom hat {name} heute unter https://example.com/a aufgemacht."),
    ("Tom saw [[1]] in Boston.", "In Boston hat Tom [[1]] gesehen."),
    (SAME, "Es regnet."),
    (PRICE, "Das Haus kostete 4.000 Dollar."),
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


async def test_a_server_whose_answers_are_rejected_is_left_alone_for_the_caller_that_got_them(ours, caplog):
    async with asking(Fault.LANGUAGE) as asked:
        for _ in range(REJECTIONS):
            _, outcome = await asked.outcome(TOM)
            assert outcome.result == pb.SECOND_RESULT_REJECTED
        text, outcome = await asked.outcome(TOM)
        assert (text, outcome.result) == (ours[TOM], pb.SECOND_RESULT_FAILED)
        assert outcome.detail == "the last 20 answers did not pass the checks, and no more are asked for a while"
        assert asked.server.asked.total() == REJECTIONS
        (logged,) = [each for each in caplog.records if "do not pass the checks" in each.getMessage()]
        assert ours[TOM] not in logged.getMessage()


async def test_tags_and_elements_that_stay_as_they_are_are_placed_in_an_answer():
    async with asking() as asked:
        html = pb.TextOptions(format=pb.TEXT_FORMAT_HTML)
        text, outcome = await asked.outcome("<p>Tom lives in <b>Boston</b>.</p>", text=html)
        assert (text, outcome.detail) == ("<p>In <b>Boston</b> lebt Tom.</p>", "")
        (result,) = await asked.translate('<p>Tom saw <i translate="no">X</i> in Boston.</p>', text=html)
        assert json.loads(asked.server.prompts[-1]["content"])["text"] == "Tom saw [[1]] in Boston."
        assert result.hypotheses[0].text == '<p>In Boston hat Tom <i translate="no">X</i> gesehen.</p>'


async def test_a_number_that_an_answer_writes_otherwise_is_kept_as_the_request_wants_it():
    async with asking() as asked:
        text, outcome = await asked.outcome(PRICE)
        assert (text, outcome.detail) == ("Das Haus kostete 4,000 Dollar.", "")
        text, outcome = await asked.outcome(PRICE, text=pb.TextOptions(localise_numbers=True))
        assert (text, outcome.detail) == ("Das Haus kostete 4.000 Dollar.", "")


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


FIRST_QUESTION = """
import asyncio, sys
from lingon.serving.second.answers import Failed
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.questions import Question

class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 500 -\\r\\ncontent-length: 0\\r\\n\\r\\n")

async def ask():
    listening = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
    server = ChatServer(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", "m")
    loaded = set(sys.modules)
    try:
        await server.complete(Question("Tom", "en", "de"))
    except Failed as failure:
        print(failure, sorted(set(sys.modules) - loaded))
    await server.close()
    listening.close()

asyncio.run(ask())
"""


def test_the_first_question_loads_no_code():
    """It would be loaded on the event loop of all calls, in the time of the question."""
    answer = subprocess.run([sys.executable, "-c", FIRST_QUESTION], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "the server answered with the HTTP status 500 []"


async def test_a_cookie_of_the_second_translator_is_not_sent_back():
    """It would tie the questions of all callers to each other."""
    heads = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 500 -\r\nset-cookie: id=7\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        server = ChatServer(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", "m")
        for _ in range(2):
            with pytest.raises(Failed):
                await server.complete(Question("Tom", "en", "de"))
        await server.close()
    assert len(heads) == 2
    assert b"cookie" not in b"".join(heads).lower()


async def test_a_model_in_this_process_has_a_second_translator_if_it_is_given_one(ours):
    async with running(REFERENCES) as stand_in:
        second = lingon.SecondServer(url=stand_in.url, model="stand-in", below=1.0, sentences=1)
        async with AsyncModel(MODEL, second=second) as model:
            options: Any = {"return_sentences": True}
            found = await model.translate(f"{TOM} {STATION}", **options)
            assert [each.second.result for each in found.sentences] == ["over_budget", "taken"]
            assert found.text == f"{ours[TOM]} Wo befindet sich der Bahnhof?"
            never = await model.translate(TOM, second=SecondOptions(never=True), **options)
            assert never.sentences[0].second is None
        assert stand_in.asked.total() == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"below": 1.5}, "below must be 0 to 1, got 1.5"),
        ({"below": math.nan}, "below must be 0 to 1, got nan"),
        ({"timeout": 0}, "timeout must be above 0, got 0"),
        ({"sentences": 0}, "sentences must be at least 1, got 0"),
        ({"characters": -1}, "characters must be at least 0, got -1"),
        ({"concurrency": 0}, "concurrency must be at least 1, got 0"),
        ({"hourly": 0}, "hourly must be at least 1, got 0"),
        ({"url": "localhost"}, "the URL of the second translator must be the URL of an API, such as "),
        ({"key_file": "/no/key"}, "/no/key: "),
    ],
)
def test_a_wrong_setting_of_a_second_translator_is_one_clear_line(fields, message):
    with pytest.raises(SettingsError) as error:
        Model(MODEL, second=lingon.SecondServer(**{"url": "http://127.0.0.1:9/v1", "model": "m", **fields}))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


async def test_the_sentences_of_an_hour_are_those_of_the_key(tmp_path):
    keys = {name: new_key() for name in ("plain", "more", "never")}
    own = {"more": {"second_per_hour": 2}, "never": {"second_per_hour": 0}}
    async with (
        running(REFERENCES) as stand_in,
        running_server(
            api_keys=write_key_file(tmp_path, keys, **own),
            second_url=stand_in.url,
            second_model="stand-in",
            second_below=1.0,
            second_hourly=1,
            cache=1,
        ) as server,
    ):

        async def results(name: str) -> list[int]:
            """Return what became of three sentences that the guard suspects, because the model repeats them."""
            found = list[int]()
            for text in (TOM, STATION, SAME):
                request = pb.TranslateRequest(texts=[text], text=pb.TextOptions(return_sentences=True))
                reply = await server.stub.Translate(request, metadata=bearer(keys[name]))
                found += [each.second.result for each in reply.results[0].sentences]
            return found

        budget, none = pb.SECOND_RESULT_OVER_BUDGET, pb.SECOND_RESULT_UNSPECIFIED
        assert await results("never") == [none] * 3  # and the cache keeps its translations for no other key
        assert [each == budget for each in await results("plain")] == [False, True, True]
        asked = stand_in.asked.total()
        assert asked == 1
        assert (await results("more")).count(budget) <= 1
        assert stand_in.asked.total() <= asked + 2
