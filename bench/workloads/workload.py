"""What is translated in the decode benchmark: a bundle, its sources, and what is known of the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Sentences for one bundle.

    name: begins "base" or "shipped"
    bundle: the folder of the bundle's version
    sources: token ids, each ending with EOS
    references: normalised target texts to score against, one for each source; none where the weights are random
    exact_length: target tokens that every output has, where the work says so
    left_out: sentences that were longer than the model reads
    facts: what was measured of the work itself, by name, to be printed with the table
    """

    name: str
    bundle: Path
    sources: tuple[tuple[int, ...], ...]
    references: tuple[str, ...] = ()
    exact_length: int | None = None
    left_out: int = 0
    facts: dict[str, float] = field(default_factory=dict)
