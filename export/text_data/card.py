"""The section of a model card about text data."""

from __future__ import annotations

import re

from lingon.bundle import Confidence, TextData
from lingon.export.text_data.regression import calibration_error
from lingon.serving.guard.confidence import GOOD

TITLES = ("## Words that translate to themselves", "## Confidence")
_SECTION = re.compile(rf"^(?:{'|'.join(map(re.escape, TITLES))})\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def card_section(text: TextData) -> str:
    """Return what a model card says about text data."""
    words, confidence = TITLES
    section = f"""{words}

They stand for placeholders, URLs and other strings that a translation keeps: {", ".join(text.words) or "none"}.
"""
    if text.confidence is not None:
        section += f"\n{confidence}\n\n{_reliability(text.confidence)}"
    return section


def without_section(card: str) -> str:
    """Return a model card without what it says about text data."""
    return _SECTION.sub("", card)


def _reliability(confidence: Confidence) -> str:
    bins = confidence.reliability
    rows = (f"| {each.sentences:,} | {each.confidence:.3f} | {each.right:.3f} |" for each in bins)
    return f"""A server states for each sentence the probability that its translation has a chrF of {GOOD} or more. On
held-out text of the kind of the training text, by cross-validation, the expected calibration error is
{calibration_error(bins):.3f}. Below {confidence.low:.3f} a translation has the warning LOW_CONFIDENCE.

| translations | mean confidence | share with chrF >= {GOOD} |
|---|---|---|
{chr(10).join(rows)}
"""
