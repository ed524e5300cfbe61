"""The checks of the soak test find planted violations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chaos.cases.load.soak import OVERSIZE, typical_p99, unexpected
from chaos.verdict.history import Outcome, TextOutcome


def outcome(
    code: str = "OK", *, texts: tuple[str, ...] = ("one",), sent: float = 1.0, seconds: float = 0.1, **more: Any
) -> Outcome:
    codes = [TextOutcome(index, "OK" if text else "INVALID_ARGUMENT") for index, text in enumerate(texts)]
    results = codes if code == "OK" else []
    values = {"id": "a-1", "method": "Translate", "texts": texts, "due": sent, "sent": sent, "ended": sent + seconds}
    return Outcome(**{**values, "code": code, "results": results, **more})


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        ({}, ["OK"], ["UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED"]),
        ({"deadline": 0.1}, ["OK", "DEADLINE_EXCEEDED"], ["CANCELLED", "UNAVAILABLE"]),
        ({"cancel_after": 0.1}, ["OK", "CANCELLED"], ["DEADLINE_EXCEEDED", "INTERNAL"]),
        ({"texts": ("x" * OVERSIZE,)}, ["RESOURCE_EXHAUSTED"], ["OK", "INTERNAL"]),
        ({"texts": ("one", "")}, ["OK"], ["INVALID_ARGUMENT"]),
    ],
)
def test_each_kind_of_request_may_end_with_its_own_codes(
    asked: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    assert unexpected([outcome(code, **asked) for code in [*right, "KILLED"]]) == []
    assert len(unexpected([outcome(code, **asked) for code in wrong])) == len(wrong)


def test_a_text_that_failed_within_an_answer_is_found() -> None:
    results = [TextOutcome(0, "INTERNAL"), TextOutcome(1, "OK", "zwei")]
    assert unexpected([outcome(texts=("one", "two"), results=results)]) == ["a-1 text 0: INTERNAL"]


def test_one_slow_minute_does_not_count_and_many_do() -> None:
    def minutes(*seconds: float) -> list[Outcome]:
        return [outcome(sent=60.0 * at + step, seconds=each) for at, each in enumerate(seconds) for step in range(20)]

    assert typical_p99(minutes(0.1, 9.0, 0.1)) == pytest.approx(100)
    assert typical_p99(minutes(0.1, 9.0, 9.0)) == pytest.approx(9000)
    failing = [outcome("UNAVAILABLE", sent=60.0 * at + step) for at in (1, 2) for step in range(20)]
    assert typical_p99([*minutes(0.1), *failing]) == math.inf
