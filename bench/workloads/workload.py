"""A workload of the decode benchmark: a bundle, the sources to translate, and what is known about the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Sentences to translate with one bundle.

    name: begins with "base" or "shipped"
    bundle: the folder of the bundle's version
    sources: token ids, framed
    references: normalised target texts to score against, one for each source; empty if the weights are random
    language: of the references, for the tokens of BLEU
    exact_length: the number of target tokens of every output, if the workload prescribes it
    target_ratio: the number of target tokens for each source token of a sentence, if the workload prescribes it
    left_out: number of sentences that were longer than the model reads
    facts: properties of the workload by name, printed with the table
    """

    name: str
    bundle: Path
    sources: tuple[tuple[int, ...], ...]
    references: tuple[str, ...] = ()
    language: str = ""
    exact_length: int | None = None
    target_ratio: float | None = None
    left_out: int = 0
    facts: dict[str, float] = field(default_factory=dict)
