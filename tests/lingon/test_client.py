"""`Client` and `AsyncClient` over a real socket, against a server whose faults are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2

import lingon
from lingon import AsyncClient, Client, Sampling, ServerError, StreamStart, Term, TermList, TextDelta, TextDone
from lingon.client.steps import Retry
from lingon.errors import LingonError, SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.either_client import KINDS, asked
from tests.support.ports import free_port
from tests.support.scripted_server import FakeService, ScriptedFault, queue_full, serving

QUICK = Retry(retries=3, first_pause=0.01)
UNAVAILABLE = ScriptedFault(grpc.StatusCode.UNAVAILABLE)

Ask = Callable[..., Any]


@pytest.fixture(params=KINDS)
def ask(request: pytest.FixtureRequest, address: str) -> Ask:
    """ask("translate", "text", beam_size=4) with a new client of either kind; a stream's events come as a list."""

    def with_client(name: str, *values: Any, client: dict[str, Any] | None = None, **options: Any) -> Any:
        settings = {"target": address, "retries": QUICK, "timeout": 10.0, **(client or {})}
        return asyncio.run(asked(request.param, settings, name, *values, **options))

    return with_client


def test_a_text_gives_one_result(ask: Ask) -> None:
    result = ask("translate", "hello", beam_size=4)
    assert (result.text, result.score, result.best.finish_reason) == ("HELLO", -0.5, "end")
    assert (result.model, result.version, result.source_tokens, result.target_tokens) == ("en-de", "1", 3, 4)


def test_a_list_gives_a_list_with_the_error_of_a_bad_text_in_its_place(ask: Ask) -> None:
    good, bad, long = ask("translate", ["hello", "bad", "long"])
    assert good.text == "HELLO"
    assert (bad.error.status, bad.error.reason, bad.translations) == ("INVALID_ARGUMENT", "TEXT_TOO_LONG", ())
    with pytest.raises(ServerError, match="too many tokens"):
        _ = bad.text
    assert [(warning.code, warning.message) for warning in long.warnings] == [("split", "translated in parts")]


def test_terms_reach_the_server_and_the_result_says_what_became_of_them(ask: Ask, service: FakeService) -> None:
    result = ask("translate", "a hot dog", terms={"dog": "DOG", "hot": "heiss", "cat": "Katze"}, glossaries=["shop"])
    assert [(term.source_span, term.target_span, term.means) for term in result.terms] == [
        ((2, 5), None, "missed"),
        ((6, 9), (6, 9), "free"),
    ]
    assert [(each.code, each.message) for each in result.warnings] == [
        ("term_missed", "1 of 2 terms are missed: hot"),
    ]
    (asked,) = service.requests
    assert (len(asked.terms), list(asked.glossaries)) == (3, ["shop"])


def test_the_result_of_a_document_has_the_texts_whose_translation_lacks_a_term(ask: Ask) -> None:
    content = b"# The dog\n\nA hot dog is here.\n"
    result = ask("translate_document", "a.md", content, target="de", terms={"dog": "DOG", "hot": "heiss"})
    assert (result.content, result.without_terms) == (content.upper(), ("A hot dog is here.",))


MANY = TermList(Term(f"w{number}", f"W{number}") for number in range(1000))


def test_of_many_terms_each_request_has_those_of_its_texts(ask: Ask, service: FakeService) -> None:
    texts = ["w3 and w999", "w3 W44 x", "none", "w1 w2", "w5"]
    results = ask("translate", texts, terms=MANY)
    assert [[term.target for term in result.terms] for result in results] == [
        ["W3", "W999"],
        ["W3", "W44"],
        [],
        ["W1", "W2"],
        ["W5"],
    ]
    sent = [[term.source for term in each.terms] for each in service.requests]
    assert sent == [["w1", "w2", "w3", "w44", "w999"], ["w5"]]  # four texts in a request


@pytest.mark.parametrize("call", ["translate", "translate_stream"])
def test_texts_with_more_terms_than_a_request_may_have_are_sent_in_several(
    call: str, ask: Ask, service: FakeService
) -> None:
    texts = [" ".join(f"w{number}" for number in range(first, first + 150)) for first in (0, 150, 300)]
    answers = ask(call, texts, terms=MANY)
    results = answers if call == "translate" else [each.result for each in answers if isinstance(each, TextDone)]
    assert [len(result.terms) for result in results] == [150] * 3
    assert [len(each.terms) for each in service.requests] == [150] * 3


