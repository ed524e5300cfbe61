"""The checks of case 2 find what was planted."""

from __future__ import annotations

import pytest

from chaos.cases.start_stop import turned_out
from chaos.checker import Call
from chaos.history import Fate

CLOSED = 100.0


@pytest.mark.parametrize(
    ("code", "ended", "milliseconds", "words"),
    [
        ("UNAVAILABLE", 100.3, 200.0, []),
        ("UNAVAILABLE", 100.3, 400.0, ["a-1 had been taken, and ended with UNAVAILABLE"]),
        ("OK", 100.3, 200.0, ["the answer of a-1 was lost"]),
        ("CANCELLED", 100.3, 400.0, ["a-1 had been taken, and ended with UNAVAILABLE"]),
    ],
)
def test_who_was_inside_is_not_turned_out(code: str, ended: float, milliseconds: float, words: list[str]) -> None:
    fate = Fate(id="a-1", method="Translate", texts=("one",), due=1.0, sent=1.0, ended=2.0, code="UNAVAILABLE")
    assert turned_out([fate], [Call("a-1", "Translate", code, milliseconds, ended)], CLOSED) == words
    assert turned_out([fate], [], CLOSED) == []
