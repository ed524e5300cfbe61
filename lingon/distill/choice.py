"""Which translations of a text become training pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from lingon.client.values.results import TextResult
from lingon.distill.texts import Text
from lingon.scoring import sentence_chrf

HARMLESS = {"split", "low_confidence", "retried"}
"""Warnings that leave a translation fit for training. A low confidence says only that the text is hard."""


class Choice(StrEnum):
    """Which of the teacher's translations of a text become training pairs.

    BEST: the one with the best score: sequence-level distillation (Kim and Rush, 2016, section 3.2)
    ALL: every one
    CLOSEST: the one with the highest chrF against a human translation: their sequence-level interpolation (section 3.3)
    """

    BEST = "best"
    ALL = "all"
    CLOSEST = "closest"


def fault_of(result: TextResult) -> str | None:
    """Return what makes a result unfit for training, as the code of a warning or an error; None if nothing does."""
    if result.error is not None:
        return (result.error.reason or "error").lower()
    return next((warning.code for warning in result.warnings if warning.code not in HARMLESS), None)


def chosen(choice: Choice, text: Text, translations: Sequence[str]) -> list[str]:
    """Return the translations of a text that become training pairs, each once and without blank ones."""
    different = list(dict.fromkeys(each for each in translations if each.strip()))
    if choice is Choice.ALL or not different:
        return different
    if choice is Choice.CLOSEST and text.references and len(different) > 1:
        return [max(different, key=_nearness(text))]
    return different[:1]


def _nearness(text: Text) -> Callable[[str], float]:
    return lambda translation: max(sentence_chrf(translation, reference) for reference in text.references)
