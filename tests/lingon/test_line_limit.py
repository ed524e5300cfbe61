"""Lines that callers can cause are a few in each second, and say how many were left out."""

from __future__ import annotations

import logging

from lingon.line_limit import LimitedLines, LineLimit


def test_lines_of_each_message_are_limited_whatever_their_values():
    clock, shown = [0.0], []
    logger = logging.Logger("limited")
    logger.addFilter(LimitedLines(LineLimit(3, lambda: clock[0])))
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: shown.append((record.getMessage(), vars(record).get("fields")))  # type: ignore[method-assign]
    for number in range(50):
        logger.warning("bad request %d", number)
    logger.warning("another")
    clock[0] = 1.0
    logger.warning("bad request %d", 50)
    assert [each for each, _ in shown] == [
        "bad request 0",
        "bad request 1",
        "bad request 2",
        "another",
        "bad request 50",
    ]
    assert shown[-1][1] == {"left_out": 47}
