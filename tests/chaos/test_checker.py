"""The checker finds planted violations, and none in a correct run."""

from __future__ import annotations

import math
from typing import Any

import pytest

import chaos.verdict.checker as checker
from chaos.verdict.checker import Call
from chaos.verdict.history import Outcome, TextOutcome
from chaos.verdict.prometheus import Scrape

GOLDEN = {(1, "one"): "eins", (1, "two"): "zwei"}
TEXTS = {"one": "eins", "two": "zwei"}


def outcome(name: str = "a-1", *texts: str, **changed: Any) -> Outcome:
    """A successful request with some values changed."""
    asked = texts or ("one",)
    values: dict[str, Any] = {
        "id": name,
        "method": "Translate",
        "texts": asked,
        "due": 1.0,
        "sent": 1.0,
        "ended": 2.0,
        "code": "OK",
        "results": [TextOutcome(index, "OK", TEXTS[text]) for index, text in enumerate(asked)],
        "request_id": name,
    }
    return Outcome(**{**values, **changed})


def failed(name: str, code: str, **changed: Any) -> Outcome:
    return outcome(name, code=code, results=[], **changed)


def call(name: str = "a-1", code: str = "OK", method: str = "Translate") -> Call:
    return Call(name, method, code, 1.0, 0.0)


def scrape(**requests: int) -> Scrape:
    """Metrics of an idle server with these calls of Translate by code."""
    lines = [f'lingon_requests_total{{method="Translate",code="{code}"}} {count}' for code, count in requests.items()]
    lines += [f'lingon_texts_total{{code="{code}"}} {count}' for code, count in requests.items()]
    lines += [f'lingon_request_duration_seconds_count{{method="Translate"}} {sum(requests.values())}']
    return Scrape.parse("\n".join([*lines, *(f"{name} 0.0" for name in checker.GAUGES)]))


def test_a_correct_run_has_no_violations():
    outcomes = [outcome("a-1"), outcome("a-2", "one", "two"), failed("a-3", "RESOURCE_EXHAUSTED")]
    calls = [call("a-1"), call("a-2"), call("a-3", "RESOURCE_EXHAUSTED")]
    told = scrape(OK=2, RESOURCE_EXHAUSTED=1)
    texts = Scrape({**told.values, ("lingon_texts_total", frozenset({("code", "OK")})): 3})
    assert [
        *checker.ended_once(outcomes),
        *checker.same_as_alone(outcomes, GOLDEN),
        *checker.server_agrees(outcomes, calls),
        *checker.counters_equal_log(calls, told),
        *checker.text_counters_agree(outcomes, calls, texts),
        *checker.durations_match_calls(told),
        *checker.gauges_at_zero(told),
    ] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (outcome(ended=None), "a-1 never ended"),
        (outcome(code=""), "a-1 never ended"),
        (outcome(code="UNKNOWN"), "a-1 ended with UNKNOWN, which is not documented"),
        (outcome(ended=0.5), "a-1 ended before it was sent"),
        (outcome(results=[]), "a-1 has results [] for 1 texts"),
        (outcome(results=[TextOutcome(0, "OK", "eins")] * 2), "a-1 has results [0, 0] for 1 texts"),
        (
            outcome(code="UNAVAILABLE", results=[TextOutcome(0, "OK", "eins")] * 2),
            "a-1 has a text with two results: [0, 0]",
        ),
        (outcome(request_id="b-7"), "a-1 was answered as b-7"),
        (outcome(request_id=""), "a-1 was answered as nothing"),
    ],
)
def test_a_request_that_did_not_end_once_is_found(wrong, words):
    assert checker.ended_once([outcome("a-0"), wrong]) == [words]


def test_a_request_that_was_sent_twice_is_found():
    assert checker.ended_once([outcome("a-1"), outcome("a-1")]) == ["a-1 was sent 2 times"]


@pytest.mark.parametrize("text", ["zwei", "", "eins "])
def test_a_translation_that_is_not_that_of_the_text_alone_is_found(text):
    wrong = outcome("a-2", "one", "one", results=[TextOutcome(0, "OK", "eins"), TextOutcome(1, "OK", text)])
    assert checker.same_as_alone([outcome(), wrong], GOLDEN) == ["a-2 text 1 is not translated as it is alone"]


def test_a_text_without_a_golden_translation_is_found():
    assert checker.same_as_alone([outcome(beam_size=4)], GOLDEN) == ["a-1 text 0 is not translated as it is alone"]


def test_a_wrong_translation_in_a_cancelled_answer_is_found():
    cut = outcome(code="UNAVAILABLE", results=[TextOutcome(0, "OK", "zwei")])
    assert checker.same_as_alone([cut], GOLDEN) == ["a-1 text 0 is not translated as it is alone"]


