"""The checks of a drain find planted violations."""

from __future__ import annotations

import pytest

from chaos.drains import accepted_but_refused
from chaos.verdict.checker import Call
from chaos.verdict.history import Outcome

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