def test_a_text_with_more_terms_than_a_request_may_have_is_sent_in_halves(ask: Ask, service: FakeService) -> None:
    text = " ".join(f"The word w{number} is here." for number in range(300))
    result = ask("translate", text, terms=MANY)
    assert (result.text, len(result.terms)) == (text.upper(), 300)
    assert [text[slice(*term.source_span)].upper() for term in result.terms] == [
        result.text[slice(*term.target_span)] for term in result.terms
    ]
    sent = [len(each.terms) for each in service.requests]
    assert (sum(sent), max(sent) <= 200) == (300, True)


def test_one_sentence_with_more_terms_than_a_request_may_have_is_refused_with_the_bound(ask: Ask) -> None:
    with pytest.raises(ServerError, match=r"the texts have 300 of them, and a request 200 at most; split the text"):
        ask("translate", " ".join(f"w{number}" for number in range(300)), terms=MANY)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("dog", "terms must be a list of lingon.Term, or a dict, got str"),
        (5, "terms must be a list of lingon.Term, or a dict, got int"),
        (["dog"], "terms[0] must be a lingon.Term, got str"),
        ({"dog": 5}, "terms: a target must be a str, got int"),
        ({"dog": "x" * 257}, f'terms: entry 1: its target "{"x" * 64}..." has 257 characters; at most 256'),
        (
            [Term("dog", "a"), Term("Dog", "b")],
            'terms: entries 1 and 2: contradict each other: "Dog" is "a" in the one and "b" in the other',
        ),
    ],
)
def test_wrong_terms_are_refused_before_anything_is_sent(
    terms: Any, message: str, ask: Ask, service: FakeService
) -> None:
    with pytest.raises(SettingsError) as raised:
        ask("translate", "a dog", terms=terms)
    assert (str(raised.value), service.requests) == (message, [])


def test_one_bad_text_alone_raises(ask: Ask) -> None:
    with pytest.raises(ServerError, match="too many tokens") as caught:
        ask("translate", "bad")
    assert caught.value.reason == "TEXT_TOO_LONG"


def test_every_option_reaches_the_server(ask: Ask, service: FakeService) -> None:
    ask(
        "translate",
        "hello",
        model="en-de/1",
        source="en",
        target="de",
        beam_size=2,
        num_hypotheses=2,
        length_penalty=0.5,
        max_output_tokens=9,
        sampling=Sampling(temperature=0.5, top_k=3, top_p=0.25, seed=2**63),
        target_prefix="Ja",
        return_tokens=True,
        return_alignment=True,
        long_text="split",
        shortlist=False,
        min_output_tokens=3,
        no_repeat_ngram_size=2,
        repetition_penalty=1.5,
        forbidden_words=["a", "b c"],
        forced_words=("d",),
        patience=2,
        coverage_penalty=0.25,
        prefix_bias=0.5,
        alternatives=3,
        min_alternative_probability=0.125,
    )
    sampling = pb.SamplingOptions(temperature=0.5, top_k=3, top_p=0.25, seed=2**63)
    assert service.requests == [
        pb.TranslateRequest(
            texts=["hello"],
            model="en-de/1",
            source_language_code="en",
            target_language_code="de",
            options=pb.DecodingOptions(
                beam_size=2,
                num_hypotheses=2,
                length_penalty=0.5,
                max_output_tokens=9,
                sampling=sampling,
                return_tokens=True,
                return_alignment=True,
                long_text=pb.LONG_TEXT_POLICY_SPLIT,
                shortlist=False,
                min_output_tokens=3,
                no_repeat_ngram_size=2,
                repetition_penalty=1.5,
                forbidden_words=["a", "b c"],
                forced_words=["d"],
                patience=2,
                coverage_penalty=0.25,
                prefix_bias=0.5,
                alternatives=3,
                min_alternative_probability=0.125,
            ),
            target_prefixes=["Ja"],
        )
    ]


def test_options_that_are_left_out_are_not_sent(ask: Ask, service: FakeService) -> None:
    ask("translate", "hello", sampling=Sampling(), beam_size=None)
    options = service.requests[0].options
    assert [field.name for field, _ in options.ListFields()] == ["sampling", "long_text"]
    assert not options.sampling.ListFields()


