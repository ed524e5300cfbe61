"""Generators that give way between their steps, run in one go."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def run_to_end(generator: Generator[None, None, Result]) -> Result:
    """What a generator returns."""
    while True:
        try:
            next(generator)
        except StopIteration as done:
            return done.value
