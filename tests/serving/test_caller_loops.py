"""The selector of an event loop on the thread of a caller: turns of an engine, or a sleep, but no idle look."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from lingon.serving.caller_loops import TurnSelector


@pytest.fixture
def notified() -> Iterator[TurnSelector]:
    """Yield a selector of a socket that another thread has written to."""
    selector = TurnSelector()
    own, other = socket.socketpair()
    selector.register(own, selectors.EVENT_READ)
    other.send(b"\0")
    yield selector
    selector.close()
    own.close()
    other.close()


def test_a_loop_with_callbacks_to_run_does_not_ask_the_system_for_events(notified: TurnSelector) -> None:
    assert notified.select(0) == []


def test_a_loop_that_took_turns_has_a_callback_and_does_not_ask_the_system_for_events(notified: TurnSelector) -> None:
    taken = []
    notified.take_turns = lambda: not taken.append(True)
    assert notified.select() == notified.select(5) == []
    assert len(taken) == 2


def test_a_loop_without_turns_to_take_sleeps_until_it_is_notified(notified: TurnSelector) -> None:
    notified.take_turns = lambda: False
    assert len(notified.select()) == len(notified.select(5)) == 1