def test_tokens_and_alignment_come_back(ask: Ask) -> None:
    best = ask("translate", "an old cow", return_tokens=True, return_alignment=True).best
    assert [token.piece for token in best.tokens] == ["▁AN", "▁OLD", "▁COW"]
    assert [link.source for link in best.alignment] == [(0, 2), (2, 6), (6, 10)]


def test_a_long_list_is_cut_into_requests_and_comes_back_in_order(ask: Ask, service: FakeService) -> None:
    texts = [f"text {number}" for number in range(11)]
    results = ask("translate", texts, target_prefix=[f"{number}: " for number in range(11)])
    assert [result.text for result in results] == [f"{number}: TEXT {number}" for number in range(11)]
    assert [len(request.texts) for request in service.requests] == [4, 4, 3]
    assert service.listed == 1


def test_later_requests_of_a_list_draw_other_random_numbers(ask: Ask) -> None:
    results = ask("translate", ["cow"] * 6, sampling=Sampling(seed=2**64 - 1))
    drawn = [result.text for result in results]
    assert drawn[:4] == [f"COW {2**64 - 1}+{place}" for place in range(4)]
    assert drawn[4:] == ["COW 3+0", "COW 3+1"]


def test_no_texts_give_no_results(ask: Ask, service: FakeService) -> None:
    assert ask("translate", []) == ask("score", []) == ask("translate_stream", []) == []
    assert service.requests == []


def test_a_request_is_repeated_while_the_server_is_unavailable(ask: Ask, service: FakeService) -> None:
    service.faults = [UNAVAILABLE, UNAVAILABLE]
    assert ask("translate", "hello").text == "HELLO"
    assert len(service.requests) == 3


def test_retries_are_counted(ask: Ask, service: FakeService) -> None:
    service.faults = [UNAVAILABLE] * 99
    with pytest.raises(ServerError) as caught:
        ask("translate", "hello")
    assert (caught.value.status, len(service.requests)) == ("UNAVAILABLE", 1 + QUICK.retries)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0] not in (0, 14)])
def test_no_other_status_is_tried_again(code: grpc.StatusCode, address: str, service: FakeService) -> None:
    service.faults = [ScriptedFault(code)]
    with Client(address, retries=QUICK) as client, pytest.raises(ServerError, match="scripted") as caught:
        client.translate("hello")
    assert (caught.value.code, caught.value.status) == (code.value[0], code.name)
    assert len(service.requests) == 1


def test_retries_never_pass_the_deadline(ask: Ask, service: FakeService) -> None:
    service.faults = [UNAVAILABLE] * 999
    begin = time.monotonic()
    with pytest.raises(ServerError):
        ask("translate", "hello", client={"retries": Retry(retries=999, first_pause=0.02)}, timeout=2)
    assert time.monotonic() - begin < 60  # 999 would take minutes; tests/lingon/test_protocol.py has it to the second
    assert len(service.requests) > 2


def test_a_call_to_a_slow_server_ends_at_the_deadline(ask: Ask, service: FakeService) -> None:
    service.delay = 600.0
    with pytest.raises(ServerError, match="in time") as caught:
        ask("translate", "hello", timeout=0.2)
    assert caught.value.status == "DEADLINE_EXCEEDED"


def test_the_pause_that_the_server_names_is_kept(ask: Ask, service: FakeService) -> None:
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(300)
    service.faults = [ScriptedFault(grpc.StatusCode.UNAVAILABLE, details=(retry,))]
    ask("translate", "hello")
    assert service.arrivals[1] - service.arrivals[0] >= 0.3


def test_a_full_queue_is_waited_for_only_if_wait_when_full_is_set(ask: Ask, service: FakeService) -> None:
    service.faults = [queue_full(0.01) for _ in range(6)]
    with pytest.raises(ServerError) as caught:
        ask("translate", "hello")
    assert (caught.value.reason, caught.value.retry_after, len(service.requests)) == ("QUEUE_FULL", 0.01, 1)
    patient = Retry(retries=0, first_pause=0.01, wait_when_full=True)
    assert ask("translate", "hello", client={"retries": patient}).text == "HELLO"


