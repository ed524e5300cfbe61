"""The checker finds what was planted, and nothing in what is right."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chaos import checker
from chaos.checker import Call
from chaos.history import Fate, TextFate
from chaos.prometheus import Scrape

GOLDEN = {(1, "one"): "eins", (1, "two"): "zwei"}
TEXTS = {"one": "eins", "two": "zwei"}


def fate(name: str = "a-1", *texts: str, **changed: Any) -> Fate:
    """A request that went well, but for what is changed."""
    asked = texts or ("one",)
    values: dict[str, Any] = {
        "id": name,
        "method": "Translate",
        "texts": asked,
        "due": 1.0,
        "sent": 1.0,
        "ended": 2.0,
        "code": "OK",
        "results": [TextFate(index, "OK", TEXTS[text]) for index, text in enumerate(asked)],
        "request_id": name,
    }
    return Fate(**{**values, **changed})


def failed(name: str, code: str, **changed: Any) -> Fate:
    return fate(name, code=code, results=[], **changed)


def call(name: str = "a-1", code: str = "OK", method: str = "Translate") -> Call:
    return Call(name, method, code, 1.0, 0.0)


def scrape(**requests: int) -> Scrape:
    """Counters of Translate by code, with what else goes with them, at rest."""
    lines = [f'lingon_requests_total{{method="Translate",code="{code}"}} {count}' for code, count in requests.items()]
    lines += [f'lingon_texts_total{{code="{code}"}} {count}' for code, count in requests.items()]
    lines += [f'lingon_request_duration_seconds_count{{method="Translate"}} {sum(requests.values())}']
    return Scrape.parse("\n".join([*lines, *(f"{name} 0.0" for name in checker.GAUGES)]))


def test_a_run_that_went_well_has_no_violations():
    fates = [fate("a-1"), fate("a-2", "one", "two"), failed("a-3", "RESOURCE_EXHAUSTED")]
    calls = [call("a-1"), call("a-2"), call("a-3", "RESOURCE_EXHAUSTED")]
    told = scrape(OK=2, RESOURCE_EXHAUSTED=1)
    texts = Scrape({**told.values, ("lingon_texts_total", frozenset({("code", "OK")})): 3})
    assert [
        *checker.ended_once(fates),
        *checker.as_alone(fates, GOLDEN),
        *checker.paired(fates, calls),
        *checker.counted(calls, told),
        *checker.counted_as_told(fates, calls, texts),
        *checker.histograms(told),
        *checker.at_rest(told),
    ] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (fate(ended=None), "a-1 never ended"),
        (fate(code=""), "a-1 never ended"),
        (fate(code="UNKNOWN"), "a-1 ended with UNKNOWN, which is not in the contract"),
        (fate(ended=0.5), "a-1 ended before it was sent"),
        (fate(results=[]), "a-1 has results [] for 1 texts"),
        (fate(results=[TextFate(0, "OK", "eins")] * 2), "a-1 has results [0, 0] for 1 texts"),
        (fate(code="UNAVAILABLE", results=[TextFate(0, "OK", "eins")] * 2), "a-1 has a text with two results: [0, 0]"),
        (fate(request_id="b-7"), "a-1 was answered as b-7"),
        (fate(request_id=""), "a-1 was answered as nothing"),
    ],
)
def test_a_request_that_did_not_end_once_is_found(wrong, words):
    assert checker.ended_once([fate("a-0"), wrong]) == [words]


def test_a_request_that_was_sent_twice_is_found():
    assert checker.ended_once([fate("a-1"), fate("a-1")]) == ["a-1 was sent 2 times"]


@pytest.mark.parametrize("text", ["zwei", "", "eins "])
def test_a_translation_that_is_not_that_of_the_text_alone_is_found(text):
    wrong = fate("a-2", "one", "one", results=[TextFate(0, "OK", "eins"), TextFate(1, "OK", text)])
    assert checker.as_alone([fate(), wrong], GOLDEN) == ["a-2 text 1 is not translated as it is alone"]


def test_a_text_without_a_golden_translation_is_found():
    assert checker.as_alone([fate(beam_size=4)], GOLDEN) == ["a-1 text 0 is not translated as it is alone"]


def test_a_wrong_translation_in_an_answer_that_was_cut_short_is_found():
    cut = fate(code="UNAVAILABLE", results=[TextFate(0, "OK", "zwei")])
    assert checker.as_alone([cut], GOLDEN) == ["a-1 text 0 is not translated as it is alone"]


def test_codes_that_a_run_does_not_allow_are_found_in_requests_and_texts():
    text = fate("a-2", results=[TextFate(0, "INTERNAL")])
    assert checker.only([fate(), failed("a-1", "INTERNAL", reason="ENGINE_FAULT"), text], {"OK"}) == [
        "a-1 ended with INTERNAL ENGINE_FAULT",
        "a-2 text 0: INTERNAL",
    ]


@pytest.mark.parametrize(
    ("client", "server"),
    [
        ("OK", "CANCELLED"),
        ("OK", "UNAVAILABLE"),
        ("RESOURCE_EXHAUSTED", "OK"),
        ("CANCELLED", "INTERNAL"),
        ("DEADLINE_EXCEEDED", "INTERNAL"),
        ("UNAVAILABLE", "RESOURCE_EXHAUSTED"),
    ],
)
def test_a_client_and_a_server_that_disagree_are_found(client, server):
    assert checker.paired([failed("a-1", client)], [call("a-1", server)]) == [
        f"a-1: the client has {client}, the server {server}"
    ]


@pytest.mark.parametrize(
    ("client", "server"),
    [("CANCELLED", "OK"), ("DEADLINE_EXCEEDED", "CANCELLED"), ("KILLED", "CANCELLED"), ("UNAVAILABLE", "OK")],
)
def test_a_client_that_gives_up_may_cross_with_the_answer(client, server):
    assert checker.paired([failed("a-1", client)], [call("a-1", server)]) == []


@pytest.mark.parametrize("code", ["OK", "RESOURCE_EXHAUSTED", "INTERNAL"])
def test_an_answer_that_the_server_knows_nothing_of_is_found(code):
    assert checker.paired([failed("a-1", code)], []) == [f"a-1 ended with {code}, and the server knows nothing of it"]


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED", "KILLED", "UNAVAILABLE"])
def test_a_request_may_never_have_reached_the_server(code):
    assert checker.paired([failed("a-1", code)], []) == []


def test_an_answer_that_nobody_asked_for_and_one_given_twice_are_found():
    assert checker.paired([fate("a-1")], [call("a-1"), call("a-1"), call("b-1")]) == [
        "the server has answered a-1 2 times",
        "the server has answered b-1, which nobody sent",
    ]


def test_counters_that_differ_from_the_log_are_found_code_by_code():
    calls = [call("a-1"), call("a-2"), call("a-3", "CANCELLED")]
    assert checker.counted(calls, scrape(OK=2, CANCELLED=1)) == []
    assert checker.counted(calls, scrape(OK=3)) == [
        "Translate CANCELLED: 1 in the log, 0 in the counter",
        "Translate OK: 2 in the log, 3 in the counter",
    ]


def test_a_scrape_before_the_end_equals_the_beginning_of_the_log():
    calls = [call("a-1"), call("a-2", "CANCELLED"), call("a-3")]
    assert checker.counted_until(calls, scrape(OK=1, CANCELLED=1)) == []
    assert checker.counted_until(calls, scrape(OK=2)) == [
        "Translate CANCELLED: 1 in the log, 0 in the counter",
        "Translate OK: 1 in the log, 2 in the counter",
    ]
    assert checker.counted_until(calls, scrape(OK=4)) == ["4 calls were counted, 3 are in the log"]


def test_texts_that_are_counted_otherwise_than_told_are_found():
    fates = [fate("a-1"), failed("a-2", "DEADLINE_EXCEEDED")]
    calls = [call("a-1"), call("a-2", "DEADLINE_EXCEEDED")]
    assert checker.counted_as_told(fates, calls, scrape(OK=1, DEADLINE_EXCEEDED=1)) == []
    assert checker.counted_as_told(fates, calls, scrape(OK=2)) == [
        "texts with DEADLINE_EXCEEDED: 1 by the clients, 0 in the counter",
        "texts with OK: 1 by the clients, 2 in the counter",
    ]


def test_texts_whose_client_did_not_wait_may_have_been_done_but_no_more_than_they_are():
    fates, calls = [fate("a-1"), failed("a-2", "CANCELLED")], [call("a-1"), call("a-2")]
    assert checker.counted_as_told(fates, calls, scrape(OK=1)) == []
    assert checker.counted_as_told(fates, calls, scrape(OK=2)) == []
    assert checker.counted_as_told(fates, calls, scrape(OK=3)) == ["texts with OK: 1 by the clients, 3 in the counter"]


def test_a_histogram_with_fewer_values_than_calls_is_found():
    told = scrape(OK=3)
    key = ("lingon_request_duration_seconds_count", frozenset({("method", "Translate")}))
    assert checker.histograms(Scrape({**told.values, key: 2})) == ["Translate: 3 calls, 2 durations"]


@pytest.mark.parametrize("gauge", checker.GAUGES)
def test_a_gauge_that_is_not_back_to_0_is_found(gauge):
    told = scrape(OK=1)
    assert checker.at_rest(Scrape({**told.values, (gauge, frozenset()): 2})) == [f"{gauge} is 2"]


def test_growth_is_that_of_the_trend_whatever_single_samples_do():
    flat = [100.0 + (5.0 if number % 10 == 0 else 0.0) for number in range(101)]
    assert checker.growth(flat) == pytest.approx(0.0)
    assert checker.growth([value + 0.1 * number for number, value in enumerate(flat)]) == pytest.approx(10.0, rel=0.1)
    assert math.isnan(checker.growth([1.0]))


def test_spread_leaves_out_the_outliers_that_it_may():
    assert checker.spread([100.0] * 98 + [500.0] * 2) == pytest.approx(0.0)
    assert checker.spread([100.0] * 80 + [120.0] * 20) == pytest.approx(120 / 103.3 - 1, rel=0.02)
    assert math.isnan(checker.spread([]))


@pytest.mark.parametrize(
    ("code", "asked", "words"),
    [
        ("DEADLINE_EXCEEDED", {"deadline": 1.0}, []),
        ("DEADLINE_EXCEEDED", {}, ["a-1 had no answer, and would have waited for any"]),
        ("CANCELLED", {"cancel_after": 0.1}, []),
        ("CANCELLED", {}, ["a-1 was cancelled, and not by its client"]),
    ],
)
def test_only_who_meant_to_give_up_may_have_given_up(code: str, asked: dict[str, float], words: list[str]) -> None:
    assert checker.ended_once([failed("a-1", code, **asked)]) == words
