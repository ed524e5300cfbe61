"""The marks that measure coverage on Python 3.11 are at the lines that a tracer sees."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from tests.support.line_marks import MARKS, marked

PROGRAMS = '''
"""A module with a docstring."""

from __future__ import annotations

import os

name = os.name
---
def same(it):
    return it

@same
@same
def f():
    "What it does."
    return 1

def unused():
    return 2

f()
---
class A:
    "What it is."

    a: int = 1

    def f(self):
        return self.a

A().f()
---
def f(a):
    if a:
        b = 1
    elif a is None:
        b = 2
    else:
        b = 3
    return b

f(0)
---
for a in range(3):
    if a == 1:
        continue
else:
    a = 5
while a:
    a -= 1
    if a == 2:
        break
---
try:
    a = 1 / 0
except ZeroDivisionError:
    a = 2
else:
    a = 3
finally:
    b = a
---
try:
    raise ExceptionGroup("a", [ValueError()])
except* ValueError as error:
    a = error
---
a = 1
if a:
    raise KeyError(a)
a = 2
---
match (1, 2):
    case (1, b):
        a = b
    case _:
        a = 0
---
from io import StringIO
with StringIO() as a: a.write("b")
b = (lambda: 1)()
---
async def f():
    async for a in g():
        return a

async def g():
    yield 1

with suppress(StopIteration):
    f().send(None)
'''


def run(code: Any, **names: Any) -> None:
    with suppress(KeyError):
        exec(code, {"suppress": suppress, **names})


def traced(program: str) -> set[int]:
    """Return the lines that a tracer sees."""
    seen: set[int] = set()

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != "program":
            return None
        if event == "line":
            seen.add(frame.f_lineno)
        return trace

    code, before = compile(program, "program", "exec"), sys.gettrace()
    sys.settrace(trace)
    try:
        run(code)
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.parametrize("program", PROGRAMS.split("---\n"))
def test_the_marks_are_at_the_lines_that_a_tracer_sees(program: str) -> None:
    marks = bytearray(program.count("\n") + 2)
    run(marked(program.encode(), "program"), **{MARKS: marks})
    assert {line for line, seen in enumerate(marks) if seen} == traced(program)