def test_a_server_that_comes_back_is_found_again(ask: Ask) -> None:
    port = free_port()
    settings = {"target": f"127.0.0.1:{port}", "retries": Retry(retries=50, first_pause=0.05), "timeout": 20}
    with pytest.raises(ServerError, match="no answer from 127") as caught:
        ask("translate", "hello", client={**settings, "retries": 0})
    assert caught.value.status == "UNAVAILABLE"
    pool = asyncio.run(_start_late(port, lambda: ask("translate", "hello", client=settings)))
    assert pool.text == "HELLO"


async def _start_late(port: int, call: Callable[[], Any]) -> Any:
    calling = asyncio.create_task(asyncio.to_thread(call))
    await asyncio.sleep(0.4)
    with serving(FakeService(), port):
        return await calling


def test_an_error_keeps_all_details_of_the_status(ask: Ask, service: FakeService) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="options.beam_size", description="at most 8")
    details = (
        error_details_pb2.ErrorInfo(reason="INVALID_FIELD"),
        error_details_pb2.BadRequest(field_violations=[violation]),
        error_details_pb2.RequestInfo(request_id="request-8"),
    )
    service.faults = [ScriptedFault(grpc.StatusCode.INVALID_ARGUMENT, "beam_size must be\nat most 8", details)] * 1
    with pytest.raises(ServerError) as caught:
        ask("translate", "hello", beam_size=99)
    error = caught.value
    assert (str(error), error.code) == ("beam_size must be at most 8", code_pb2.INVALID_ARGUMENT)
    assert (error.reason, error.violations) == ("INVALID_FIELD", (("options.beam_size", "at most 8"),))
    assert (error.request_id, error.retry_after) == ("request-8", None)


def test_an_error_has_the_request_id_of_the_trailer(ask: Ask, service: FakeService) -> None:
    service.faults = [ScriptedFault(grpc.StatusCode.INTERNAL)]
    with pytest.raises(ServerError) as caught:
        ask("translate", "hello")
    assert caught.value.request_id == "request-7"


def test_a_stream_yields_the_text_as_it_grows(ask: Ask, service: FakeService) -> None:
    texts = ["one", "two", "bad", "four", "five", "six"]
    events = ask("translate_stream", texts)
    assert [type(event) for event in events].count(StreamStart) == 1
    assert events[0].model == "en-de"
    done = {event.index: event.result for event in events if isinstance(event, TextDone)}
    assert sorted(done) == list(range(6))
    assert done[2].error.reason == "TEXT_TOO_LONG"
    for place, text in enumerate(texts):
        deltas = "".join(event.text for event in events if isinstance(event, TextDelta) and event.index == place)
        assert deltas == ("" if place == 2 else text.upper() == done[place].text and text.upper())
    assert [len(request.texts) for request in service.requests] == [4, 2]


def test_the_texts_of_a_stream_may_come_out_of_an_iterator_and_change_afterwards(ask: Ask) -> None:
    done = [event.result.text for event in ask("translate_stream", iter(["one", "two"])) if isinstance(event, TextDone)]
    assert done == ["ONE", "TWO"]


def test_a_stream_is_tried_again_only_before_its_first_event(ask: Ask, service: FakeService) -> None:
    service.faults = [UNAVAILABLE, UNAVAILABLE]
    assert isinstance(ask("translate_stream", "hello")[-1], TextDone)
    assert len(service.requests) == 3
    service.faults = [ScriptedFault(grpc.StatusCode.UNAVAILABLE, after_events=2)]
    with pytest.raises(ServerError, match="scripted"):
        ask("translate_stream", "hello")
    assert len(service.requests) == 4


def test_leaving_a_stream_cancels_it(address: str, service: FakeService) -> None:
    with Client(address) as client:
        events = client.translate_stream(["x" * 2000] * 4)
        assert isinstance(next(events), StreamStart)
        events.close()
        assert client.translate("still there").text == "STILL THERE"


def test_pairs_are_scored_in_order(ask: Ask, service: FakeService) -> None:
    pairs = [("a cow", "eine Kuh"), ("bad", "x"), *[(f"{number}", "ja") for number in range(5)]]
    results = ask("score", pairs, return_alignment=True)
    assert [result.log_prob for result in results] == [-2.5, 0.0, *[-1.5] * 5]
    assert [token.piece for token in results[0].tokens] == ["▁eine", "▁Kuh", "</s>"]
    assert results[1].error.status == "INVALID_ARGUMENT"
    assert [len(request.pairs) for request in service.requests] == [4, 3]
    assert results[0].alignment[1].source == (1, 5)


