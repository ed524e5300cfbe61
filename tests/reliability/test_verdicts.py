"""Checks, the checker, histories, metrics and results: planted violations are found, and correct runs have none."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import LingonError
from tests.reliability import checker
from tests.reliability.checker import Call, Scrape
from tests.reliability.checks import Checks, Row, best, read_rows, save, summary
from tests.reliability.drains import accepted_but_refused
from tests.reliability.history import History, Outcome, TextOutcome, line, read


def checked(*values: float, timing: bool = False, lag: float = 0.0) -> Checks:
    """Return checks with an upper bound of 1."""
    checks = Checks(lag=lag)
    for value in values:
        checks.at_most("value", value, 1.0, timing=timing)
    return checks


def test_a_case_passes_if_all_checks_pass():
    assert checked(0.5, 1.0).verdict == "pass"


@pytest.mark.parametrize("values", [(2.0,), (0.5, 1.1), (math.nan,), (math.inf,), ()])
def test_a_case_fails_if_one_check_fails_or_there_is_none(values):
    assert checked(*values).verdict == "fail"


def test_lower_bounds_exact_values_and_violations_are_checked():
    checks = Checks()
    checks.at_least("floor", math.nan, 1.0)
    checks.at_least("floor", 0.9, 1.0)
    checks.equal("exact", 24, 25)
    checks.clean("list", ["a-1 never ended"])
    assert [check.passed for check in checks.done] == [False] * 4
    assert "FAILED list: a-1 never ended, bound none wrong" in checks.found()


def test_a_part_that_was_not_run_makes_a_pass_partial_and_is_named():
    checks = checked(0.5)
    checks.not_run("the second half")
    assert checks.verdict == "partial"
    assert "not run: the second half" in checks.found()


def test_times_of_a_late_load_generator_do_not_count():
    late = checked(5.0, timing=True, lag=30.0)
    late.equal("exact", 1, 1)
    assert (late.verdict, late.worth_another_try) == ("partial", True)
    assert "the generator lagged 30 ms" in late.found()
    late.equal("exact", 1, 2)
    assert (late.verdict, late.worth_another_try) == ("fail", False)


def test_a_lag_does_not_matter_to_a_case_without_times():
    assert (checked(0.5, lag=30.0).verdict, checked(0.5, lag=30.0).worth_another_try) == ("pass", False)


def test_a_case_is_tried_again_if_times_alone_are_wrong():
    assert checked(5.0, timing=True).worth_another_try
    assert not checked(0.5, timing=True).worth_another_try
    mixed = checked(5.0, timing=True)
    mixed.equal("exact", 1, 2)
    assert not mixed.worth_another_try


def test_the_best_try_counts():
    tries = [checked(5.0, 5.0, timing=True), checked(0.5, timing=True), checked(5.0, timing=True)]
    assert best(tries) is tries[1]
    assert best([tries[0], tries[2]]) is tries[2]


def test_a_try_with_a_wrong_value_counts():
    wrong = checked(0.5, timing=True, lag=30.0)
    wrong.equal("exact", 1, 2)
    tries = [checked(0.5, timing=True, lag=30.0), wrong, checked(0.5, timing=True)]
    assert best(tries) is wrong


def test_a_measured_value_has_no_bound_and_never_fails():
    checks = Checks()
    checks.measured("load", math.inf, "s")
    assert (checks.verdict, checks.done[0].bound, checks.done[0].value) == ("pass", "measured", "inf s")


def test_a_result_shows_the_figures_and_counts_the_other_checks():
    checks = Checks()
    checks.at_least("goodput at 5x (29/s)", 99.0, 90.0, "%")
    checks.equal("codes", {"OK"}, {"OK"})
    assert checks.found(["goodput at 5x"]) == "goodput at 5x (29/s): 99 %; 1 other check passed"
    assert checks.found() == "2 checks passed"


def test_a_figure_without_a_check_is_named():
    """A renamed check would vanish from the table without a word."""
    assert checked(0.5).found(["value", "exit"]) == "value: 0.5; exit: not measured"


def test_a_failed_check_comes_first_with_its_bound():
    checks = checked(0.5)
    checks.equal("codes", {"OK"}, {"INTERNAL"})
    assert checks.found(["value"]) == "FAILED codes: OK, bound = INTERNAL; value: 0.5"


DAY = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def row(name: str = "slow_readers", verdict: str = "pass") -> Row:
    return Row(name, "some|thing", "bound", verdict)


def test_a_row_replaces_the_row_of_its_case(tmp_path: Path):
    save([row("a", "fail"), row("b")], tmp_path, ["make"], DAY)
    path = save([row("a")], tmp_path, ["pytest", "-k", "a"], DAY)
    content = json.loads(path.read_text())
    assert path.name == "2026-01-02-reliability.json"
    assert [(each["case"], each["verdict"], each["command"]) for each in content["rows"]] == [
        ("a", "pass", "pytest -k a"),
        ("b", "pass", "make"),
    ]
    assert {"date", "machine", "commit", "command"} < content.keys()


def test_a_file_that_holds_no_results_is_not_overwritten(tmp_path: Path):
    (tmp_path / "2026-01-02-reliability.json").write_text("[]")
    with pytest.raises(LingonError, match="not a file of results"):
        save([row()], tmp_path, [], DAY)
    assert (tmp_path / "2026-01-02-reliability.json").read_text() == "[]"


def test_rows_are_read_as_they_were_saved_and_counted(tmp_path: Path):
    rows = [row("a"), row("b", "skip"), row("c")]
    assert read_rows(save(rows, tmp_path, [])) == rows
    assert summary(rows) == "3 run: 2 pass, 1 skip"


GOLDEN = {(1, "one"): "eins", (1, "two"): "zwei"}
TEXTS = {"one": "eins", "two": "zwei"}


def outcome(name: str = "a-1", *texts: str, **changed: Any) -> Outcome:
    """Return a successful request with some values changed."""
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
    """Return metrics of an idle server with these calls of Translate by code."""
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


def test_a_list_of_models_that_the_http_port_asks_for_is_no_second_answer():
    assert checker.server_agrees([outcome("a-1")], [call("a-1", method="ListModels"), call("a-1")]) == []


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


def short(name: str, **more: object) -> Outcome:
    return Outcome(id=name, method="Translate", texts=("Grüße",), due=1.0, sent=1.01, **more)  # type: ignore[arg-type]


def test_a_history_is_read_as_it_was_written(tmp_path):
    history = History()
    history.add(short("a-1", ended=2.0, code="OK", results=[TextOutcome(0, "OK", "greetings")], request_id="a-1"))
    history.add(short("a-2"))
    history.save(tmp_path / "history.jsonl")
    assert read(tmp_path / "history.jsonl") == list(history)


def test_a_line_separator_in_a_text_ends_no_line(tmp_path):
    history = History()
    history.add(short("a-1", ended=2.0, code="OK", results=[TextOutcome(0, "OK", "a\u2028b\u2029c\u0085d")]))
    history.save(tmp_path / "history.jsonl")
    assert read(tmp_path / "history.jsonl") == list(history)


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text(line(short("a-1")) + line(short("a-2"))[:-20], encoding="utf-8")
    assert [each.id for each in read(path)] == ["a-1"]


def test_ids_are_unique_also_for_clients_with_the_same_name():
    history = History()
    assert history.new_id("a") != history.new_id("a")


def test_a_request_without_an_end_has_an_infinite_latency_and_is_not_good():
    assert short("a-1").milliseconds == float("inf")
    assert not short("a-1").good
    assert not short("a-1", ended=2.0, code="OK", results=[TextOutcome(0, "INTERNAL")]).good
    assert short("a-1", ended=2.0, code="OK").milliseconds == 1000.0


def test_only_the_beginning_of_a_very_long_text_is_written():
    large = Outcome(id="a-1", method="Translate", texts=("x" * 1_000_000,), due=1.0, sent=1.0)
    assert len(line(large)) < 1000


METRICS = """# HELP lingon_requests_total Calls ended
lingon_requests_total{method="Translate",code="OK"} 3.0
lingon_requests_total{method="Score",code="OK"} 2.0
lingon_requests_total{method="Score",code="CANCELLED"} 0.0
lingon_ready 1.0
lag_bucket{le="0.1"} 90.0
lag_bucket{le="0.2"} 99.0
lag_bucket{le="+Inf"} 100.0
"""


def test_series_are_summed_over_the_labels_that_are_not_named():
    scrape = Scrape.parse(METRICS)
    assert scrape.sum("lingon_requests_total") == 5
    assert scrape.sum("lingon_requests_total", method="Score") == 2
    assert scrape.sum("lingon_ready") == 1
    assert scrape.by("lingon_requests_total", "code") == {"OK": 5}


def test_a_name_or_label_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="lingon_typo"):
        Scrape.parse(METRICS).sum("lingon_typo")
    with pytest.raises(KeyError, match="lingon_ready"):
        Scrape.parse(METRICS).sum("lingon_ready", method="Score")


def test_a_quantile_is_the_bound_of_its_bucket_since_an_earlier_scrape():
    scrape = Scrape.parse(METRICS)
    assert scrape.quantile("lag", 0.9) == 0.1
    assert scrape.quantile("lag", 0.99) == 0.2
    assert scrape.quantile("lag", 1.0) == float("inf")
    assert scrape.quantile("lag", 0.5, scrape) == float("inf")
    before = Scrape.parse(METRICS.replace("99.0", "90.0").replace("100.0", "90.0"))
    assert scrape.quantile("lag", 0.9, before) == 0.2


CLOSED = 100.0


@pytest.mark.parametrize(
    ("code", "ended", "milliseconds", "words"),
    [
        ("UNAVAILABLE", 100.3, 200.0, []),
        ("UNAVAILABLE", 100.3, 400.0, ["a-1 had been accepted, but ended with UNAVAILABLE"]),
        ("UNAVAILABLE", 100.1, 200.0, []),  # it was still being read
        ("OK", 100.3, 200.0, ["the answer of a-1 was lost"]),
        ("CANCELLED", 100.3, 400.0, ["a-1 had been accepted, but ended with UNAVAILABLE"]),
    ],
)
def test_an_accepted_request_must_not_end_with_unavailable(
    code: str, ended: float, milliseconds: float, words: list[str]
) -> None:
    outcome = Outcome(id="a-1", method="Translate", texts=("one",), due=1.0, sent=1.0, ended=2.0, code="UNAVAILABLE")
    assert accepted_but_refused([outcome], [Call("a-1", "Translate", code, milliseconds, ended)], CLOSED) == words
    assert accepted_but_refused([outcome], [], CLOSED) == []
