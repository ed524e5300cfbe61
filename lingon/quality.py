"""The bound below which a model hardly translates. Imports nothing, so that a server can use it."""

from __future__ import annotations

POOR_BLEU = 5.0
"""BLEU; a model below it translates hardly any sentence, so that it was most likely trained for too short a time."""


def poor_quality(bleu: float | None) -> str | None:
    """A warning about a model with a low BLEU; None if it is high enough or unknown."""
    if bleu is None or bleu >= POOR_BLEU:
        return None
    return f"BLEU is {bleu:.2f}, below {POOR_BLEU:g}: this model hardly translates; train it for longer or on more text"