def test_pairs_and_texts_in_pieces_are_sent_as_such(ask: Ask, service: FakeService) -> None:
    ask("score", [("▁a", "▁b c")], format="pieces")
    ask("translate", "▁a", format="pieces")
    scored, translated = service.requests
    assert scored.format == translated.text.format == pb.TEXT_FORMAT_PIECES
    with pytest.raises(SettingsError, match="format must be one of plain, pieces, got 'html'"):
        ask("score", [("a", "b")], format="html")


def test_models_are_listed(ask: Ask) -> None:
    (model,) = ask("list_models")
    assert (model.name, model.version, model.source_language, model.precision) == ("en-de", "1", "en", "fp32")


def test_health_needs_no_health_package(ask: Ask) -> None:
    assert ask("health") == "SERVING"
    assert ask("health", "lingon.down") == "NOT_SERVING"
    with pytest.raises(ServerError) as caught:
        ask("health", "nobody")
    assert caught.value.status == "NOT_FOUND"


def test_metadata_goes_with_every_call(ask: Ask, service: FakeService) -> None:
    ask("translate", "hello", client={"metadata": [("authorization", "Bearer x")]})
    assert ("authorization", "Bearer x") in [(key, value) for key, value in service.metadata]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"beam_size": -1}, "cannot be written"),
        ({"split_sentences": "no"}, "split_sentences must be one of on, nonewlines, off, got 'no'"),
        ({"format": "HTML"}, "format must be one of plain, html, xml, pieces, got 'HTML'"),
        ({"ignore_tags": "code"}, "ignore_tags must be a list of str, got a str"),
        ({"long_text": "cut"}, "long_text must be one of refuse, split, got 'cut'"),
        ({"source": "\udcff"}, "cannot be written"),
        ({"target_prefix": ["a", "b", "c"]}, "3 prefixes for 2 texts"),
        ({"target_prefix": ["a", None]}, r"target_prefix\[1\] must be a str, got NoneType"),
        ({"target_prefix": 5}, "target_prefix must be a str or a list of them, got int"),
        ({"sampling": {"top_k": 3}}, "sampling must be a lingon.Sampling, got dict"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"timeout": "3"}, "timeout must be above 0 seconds and below 1e7, got '3'"),
    ],
)
def test_an_option_out_of_bounds_is_an_error_before_anything_is_sent(
    options: dict[str, Any], told: str, ask: Ask, service: FakeService
) -> None:
    with pytest.raises(SettingsError, match=told):
        ask("translate", ["hello", "more"], **options)
    for kind in (Client, AsyncClient):  # of a stream too, before its first event is asked for
        with pytest.raises(SettingsError, match=told):
            kind("127.0.0.1:1").translate_stream(["hello", "more"], **options)
    assert (service.requests, service.listed) == ([], 0)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("translate", 5, "texts must be a str or a list of them, got int"),
        ("translate", b"a", "texts must be a str or a list of them, got bytes"),
        ("translate", ["a", 5], r"texts\[1\] must be a str, got int"),
        ("translate_stream", [b"a"], r"texts\[0\] must be a str, got bytes"),
        ("score", None, "pairs must be a list of"),
        ("score", [("a", "b"), "ab"], r"pairs\[1\] must be two str"),
        ("health", "\udcff", "cannot be written"),
    ],
)
def test_arguments_that_are_not_texts_are_errors(name: str, values: Any, told: str, ask: Ask) -> None:
    with pytest.raises(SettingsError, match=told):
        ask(name, values)


def test_an_option_that_is_none_is_left_out(ask: Ask, service: FakeService) -> None:
    nothing = dict.fromkeys(lingon.TranslateOptions.__annotations__)
    assert ask("translate", "hello", **nothing).text == "HELLO"
    assert service.requests == [pb.TranslateRequest(texts=["hello"], options={"long_text": "LONG_TEXT_POLICY_SPLIT"})]


def test_long_texts_are_split_unless_they_are_to_be_refused(ask: Ask, service: FakeService) -> None:
    for verb in ("translate", "translate_stream"):
        ask(verb, "hello")
        ask(verb, "hello", long_text="refuse")
        policies = [request.options.long_text for request in service.requests[-2:]]
        assert policies == [pb.LONG_TEXT_POLICY_SPLIT, pb.LONG_TEXT_POLICY_REFUSE]


