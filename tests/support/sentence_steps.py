"""The steps of a sentence, run with a function in place of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from lingon.segments.sentence import Restored, SentenceSteps


def run_steps(steps: SentenceSteps, answer: Callable[[Any], Any]) -> Restored:
    """Run the steps to their end; answer: what the model says to each request."""
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration as done:
        return cast(Restored, done.value)