def test_codes_that_a_run_does_not_allow_are_found_in_requests_and_texts():
    text = outcome("a-2", results=[TextOutcome(0, "INTERNAL")])
    assert checker.only_codes([outcome(), failed("a-1", "INTERNAL", reason="ENGINE_FAULT"), text], {"OK"}) == [
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
    assert checker.server_agrees([failed("a-1", client)], [call("a-1", server)]) == [
        f"a-1: the client has {client}, the server {server}"
    ]


@pytest.mark.parametrize(
    ("client", "server"),
    [
        ("CANCELLED", "OK"),
        ("CANCELLED", "RESOURCE_EXHAUSTED"),
        ("DEADLINE_EXCEEDED", "CANCELLED"),
        ("KILLED", "CANCELLED"),
        ("UNAVAILABLE", "OK"),
    ],
)
def test_a_client_may_cancel_while_the_answer_is_on_its_way(client, server):
    assert checker.server_agrees([failed("a-1", client)], [call("a-1", server)]) == []


@pytest.mark.parametrize("code", ["OK", "RESOURCE_EXHAUSTED", "INTERNAL"])
def test_an_answer_that_is_not_in_the_log_is_found(code):
    assert checker.server_agrees([failed("a-1", code)], []) == [
        f"a-1 ended with {code}, but is not in the server's log"
    ]


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED", "KILLED", "UNAVAILABLE"])
def test_a_request_may_never_have_reached_the_server(code):
    assert checker.server_agrees([failed("a-1", code)], []) == []


def test_an_answer_without_a_request_and_a_second_answer_are_found():
    assert checker.server_agrees([outcome("a-1")], [call("a-1"), call("a-1"), call("b-1")]) == [
        "the server has answered a-1 2 times",
        "the server has answered b-1, which no client sent",
    ]


def test_counters_that_differ_from_the_log_are_found_code_by_code():
    calls = [call("a-1"), call("a-2"), call("a-3", "CANCELLED")]
    assert checker.counters_equal_log(calls, scrape(OK=2, CANCELLED=1)) == []
    assert checker.counters_equal_log(calls, scrape(OK=3)) == [
        "Translate CANCELLED: 1 in the log, 0 in the counter",
        "Translate OK: 2 in the log, 3 in the counter",
    ]


def test_an_early_scrape_equals_the_beginning_of_the_log():
    calls = [call("a-1"), call("a-2", "CANCELLED"), call("a-3")]
    assert checker.counters_equal_log_until(calls, scrape(OK=1, CANCELLED=1)) == []
    assert checker.counters_equal_log_until(calls, scrape(OK=2)) == [
        "Translate CANCELLED: 1 in the log, 0 in the counter",
        "Translate OK: 1 in the log, 2 in the counter",
    ]
    assert checker.counters_equal_log_until(calls, scrape(OK=4)) == ["4 calls were counted, 3 are in the log"]


def test_text_counters_that_differ_from_the_results_are_found():
    outcomes = [outcome("a-1"), failed("a-2", "INTERNAL")]
    calls = [call("a-1"), call("a-2", "INTERNAL")]
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=1, INTERNAL=1)) == []
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=2)) == [
        "texts with INTERNAL: 1 by the clients, 0 in the counter",
        "texts with OK: 1 by the clients, 2 in the counter",
    ]


def test_texts_whose_client_did_not_wait_may_be_counted_but_no_others():
    outcomes, calls = [outcome("a-1"), failed("a-2", "CANCELLED")], [call("a-1"), call("a-2")]
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=1)) == []
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=2)) == []
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=3)) == [
        "texts with OK: 1 by the clients, 3 in the counter"
    ]


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"])
def test_the_texts_of_a_call_that_ended_before_it_was_read_may_be_missing_but_not_too_many(code):
    outcomes, calls = [outcome("a-1"), failed("a-2", code)], [call("a-1"), call("a-2", code)]
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=1)) == []
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=1, **{code: 1})) == []
    assert checker.text_counters_agree(outcomes, calls, scrape(OK=1, **{code: 2})) == [
        f"texts with {code}: 0 by the clients, 2 in the counter"
    ]


def test_a_histogram_with_fewer_values_than_calls_is_found():
    told = scrape(OK=3)
    key = ("lingon_request_duration_seconds_count", frozenset({("method", "Translate")}))
    assert checker.durations_match_calls(Scrape({**told.values, key: 2})) == ["Translate: 3 calls, 2 durations"]


@pytest.mark.parametrize("gauge", checker.GAUGES)
def test_a_gauge_that_is_not_back_to_0_is_found(gauge):
    told = scrape(OK=1)
    assert checker.gauges_at_zero(Scrape({**told.values, (gauge, frozenset()): 2})) == [f"{gauge} is 2"]


def test_growth_follows_the_trend_and_ignores_single_samples():
    flat = [100.0 + (5.0 if number % 10 == 0 else 0.0) for number in range(101)]
    assert checker.growth(flat) == pytest.approx(0.0)
    assert checker.growth([value + 0.1 * number for number, value in enumerate(flat)]) == pytest.approx(10.0, rel=0.1)
    assert math.isnan(checker.growth([1.0]))


def test_spread_ignores_outliers():
    assert checker.spread([100.0] * 98 + [500.0] * 2) == pytest.approx(0.0)
    assert checker.spread([100.0] * 80 + [120.0] * 20) == pytest.approx(120 / 103.3 - 1, rel=0.02)
    assert math.isnan(checker.spread([]))


@pytest.mark.parametrize(
    ("code", "asked", "words"),
    [
        ("DEADLINE_EXCEEDED", {"deadline": 1.0}, []),
        ("DEADLINE_EXCEEDED", {}, ["a-1 got no answer, though it had no deadline"]),
        ("CANCELLED", {"cancel_after": 0.1}, []),
        ("CANCELLED", {}, ["a-1 was cancelled, but not by its client"]),
    ],
)
def test_deadlines_and_cancels_need_a_client_that_set_them(
    code: str, asked: dict[str, float], words: list[str]
) -> None:
    assert checker.ended_once([failed("a-1", code, **asked)]) == words