def test_an_unknown_option_is_refused(ask: Ask) -> None:
    for name in ("translate", "translate_stream", "score"):
        with pytest.raises(TypeError, match="beam_width"):
            ask(name, ["hello"], beam_width=4)


def test_a_text_that_is_not_unicode_is_refused(ask: Ask) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        ask("translate", "\udce4")


def test_many_threads_share_a_client(address: str) -> None:
    async def all_at_once(client: Client) -> list[Any]:
        calls = [asyncio.to_thread(client.translate, f"text {number}") for number in range(20)]
        return await asyncio.gather(*calls)

    with Client(address) as client:
        results = asyncio.run(all_at_once(client))
    assert [result.text for result in results] == [f"TEXT {number}" for number in range(20)]


def test_a_server_address_that_is_not_utf8_is_an_error() -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(SettingsError, match="not UTF-8"):
            kind("\udcff:50051")


def test_a_call_of_a_closed_client_is_an_error(address: str) -> None:
    client, other = Client(address), AsyncClient(address)
    assert client.translate("hello").text == "HELLO"
    client.close()
    for ask in (client.translate, client.translate_stream):
        with pytest.raises(LingonError, match="this client is closed"):
            list(ask("hello"))

    async def closed() -> None:
        await other.translate("hello")
        await other.close()
        with pytest.raises(LingonError, match="this client is closed"):
            await other.translate("hello")

    asyncio.run(closed())


def test_an_asynchronous_client_refuses_another_event_loop(address: str) -> None:
    client = AsyncClient(address)

    async def ask() -> str:
        return (await client.translate("hello")).text

    assert asyncio.run(ask()) == "HELLO"
    with pytest.raises(LingonError, match="belongs to the event loop"):
        asyncio.run(ask())
    asyncio.run(client.close())


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_closing_a_client_ends_its_calls_as_cancelled(kind: str, address: str, service: FakeService) -> None:
    service.delay = 600.0
    client = Client(address) if kind == "sync" else AsyncClient(address)
    asked = asyncio.to_thread(client.translate, "hello") if kind == "sync" else client.translate("hello")
    call = asyncio.ensure_future(asked)
    while not service.requests:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    closing = client.close()
    if closing is not None:
        await closing
    with pytest.raises(ServerError) as caught:
        await call
    assert caught.value.status == "CANCELLED"
    assert "the client was closed during this call" in str(caught.value)


async def test_a_call_whose_task_is_cancelled_is_cancelled(address: str, service: FakeService) -> None:
    service.delay = 600.0
    async with AsyncClient(address) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.translate("hello"), 0.2)


def test_closing_ends_a_pause_before_the_next_try(address: str, service: FakeService) -> None:
    """It may come before the pause: then it ends the call."""
    service.faults = [queue_full(20.0)]
    with Client(address, retries=Retry(wait_when_full=True)) as client, ThreadPoolExecutor() as pool:
        call = pool.submit(client.translate, "hello")
        while not service.requests:
            time.sleep(0.01)
        client.close()
        with pytest.raises(LingonError, match=r"this client is closed|the client was closed during this call"):
            call.result(timeout=15)


@contextmanager
def vanishing(address: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A proxy to an address, and a function that silences it: connections stay open, but no data comes back."""
    host, port = address.split(":")
    silent = threading.Event()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not silent.is_set():
                    target.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                open_ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    pool.submit(carry, *pair)

    open_ends: list[socket.socket] = []
    with ThreadPoolExecutor(32) as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = pool.submit(accept)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", silent.set
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.result()
            for each in open_ends:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_that_vanished_silently_is_noticed(kind: str, address: str) -> None:
    with vanishing(address) as (way, vanish):

        async def ask_async() -> float:
            async with AsyncClient(way, retries=0, keepalive=1.0) as client:
                await client.translate("hello")
                vanish()
                begin = time.monotonic()
                with pytest.raises(ServerError, match="no answer from"):
                    await client.translate("hello", timeout=90)
                return time.monotonic() - begin

        def ask() -> float:
            with Client(way, retries=0, keepalive=1.0) as client:
                client.translate("hello")
                vanish()
                begin = time.monotonic()
                with pytest.raises(ServerError, match="no answer from"):
                    client.translate("hello", timeout=90)
                return time.monotonic() - begin

        assert (ask() if kind == "sync" else asyncio.run(ask_async())) < 60
