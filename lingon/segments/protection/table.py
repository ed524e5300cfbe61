"""The whole table of what a translation keeps, for the documentation, the tests and the measurements."""

from __future__ import annotations

from lingon.segments.protection.find import find_protected
from lingon.segments.protection.form import Form
from lingon.segments.protection.forms import FORMS
from lingon.segments.protection.marks import MARKS
from lingon.segments.protection.messages import MESSAGES

TABLE: tuple[Form, ...] = (*FORMS, *MARKS, *MESSAGES)


def kept_of(example: str) -> list[str]:
    """Return the strings that every translation of an example has, each as often as it is in this list.

    It is the whole example, or the marks and the skeleton of one whose texts inside are translated.
    """
    return [example[begin:end] for begin, end, _ in find_protected(example)]
